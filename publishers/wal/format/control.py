"""Control frames, and the tables of producers and epochs in them.

Each segment begins with a CHECKPOINT. It holds both tables, so the last segment alone restores everything except
the changes, whatever retention has deleted. An EPOCH frame records that a writer opened the log.

The payload of a control frame is ``u32 kind, u32 format`` (0 for format 1). For a CHECKPOINT (kind 1) follow
``u32 producers, u32 epochs``, the producers (16 bytes id, u64 sequence, u64 version, i64 time) and the epochs (u64 epoch,
u64 first version, and since format 2 u64 random bits); for an EPOCH (kind 2) follows one epoch.

Two kinds are read, but not written yet. A SKIP (kind 3) stands right before a transaction and is written with it. It lists
versions that do not exist here, because they never existed in the log that this one is copied from: from the
``producer_sequence`` of its frame header up to the ``version`` there. The transaction has the next version. A SKIP has no
further payload. The rest of the payload of a SCHEMAS (kind 4) is ignored.

The id of a producer is a UUID of version 5 made from its name, or the writer's own UUID. A UUID of version 8 (RFC 9562 §5.8)
belongs to a remote producer, for which a server commits: its first 6 bytes identify the owner of that producer. Local and
remote producers have separate bounds, so no client can make the table forget a producer of the process itself.

An epoch is a number, which rises, and 64 random bits, drawn when it begins. If two copies of a directory are opened, two
different histories get the same number; the random bits distinguish them.
"""

from collections import OrderedDict
from enum import IntEnum
from struct import Struct
from typing import Final, NamedTuple

from publishers.errors import FormatTooNew
from publishers.wal.disk.filesystem import Data, FileSystem
from publishers.wal.files.segment import FORMAT

__all__ = [
    "OWNER_BYTES",
    "REMOTE_VERSION",
    "ControlTables",
    "Epoch",
    "Kind",
    "ProducerState",
    "decode_control",
    "draw_random",
    "encode_epoch",
    "kind_of",
]

OWNER_BYTES: Final = 6
"""Leading bytes of the id of a remote producer that identify its owner."""
REMOTE_VERSION: Final = 8
"""The UUID version of a remote producer."""

_KIND: Final = Struct("<II")
_COUNTS: Final = Struct("<IIII")
_PRODUCER: Final = Struct("<16sQQq")
_EPOCHS: Final = {0: Struct("<QQ"), FORMAT: Struct("<QQQ")}


class Kind(IntEnum):
    """Kinds of control frames."""

    CHECKPOINT = 1
    """First frame of each segment: the tables."""
    EPOCH = 2
    """A writer opened the log, or truncated it."""
    SKIP = 3
    """Versions that do not exist."""
    SCHEMAS = 4
    """The versions of schemas."""


class ProducerState(NamedTuple):
    """The last transaction of a producer.

    Attributes:
        sequence: The producer's sequence.
        version: The version of the transaction.
        at: Commit time in microseconds since the Unix epoch.
    """

    sequence: int
    version: int
    at: int


class Epoch(NamedTuple):
    """An opening for writing, and the first version that could be committed in it.

    Attributes:
        epoch: Its number.
        first_version: The first version.
        random: Its random bits; 0 for an epoch of format 1, which has none.
    """

    epoch: int
    first_version: int
    random: int = 0


