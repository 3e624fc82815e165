"""The partition of a key in Kafka, as the Java client and the partitioner ``murmur2`` of librdkafka choose it."""

from typing import Final

__all__ = ["partition_of"]

_FACTOR: Final = 0x5BD1E995
_SEED: Final = 0x9747B28C
_WORD: Final = 0xFFFFFFFF


def partition_of(key: bytes, partitions: int) -> int:
    """Returns the partition of a key.

    Args:
        key: The key of a record.
        partitions: The number of partitions of its topic, from 1.
    """
    return (_murmur2(key) & 0x7FFFFFFF) % partitions


def _murmur2(data: bytes) -> int:
    value = _SEED ^ len(data)
    whole = len(data) & ~3
    for begin in range(0, whole, 4):
        piece = int.from_bytes(data[begin : begin + 4], "little") * _FACTOR & _WORD
        piece = (piece ^ piece >> 24) * _FACTOR & _WORD
        value = (value * _FACTOR & _WORD) ^ piece
    if rest := data[whole:]:
        value = (value ^ int.from_bytes(rest, "little")) * _FACTOR & _WORD
    value = (value ^ value >> 13) * _FACTOR & _WORD
    return value ^ value >> 15
