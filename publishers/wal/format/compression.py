"""Compressed payloads: a u32 raw length and a zlib stream."""

import zlib
from typing import Final

from publishers.wal.disk.filesystem import Data

__all__ = ["deflate", "inflate"]

_COMPRESS_FROM: Final = 4096
_RAW_LENGTH: Final = 4


def deflate(payload: bytes) -> bytes:
    """Compresses a payload; empty if compression does not pay."""
    raw = len(payload)
    if raw < _COMPRESS_FROM:
        return b""
    packed = raw.to_bytes(_RAW_LENGTH, "little") + zlib.compress(payload, 1)
    return packed if len(packed) < raw else b""


def inflate(payload: Data, most: int) -> bytes:
    """Decompresses a payload of at most ``most`` raw bytes.

    Raises:
        ValueError: If it is not a compressed payload of that length.
    """
    raw = int.from_bytes(payload[:_RAW_LENGTH], "little")
    if raw > most:
        raise ValueError(f"a compressed payload claims {raw} bytes, more than the {most} of its transaction")
    stream = zlib.decompressobj()
    try:
        data = stream.decompress(payload[_RAW_LENGTH:], raw + 1)
    except zlib.error as error:
        raise ValueError(f"a malformed compressed payload: {error}") from error
    if len(data) != raw or not stream.eof:
        raise ValueError(f"a compressed payload holds {len(data)} bytes instead of {raw}")
    return data
