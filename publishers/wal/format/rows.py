"""A few changes on the short way into the payload of a frame, and from it to those who want objects.

Most transactions are small. To make columns of them first, and to take these apart again for subscribers, costs several
times what the bytes cost. So a few changes are encoded straight, to the bytes that `encode_payload` makes of the same
changes, and stay what they were until somebody asks for columns.
"""

from array import array
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from struct import Struct
from typing import Any, Final

from publishers.wal.format.columns import PADDING, Columns, bitmap, decode_payload, encode_names

__all__ = ["ROWS_MAX", "Rows"]

ROWS_MAX: Final = 64
"""Most changes for which this is the shorter way."""

_PAIR: Final = Struct("<II")


_SHAPES: Final = tuple(
    (
        Struct(f"<{count + 1}i{(count + 1) % 2 * 4}x").pack,
        ((1 << count) - 1).to_bytes(8, "little"),
        (None,) * count,
    )
    for count in range(ROWS_MAX + 1)
)
"""By the number of changes: packs the offsets of a column; the bitmap of one that lacks nothing; one that lacks everything."""
_BYTES: Final = frozenset({bytes})


@lru_cache(256)
def _head(names: tuple[str, ...]) -> bytes:
    encoded = encode_names(names)
    return encoded + PADDING[-len(encoded) & 7]


class Rows(Columns):
    """Columns that were encoded as rows. They are taken apart when somebody asks for keys, images and the like.

    Attributes:
        count, nbytes: As those of `Columns`.
        payload: All of it, as it is stored.
        annotations: What of it is not of the changes.
        values: Kinds, entity types, keys, bodies, befores, lists of changed fields and metas, one for each change; None
            once they have become columns.
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
        """Encodes at most ``ROWS_MAX`` changes, and at least one.

        Raises:
            TypeError: If something is no bytes.
            struct.error: If a column holds 2 GiB or more.
        """
        count = len(kinds)
        offsets, valid, missing = _SHAPES[count]
        head = types[0]
        names = (head,) if types.count(head) == count else tuple(dict.fromkeys(types))
        parts = [b"", annotations, PADDING[-len(annotations) & 7], _head(names), kinds, PADDING[-count & 7]]
        nbytes = 24 + count
        self.type_ids = None
        if len(names) > 1:
            places = dict(zip(names, range(count), strict=False))
            ids = array("H", map(places.__getitem__, types))
            self.type_ids = memoryview(ids)
            parts += (ids.tobytes(), PADDING[-2 * count & 7])
            nbytes += 2 * count
        values: tuple[Sequence[Any], ...] = (kinds, types, keys, *optional)
        size = present = 0
        bit = 1
        for column in values[2:]:
            if bit == 1 or column != missing:  # keys are never missing
                present |= bit
                stored = column
                if bit > 1:
                    parts.append(PADDING[-size & 7])
                    if None in column:
                        parts.append(bitmap([value is not None for value in column]).ljust(8, b"\0"))
                        stored = [value or b"" for value in column]
                    else:
                        parts.append(valid)
                if not _BYTES.issuperset(map(type, stored)):
                    raise TypeError("bytes are stored, and nothing else")
                data = b"".join(stored)
                size = len(data)
                ends = accumulate(map(len, stored), initial=0) if count > 1 else (0, size)
                parts += (offsets(*ends), data)
                nbytes += 5 * count + size
            bit <<= 1
        parts[0] = _PAIR.pack(present, len(annotations))
        self.count = count  # type: ignore[misc]  # a slot of its own, in place of what columns find out
        self.nbytes = nbytes + sum(map(len, names)) + 4 * len(names)  # type: ignore[misc]  # likewise
        self.kinds = memoryview(kinds)
        self.entity_types = names
        self.annotations = annotations
        self.payload = b"".join(parts)
        self.values = values

    def __getattr__(self, name: str) -> Any:
        if name not in Columns.__slots__:
            raise AttributeError(name)
        whole, _ = decode_payload(self.payload, self.count)
        for slot in Columns.__slots__:
            setattr(self, slot, getattr(whole, slot))
        self.values = None
        return getattr(whole, name)
