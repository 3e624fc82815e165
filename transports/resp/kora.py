"""Changes in the form of Kora's commands: sequence number, milliseconds, operation, key, value.

Kora has a single key space. A key of ours appears there as ``entity_type:key``, so patterns of its documentation, such as
``user:*``, work.
"""

import re
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from publishers.criteria.criteria import Criteria, Criterion
from publishers.model.change import Action, Area, Change, Operation
from transports.resp.replies import RespError
from transports.resp.sequence import sequence_of

__all__ = ["criteria_of_pattern", "kora_event", "millis"]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLI: Final = timedelta(milliseconds=1)
_WILD: Final = re.compile(r"[*?]")
_OPERATIONS: Final = {
    Operation.UPSERT: "Set",
    Operation.READ: "Set",
    Operation.REMOVE: "Del",
    Operation.EXPIRE: "Expire",
    Operation.TRUNCATE: "FlushDb",
}
_FIELD_OPERATIONS: Final = {
    Action.SET: "HSet",
    Action.REMOVE: "HDel",
    Action.PUSH: "RPush",
    Action.ADD: "SAdd",
    Action.DISCARD: "SRem",
}
_WITHOUT_VALUE: Final = frozenset({Operation.REMOVE, Operation.EXPIRE, Operation.TRUNCATE})
_PATTERN: Final = (
    "one of keys as they are told, entity_type:key, in which only the key has the signs * and ?, such as user:*; *:KEY stands for any "
    "entity type, and * for everything"
)


def kora_event(change: Change) -> list[Any]:
    """Returns a change in the form that Kora documents for events.

    Raises:
        RespError: If the change has no sequence number.
    """
    action = None if change.field is None else change.action
    operation = (
        _OPERATIONS.get(change.operation, change.operation.value)
        if action is None
        else _FIELD_OPERATIONS[action]
    )
    key = f"{change.entity_type or ''}:{change.key or ''}"
    gone = action is None and change.operation in _WITHOUT_VALUE
    return [
        sequence_of(change.position),
        millis(change.timestamp),
        operation,
        key,
        None if gone else change.body_bytes,
    ]


def millis(moment: datetime) -> int:
    """Returns the milliseconds since the Unix epoch."""
    return (moment - _EPOCH) // _MILLI


def criteria_of_pattern(pattern: bytes | None) -> Criteria:
    """Returns the criteria of a Kora pattern; without a pattern, the changes of all entities.

    Raises:
        RespError: If the entity type contains a wildcard.
        InvalidCriteria: If the pattern is too long.
    """
    if pattern is None or pattern == b"*":
        return Criteria.of(Criterion(areas={Area.DATA}))
    text = pattern.decode("utf-8", "surrogateescape")
    entity_type, colon, key = text.partition(":")
    anything = entity_type == "*"
    if not colon or not key or (not anything and (not entity_type or _WILD.search(entity_type))):
        raise RespError("ERR", f"MATCH is {text[:80]!a}, but must be {_PATTERN}")
    fields: dict[str, Any] = {"areas": {Area.DATA}}
    if not anything:
        fields["entity_types"] = {entity_type}
    if key != "*":
        fields["key_globs" if _WILD.search(key) else "keys"] = {key}
    return Criteria.of(Criterion(**fields))
