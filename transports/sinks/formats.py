"""Bodies of requests and values of records: the same in every attempt. Images are spliced in as the log's own bytes."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC
from itertools import groupby
from operator import attrgetter
from typing import Any, Final

import msgspec
from msgspec import UNSET, UnsetType

from publishers.model.change import Area, Change, Operation
from publishers.model.fields import ATTACHED, FIELDS, Field, FieldKind, FieldPlace, compiled, extended
from publishers.views.view import Content
from transports.codec.events import encode_text
from transports.sinks.sink import SinkBatch, SinkContext

__all__ = ["FORMATS", "RECORDS", "WebhookSource", "batch_id", "change_object"]


_DELETES: Final = (Operation.REMOVE, Operation.EXPIRE)
# Tables by number, because the name property of an enum member takes longer than the rest of a field.
_AREAS: Final = ("", *(one.name for one in sorted(Area)))
_OPERATIONS: Final = ("", *(one.name for one in sorted(Operation)))


@dataclass(frozen=True, slots=True)
class WebhookSource:
    """The sender.

    Attributes:
        service: The name of the application.
        node: The name of this process or machine.
    """

    service: str = "penstock"
    node: str = "1"


@dataclass(frozen=True, slots=True)
class WebhookFormat:
    """A format of bodies.

    Attributes:
        content_type: The header ``content-type``.
        encode: Encodes a batch.
        done: The status codes by which the receiver accepts a batch; None for 200 to 299.
        rows: Whether a receiver keeps entities as rows, which such a change replaces or deletes.
    """

    content_type: str
    encode: Callable[[SinkBatch, SinkContext, WebhookSource], bytes]
    done: frozenset[int] | None = None
    rows: bool = False


def batch_id(batch: SinkBatch, context: SinkContext) -> str:
    """Returns the id of a batch, the same in each attempt."""
    return f"{context.change_id(batch.changes[0])}-{batch.next}"


@extended(
    (field.name, Any, None if field.always else UNSET)
    for field in (*ATTACHED, *(one for one in FIELDS if one.place is FieldPlace.MADE))
)
class ChangeObject(msgspec.Struct, frozen=True, gc=False):
    """A change with all its fields, as bodies contain it; fields that are `UNSET` are omitted."""

    id: str
    version: int
    index: int
    count: int
    timestamp: str
    area: str
    operation: str
    entity_type: str | None
    key: msgspec.Raw | str | None
    body: msgspec.Raw | UnsetType | None
    before: msgspec.Raw | UnsetType | None
    changed: Any


_SENDS: Final[Mapping[FieldKind, Callable[[Any, SinkContext], Any]]] = {
    FieldKind.NUMBER: lambda number, context: msgspec.Raw(context.view.render_integers(b"%d" % number)),
    FieldKind.KEY: lambda key, _context: _text(key),
    FieldKind.WORD: lambda word, _context: word.value,
    FieldKind.MOMENT: lambda moment, _context: _moment(moment),
    FieldKind.JSON: lambda text, _context: msgspec.Raw(text),
}


def _sent(field: Field) -> str:
    """Returns the expression of a member that tells what is attached to a change."""
    text = f"change.{field.attribute}"
    lacking = f"{text} is None or {text} == change.version" if field.versioned else f"{text} is None"
    told = f"{field.kind.name}({text}, context)" if field.kind in _SENDS else text
    return f"{None if field.always else 'UNSET'} if {lacking} else {told}"


_object: Final[Callable[..., ChangeObject]] = compiled(
    "change_object(name, moment, area, operation, change, context, body, before)",
    "key, error = change.key, change.error_text",
    "return ChangeObject(name, change.version, change.index, change.count, moment, area, operation, change.entity_type, "
    "key if key is None or key.isascii() else KEY(key, context), body, before, change.changed, "
    + ", ".join(map(_sent, ATTACHED))
    + ", UNSET if error is None else error, change.lacking or UNSET)",
    ChangeObject=ChangeObject,
    UNSET=UNSET,
    **{kind.name: send for kind, send in _SENDS.items()},
)


def change_object(change: Change, context: SinkContext) -> ChangeObject:
    """Returns a change with all its fields; the fields of rare kinds of changes only where they apply."""
    return change_objects((change,), context)[0]


def change_objects(changes: Iterable[Change], context: SinkContext) -> list[ChangeObject]:
    """Like `change_object`, for many changes: what the changes of a transaction share is computed once."""
    header = context.view.content is Content.HEADER
    made: list[ChangeObject] = []
    version, moment, stem = -1, "", ""
    for change in changes:
        if (
            change.operation is Operation.READ or not change.count
        ):  # a row has its own id, and may have its own time
            version, moment, name = -1, _moment(change.timestamp), context.change_id(change)
        elif change.version != version:
            version, moment, name = change.version, _moment(change.timestamp), context.change_id(change)
            stem = name.removesuffix(str(change.index))
        else:
            name = f"{stem}{change.index}"
        body = UNSET if header else _json(change.body_bytes)
        before = UNSET if header else _json(change.before_bytes)
        area, operation = _AREAS[change.area], _OPERATIONS[change.operation]
        made.append(_object(name, moment, area, operation, change, context, body, before))
    return made


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
            "changes": change_objects(batch.changes, context),
        }
    )


def _rqlite(batch: SinkBatch, context: SinkContext, source: WebhookSource) -> bytes:
    """The envelope of rqlite: one message for each transaction, in place of its TRANSACTION event."""
    payload = [
        {
            "index": version,
            "commit_timestamp": int(batch_time.timestamp() * 1000),
            "events": [_rqlite_event(change) for change in changes if _is_row(change)],
        }
        for (version, batch_time), group in groupby(batch.changes, key=attrgetter("version", "timestamp"))
        for changes in (list(group),)
    ]
    return msgspec.json.encode({"service_id": source.service, "node_id": source.node, "payload": payload})


def _is_row(change: Change) -> bool:
    """Whether a format can present a change as one of rows."""
    return (
        change.field is None
        and change.area is not Area.SCHEMA
        and change.operation is not Operation.TRANSACTION
    )


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
    """Returns the key as a number if it is a 64-bit integer, as rowids of SQLite are; else 0."""
    digits = (key or "").removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) < 20):
        return 0
    number = int(key or "0")
    return number if -(2**63) <= number < 2**63 else 0


def _cloudevents(batch: SinkBatch, context: SinkContext, source: WebhookSource) -> bytes:
    """A batch of CloudEvents 1.0."""
    whole = [change for change in batch.changes if change.field is None]
    return msgspec.json.encode([cloudevent_object(change, context, source) for change in whole])


def cloudevent_object(change: Change, context: SinkContext, source: WebhookSource) -> dict[str, Any]:
    """A change as a CloudEvent."""
    kind = None if change.area is Area.SCHEMA else change.entity_type  # whose rows are no schemas
    kind = kind or change.area.name.lower()
    fields = {
        "specversion": "1.0",
        "id": context.change_id(change),
        "source": f"{source.service}/{context.log_name}",
        "type": f"penstock.{kind}.{change.operation.name.lower()}",
        "time": _moment(change.timestamp),
        "datacontenttype": "application/json",
        "data": change_object(change, context),
    }
    return fields if change.key is None else fields | {"subject": _text(change.key)}


def _keys(batch: SinkBatch, context: SinkContext, _source: WebhookSource) -> bytes:
    """The keys of the changed entities, without their content."""
    return msgspec.json.encode(
        [
            {
                "id": context.change_id(change),
                "operation": change.operation.name,
                "entity_type": change.entity_type,
                "key": _text(change.key),
            }
            for change in batch.changes
            if change.area is Area.DATA and change.field is None
        ]
    )


def _moment(moment: Any) -> str:
    text: str = moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds")
    return text + "Z"


def _json(value: bytes | None) -> msgspec.Raw | None:
    return None if value is None else msgspec.Raw(value)


def _text(value: str | None) -> msgspec.Raw | str | None:
    return value if value is None or value.isascii() else msgspec.Raw(encode_text(value))


FORMATS: Final = {
    "native": WebhookFormat("application/json", _native),
    "rqlite": WebhookFormat("application/json", _rqlite, frozenset({200, 202}), rows=True),
    "cloudevents": WebhookFormat("application/cloudevents-batch+json", _cloudevents),
    "keys": WebhookFormat("application/json", _keys),
}
"""The formats by their names."""


_LETTERS: Final = {
    Operation.REMOVE: "d",
    Operation.EXPIRE: "d",
    Operation.TRUNCATE: "t",
    Operation.READ: "r",
}


def _native_value(change: Change, context: SinkContext, _source: WebhookSource) -> ChangeObject:
    return change_object(change, context)


def _debezium(change: Change, context: SinkContext, source: WebhookSource) -> dict[str, Any]:
    """The envelope of Debezium, without an embedded schema (``schemas.enable=false``)."""
    letter = _LETTERS.get(change.operation)
    if letter is None:
        letter = "c" if change.before_bytes is None else "u"
    moment = int(change.timestamp.timestamp() * 1000)
    before, after = (
        None if one is None else msgspec.Raw(one) for one in (change.before_bytes, change.body_bytes)
    )
    return {
        "before": before,
        "after": None if letter in "dt" else after,
        "source": {
            "version": "1",
            "connector": "penstock",
            "name": source.service,
            "ts_ms": moment,
            "snapshot": "true" if letter == "r" else "false",
            "db": context.log_name,
            "table": change.entity_type or (change.area.name if change.area is not Area.DATA else ""),
            "log_id": context.log_id,
            "position": str(change.position),
            "id": context.change_id(change),
        },
        "op": letter,
        "ts_ms": context.clock.now_us() // 1000,
        "transaction": {
            "id": f"{context.log_id}:{change.version}",
            "total_order": change.index,
            "data_collection_order": change.index,
        },
    }


RECORDS: Final[
    Mapping[str, Callable[[Change, SinkContext, WebhookSource], ChangeObject | dict[str, Any]]]
] = {
    "native": _native_value,
    "debezium": _debezium,
    "cloudevents": cloudevent_object,
}
"""The function that makes the value of a change, by the name of the format."""
