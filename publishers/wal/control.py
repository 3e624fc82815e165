"""Control frames, and the tables of producers and epochs that they carry.

Each segment begins with a CHECKPOINT, which holds both tables, so that the last segment alone restores everything that
is not a change, whatever retention has deleted. An EPOCH frame tells that a writer opened the log.

The payload of a control frame is ``u32 kind, u32 0`` and then, for a CHECKPOINT (kind 1), ``u32 producers, u32
epochs``, the producers (16 bytes id, u64 sequence, u64 version, i64 time) and the epochs (u64 epoch, u64 first
version); for an EPOCH (kind 2) one epoch.
"""

from collections import OrderedDict
from struct import Struct
from typing import Final, NamedTuple

from publishers.wal.filesystem import Data

__all__ = ["Epoch", "ProducerState", "Tables", "decode_control", "encode_epoch"]

_KIND: Final = Struct("<II")
_COUNTS: Final = Struct("<IIII")
_PRODUCER: Final = Struct("<16sQQq")
_EPOCH: Final = Struct("<QQ")
_CHECKPOINT: Final = 1
_OPENED: Final = 2


class ProducerState(NamedTuple):
    """The last transaction of a producer.

    Attributes:
        sequence: Its number.
        version: Its version.
        at: When it was committed, unix microseconds.
    """

    sequence: int
    version: int
    at: int


class Epoch(NamedTuple):
    """An opening for writing, and the first version that could be committed in it."""

    epoch: int
    first_version: int


class Tables:
    """Producers and epochs. Not thread-safe; single operations are atomic for readers.

    Attributes:
        producers: State of each, those that committed last at the end.
        epochs: In order. An epoch without versions is replaced by the next, so ask for the first one that is
            *greater* than that of a position, never for the next number.
        forgotten: How many producers were dropped for the bounds ``producers`` and ``producer_ttl``.
    """

    def __init__(self) -> None:
        self.producers: OrderedDict[bytes, ProducerState] = OrderedDict()
        self.epochs: tuple[Epoch, ...] = ()
        self.forgotten = 0

    def committed(self, producer: bytes, state: ProducerState, most: int | None = None) -> None:
        """Notes a transaction of a producer; the ones that have been idle longest go if there are more than ``most``."""
        producers = self.producers
        producers[producer] = state
        producers.move_to_end(producer)
        while most is not None and len(producers) > most:
            producers.popitem(last=False)
            self.forgotten += 1

    def opened(self, epoch: int, first_version: int) -> None:
        """Notes an epoch."""
        epochs = self.epochs
        if epochs and epochs[-1].first_version >= first_version:
            epochs = epochs[:-1]
        self.epochs = (*epochs, Epoch(epoch, first_version))

    def prune(self, most: int, since: int, oldest: int) -> None:
        """Drops producers beyond ``most`` or idle ``since`` a time, and epochs that ended before version ``oldest``."""
        producers = self.producers
        while producers and (len(producers) > most or next(iter(producers.values())).at < since):
            producers.popitem(last=False)
            self.forgotten += 1
        epochs = self.epochs
        while len(epochs) > 1 and epochs[1].first_version <= oldest:
            epochs = epochs[1:]
        self.epochs = epochs

    def encode(self) -> bytes:
        """The payload of a CHECKPOINT."""
        return b"".join(
            (
                _COUNTS.pack(_CHECKPOINT, 0, len(self.producers), len(self.epochs)),
                *(_PRODUCER.pack(producer, *state) for producer, state in self.producers.items()),
                *(_EPOCH.pack(*epoch) for epoch in self.epochs),
            )
        )


def encode_epoch(epoch: Epoch) -> bytes:
    """The payload of an EPOCH frame."""
    return _KIND.pack(_OPENED, 0) + _EPOCH.pack(*epoch)


def decode_control(payload: Data, tables: Tables) -> bool:
    """Applies a control frame to the tables; True if it was a CHECKPOINT, which replaces them.

    Raises:
        ValueError: If the payload is malformed or of an unknown kind.
    """
    view = memoryview(payload)
    kind = _KIND.unpack_from(view)[0] if len(view) >= _KIND.size else 0
    if kind == _OPENED and len(view) == _KIND.size + _EPOCH.size:
        tables.opened(*_EPOCH.unpack_from(view, _KIND.size))
        return False
    if kind != _CHECKPOINT or len(view) < _COUNTS.size:
        raise ValueError(f"a control frame of unknown kind {kind} with {len(view)} bytes")
    _, _, producers, epochs = _COUNTS.unpack_from(view)
    at = _COUNTS.size
    middle = at + producers * _PRODUCER.size
    if len(view) != middle + epochs * _EPOCH.size:
        raise ValueError(f"a checkpoint of {len(view)} bytes for {producers} producers and {epochs} epochs")
    tables.producers = OrderedDict(
        (producer, ProducerState(sequence, version, time))
        for producer, sequence, version, time in _PRODUCER.iter_unpack(view[at:middle])
    )
    tables.epochs = tuple(Epoch(*epoch) for epoch in _EPOCH.iter_unpack(view[middle:]))
    return True
