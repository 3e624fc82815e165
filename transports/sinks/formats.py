"""Bodies of requests: a batch as bytes, the same in every attempt. Images are spliced in as the bytes that the log holds."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC
from itertools import groupby
from operator import attrgetter
from typing import Any, Final

import msgspec

from publishers.model.change import Area, Change, Operation
from publishers.views.view import Content
from transports.codec.events import encode_text
from transports.sinks.sink import SinkBatch, SinkContext

__all__ = ["FORMATS", "WebhookFormat", "WebhookSource", "batch_id", "change_object", "cloudevent_object"]

_DELETES: Final = (Operation.REMOVE, Operation.EXPIRE)


@dataclass(frozen=True, slots=True)
class WebhookSource:
    """Who sends.

    Attributes:
        service: What the application is called.
        node: What this process, or machine, of it is called.
    """

    service: str = "penstock"
    node: str = "1"


@dataclass(frozen=True, slots=True)
class WebhookFormat:
    """A form of bodies.

    Attributes:
        content_type: What the header of that name says.
        encode: Makes the body of a batch.
        done: The status codes that say that the batch was taken; None for 200 to 299.
    """

    content_type: str
    encode: Callable[[SinkBatch, SinkContext, WebhookSource], bytes]
    done: frozenset[int] | None = None


def batch_id(batch: SinkBatch, context: SinkContext) -> str:
    """What a batch is called in each attempt."""
    return f"{context.change_id(batch.changes[0])}-{batch.next}"


def change_object(change: Change, context: SinkContext) -> dict[str, Any]:
    """A change with all its fields; those of rare kinds of changes only where they apply."""
    view = context.view
    told: dict[str, Any] = {
        "id": context.change_id(change),
        "version": change.version,
        "index": change.index,
        "count": change.count,
        "timestamp": _moment(change.timestamp),
        "area": change.area.name,
        "operation": change.operation.name,
        "entity_type": change.entity_type,
        "key": _text(change.key),
        "body": _json(change.body_bytes),
        "before": _json(change.before_bytes),
        "changed": change.changed,
        "schema_version": _number(change.schema_version, context),
        "entry_version": _number(
            None if change.entry_version == change.version else change.entry_version, context
        ),
        "origin": change.origin,
        "meta": _json(change.meta_bytes),
    }
    if view.content is Content.HEADER:
        del told["body"], told["before"]
    rare = {
        "expires_at": None if change.expires_at is None else _moment(change.expires_at),
        "linked": None if change.linked is None else _text(change.linked),
        "field": change.field,
        "action": None if change.action is None else change.action.value,
        "error": change.error_text,
        "lacking": change.lacking or None,
    }
    return told | {name: value for name, value in rare.items() if value is not None}


def _native(batch: SinkBatch, context: SinkContext, source: WebhookSource) -> bytes:
    first = batch.changes[0]
    gap = {} if batch.gap is None else {"gap": batch.gap._asdict()}
    return msgspec.json.encode(
        {
            "format": "penstock.webhook.v1",
            "id": batch_id(batch, context),
            "sink": context.name,
            "source": {
                "service": source.service,
                "node": source.node,
                "log": context.log_name,
                "log_id": context.log_id,
                "epoch": int(context.token(first.after).split(":")[1].partition(".")[0]),
            },
            "first": context.change_id(first),
            "next": context.token(batch.next),
            **gap,
            "changes": [change_object(change, context) for change in batch.changes],
        }
    )


def _rqlite(batch: SinkBatch, context: SinkContext, source: WebhookSource) -> bytes:
    """The envelope of rqlite: a message a transaction, whose TRANSACTION event it stands for."""
    payload = [
        {
            "index": version,
            "commit_timestamp": int(batch_time.timestamp() * 1000),
            "events": [
                _rqlite_event(change) for change in changes if change.operation is not Operation.TRANSACTION
            ],
        }
        for (version, batch_time), group in groupby(batch.changes, key=attrgetter("version", "timestamp"))
        for changes in (list(group),)
    ]
    return msgspec.json.encode({"service_id": source.service, "node_id": source.node, "payload": payload})


def _rqlite_event(change: Change) -> dict[str, Any]:
    deleted = change.operation in _DELETES
    if change.operation is Operation.UPSERT:
        operation = "INSERT" if change.before_bytes is None else "UPDATE"
    else:
        operation = "DELETE" if deleted else change.operation.name
    row = _row_id(change.key)
    return {
        "op": operation,
        "table": change.entity_type or change.area.name,
        "new_row_id": 0 if deleted else row,
        "old_row_id": 0 if operation == "INSERT" else row,
        "before": _json(change.before_bytes),
        "after": _json(change.body_bytes),
        "error": change.error_text or "",
    }


def _row_id(key: str | None) -> int:
    """The key, if it is a whole number as SQLite has them; else 0."""
    digits = (key or "").removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) < 20):
        return 0
    number = int(key or "0")
    return number if -(2**63) <= number < 2**63 else 0


def _cloudevents(batch: SinkBatch, context: SinkContext, source: WebhookSource) -> bytes:
    """A batch of CloudEvents 1.0."""
    return msgspec.json.encode([cloudevent_object(change, context, source) for change in batch.changes])


def cloudevent_object(change: Change, context: SinkContext, source: WebhookSource) -> dict[str, Any]:
    """A change as a CloudEvent."""
    kind = change.entity_type or change.area.name.lower()
    told = {
        "specversion": "1.0",
        "id": context.change_id(change),
        "source": f"{source.service}/{context.log_name}",
        "type": f"penstock.{kind}.{change.operation.name.lower()}",
        "time": _moment(change.timestamp),
        "datacontenttype": "application/json",
        "data": change_object(change, context),
    }
    return told if change.key is None else told | {"subject": _text(change.key)}


def _keys(batch: SinkBatch, context: SinkContext, _source: WebhookSource) -> bytes:
    """Which entities have changed, and nothing of them."""
    return msgspec.json.encode(
        [
            {
                "id": context.change_id(change),
                "operation": change.operation.name,
                "entity_type": change.entity_type,
                "key": _text(change.key),
            }
            for change in batch.changes
            if change.area is Area.DATA
        ]
    )


def _moment(moment: Any) -> str:
    told: str = moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds")
    return told + "Z"


def _json(value: bytes | None) -> msgspec.Raw | None:
    return None if value is None else msgspec.Raw(value)


def _text(value: str | None) -> msgspec.Raw | None:
    return None if value is None else msgspec.Raw(encode_text(value))


def _number(number: int | None, context: SinkContext) -> msgspec.Raw | None:
    return None if number is None else msgspec.Raw(context.view.tell(b"%d" % number))


FORMATS: Final = {
    "native": WebhookFormat("application/json", _native),
    "rqlite": WebhookFormat("application/json", _rqlite, frozenset({200, 202})),
    "cloudevents": WebhookFormat("application/cloudevents-batch+json", _cloudevents),
    "keys": WebhookFormat("application/json", _keys),
}
"""The forms by their names."""
