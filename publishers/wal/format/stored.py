"""Decoding the payload of a frame: all of it is checked at once, and columns are made when they are needed.

Most readers need a few columns of a frame, or none.
"""

from array import array
from functools import lru_cache
from itertools import pairwise
from struct import Struct
from struct import error as StructError  # noqa: N812 - it is a class, whatever its name looks like
from typing import Final

from publishers.wal.disk.filesystem import Data
from publishers.wal.format.columns import COLUMN_NAMES, Column, Columns, all_valid, cut_out

__all__ = ["StoredColumns", "decode_payload"]

_PAIR: Final = Struct("<II")
_NAME: Final = Struct("<Iii")
_NUMBER: Final = Struct("<i")

_PRESENT: Final = tuple(
    tuple(name for bit, name in enumerate(COLUMN_NAMES) if present >> bit & 1) for present in range(32)
)
"""The columns by the number that tells which there are."""

_Place = tuple[int, int, int, int]
"""Where a column begins in the payload: bitmap (0: no value is missing), offsets, bytes, and the end of the bytes."""


class StoredColumns(Columns):
    """Columns that share the memory of a payload.

    Attributes:
        count, nbytes: As those of `Columns`.
    """

    __slots__ = ("_payload", "_places", "count", "nbytes")

    def __init__(
        self,
        payload: memoryview,
        kinds: memoryview,
        entity_types: tuple[str, ...],
        type_ids: memoryview | None,
        places: dict[str, _Place],
        nbytes: int,
    ) -> None:
        self._payload = payload
        self._places = places
        self.kinds = kinds
        self.entity_types = entity_types
        self.type_ids = type_ids
        self.count: int = len(kinds)  # a slot, where `Columns` computes it
        self.nbytes: int = nbytes

    def __getattr__(self, name: str) -> Column:
        if name not in COLUMN_NAMES:
            raise AttributeError(name)
        valid, offsets, start, end = self._places[name]
        rows, payload = self.count, self._payload
        bitmap = payload[valid : valid + ((rows + 7) >> 3)] if valid else None
        column = Column(bitmap, payload[offsets : offsets + 4 * rows + 4].cast("i"), payload[start:end])
        setattr(self, name, column)
        return column

    def piece(self, name: str, start: int, end: int) -> tuple[bytes, list[int]] | None:
        """See `Columns.piece`; no column is made for it."""
        place, payload = self._places.get(name), self._payload
        if place is None or place[0]:
            return None
        _, at, begin, end_of_data = place
        return cut_out(
            payload[begin:end_of_data], payload[at + 4 * start : at + 4 * end + 4].cast("i").tolist()
        )


def decode_payload(payload: Data, count: int) -> tuple[Columns, bytes]:
    """Decodes a payload of ``count`` changes: returns its columns, which share its memory, and the annotations.

    Raises:
        ValueError: If the payload is malformed.
    """
    try:
        return _decode(memoryview(payload), count)
    except (StructError, TypeError, IndexError, OverflowError) as error:
        raise ValueError(f"a malformed payload: {error}") from error


def _decode(view: memoryview, rows: int) -> tuple[Columns, bytes]:
    # Slices past the end of the payload are silently short. Since every buffer begins behind the previous one,
    # checking the end of the last one is enough.
    present, annotation_bytes = _PAIR.unpack_from(view)
    if not present & 1 or present > 31:
        raise ValueError(f"unknown columns: {present:#x}")
    at = 8 + annotation_bytes
    annotations = bytes(view[8:at]) if annotation_bytes else b""
    entity_types, nbytes, at = _read_names(view, (at + 7) & -8)
    at = (at + 7) & -8
    kinds = view[at : at + rows]
    at = (at + rows + 7) & -8
    nbytes += 24 + rows
    type_ids = None
    if len(entity_types) != 1:
        type_ids = view[at : at + 2 * rows].cast("H")
        if rows and max(array("H", type_ids.tobytes())) >= len(entity_types):
            raise ValueError("an entity type id is beyond the entity types")
        at = (at + 2 * rows + 7) & -8
        nbytes += 2 * rows
    places: dict[str, _Place] = {}
    bits, valid = (rows + 7) >> 3, 0
    for name in _PRESENT[present]:
        if places:  # keys, which come first, are never missing
            valid = at = (at + 7) & -8
            if view[at : at + bits].tobytes() == all_valid(rows):
                valid = 0  # the common case, and faster to read
            at = (at + bits + 7) & -8
        (first,), (size,) = _NUMBER.unpack_from(view, at), _NUMBER.unpack_from(view, at + 4 * rows)
        if first or size < 0:
            raise ValueError(f"the offsets of a column go from {first} to {size}")
        start = at + ((4 * rows + 11) & -8)
        places[name] = valid, at, start, start + size
        at = start + size
        nbytes += 5 * rows + size
    if at > len(view):
        raise ValueError(f"the columns end at {at}, beyond the payload of {len(view)} bytes")
    columns = StoredColumns(view, kinds, entity_types, type_ids, places, nbytes)
    for name in _PRESENT[31 ^ present]:
        setattr(columns, name, None)
    return columns, annotations


@lru_cache(256)
def _name(encoded: bytes) -> tuple[tuple[str, ...], int]:
    name = encoded.decode()
    return (name,), len(name) + 4


def _read_names(view: memoryview, at: int) -> tuple[tuple[str, ...], int, int]:
    """Reads the entity types at ``at``; returns them, their share of ``nbytes``, and their end."""
    count, start, end = _NAME.unpack_from(view, at)
    if count == 1:
        data = at + 12
        if start or end < 0:
            raise ValueError("the offsets of the entity types do not rise from 0")
        return *_name(bytes(view[data : data + end])), data + end
    data = at + 4 * (count + 2)
    offsets = view[at + 4 : data].cast("i").tolist()
    if len(offsets) != count + 1 or offsets[0] != 0 or any(low > high for low, high in pairwise(offsets)):
        raise ValueError("the offsets of the entity types do not rise from 0")
    names = bytes(view[data : data + offsets[-1]])
    found = tuple(names[low:high].decode() for low, high in pairwise(offsets))
    return found, sum(map(len, found)) + 4 * count, data + offsets[-1]
