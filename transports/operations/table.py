"""The table of the operations, by the messages that carry them."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from transports.codec.fields import convert
from transports.operations.groups import GROUPS
from transports.operations.operation import LogOperation
from transports.operations.schemas import SchemaLookup
from transports.operations.slots import SLOTS

__all__ = ["OPERATIONS", "read_operation"]

OPERATIONS: Final[tuple[type[LogOperation[Any]], ...]] = (
    SchemaLookup,
    *SLOTS.operations.values(),
    *GROUPS.operations.values(),
)
"""Every operation."""

_READERS: Final[Mapping[str, Callable[[Mapping[str, Any]], LogOperation[Any]]]] = {
    "schema": partial(convert, SchemaLookup),
    "slot": SLOTS.read,
    "groups": GROUPS.read,
}


def read_operation(message: str, payload: Mapping[str, Any]) -> LogOperation[Any]:
    """Reads the operation that a message carries.

    Args:
        message: The type of the message.
        payload: Its payload.

    Raises:
        PenstockError: If a value is wrong.
    """
    return _READERS[message](payload)
