"""A block: one frame of the log in memory, with everything that is derived from it once and shared.

A block is the unit from commit through ring to socket: columns in the layout of the log. ``Change`` objects, encoded
events and selected rows are derived from it lazily, and shared by all subscriptions that need them.
"""

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from functools import partial
from itertools import islice
from typing import Any, Final, TypeVar

import msgspec

from publishers.blocks.decode import (
    DECODED,
    KEYLESS,
    Attached,
    attached_of,
    decode_one,
    decode_rows,
    decode_run,
    names_of,
    stored_rows,
)
from publishers.lossless import flaw_of
from publishers.model.change import Area, Change, Operation, time_of
from publishers.model.fields import ATTACHED, FIELDS, Field, FieldKind
from publishers.model.position import Position
from publishers.views.images import Name, ShownImages, show, show_key, show_meta, shows
from publishers.views.paths import Fields, fields_of
from publishers.views.view import Content, View
from publishers.wal import Column, Columns, FrameHeader
from publishers.wal.format.frame import FIRST, LAST

__all__ = ["BLOCK_BYTES", "SHELVES_MAX", "Block", "Shelf", "seen", "seen_error"]


SHELVES_MAX: Final = 32
"""Most views, for each form in which changes are delivered, whose derived data a block caches.

This bounds the memory of a block to that multiple of one view's, however many views there are.
"""


class Shelf:
    """The data derived from a block for one view and one form.

    Attributes:
        nbytes: Its approximate bytes.
    """

    __slots__ = ("nbytes",)

    def __init__(self) -> None:
        self.nbytes: int = 0


BLOCK_BYTES: Final = 2_500
"""Approximate bytes of a block's objects beside the stored bytes; measured on CPython 3.11."""

_TRANSACTION_KIND: Final = Area.INFRASTRUCTURE * 16 + Operation.TRANSACTION
_RUN: Final = 8  # from this number on, changes are made column by column
_FIELD_BYTES: Final = 160  # approximate bytes of a field of a parsed image beside its text
_UNREADABLE: Final = "something of the change as it is stored cannot be read"
_CHANGE_BYTES: Final = 400  # approximate bytes of a Change object and its fields, beside the columns


class _Annotations(msgspec.Struct):
    """The annotations of a transaction."""

    id: str = ""
    meta: msgspec.Raw = msgspec.Raw()


_annotations: Final = msgspec.json.Decoder(_Annotations)
_NOTHING: Final = _Annotations()


class _Changes(Shelf):
    """``Change`` objects of a block, by place."""

    __slots__ = ("made",)

    def __init__(self, count: int) -> None:
        self.nbytes = 0
        self.made: list[Change | None] = [None] * count


_Shelf = TypeVar("_Shelf", bound=Shelf)
_LEFT: Final = {field.attribute: None for field in FIELDS if not field.left}
_SHOWS: Final = tuple(
    (field.attribute, rendered) for field in ATTACHED for rendered in [shows(field)] if rendered is not None
)