class ControlTables:
    """Producers and epochs. Not thread-safe; single operations are atomic for readers.

    Attributes:
        producers: State of each producer; the latest commits are at the end.
        epochs: In order. The next epoch replaces one without versions, so look for the first epoch that is
            *greater* than that of a position, never for the next number.
        forgotten: Number of producers dropped for the bounds ``producers`` and ``producer_ttl``.
    """

    def __init__(self) -> None:
        self.producers: OrderedDict[bytes, ProducerState] = OrderedDict()
        self.epochs: tuple[Epoch, ...] = ()
        self.forgotten = 0
        self._counted = self.producers
        self._remote = 0  # number of remote producers in _counted

    def committed(self, producer: bytes, state: ProducerState, most: int | None = None) -> None:
        """Records a transaction of a producer.

        If this makes more than ``most`` producers of its kind, local or remote, the longest idle ones of that kind are dropped.
        """
        producers = self.producers
        known = len(producers)
        producers[producer] = state
        producers.move_to_end(producer)
        if len(producers) > known:
            self._count(producer)
            if most is not None:
                self._bound(most, remote=_is_remote(producer))

    def of_owner(self, owner: bytes, since: int) -> int:
        """Counts an owner's remote producers that have committed since a time in microseconds since the Unix epoch. Thread-safe."""
        while True:
            try:
                return sum(
                    one[:OWNER_BYTES] == owner and _is_remote(one) and state.at >= since
                    for one, state in self.producers.items()
                )
            except RuntimeError:
                continue  # a producer was added meanwhile

    def _count(self, producer: bytes | None = None) -> None:
        """Counts an added producer; without an argument, or if the table was replaced, counts all again."""
        if self._counted is self.producers and producer is not None:
            self._remote += _is_remote(producer)
        else:
            self._counted = self.producers
            self._remote = sum(map(_is_remote, self.producers))

    def _bound(self, most: int, *, remote: bool) -> None:
        producers = self.producers
        while (self._remote if remote else len(producers) - self._remote) > most:
            del producers[next(one for one in producers if _is_remote(one) is remote)]
            self._remote -= remote
            self.forgotten += 1

    def opened(self, epoch: int, first_version: int, random: int = 0) -> None:
        """Records an epoch."""
        epochs = self.epochs
        if epochs and epochs[-1].first_version >= first_version:
            epochs = epochs[:-1]
        self.epochs = (*epochs, Epoch(epoch, first_version, random))

    def prune(self, most: int, since: int, oldest: int) -> None:
        """Drops producers beyond ``most`` of a kind or idle since before ``since``, and epochs that no position needs any more.

        The epoch that wrote the version before ``oldest`` stays, because the token of ``oldest`` names it.
        """
        producers = self.producers
        while producers and next(iter(producers.values())).at < since:
            producers.popitem(last=False)
            self.forgotten += 1
        self._count()
        self._bound(most, remote=False)
        self._bound(most, remote=True)
        epochs = self.epochs
        while len(epochs) > 1 and epochs[1].first_version < oldest:
            epochs = epochs[1:]
        self.epochs = epochs

    def encode(self) -> bytes:
        """Encodes the payload of a CHECKPOINT."""
        return b"".join(
            (
                _COUNTS.pack(Kind.CHECKPOINT, FORMAT, len(self.producers), len(self.epochs)),
                *(_PRODUCER.pack(producer, *state) for producer, state in self.producers.items()),
                *(_EPOCHS[FORMAT].pack(*epoch) for epoch in self.epochs),
            )
        )


def _is_remote(producer: bytes) -> bool:
    return producer[6] >> 4 == REMOTE_VERSION


def draw_random(filesystem: FileSystem) -> int:
    """Draws the random bits of a new epoch; never 0, which means that an epoch has none."""
    return int.from_bytes(filesystem.random_bytes(8), "little") or 1


def encode_epoch(epoch: Epoch) -> bytes:
    """Encodes the payload of an EPOCH frame."""
    return _KIND.pack(Kind.EPOCH, FORMAT) + _EPOCHS[FORMAT].pack(*epoch)


def kind_of(payload: Data) -> tuple[Kind, Struct]:
    """Returns the kind of a control frame, and the layout of its epochs.

    Raises:
        FormatTooNew: If its format or kind is newer than this version of penstock.
        ValueError: If it is not a control frame.
    """
    if len(payload) < _KIND.size:
        raise ValueError(f"a control frame of {len(payload)} bytes")
    kind, form = _KIND.unpack_from(payload)
    if form > FORMAT:
        raise FormatTooNew(form, FORMAT)
    if kind > max(Kind):
        raise FormatTooNew(kind, max(Kind), "control kind")
    if not kind or form not in _EPOCHS:
        raise ValueError(f"a control frame of kind {kind} and format {form}")
    return Kind(kind), _EPOCHS[form]


def decode_control(payload: Data, tables: ControlTables) -> Kind:
    """Applies a control frame to the tables and returns its kind. A CHECKPOINT replaces the tables.

    Raises:
        FormatTooNew: If its format or kind is newer than this version of penstock.
        ValueError: If the payload is malformed.
    """
    view = memoryview(payload)
    kind, epoch = kind_of(view)
    if kind in (Kind.SKIP, Kind.SCHEMAS):
        return kind
    if kind is Kind.EPOCH:
        if len(view) != _KIND.size + epoch.size:
            raise ValueError(f"an epoch of {len(view)} bytes")
        tables.opened(*epoch.unpack_from(view, _KIND.size))
        return kind
    if len(view) < _COUNTS.size:
        raise ValueError(f"a checkpoint of {len(view)} bytes")
    _, _, producers, epochs = _COUNTS.unpack_from(view)
    at = _COUNTS.size
    middle = at + producers * _PRODUCER.size
    if len(view) != middle + epochs * epoch.size:
        raise ValueError(f"a checkpoint of {len(view)} bytes for {producers} producers and {epochs} epochs")
    tables.producers = OrderedDict(
        (producer, ProducerState(sequence, version, time))
        for producer, sequence, version, time in _PRODUCER.iter_unpack(view[at:middle])
    )
    tables.epochs = tuple(Epoch(*found) for found in epoch.iter_unpack(view[middle:]))
    return kind
