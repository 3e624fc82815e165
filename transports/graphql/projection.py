"""Payloads spliced from what the log stores, as graphql-core would make them.

Every field of an event is a leaf that is read off the change, so the payloads of an operation differ in the values only.
"""

from collections.abc import Callable, Mapping
from typing import Final

import msgspec
from graphql import ExecutionResult

from publishers.block import Block
from publishers.change import Area, Operation, time_of
from publishers.position import Position
from transports.codec.events import encode_text
from transports.graphql.probe import TYPENAME, fields_of
from transports.graphql.types import stamp

__all__ = ["Projection"]

_INT_MAX: Final = 2**31 - 1  # GraphQL's Int; beyond it the error is graphql-core's to make
_AREAS: Final = {area.value: b'"%s"' % area.name.encode() for area in Area}
_OPERATIONS: Final = {operation.value: b'"%s"' % operation.name.encode() for operation in Operation}
_NULL: Final = b"null"

Read = Callable[[Block, int], bytes]


def _json(value: bytes | None) -> bytes:
    return _NULL if value is None else value


def _text(value: str | None) -> bytes:
    return _NULL if value is None else encode_text(value)


def _long(value: int | None) -> bytes:
    return _NULL if value is None else b'"%d"' % value


def _key(block: Block, index: int) -> bytes:
    key = block.key(index)
    return _NULL if key is None else encode_text(key.decode("utf-8", "surrogateescape"))


_READS: Final[Mapping[str, Read]] = {
    "version": lambda block, _: b'"%d"' % block.version,
    "index": lambda _, index: b"%d" % index,
    "count": lambda block, _: b"%d" % block.transaction_count,
    "timestamp": lambda block, _: b'"%s"' % stamp(time_of(block.committed_at)).encode(),
    "area": lambda block, index: _AREAS[block.kind(index) >> 4],
    "operation": lambda block, index: _OPERATIONS[block.kind(index) & 15],
    "entity_type": lambda block, index: _text(block.entity_type(index)),
    "key": _key,
    "body": lambda block, index: _json(block.body(index)),
    "before": lambda block, index: _json(block.before(index)),
    "changed": lambda block, index: _json(block.changed(index)),
    "schema_version": lambda block, index: _long(block.attached(index).schema_version),
    "entry_version": lambda block, index: _long(block.attached(index).entry_version),
    "origin": lambda block, index: _text(block.attached(index).origin),
    "meta": lambda block, index: bytes(block.attached(index).meta) or _NULL,
    TYPENAME: lambda _block, _index: b'"Change"',
}


class Projection:
    """How the payloads of one operation are made.

    Args:
        root: Response name of the root field.
        fields: Of each selected field its response name, and what it holds.
        token: Makes the text of a position.
    """

    __slots__ = ("_steps", "_tail")

    def __init__(self, root: str, fields: list[tuple[str, str]], token: Callable[[Position], object]) -> None:
        def cursor(block: Block, index: int) -> bytes:
            last = index + 1 == block.transaction_count
            after = Position(block.version + 1, 0) if last else Position(block.version, index + 1)
            return b'"%s"' % str(token(after)).encode()

        lead = b'{"data":{%s:{' % msgspec.json.encode(root)
        self._steps: list[tuple[bytes, Read]] = []
        for name, held in fields:
            read = cursor if held == "cursor" else _READS[held]
            self._steps.append((b"%s%s:" % (lead, msgspec.json.encode(name)), read))
            lead = b","
        self._tail = b"}}}"

    @classmethod
    def of(cls, trial: ExecutionResult, token: Callable[[Position], object]) -> "Projection | None":
        """The projection of an operation, read off a trial execution; None if it has none."""
        found = fields_of(trial)
        return cls(*found, token) if found is not None and found[1] else None

    def payload(self, block: Block, index: int) -> bytes | None:
        """The payload of one event; None if graphql-core must make it."""
        if block.transaction_count > _INT_MAX:
            return None
        parts: list[bytes] = []
        for lead, read in self._steps:
            parts += (lead, read(block, index))
        parts.append(self._tail)
        return b"".join(parts)
