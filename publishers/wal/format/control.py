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
belongs to a remote producer, for which a server commits: its first 6 bytes identify the owner of that producer. The variant
bits 11 mark the producer of one connection, whose name is drawn at random and never used again. These three kinds have
separate bounds, and beyond a bound the owner that has most of them loses its longest idle one. So no client can make the
table forget a producer of the process itself, or of another owner that has fewer, or with drawn names a producer with a name.

An epoch is a number, which rises, and 64 random bits, drawn when it begins. If two copies of a directory are opened, two
different histories get the same number; the random bits distinguish them.
"""

from collections import OrderedDict
from collections.abc import Iterable
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
    "ProducerKind",
    "ProducerState",
    "decode_control",
    "draw_random",
    "encode_epoch",
    "kind_of",
    "marked",
    "unmarked",
]

OWNER_BYTES: Final = 6
"""Leading bytes of the id of a remote producer that identify its owner."""
REMOTE_VERSION: Final = 8
"""The UUID version of a remote producer."""

_MARK: Final = 0xC0  # variant bits of the producer of one connection, in the byte 8
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


class ProducerKind(IntEnum):
    """Kinds of producers, each with a bound of its own."""

    LOCAL = 0
    """Of a process that owned the log."""
    REMOTE = 1
    """Of a client, under a name that it chose."""
    CONNECTION = 2
    """Of one connection of a client, under a drawn name."""


_KINDS: Final = {
    0: ProducerKind.LOCAL,
    OWNER_BYTES: ProducerKind.REMOTE,
    OWNER_BYTES + 1: ProducerKind.CONNECTION,
}


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
        self.epochs: tuple[Epoch, ...] = ()
        self.forgotten: int = 0
        self.restore(())

    def restore(self, producers: Iterable[tuple[bytes, ProducerState]]) -> None:
        """Replaces the producers; the latest commits come last."""
        self.producers: OrderedDict[bytes, ProducerState] = OrderedDict()
        # The producers of each kind by owner (see `_owner_of`), the longest idle ones first, and their number by kind.
        self._owned: dict[bytes, OrderedDict[bytes, None]] = {}
        self._known = [0] * len(ProducerKind)
        for producer, state in producers:
            self.committed(producer, state)

    def committed(self, producer: bytes, state: ProducerState, most: int | None = None) -> None:
        """Records a transaction of a producer.

        If this makes more than ``most`` producers of its kind, the owner that has most of them loses its longest idle ones.
        """
        producers, owner = self.producers, _owner_of(producer)
        known = producer in producers
        producers[producer] = state
        if known:
            producers.move_to_end(producer)
            self._owned[owner].move_to_end(producer)
            return
        owned = self._owned.get(owner)
        if owned is None:
            owned = self._owned[owner] = OrderedDict()
        owned[producer] = None
        kind = _KINDS[len(owner)]
        self._known[kind] += 1
        if most is not None:
            self._bound(most, kind)

    def of_owner(self, owner: bytes, since: int) -> int:
        """Counts an owner's remote producers with chosen names that have committed since a time. Thread-safe.

        Args:
            owner: The owner.
            since: Microseconds since the Unix epoch.
        """
        while True:
            try:
                count = 0
                for one in reversed(self._owned.get(owner, {})):
                    if self.producers[one].at < since:
                        break
                    count += 1
                return count
            except (KeyError, RuntimeError):
                continue  # a producer was added or dropped meanwhile

    def _bound(self, most: int, kind: ProducerKind) -> None:
        while self._known[kind] > most:
            most_owned = max(
                (owned for owner, owned in self._owned.items() if _KINDS[len(owner)] is kind), key=len
            )
            self._forget(next(iter(most_owned)))

    def _forget(self, producer: bytes) -> None:
        owner = _owner_of(producer)
        owned = self._owned[owner]
        del self.producers[producer], owned[producer]
        if not owned:
            del self._owned[owner]
        self._known[_KINDS[len(owner)]] -= 1
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
        while self.producers and next(iter(self.producers.values())).at < since:
            self._forget(next(iter(self.producers)))
        for kind in ProducerKind:
            self._bound(most, kind)
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


def marked(producer: bytes) -> bytes:
    """Returns the id of a remote producer as that of the producer of one connection."""
    return producer[:8] + bytes([producer[8] | _MARK]) + producer[9:]


def unmarked(producer: bytes) -> bytes:
    """Returns the id that the producer of one connection had before such ids were marked; another id as it is."""
    if _KINDS[len(_owner_of(producer))] is not ProducerKind.CONNECTION:
        return producer
    return producer[:8] + bytes([producer[8] & 0x3F | 0x80]) + producer[9:]


def _owner_of(producer: bytes) -> bytes:
    """Returns the owner of a producer and of all others of its kind, in as many bytes as `_KINDS` has for the kind."""
    if producer[6] >> 4 != REMOTE_VERSION:
        return b""
    return producer[:OWNER_BYTES] if producer[8] < _MARK else producer[:OWNER_BYTES] + b"\0"


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
    tables.restore(
        (producer, ProducerState(sequence, version, time))
        for producer, sequence, version, time in _PRODUCER.iter_unpack(view[at:middle])
    )
    tables.epochs = tuple(Epoch(*found) for found in epoch.iter_unpack(view[middle:]))
    return kind
