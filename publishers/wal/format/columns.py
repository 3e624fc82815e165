"""The payload of a frame: columns in buffers that Arrow can use without copying.

A payload is, in this order and with every buffer starting on 8 bytes::

    u32 present, u32 annotation bytes      a bit per column: 1 key, 2 body, 4 before, 8 changed, 16 meta
    annotations                            JSON of the transaction
    u32 n, i32 offsets[n + 1], UTF-8       the distinct entity types of this frame
    u8 kind[count]                         area * 16 + operation
    u16 entity_type[count]                 index into the entity types; absent if n = 1
    per present column:                    validity bitmap (not for key), i32 offsets[count + 1], bytes

The bitmap has the least significant bit first and a set bit for a value, as in Arrow. All numbers are little
endian, and so must the machine be, because the buffers are used in place.
"""

import sys
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import accumulate, pairwise
from struct import Struct, pack
from typing import Any, Final

from publishers.wal.disk.filesystem import Data

__all__ = [
    "COLUMN_NAMES",
    "PADDING",
    "Column",
    "Columns",
    "all_valid",
    "bitmap",
    "cut_out",
    "encode_names",
    "encode_payload",
]

if sys.byteorder != "little":  # pragma: no cover - there is no such machine to test on
    raise ImportError("the write-ahead log needs a little endian machine")

COLUMN_NAMES: Final = ("key", "body", "before", "changed", "meta")
PADDING: Final = tuple(bytes(size) for size in range(8))
"""``PADDING[-size & 7]`` pads ``size`` bytes to a multiple of 8."""

_PAIR: Final = Struct("<II")
_EMPTY: Final = memoryview(b"")


class Column:
    """A column of byte strings, some of which may be missing.

    Attributes:
        validity: Bitmap of the values that exist, or None if all do.
        offsets: ``count + 1`` numbers of format ``i``, the first of them 0.
        data: The bytes of all values, one after the other.
    """

    __slots__ = ("data", "offsets", "validity")

    def __init__(self, validity: memoryview | None, offsets: memoryview, data: memoryview) -> None:
        self.validity: memoryview | None = validity
        self.offsets: memoryview = offsets
        self.data: memoryview = data

    @classmethod
    def of(cls, values: Sequence[bytes | None]) -> "Column":
        """Makes a column of values.

        Raises:
            ValueError: If they have 2 GiB or more together.
        """
        validity = None
        present: Sequence[bytes] = values  # type: ignore[assignment]  # None is handled in the next lines
        if None in values:
            validity = memoryview(bitmap([value is not None for value in values]))
            present = [value or b"" for value in values]
        offsets = [0, *accumulate(map(len, present))]
        if offsets[-1] >= 2**31:
            raise ValueError("a column holds less than 2 GiB")
        packed = pack(f"{len(offsets)}i", *offsets)  # faster than an array of them
        return cls(validity, memoryview(packed).cast("i"), memoryview(b"".join(present)))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> bytes | None:
        if self.validity is not None and not self.validity[index >> 3] >> (index & 7) & 1:
            return None
        return self.data[self.offsets[index] : self.offsets[index + 1]].tobytes()

    def __iter__(self) -> Iterator[bytes | None]:
        if len(self.offsets) == 2:  # a commit of one change takes half the time this way
            return iter((self[0],))
        data = self.data.tobytes()
        values = (data[low:high] for low, high in pairwise(self.offsets.tolist()))
        if self.validity is None:
            return values
        flags = f"{int.from_bytes(self.validity, 'little'):0{len(self)}b}"[::-1]
        return (value if flag == "1" else None for value, flag in zip(values, flags, strict=False))

    def slice(self, start: int, end: int) -> "Column":
        """Returns the values from ``start`` up to ``end``: data shared, offsets rebased to begin at 0, bitmap shifted."""
        offsets = self.offsets[start : end + 1]
        data = self.data[offsets[0] : offsets[-1]]
        return Column(_shift(self.validity, start, end), _rebase(offsets), data)


class Columns:
    """The changes of one frame, or of a batch that becomes frames.

    Attributes:
        kinds: ``area * 16 + operation`` of each change, format ``B``.
        entity_types: The distinct names.
        type_ids: Index of each change's entity type in ``entity_types``, format ``H``; None if there is only one type.
        key: The keys; never missing, possibly empty.
        body, before, changed, meta: The other columns; None if no change has a value.
        values: The same changes as rows, if they were encoded from rows; see `Rows`.
    """

    __slots__ = ("before", "body", "changed", "entity_types", "key", "kinds", "meta", "type_ids")
    values: tuple[Sequence[Any], ...] | None = None

    def __init__(
        self,
        kinds: memoryview,
        entity_types: tuple[str, ...],
        type_ids: memoryview | None,
        key: Column,
        body: Column | None = None,
        before: Column | None = None,
        changed: Column | None = None,
        meta: Column | None = None,
    ) -> None:
        self.kinds: memoryview = kinds
        self.entity_types: tuple[str, ...] = entity_types
        self.type_ids: memoryview | None = type_ids
        self.key: Column = key
        self.body: Column | None = body
        self.before: Column | None = before
        self.changed: Column | None = changed
        self.meta: Column | None = meta

    @property
    def count(self) -> int:
        """Number of changes."""
        return len(self.kinds)

    @property
    def optional(self) -> tuple[Column | None, Column | None, Column | None, Column | None]:
        """``body, before, changed, meta``."""
        return self.body, self.before, self.changed, self.meta

    @property
    def nbytes(self) -> int:
        """Bytes of the columns in a payload, less at most 7 for each buffer."""
        return self.span(0, len(self.kinds))

    def span(self, start: int, end: int) -> int:
        """Returns `nbytes` of the changes from ``start`` up to ``end``, without making the slice."""
        rows = end - start
        total = 24 + rows + sum(map(len, self.entity_types)) + 4 * len(self.entity_types)
        if self.type_ids is not None:
            total += 2 * rows
        for column in (self.key, *self.optional):
            if column is not None:
                offsets = column.offsets
                total += 5 * rows + offsets[end] - offsets[start]
        return total

    def piece(self, name: str, start: int, end: int) -> tuple[bytes, list[int]] | None:
        """Returns the bytes of the values from ``start`` up to ``end``, and where in them each value begins and the last one ends.

        Returns None if there is no such column, or if some of its values are missing.
        """
        column: Column | None = getattr(self, name)
        if column is None or column.validity is not None:
            return None
        return cut_out(column.data, column.offsets[start : end + 1].tolist())

    def slice(self, start: int, end: int) -> "Columns":
        """Returns the changes from ``start`` up to ``end``; data is shared."""
        body, before, changed, meta = (
            None if column is None else column.slice(start, end) for column in self.optional
        )
        type_ids = None if self.type_ids is None else self.type_ids[start:end]
        key = self.key.slice(start, end)
        return Columns(self.kinds[start:end], self.entity_types, type_ids, key, body, before, changed, meta)


