"""Control frames, and the tables of producers and epochs that they carry.

Each segment begins with a CHECKPOINT, which holds both tables, so that the last segment alone restores everything that
is not a change, whatever retention has deleted. An EPOCH frame tells that a writer opened the log.

The payload of a control frame is ``u32 kind, u32 format`` (0 for format 1) and then, for a CHECKPOINT (kind 1),
``u32 producers, u32 epochs``, the producers (16 bytes id, u64 sequence, u64 version, i64 time) and the epochs (u64 epoch,
u64 first version, and since format 2 u64 random bits); for an EPOCH (kind 2) one epoch.

Two kinds are read, and not written yet. A SKIP (kind 3) stands right before a transaction, is written with it, and tells of
versions that do not exist, because they never did where this log is copied from: from the ``producer_sequence`` of its frame
header up to the ``version`` there, behind which the transaction has the next one. Its payload is nothing more. What follows in the payload of a SCHEMAS
(kind 4) is passed over.

The id of a producer is a UUID of version 5 of its name, or the writer's own. One of version 8 (RFC 9562, 5.8) is that of a
remote producer, for which a server commits: its first 6 bytes are those of its owner, whatever other producers that has. Local
and remote ones are bounded each by themselves, so no client makes the table forget who commits in the process itself.

An epoch is a number, which rises, and 64 random bits, drawn when it begins. Two copies of a directory that are opened give
the same number to different histories; the random bits are what tells these apart.
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
"""How much of the id of a remote producer is that of its owner."""
REMOTE_VERSION: Final = 8
"""The version of the UUID of a remote producer."""

_KIND: Final = Struct("<II")
_COUNTS: Final = Struct("<IIII")
_PRODUCER: Final = Struct("<16sQQq")
_EPOCHS: Final = {0: Struct("<QQ"), FORMAT: Struct("<QQQ")}


class Kind(IntEnum):
    """What a control frame tells."""

    CHECKPOINT = 1
    """First in each segment: the tables."""
    EPOCH = 2
    """A writer opened the log, or forgot something."""
    SKIP = 3
    """Versions that do not exist."""
    SCHEMAS = 4
    """The versions of schemas."""


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
        producers: State of each, those that committed last at the end.
        epochs: In order. An epoch without versions is replaced by the next, so ask for the first one that is
            *greater* than that of a position, never for the next number.
        forgotten: How many producers were dropped for the bounds ``producers`` and ``producer_ttl``.
    """

    def __init__(self) -> None:
        self.producers: OrderedDict[bytes, ProducerState] = OrderedDict()
        self.epochs: tuple[Epoch, ...] = ()
        self.forgotten = 0
        self._counted = self.producers
        self._remote = 0  # of those

    def committed(self, producer: bytes, state: ProducerState, most: int | None = None) -> None:
        """Notes a transaction of a producer.

        If there are more than ``most`` of its kind, local or remote, those of them go that have been idle longest.
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
        """How many remote producers of an owner have committed since a time, in unix microseconds; any thread may ask."""
        while True:
            try:
                return sum(
                    one[:OWNER_BYTES] == owner and _is_remote(one) and state.at >= since
                    for one, state in self.producers.items()
                )
            except RuntimeError:
                continue  # one was added meanwhile

    def _count(self, producer: bytes | None = None) -> None:
        """Notes that one was added; without one, or if the table is another one, all are counted."""
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
        """Notes an epoch."""
        epochs = self.epochs
        if epochs and epochs[-1].first_version >= first_version:
            epochs = epochs[:-1]
        self.epochs = (*epochs, Epoch(epoch, first_version, random))

    def prune(self, most: int, since: int, oldest: int) -> None:
        """Drops producers beyond ``most`` of a kind or idle ``since`` a time, and epochs that nobody needs to know any more.

        The epoch that wrote the version before ``oldest`` stays: it is the one that the position of ``oldest`` names.
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
        """The payload of a CHECKPOINT."""
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
    """The random bits of an epoch that begins; never 0, which means that there are none."""
    return int.from_bytes(filesystem.random_bytes(8), "little") or 1


def encode_epoch(epoch: Epoch) -> bytes:
    """The payload of an EPOCH frame."""
    return _KIND.pack(Kind.EPOCH, FORMAT) + _EPOCHS[FORMAT].pack(*epoch)


def kind_of(payload: Data) -> tuple[Kind, Struct]:
    """The kind of a control frame, and how epochs are told in it.

    Raises:
        FormatTooNew: If it is of a later format, or of a kind that came later.
        ValueError: If it is none.
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
    """Applies a control frame to the tables; returns its kind. A CHECKPOINT replaces them.

    Raises:
        FormatTooNew: If it is of a later format, or of a kind that came later.
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
