"""What an operation is, and the operations of one kind of message."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, NamedTuple, TypeVar

import msgspec

from transports.access.grant import Grant, LogAction
from transports.codec.fields import LogName, convert
from transports.errors import InvalidRequest

if TYPE_CHECKING:
    from publishers.log.changelog import ChangeLog

__all__ = ["EVERYTHING", "Family", "LogOperation", "Target", "summary"]

_A = TypeVar("_A")

EVERYTHING: Final = Grant(set(LogAction), slots={"*"}, groups={"*"})
"""The grant of whoever has opened the log."""


class Target(NamedTuple):
    """The log of an operation.

    Attributes:
        name: The name by which the client knows the log.
        log: The log.
        grant: What the client may do with it.
    """

    name: str
    log: "ChangeLog"
    grant: Grant


class LogOperation(
    msgspec.Struct,
    Generic[_A],
    frozen=True,
    kw_only=True,
    rename="camel",
    omit_defaults=True,
    tag_field="do",
):
    """An order or a question about a log; the type argument is its answer.

    A subclass has its fields with their bounds, a tag, by which messages name it, and ``run``.

    Attributes:
        message: The type of its message and of the answer.
        action: What the client must be allowed.
        stored: Whether a server that follows the log answers it too, from what the owner has stored.
        log: The name of the log; None for the only one.
    """

    message: ClassVar[str]
    action: ClassVar[LogAction] = LogAction.CONSUME
    stored: ClassVar[bool] = False
    log: LogName = None

    def check(self) -> None:
        """Checks what its fields do not say by themselves.

        Raises:
            PenstockError: If a value is wrong.
        """

    @abstractmethod
    def run(self, target: Target, /) -> _A:
        """Carries it out; reads and writes the disk on the calling thread.

        Raises:
            Forbidden: If the grant does not allow it.
            PenstockError: If it fails.
        """
        ...

    def payload(self) -> dict[str, Any]:
        """Returns the payload of its message.

        Raises:
            InvalidOption: If a value is wrong.
        """
        payload: dict[str, Any] = msgspec.to_builtins(self)
        convert(type(self), payload, local=True)
        return payload


class Family:
    """The operations that one message carries; its field ``do`` says which.

    Attributes:
        operations: The operations, by the values of ``do``.

    Args:
        *operations: The operations; the first is meant where a message has no ``do``.
    """

    def __init__(self, *operations: type[LogOperation[Any]]) -> None:
        self.operations: dict[str, type[LogOperation[Any]]] = {
            str(one.__struct_config__.tag): one for one in operations
        }
        self._first = next(iter(self.operations))

    def read(self, payload: Mapping[str, Any]) -> LogOperation[Any]:
        """Reads a payload.

        Raises:
            InvalidRequest: If a value is wrong, or a field belongs to another operation.
            PenstockError: As the operation for criteria and positions.
        """
        do = payload.get("do")
        do = self._first if do is None else do
        if not isinstance(do, str) or do not in self.operations:
            raise InvalidRequest("do", do, "one of: " + ", ".join(self.operations))
        found = self.operations[do]
        own = {*found.__struct_encode_fields__, "name"}  # a list has no name, and ignores one
        for name in (name for one in self.operations.values() for name in one.__struct_encode_fields__):
            if name not in own and payload.get(name) is not None:
                raise InvalidRequest(name, payload[name], f"left out where do is {do!r}")
        asked = convert(found, payload)
        asked.check()
        return asked


def summary(operation: type) -> str:
    """Says what an operation does, in one line without a stop: the first sentence of its docstring."""
    first = (operation.__doc__ or "").partition("\n")[0].rstrip(".")
    return first[:1].lower() + first[1:]
