"""One change as the value of one record, in several formats."""

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from publishers.model.change import Area, Change, Operation
from transports.sinks.formats import ChangeObject, WebhookSource, change_object, cloudevent_object
from transports.sinks.sink import SinkContext

__all__ = ["RECORDS"]

_LETTERS: Final = {
    Operation.REMOVE: "d",
    Operation.EXPIRE: "d",
    Operation.TRUNCATE: "t",
    Operation.READ: "r",
}


def _native(change: Change, context: SinkContext, _source: WebhookSource) -> ChangeObject:
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
    "native": _native,
    "debezium": _debezium,
    "cloudevents": cloudevent_object,
}
"""The function that makes the value of a change, by the name of the format."""