def cut_out(data: memoryview, offsets: list[int]) -> tuple[bytes, list[int]]:
    """Returns the bytes from the first offset to the last, and the offsets in these bytes."""
    first = offsets[0]
    return data[first : offsets[-1]].tobytes(), [offset - first for offset in offsets] if first else offsets


def bitmap(flags: list[bool]) -> bytes:
    """Packs flags, least significant bit first."""
    text = "".join("1" if flag else "0" for flag in reversed(flags))
    return int(text or "0", 2).to_bytes((len(flags) + 7) // 8, "little")


def _shift(validity: memoryview | None, start: int, end: int) -> memoryview | None:
    """Returns the bits from ``start`` up to ``end`` as a bitmap of their own, using one big integer instead of a loop."""
    if validity is None:
        return None
    rows = end - start
    bits = int.from_bytes(validity[start >> 3 : (end + 7) >> 3], "little") >> (start & 7)
    return memoryview((bits & ((1 << rows) - 1)).to_bytes((rows + 7) // 8, "little"))


def _rebase(offsets: memoryview) -> memoryview:
    """Subtracts the first offset from all offsets.

    They are subtracted as one big integer whose 32-bit lanes never borrow from each other, since no offset is below
    the first one: about forty times faster than a loop.
    """
    base = offsets[0]
    if base == 0:
        return offsets
    size = offsets.nbytes
    lanes = int.from_bytes(base.to_bytes(4, "little") * len(offsets), "little")
    moved = int.from_bytes(offsets.cast("B"), "little") - lanes
    return memoryview(moved.to_bytes(size, "little")).cast("i")


def encode_names(entity_types: tuple[str, ...]) -> bytes:
    """Encodes the distinct entity types for a payload."""
    encoded = [name.encode() for name in entity_types]
    offsets = list(accumulate(map(len, encoded), initial=0))
    return Struct(f"<I{len(offsets)}i").pack(len(encoded), *offsets) + b"".join(encoded)


class _Parts:
    """Buffers of a payload; each is padded to 8 bytes when another one follows."""

    __slots__ = ("_padding", "buffers")

    def __init__(self) -> None:
        self.buffers: list[Data] = []
        self._padding = b""

    def put(self, buffer: Data) -> None:
        size = buffer.nbytes if isinstance(buffer, memoryview) else len(buffer)
        self.buffers += (self._padding, buffer)
        self._padding = PADDING[-size & 7]

    def put_column(self, column: Column, rows: int, *, nullable: bool) -> None:
        offsets = column.offsets
        if len(offsets) != rows + 1 or offsets[0] != 0 or offsets[rows] > len(column.data):
            raise ValueError(
                f"a column of {len(offsets) - 1} values from {offsets[0]} does not fit {rows} changes"
            )
        if nullable:
            self.put(all_valid(rows) if column.validity is None else column.validity)
        elif column.validity is not None:
            raise ValueError("keys are never missing; an empty one is b''")
        self.put(offsets)
        self.put(column.data[: offsets[rows]])


def encode_payload(columns: Columns, annotations: bytes = b"") -> bytes:
    """Encodes the payload of a frame. Zeros after its last buffer are padding of the frame, not part of the payload.

    Raises:
        ValueError: If the columns have different numbers of changes, or offsets that do not start at 0.
    """
    rows = len(columns.kinds)
    parts = _Parts()
    present = 1
    for bit, column in zip((2, 4, 8, 16), columns.optional, strict=True):
        if column is not None:
            present |= bit
    parts.put(_PAIR.pack(present, len(annotations)))
    parts.put(annotations)
    parts.put(encode_names(columns.entity_types))
    parts.put(columns.kinds)
    type_ids = columns.type_ids
    if len(columns.entity_types) > 65536:
        raise ValueError(f"a frame has {len(columns.entity_types)} entity types, but at most 65536 fit")
    if len(columns.entity_types) != 1:
        if rows != (0 if type_ids is None else len(type_ids)):
            raise ValueError(
                f"{rows} changes of {len(columns.entity_types)} entity types need as many type ids"
            )
        parts.put(type_ids if type_ids is not None else b"")
    parts.put_column(columns.key, rows, nullable=False)
    for column in columns.optional:
        if column is not None:
            parts.put_column(column, rows, nullable=True)
    return b"".join(parts.buffers)


@lru_cache(256)
def all_valid(rows: int) -> bytes:
    """Returns the bitmap of a column without missing values."""
    return b"\xff" * (rows >> 3) + (bytes(((1 << (rows & 7)) - 1,)) if rows & 7 else b"")
