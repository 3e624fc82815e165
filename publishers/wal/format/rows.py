"""Encodes a few changes directly into the payload of a frame, and keeps them for subscribers that want objects.

Most transactions are small. Making columns of them first, and decoding these again for subscribers, costs several
times more than the bytes themselves. So a few changes are encoded directly, to the same bytes that `encode_payload` makes,
and stay rows until columns are needed.
"""

from array import array
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from struct import Struct
from typing import Any, Final

from publishers.wal.format.columns import PADDING, Columns, bitmap, encode_names
from publishers.wal.format.stored import decode_payload

__all__ = ["ROWS_MAX", "Rows"]

ROWS_MAX: Final = 64
"""Most changes for which the direct encoding is faster."""

_PAIR: Final = Struct("<II")


_SHAPES: Final = tuple(
    (
        Struct(f"<{count + 1}i{(count + 1) % 2 * 4}x").pack,
        ((1 << count) - 1).to_bytes(8, "little"),
        (None,) * count,
    )
    for count in range(ROWS_MAX + 1)
)
"""By number of changes: the packer of a column's offsets; the bitmap of a complete column; a column without any value."""
_NONE: Final = type(None)
_BYTES: Final = frozenset({bytes})
_MAYBE: Final = frozenset({bytes, _NONE})


@lru_cache(256)
def _head(kinds: bytes, types: tuple[str, ...]) -> tuple[tuple[str, ...], memoryview | None, bytes, int]:
    """Returns what depends on kinds and entity types alone: names and ids, their part of the payload, and its `nbytes`."""
    count = len(kinds)
    names = tuple(dict.fromkeys(types))
    encoded = encode_names(names)
    parts = [encoded, PADDING[-len(encoded) & 7], kinds, PADDING[-count & 7]]
    nbytes = 24 + count + sum(map(len, names)) + 4 * len(names)
    ids = None
    if len(names) > 1:
        ids = array("H", map(names.index, types)).tobytes()
        parts += (ids, PADDING[-2 * count & 7])
        nbytes += 2 * count
    return names, None if ids is None else memoryview(ids).cast("H"), b"".join(parts), nbytes


class Rows(Columns):
    """Columns that were encoded from rows. They are decoded when keys, images or the like are first read.

    Attributes:
        count, nbytes: As those of `Columns`.
        payload: The whole payload as stored.
        annotations: The annotations in it.
        values: Kinds, entity types, keys, bodies, befores, lists of changed fields and metas, one for each change; None
            once they are decoded into columns.
    """

    __slots__ = ("annotations", "count", "nbytes", "payload", "values")

    def __init__(
        self,
        kinds: bytes,
        types: Sequence[str],
        keys: Sequence[bytes],
        *optional: Sequence[bytes | None],
        annotations: bytes,
    ) -> None:
        """Encodes at least one and at most ``ROWS_MAX`` changes.

        Raises:
            TypeError: If a value is not bytes.
            struct.error: If a column holds 2 GiB or more.
        """
        count = len(kinds)
        offsets, valid, missing = _SHAPES[count]
        names, type_ids, head, nbytes = _head(kinds, tuple(types))
        self.entity_types: tuple[str, ...] = names
        self.type_ids: memoryview | None = type_ids
        parts = [b"", annotations, PADDING[-len(annotations) & 7], head]
        values: tuple[Sequence[Any], ...] = (kinds, types, keys, *optional)
        size = present = 0
        bit = 1
        for column in values[2:]:
            if bit == 1 or column != missing:  # keys are never missing
                present |= bit
                stored = column
                held = {*map(type, column)}
                if bit > 1:
                    parts.append(PADDING[-size & 7])
                    if _NONE in held:
                        parts.append(bitmap([value is not None for value in column]).ljust(8, b"\0"))
                        stored = [value or b"" for value in column]
                    else:
                        parts.append(valid)
                if not held <= (_MAYBE if bit > 1 else _BYTES):
                    raise TypeError("bytes are stored, and nothing else")
                data = b"".join(stored)
                size = len(data)
                ends = accumulate(map(len, stored), initial=0) if count > 1 else (0, size)
                parts += (offsets(*ends), data)
                nbytes += 5 * count + size
            bit <<= 1
        parts[0] = _PAIR.pack(present, len(annotations))
        self.count: int = count  # a slot replaces the computed property of Columns
        self.nbytes: int = nbytes
        self.kinds: memoryview[int] = memoryview(kinds)
        self.annotations: bytes = annotations
        self.payload: bytes = b"".join(parts)
        self.values: tuple[Sequence[Any], ...] | None = values

    def __getattr__(self, name: str) -> Any:
        if name not in Columns.__slots__:
            raise AttributeError(name)
        whole, _ = decode_payload(self.payload, self.count)
        for slot in Columns.__slots__:
            setattr(self, slot, getattr(whole, slot))
        self.values = None
        return getattr(whole, name)