class Block:
    """The changes of one frame; immutable except for lazily derived data.

    Rows are addressed by their ``index`` in the transaction. Index 0, the TRANSACTION event, belongs to the first block
    of a transaction; the stored rows begin at ``first_index``.

    Attributes:
        version: Version of the transaction.
        first_index: Index of the first stored row.
        count: Number of stored rows.
        leads: Whether the TRANSACTION event belongs to this block.
        ends: Whether this block is the last of its transaction.
        end: The position after this block.
        transaction_count: Changes of the whole transaction, TRANSACTION event included.
        transaction_bytes: Stored bytes of the whole transaction.
        committed_at: Commit time in microseconds since the Unix epoch.
        columns: The stored rows.
        annotations: JSON of the annotations, or empty.
        weight: Approximate stored bytes.
        memo: Data that other modules derive from this block, by their own keys; it lives as long as the block.
        memo_bytes: Approximate bytes of ``memo`` and the shelves.
    """

    __slots__ = (
        "__weakref__",
        "_shelves",
        "annotations",
        "columns",
        "committed_at",
        "count",
        "end",
        "ends",
        "first_index",
        "leads",
        "memo",
        "memo_bytes",
        "transaction_bytes",
        "transaction_count",
        "version",
        "weight",
    )

    def __init__(
        self,
        columns: Columns,
        *,
        version: int,
        first_index: int,
        leads: bool,
        ends: bool,
        transaction_count: int,
        transaction_bytes: int,
        committed_at: int,
        annotations: bytes = b"",
    ) -> None:
        self.columns: Columns = columns
        self.version: int = version
        self.first_index: int = first_index
        count = columns.count
        self.count: int = count
        self.leads: bool = leads
        self.ends: bool = ends
        self.transaction_count: int = transaction_count
        self.transaction_bytes: int = transaction_bytes
        self.committed_at: int = committed_at
        self.annotations: bytes = annotations
        end = (version + 1, 0) if ends else (version, first_index + count)
        self.end: Position = tuple.__new__(Position, end)
        self.weight: int = columns.nbytes + len(annotations)
        self.memo: dict[Any, Any] = {}
        self.memo_bytes: int = 0
        self._shelves: dict[object, Shelf] = {}

    @classmethod
    def of(cls, header: FrameHeader, columns: Columns, annotations: bytes) -> "Block":
        """Makes the block of a frame."""
        return cls(
            columns,
            version=header.version,
            first_index=header.first_index,
            leads=bool(header.flags & FIRST),
            ends=bool(header.flags & LAST),
            transaction_count=header.transaction_count,
            transaction_bytes=header.transaction_bytes,
            committed_at=header.committed_at,
            annotations=annotations,
        )

    @property
    def indices(self) -> range:
        """All indices of this block."""
        return range(0 if self.leads else self.first_index, self.first_index + self.count)

    @property
    def nbytes(self) -> int:
        """Approximate bytes of the block with its objects and all derived data."""
        return BLOCK_BYTES + self.weight + self.memo_bytes

    def kind(self, index: int) -> int:
        """Returns area and operation as stored: ``area * 16 + operation``."""
        return self.columns.kinds[index - self.first_index] if index else _TRANSACTION_KIND

    def area(self, index: int) -> Area:
        """Returns the area of a change."""
        return Area(self.kind(index) >> 4)

    def operation(self, index: int) -> Operation:
        """Returns the operation of a change."""
        return Operation(self.kind(index) & 15)

    def entity_type(self, index: int) -> str | None:
        """Returns the entity type of a change; None for the TRANSACTION event."""
        if not index:
            return None
        columns = self.columns
        return columns.entity_types[
            columns.type_ids[index - self.first_index] if columns.type_ids is not None else 0
        ]

    def key(self, index: int) -> bytes | None:
        """Returns the key of a change; None for the TRANSACTION event, and for a change of all keys of an entity type."""
        return self.columns.key[index - self.first_index] if index and self.kind(index) != KEYLESS else None

    def rows(self, start: int, stop: int) -> Iterator[tuple[Any, ...]]:
        """Yields changes as they are stored, without the TRANSACTION event: kind, entity type, key, body, before, changed, meta."""
        columns = self.columns
        low, high = start - self.first_index, stop - self.first_index
        if columns.values is not None:
            return islice(zip(*columns.values, strict=True), low, high)
        return stored_rows(columns, low, high)

    def body(self, index: int) -> bytes | None:
        """Returns the JSON after the change; for the TRANSACTION event its id and stored bytes."""
        if index:
            return self._sound("body", self.columns.body, index)
        return self._event_body(self._annotated(), apart=False)

    def _event_body(self, annotated: _Annotations, *, apart: bool) -> bytes:
        body = {"id": annotated.id} if apart else {"id": annotated.id, "bytes": self.transaction_bytes}
        return msgspec.json.encode(body)

    def before(self, index: int) -> bytes | None:
        """Returns the JSON before the change."""
        return self._sound("before", self.columns.before, index)

    def changed(self, index: int) -> bytes | None:
        """Returns the JSON list of the names of changed fields."""
        stored = self._stored(self.columns.changed, index)
        _, flaw = names_of(stored)
        if flaw is None:
            return stored
        self.memo.setdefault("errors", {}).setdefault(index, flaw)
        return None

    def attached(self, index: int) -> Attached:
        """Returns schema version, entry version, origin and meta; the annotations for the TRANSACTION event."""
        return (
            attached_of(self._stored(self.columns.meta, index))
            if index
            else Attached(meta=self._annotated().meta)
        )

    def entry_version(self, index: int) -> int | None:
        """Returns the version of the entity of a change: that of the commit, unless the writer has set one."""
        given = self.attached(index).entry_version
        return self.version if given is None and self.kind(index) >> 4 == Area.DATA else given

    def error(self, index: int) -> str | None:
        """Returns which part of a change cannot be rendered, and why; the other methods leave such a part out."""
        return (self.changed(index), self.body(index), self.before(index), self.noted(index))[-1]

    def noted(self, index: int) -> str | None:
        """Returns ``error`` for the parts of the change that were read so far."""
        noted: dict[int, str] | None = self.memo.get("errors")
        flaw = None if self.columns.meta is None else self.attached(index).error
        return flaw or (noted.get(index) if noted else None)

    def size(self, index: int) -> int:
        """Returns the approximate stored bytes of a change, which count for a batch bound in bytes."""
        return self.size_between(index, index + 1)

    def size_between(self, start: int, end: int) -> int:
        """Returns the sum of `size` over the indices from ``start`` up to ``end``, at the price of one."""
        size = 64 * (end - start)
        if not start:
            size += len(self.annotations)
            start += 1
        columns = self.columns
        low, high = start - self.first_index, end - self.first_index
        for column in (columns.key, columns.body, columns.before):
            if column is not None:
                size += column.offsets[high] - column.offsets[low]
        return size

    def change(self, index: int, view: View) -> Change:
        """Returns the change at an index, made at most once per view."""
        return self.changes((index,), view)[0]

    def changes(self, indices: Sequence[int], view: View) -> list[Change]:
        """Returns the changes at indices; each is made at most once per view while it is cached."""
        first = 0 if self.leads else self.first_index
        shelf: _Changes | None = self._shelves.get(view)  # type: ignore[assignment]  # a key belongs to one kind of shelf
        if shelf is None:
            shelf = self.shelf(view, partial(_Changes, self.first_index + self.count - first))
        made = shelf.made
        long = len(indices) >= _RUN or self.columns.values is not None
        if long and isinstance(indices, range) and indices.step == 1:
            low, high = indices.start - first, indices.stop - first
            run = made[low:high]
            if not all(run):  # `None in run` would compare each change with None
                run = made[low:high] = [*self._make_run(indices.start, indices.stop, view)]
                weight = self.weight if high - low >= self.count else self._span(indices)
                weight += (high - low) * _CHANGE_BYTES
                shelf.nbytes += weight
                self.memo_bytes += weight
            return run  # type: ignore[return-value]  # every None was replaced
        found = []
        for index in indices:
            change = made[index - first]
            if change is None:
                change = made[index - first] = self._make(index, view)
                self.weigh(shelf, _CHANGE_BYTES + self.size(index))
            found.append(change)
        return found

    def shown(self, index: int, view: View) -> ShownImages:
        """Returns the images and the names of changed fields as a view renders them."""
        whole = view.content is Content.BODY
        if view.plain:
            images = (self.body(index), self.before(index)) if whole else (None, None)
            return ShownImages(*images, self.changed(index))
        if not index:
            return ShownImages(self._event_body(self._annotated(), apart=view.apart) if whole else None)
        return show(_Row(self, index, left=self.left(index, view)), view).with_integers(view)

    def left(self, index: int, view: View) -> bool:
        """Whether a view shows the change as the removal of its entity."""
        return view.outsiders is not None and index > 0 and view.outsiders.outside(self, index)

    def shown_key(self, index: int, view: View) -> str | None:
        """Returns the key as a view renders it. Bytes that are not UTF-8 appear as lone surrogates."""
        key = self.key(index)
        # Masks and projections concern entities only.
        view = view if self.kind(index) >> 4 == Area.DATA else View()
        return None if key is None else show_key(key.decode("utf-8", "surrogateescape"), view)

    def shown_count(self, index: int, view: View) -> int:
        """Returns the number of changes of the transaction as a view renders it."""
        return min(index + 2, self.transaction_count) if view.apart else self.transaction_count

    def shown_meta(self, index: int, view: View) -> bytes:
        """Returns the attached meta as a view renders it; empty for none."""
        return view.render_integers(show_meta(bytes(self.attached(index).meta), view, transaction=not index))

    def parsed(self, index: int, name: Name) -> Fields | None:
        """Returns the fields of an image, split once for all views; None if it is not an object.

        Raises:
            ValueError, RecursionError: If it is not JSON, or nested too deeply.
        """
        parts: dict[tuple[int, Name], Fields | None] = self.memo.setdefault("parsed", {})
        if (index, name) not in parts:
            text = (self.body(index) if name == "body" else self.before(index)) or b""
            fields = parts[index, name] = fields_of(text)
            self.memo_bytes += len(text) + 64 + _FIELD_BYTES * len(fields or ())
        return parts[index, name]

    def shelf(self, key: object, make: Callable[[], _Shelf]) -> _Shelf:
        """Returns the cache of data derived for one view and form; beyond ``SHELVES_MAX`` the oldest is evicted.

        Subscribers read a block at about the same time, so the oldest is the least likely to be needed again.
        """
        shelves = self._shelves
        found = shelves.get(key)
        if found is None:
            # Two threads may both get here; setdefault picks one of their shelves.
            found = shelves.setdefault(key, make())
            while len(shelves) > SHELVES_MAX:
                oldest = shelves.pop(list(shelves)[0], None)  # noqa: RUF015 - an iterator would fail on changes by other threads
                self.memo_bytes -= 0 if oldest is None else oldest.nbytes
        return found  # type: ignore[return-value]  # a key belongs to one kind of shelf

    def weigh(self, shelf: Shelf, nbytes: int) -> None:
        """Adds the bytes of data that was put on a shelf."""
        shelf.nbytes += nbytes
        self.memo_bytes += nbytes

    def selection(self, key: object, select: Callable[["Block"], Sequence[int]]) -> Sequence[int]:
        """Returns the selection of a key, computed once."""
        found: Sequence[int] | None = self.memo.get(key)
        if found is None:
            found = self.memo[key] = select(self)
            self.memo_bytes += 64 if isinstance(found, range) else 64 + 8 * len(found)
        return found

    def _stored(self, column: Column | None, index: int) -> bytes | None:
        return None if column is None or not index else column[index - self.first_index]

    def _sound(self, name: str, column: Column | None, index: int) -> bytes | None:
        """Returns a stored image unless it is damaged: an image that is not JSON would corrupt the message around it."""
        stored = self._stored(column, index)
        if stored is None or (flaw := flaw_of(stored)) is None:
            return stored
        self.memo.setdefault("errors", {}).setdefault(index, f"{name}: {flaw}")
        return None

    def _annotated(self) -> _Annotations:
        return _annotations.decode(self.annotations) if self.annotations else _NOTHING

    def _make(self, index: int, view: View) -> Change:
        plain = view.plain
        bodies = view.content is Content.BODY and plain
        time = time_of(self.committed_at)
        if index:
            at = (self.version, index, self.transaction_count)
            change = decode_one(self.columns, index - self.first_index, at=at, time=time, bodies=bodies)
        else:
            change = self._event(time, bodies=bodies)
        return change if plain else _seen(self, change, view)

    def _event(self, time: datetime, *, bodies: bool) -> Change:
        """Makes the TRANSACTION event."""
        annotated = _annotations.decode(self.annotations) if self.annotations else _NOTHING
        return Change(
            self.version,
            0,
            self.transaction_count,
            time,
            Area.INFRASTRUCTURE,
            Operation.TRANSACTION,
            body_bytes=self._event_body(annotated, apart=False) if bodies else None,
            meta_bytes=bytes(annotated.meta) or None,
        )

    def _span(self, indices: range) -> int:
        columns = self.columns
        if columns.values is not None:
            return columns.nbytes * len(indices) // self.count
        low = max(indices.start, self.first_index) - self.first_index
        return columns.span(low, indices.stop - self.first_index)

    def _make_run(self, start: int, stop: int, view: View) -> list[Change]:
        if not view.plain:
            return [self._make(index, view) for index in range(start, stop)]
        time, bodies = time_of(self.committed_at), view.content is Content.BODY
        head = [] if start else [self._event(time, bodies=bodies)]
        start = max(start, self.first_index)
        low, high = start - self.first_index, stop - self.first_index
        at = (self.version, start, self.transaction_count)
        values = self.columns.values
        if values is not None:
            return head + decode_rows(values, low, high, at=at, time=time, bodies=bodies)
        return head + decode_run(self.columns, low, high, at=at, time=time, bodies=bodies)


