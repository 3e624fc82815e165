"""Payloads spliced from stored data, identical to those of graphql-core.

Every field of an event is a leaf that is read from the change, so the payloads of an operation differ only in the values.
"""

from collections.abc import Callable, Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any, Final

import msgspec
from graphql import ExecutionResult

from publishers.blocks.block import Block, seen, seen_error
from publishers.model.change import Area, Operation, time_of
from publishers.model.fields import ATTACHED, Field, FieldKind, compiled
from publishers.model.position import Position
from publishers.views.images import ShownImages
from publishers.views.view import Content, View
from transports.codec.events import encode_text
from transports.graphql.probe import TYPENAME, fields_of
from transports.graphql.types import stamp

__all__ = ["PayloadProjection"]

_INT_MAX: Final = 2**31 - 1  # GraphQL's Int; beyond it graphql-core makes the error
_AREAS: Final = {area.value: b'"%s"' % area.name.encode() for area in Area}
_OPERATIONS: Final = {operation.value: b'"%s"' % operation.name.encode() for operation in Operation}
_NULL: Final = b"null"
_SHARED: Final = 64  # transactions whose commit time and cursors are kept as text

Read = Callable[[Block, int, View], bytes]
ReadShown = Callable[[ShownImages], bytes]


def _json(value: bytes | None) -> bytes:
    return _NULL if value is None else value


def _text(value: str | None) -> bytes:
    return _NULL if value is None else encode_text(value)


def _time(moment: datetime) -> bytes:
    return b'"%s"' % stamp(moment).encode()


@lru_cache(_SHARED)
def _committed(microseconds: int) -> bytes:
    """Formats the commit time, which all events of a transaction share."""
    return _time(time_of(microseconds))


_ENCODES: Final[Mapping[FieldKind, Callable[[Any], bytes]]] = {
    FieldKind.NUMBER: lambda number: b'"%d"' % number,
    FieldKind.TEXT: encode_text,
    FieldKind.KEY: encode_text,
    FieldKind.PATH: encode_text,
    FieldKind.WORD: lambda word: b'"%s"' % word.name.encode(),
    FieldKind.MOMENT: _time,
}


def _read_of(field: Field) -> Read:
    """Returns the function that reads an attached field from a block, as a view shows it."""
    if field.kind is FieldKind.JSON:
        return lambda block, index, view: block.shown_meta(index, view) or _NULL
    text = f"block.attached(index).{field.name}"
    show = seen(field)
    read: Read = compiled(
        "read(block, index, view)",
        f"value = {'block.entry_version(index)' if field.versioned else text}",
        *(() if show is None else ("value = None if value is None else show(value, view)",)),
        "return NULL if value is None else encode(value)",
        show=show,
        encode=_ENCODES[field.kind],
        NULL=_NULL,
    )
    return read


def _error(block: Block, index: int, view: View) -> bytes:
    block.error(index)  # reads every part, because only errors of parts that were read are recorded
    return _text(seen_error(block, index, view))


_READS: Final[Mapping[str, Read]] = {
    "version": lambda block, _i, _v: b'"%d"' % block.version,
    "index": lambda _b, index, _v: b"%d" % index,
    "count": lambda block, index, view: b"%d" % block.shown_count(index, view),
    "timestamp": lambda block, _i, _v: _committed(block.committed_at),
    "area": lambda block, index, _v: _AREAS[block.kind(index) >> 4],
    "operation": lambda block, index, _v: _OPERATIONS[block.kind(index) & 15],
    "entity_type": lambda block, index, _v: _text(block.entity_type(index)),
    "key": lambda block, index, view: _text(block.shown_key(index, view)),
    **{field.name: _read_of(field) for field in ATTACHED},
    "error": _error,
    TYPENAME: lambda _b, _i, _v: b'"Change"',
}
_STORED: Final[Mapping[str, Read]] = {
    "body": lambda block, index, _v: _json(block.body(index)),
    "before": lambda block, index, _v: _json(block.before(index)),
    "changed": lambda block, index, _v: _json(block.changed(index)),
    "lacking": lambda _b, _i, _v: b"[]",
}
_SHOWN: Final[Mapping[str, ReadShown]] = {
    "body": lambda shown: _json(shown.body),
    "before": lambda shown: _json(shown.before),
    "changed": lambda shown: _json(shown.changed),
    "lacking": lambda shown: msgspec.json.encode(shown.lacking),
}


class PayloadProjection:
    """Makes the payloads of one operation.

    Args:
        root: The response name of the root field.
        fields: For each selected field its response name and the field of the change.
        token: Makes the text of a position.
        view: The view of the changes.
    """

    __slots__ = ("_steps", "_tail", "_view")

    def __init__(
        self, root: str, fields: list[tuple[str, str]], token: Callable[[Position], object], view: View
    ) -> None:
        @lru_cache(_SHARED)
        def prefix(version: int) -> bytes:
            return str(token(Position(version, 1))).rsplit(":", 2)[0].encode()

        def cursor(block: Block, index: int, _view: View) -> bytes:
            # A cursor names the epoch of the change before it, so the last change has the prefix of the others: the next
            # version may be of another epoch.
            version, after = block.version, index + 1
            place = (version + 1, 0) if after == block.transaction_count else (version, after)
            return b'"%s:%d:%d"' % (prefix(version), *place)

        lead = b'{"data":{%s:{' % msgspec.json.encode(root)
        self._steps: list[tuple[bytes, Read | None, ReadShown | None]] = []
        for name, held in fields:
            read = cursor if held == "cursor" else _READS.get(held)
            if read is None and view.plain and view.content is Content.BODY:
                read = _STORED[held]
            shows = _SHOWN[held] if read is None else None
            self._steps.append((b"%s%s:" % (lead, msgspec.json.encode(name)), read, shows))
            lead = b","
        self._view = view
        self._tail = b"}}}"

    @classmethod
    def of(
        cls, trial: ExecutionResult, token: Callable[[Position], object], view: View
    ) -> "PayloadProjection | None":
        """Derives the projection of an operation from a trial execution; None if it has none."""
        found = fields_of(trial)
        return cls(*found, token, view) if found is not None and found[1] else None

    def payload(self, block: Block, index: int) -> bytes | None:
        """Returns the payload of one event; None if graphql-core must make it."""
        if block.transaction_count > _INT_MAX:
            return None
        parts: list[bytes] = []
        view = self._view
        shown: ShownImages | None = None
        for lead, read, shows in self._steps:
            if read is not None:
                parts += (lead, read(block, index, view))
            elif shows is not None:
                shown = block.shown(index, view) if shown is None else shown
                parts += (lead, shows(shown))
        parts.append(self._tail)
        return b"".join(parts)