class _Row:
    """A change in a block; its parts are read on demand."""

    __slots__ = ("_block", "_index", "_left")

    def __init__(self, block: Block, index: int, *, left: bool) -> None:
        self._block = block
        self._index = index
        self._left = left

    @property
    def operation(self) -> Operation:
        """The operation."""
        return Operation.REMOVE if self._left else self._block.operation(self._index)

    @property
    def entity(self) -> bool:
        """Whether it is a change of an entity."""
        return self._block.kind(self._index) >> 4 == Area.DATA

    @property
    def partial(self) -> bool:
        """Whether it is a field-level change, whose images hold nothing but that field."""
        return getattr(self._block.attached(self._index), "field", None) is not None

    @property
    def changed(self) -> bytes | None:
        """JSON list of the names of changed fields."""
        return None if self._left else self._block.changed(self._index)

    def image(self, name: Name, /) -> bytes | None:
        """Returns the JSON after or before the change."""
        if self._left and name == "body":
            return None
        return self._block.body(self._index) if name == "body" else self._block.before(self._index)

    def parsed(self, name: Name, /) -> Fields | None:
        """Returns the fields of an image, split once for all views."""
        return self._block.parsed(self._index, name)


def _seen(block: Block, change: Change, view: View) -> Change:
    """Renders a change of a block, which was made without images, for a view."""
    index = change.index
    shown = block.shown(index, view)
    if block.left(index, view):
        change = msgspec.structs.replace(change, operation=Operation.REMOVE, **_LEFT)
    rare = {name: show(value, view) for name, show in _SHOWS if (value := getattr(change, name)) is not None}
    return msgspec.structs.replace(
        change,
        count=block.shown_count(index, view),
        key=block.shown_key(index, view),
        body_bytes=shown.body,
        before_bytes=shown.before,
        changed=None if shown.changed is None else tuple(msgspec.json.decode(shown.changed)),
        meta_bytes=block.shown_meta(index, view) or None,
        error_text=seen_error(block, index, view),
        lacking=shown.lacking,
        **rare,
    )


def seen(field: Field) -> Callable[[Any, View], Any] | None:
    """Returns the function by which a view renders a field of `Attached`; None if each view shows it as it is.

    What it returns is None if the view does not show the field.
    """
    show = shows(field)
    if field.kind is not FieldKind.KEY or show is None:
        return show
    decoded = DECODED[FieldKind.KEY]
    return lambda key, view: show(decoded(key), view)


def seen_error(block: Block, index: int, view: View) -> str | None:
    """Returns which part of a change cannot be rendered, among the parts read so far.

    A view with lenses gets a fixed text instead: the reason may quote masked data.
    """
    error = block.noted(index)
    return error if error is None or not view.lenses else _UNREADABLE
