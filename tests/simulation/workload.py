"""T1: a random life of a log on the simulated disk, beside a model that is a list of transactions.

One seed draws everything: the options, the transactions, the faults, and where the power goes. `Trial.run` raises
`AssertionError` if the log breaks its promise:

* nothing acknowledged, and nothing that a follower was shown, is ever lost;
* what is there is an unbroken run of whole transactions, byte for byte those that were given;
* producers and epochs come back as they were;
* whoever holds history finds it after a crash from where he made his place durable, unless the hold was lost;
* what was not damaged is never called corrupted.
"""

import contextlib
import random
from dataclasses import dataclass, field
from itertools import repeat
from pathlib import Path
from uuid import UUID

from publishers.errors import LogFailed, LogFull
from publishers.model.position import Position
from publishers.options import LogOptions
from publishers.wal import Column, Columns, Follower, Hold, HoldState, Transaction, Wal, seal_transaction
from publishers.wal.files.segment import segment_number
from publishers.wal.read.reader import Frame
from tests.harness.inside import catalog_of, writer_of
from tests.simulation.filesystem import PowerCut, SimulatedFileSystem

Change = tuple[int, bytes | None, bytes | None]

LOG = Path("/log")
PRODUCERS = tuple(UUID(int=number + 1) for number in range(3))


_SMALL = (0, 1, 30, 300, 423, 424, 425, 512 - 80, 900, 2000, 4096, 9000)
_LARGE = (*_SMALL[-4:], 15_000, 25_000, 40_000, 64_000)


class Clock:
    """Microseconds that a test moves; sometimes backwards, as clocks do. The monotonic clock only follows forward."""

    def __init__(self, now: int = 1_000_000_000) -> None:
        self.now = self._furthest = now

    def now_us(self) -> int:
        return self.now

    def monotonic(self) -> float:
        self._furthest = max(self._furthest, self.now)
        return self._furthest / 1e6


@dataclass
class Given:
    """A transaction as it was handed in: what must be read back."""

    changes: list[tuple[int, bytes, bytes | None]]
    annotations: bytes
    producer: UUID | None
    sequence: int


@dataclass
class Model:
    """What the log must hold.

    Attributes:
        given: Every version that was appended last under that number, acknowledged or not.
        acknowledged: Newest version whose sync returned, or that was shown to a follower.
        oldest: Oldest version that retention has left, as last seen.
        epoch: Of the last opening that was compared.
        drawn: Random bits of such openings.
    """

    given: dict[int, Given] = field(default_factory=dict)
    acknowledged: int = 0
    oldest: int = 0
    epoch: int = 0
    drawn: set[int] = field(default_factory=set)


@dataclass
class Reader:
    """Somebody who reads slowly and holds what he has not read: a slot, as rooms above the log have them.

    Attributes:
        stored: Where he would go on after a crash.
        hold: What he has registered in this life of the log.
    """

    stored: int = 0
    hold: Hold | None = None

    def sync(self) -> None:
        assert self.hold is not None
        self.stored = self.hold.position.version

    def lose(self, hold: Hold) -> None:
        """He has to begin anew, behind what is gone."""
        self.stored = 0


def columns_of(changes: list[tuple[int, bytes, bytes | None]]) -> Columns:
    kinds = memoryview(bytes(kind for kind, _, _ in changes))
    keys = Column.of([key for _, key, _ in changes])
    return Columns(kinds, ("Product",), None, keys, Column.of([body for _, _, body in changes]))


class Trial:
    """One seed.

    Attributes:
        lives: How many there are at least and at most, before the last one, which has no faults.
        steps: How many each of them has.
        sizes: Bytes of a transaction, in small and in heavy trials.
        counts: Changes of one.
        keeping: What a hold that has a bound may keep.
    """

    lives = (1, 4)
    steps = (1, 14)
    sizes: tuple[tuple[int, ...], tuple[int, ...]] = (_SMALL, _LARGE)
    counts: tuple[int, ...] = (0, 1, 1, 1, 3, 20)
    keeping = 100_000

    def __init__(self, seed: int, *, trace: bool = False) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.system = SimulatedFileSystem(seed ^ 0x5EED, trace=trace)
        self.clock = Clock()
        self.model = Model()
        self.options = self.draw_options()
        self.heavy = self.rng.random() < 0.4
        self.waiting: dict[UUID, int] = {}
        self.unanswered: Given | None = None
        self.readers = [Reader() for _ in range(self.rng.choice([0, 0, 1, 2]))]
        self._taken_apart: dict[tuple[bytes, int, int, int], tuple[list[Change], bytes]] = {}
        self.rolls = self.retentions = self.recoveries_cut = self.retries = self.held = self.losses = 0

    def run(self) -> None:
        rng = self.rng
        for _ in range(rng.randint(*self.lives)):
            self.life()
        # The last word: a life without faults, in which everything is compared.
        self.system.faults.clear()
        wal = self.reopen()
        self.compare(wal)
        wal.close()
        wal = self.reopen()
        self.compare(wal)
        wal.abandon()

    def draw_options(self) -> LogOptions:
        rng = self.rng
        return LogOptions(
            segment_bytes=65536,
            segment_age=rng.choice([None, None, 5.0]),
            frame_bytes=rng.choice([1024, 2048, 4096]),
            spool_bytes=rng.choice([3000, 1 << 20]),
            fill_step=rng.choice([0, 700, 4096, 20000]),
            head_sync=rng.choice([0.0, 1.0]),
            compress=rng.random() < 0.2,
            retain_bytes=rng.choice([None, 0, 70_000]),
            retain_age=rng.choice([None, 10.0]),
            reserve_bytes=4096 * (self.seed % 2),
        )

    # --- a life ------------------------------------------------------------------------------------------------------

    def life(self) -> None:
        rng = self.rng
        system = self.system
        system.faults.clear()
        if rng.random() < 0.8:
            system.faults[system.operations + _near(rng)] = "crash"
        if rng.random() < 0.3:
            kind = rng.choice(["EIO", "ENOSPC", "ENOSPC", "short"])
            system.faults[system.operations + _near(rng)] = kind
        wal: Wal | None = None
        try:
            wal = self.reopen()
            self.compare(wal, fully=rng.random() < 0.3)
            self.register(wal)
            for _ in range(rng.randint(*self.steps)):
                self.step(wal)
                if wal.failed:
                    break
            if rng.random() < 0.5 and not wal.failed:
                wal.close()
                self.model.acknowledged = wal.appended
        except PowerCut:
            pass
        except (LogFailed, LogFull):
            if wal is not None and not wal.failed:
                raise
        if system.dead and rng.random() < 0.15:
            system.kill()
        elif rng.random() < 0.85:
            system.power_cut()
        else:
            system.kill()

    def register(self, wal: Wal) -> None:
        """Each reader goes on from where he has stored that he was; it must still be there."""
        for number, reader in enumerate(self.readers):
            if reader.hold is not None and reader.hold.state is HoldState.LOST:
                reader.stored = 0  # a crash may have come before he was told
            start = min(reader.stored or wal.reader.oldest, wal.appended + 1)
            assert start >= wal.reader.oldest, (
                f"reader {number} stored {start}, but {wal.reader.oldest} is the oldest"
            )
            reader.hold = wal.retention.holds.add(
                str(number),
                Position(start),
                keep_bytes=self.rng.choice([None, None, self.keeping]),
                sync=reader.sync,
                on_lost=reader.lose,
            )
            reader.stored = start

    def advance(self, wal: Wal) -> None:
        """Some readers read on; now and then one stores where he is."""
        for reader in self.readers:
            hold = reader.hold
            if hold is None or hold.state is HoldState.LOST:
                continue
            if self.rng.random() < 0.5:
                hold.move(
                    Position(self.rng.randint(hold.position.version, max(hold.position.version, wal.durable)))
                )
            if self.rng.random() < 0.1:
                reader.sync()

    def reopen(self) -> Wal:
        """Opens; the power may fail during recovery too, as often as it likes."""
        while True:
            try:
                return Wal.open(LOG, self.options, filesystem=self.system, clock=self.clock)
            except PowerCut:
                self.recoveries_cut += 1
                self.system.power_cut()
                self.system.faults.clear()
                if self.rng.random() < 0.4:
                    self.system.faults[self.system.operations + self.rng.randint(1, 15)] = "crash"
            except (LogFailed, LogFull):
                self.system.faults.clear()
                if self.rng.random() < 0.5:
                    self.system.kill()
                else:
                    self.system.power_cut()

    def step(self, wal: Wal) -> None:
        rng = self.rng
        self.clock.now += rng.choice([-5000, 0, 1, 700, 400_000, 3_000_000])
        roll = rng.random()
        if roll < 0.62:
            self.commit(wal)
        elif roll < 0.85:
            self.maintain(wal)
        elif roll < 0.92:
            self.follow(wal)
        elif wal.durable:
            with contextlib.suppress(LogFull):
                wal.vouch(rng.randint(1, wal.durable))

    def commit(self, wal: Wal) -> None:
        rng = self.rng
        group = [self.draw() for _ in range(rng.choice([1, 1, 1, 2, 5]))]
        sealed: list[Transaction] = []
        try:
            sealed.extend(self.seal(given) for given in group)
        except OSError:
            for transaction in sealed:
                transaction.discard()
            return
        before = wal.appended
        # What may be on disk from here on, under the versions that it would get.
        self.forget(before)
        self.unanswered = group[-1]
        for offset, given in enumerate(group):
            self.model.given[before + 1 + offset] = given
        active = writer_of(wal).active.number
        try:
            done = wal.append(sealed)
        except LogFull:
            assert wal.appended == before
            self.forget(before)
            return
        finally:
            if not self.system.dead:
                for transaction in sealed:
                    self.discard(transaction)
        assert [item.version for item in done] == list(range(before + 1, wal.appended + 1))
        self.forget(wal.appended)
        self.rolls += writer_of(wal).active.number - active
        if rng.random() < 0.8:
            assert wal.sync() == wal.appended
            self.model.acknowledged = wal.appended
            self.unanswered = None
            if rng.random() < 0.7:
                wal.publish_tail(wal.visible)

    def forget(self, newest: int) -> None:
        """Nothing above ``newest`` may be found any more."""
        for version in [version for version in self.model.given if version > newest]:
            del self.model.given[version]

    def discard(self, transaction: Transaction) -> None:
        with contextlib.suppress(OSError):
            transaction.discard()

    def seal(self, given: Given) -> Transaction:
        changes = given.changes
        middle = len(changes) // 2 if self.rng.random() < 0.2 else 0
        batches = [columns_of(part) for part in (changes[:middle], changes[middle:]) if part]
        return seal_transaction(
            batches,
            given.annotations,
            options=self.options,
            producer=given.producer,
            sequence=given.sequence,
            filesystem=self.system,
            directory=LOG,
        )

    def draw(self) -> Given:
        rng = self.rng
        size = rng.choice(self.sizes[self.heavy])
        count = rng.choice(self.counts)
        share = size // max(count, 1)
        fill = rng.choice([b"\0", b"x", bytes([rng.randrange(256)]), b"abc"])
        changes: list[tuple[int, bytes, bytes | None]] = [
            (
                rng.choice([0x11, 0x12]),
                b"k%d" % rng.randrange(100),
                (fill * share)[:share] if rng.random() < 0.9 else None,
            )
            for _ in range(count)
        ]
        producer = rng.choice([None, *PRODUCERS])
        sequence = 0
        lost = self.unanswered
        if lost is not None and lost.producer is not None and rng.random() < 0.9:
            # Nobody told the producer what became of this one: it asks, and sends it again if it is not there.
            self.unanswered = None
            if self.waiting.get(lost.producer, 0) < lost.sequence:
                self.retries += 1
                self.waiting[lost.producer] = lost.sequence
                return lost
        if producer is not None:
            sequence = self.waiting.get(producer, 0) + rng.randint(1, 3)
            self.waiting[producer] = sequence
        return Given(changes, b'{"n":%d}' % rng.randrange(1000), producer, sequence)

    def maintain(self, wal: Wal) -> None:
        rng = self.rng
        floor = rng.choice([None, None, wal.durable, 1, max(wal.durable - 3, 1)])
        before = wal.reader.oldest
        self.advance(wal)
        wal.maintain(floor)
        for reader in self.readers:
            hold = reader.hold
            if hold is not None and hold.state is not HoldState.LOST:
                assert hold.position.version >= wal.reader.oldest, f"retention passed {hold}"
                self.held += wal.reader.oldest > before
            elif hold is not None:
                self.losses += 1
        self.retentions += wal.reader.oldest > before
        if floor is not None:
            assert wal.reader.oldest <= max(floor, self.model.oldest, 1), "retention passed the floor"
        self.model.oldest = max(self.model.oldest, wal.reader.oldest)

    def follow(self, wal: Wal) -> None:
        """Nobody is shown what is not durable; what he is shown counts as acknowledged."""
        self.model.acknowledged = max(self.model.acknowledged, wal.visible)  # as a reader in the process is
        follower = Follower.open(LOG, filesystem=self.system)
        try:
            assert follower.visible <= wal.durable
            assert follower.visible <= self.model.acknowledged or follower.visible <= writer_of(wal).synced
            self.model.acknowledged = max(self.model.acknowledged, follower.visible)
            if follower.visible >= follower.reader.oldest:
                self.read(follower, follower.reader.oldest, follower.visible)
        finally:
            follower.close()

    # --- comparison --------------------------------------------------------------------------------------------------

    def compare(self, wal: Wal, *, fully: bool = True) -> None:
        """Recovery has just returned ``wal``."""
        model = self.model
        assert wal.durable == wal.appended
        assert wal.appended >= model.acknowledged, (
            f"lost: {wal.appended} of {model.acknowledged} acknowledged"
        )
        assert wal.appended in (0, *model.given), f"phantom: {wal.appended}"
        assert wal.reader.oldest >= max(model.oldest, 1) or not wal.appended
        numbers = [number for name in self.system.names(LOG) if (number := segment_number(name)) is not None]
        assert min(numbers) == catalog_of(wal).entries[0].number, (
            "a retention that was cut off is not finished"
        )
        assert wal.epoch > model.epoch
        newest = wal.epochs[-1]
        assert newest[:2] == (wal.epoch, wal.appended + 1)
        assert newest.random not in model.drawn | {0}
        model.drawn.add(newest.random)
        model.epoch = wal.epoch
        model.acknowledged = wal.appended
        model.oldest = max(model.oldest, wal.reader.oldest)
        last: dict[UUID, tuple[int, int]] = {}
        for version in range(1, wal.appended + 1):
            given = model.given[version]
            if given.producer is not None:
                last[given.producer] = (given.sequence, version)
        for producer in PRODUCERS:
            state = wal.producer(producer)
            assert (state and state[:2]) == last.get(producer), f"producer {producer}: {state}"
            # A retry after the crash starts from what the log knows.
            self.waiting[producer] = state.sequence if state else 0
        if fully:
            self.read(wal, wal.reader.oldest, wal.durable)

    def read(self, log: Wal | Follower, oldest: int, newest: int) -> None:
        reader = log.reader
        location = reader.locate(oldest)
        at = 0
        version = oldest
        changes: list[Change] = []
        annotations = b""
        while (frame := reader.read(location)) is not None:
            header = frame.header
            assert header.version == version
            assert header.committed_at > at or header.first_index > 1
            at = header.committed_at
            found, noted = self.taken_apart(frame)
            assert header.first_index == 1 or noted == annotations, "each frame has them"
            annotations = noted
            changes += found
            location = frame.next
            if header.flags & 2:
                given = self.model.given[version]
                assert changes == given.changes, f"other content in version {version}"
                assert annotations == given.annotations
                assert header.transaction_count == len(changes) + 1
                changes, annotations = [], b""
                version += 1
        assert (version, changes) == (newest + 1, []), f"read up to {version - 1} of {newest}"
        if newest >= oldest:
            middle = self.rng.randint(oldest, newest)
            frame = reader.read(reader.locate(middle))
            assert frame is not None
            assert (frame.header.version, frame.header.first_index) == (middle, 1)

    def taken_apart(self, frame: Frame) -> tuple[list[Change], bytes]:
        """The changes and annotations of a frame. Of the same bytes, verified anew each time, they are the same."""
        header = frame.header
        key = bytes(frame._payload), header.count, header.flags, header.transaction_bytes
        known = self._taken_apart.get(key)
        if known is None:
            columns = frame.columns
            bodies = columns.body or repeat(None, header.count)
            found = list(zip(columns.kinds.tolist(), columns.key, bodies, strict=True))
            assert len(found) == header.count
            known = self._taken_apart[key] = found, frame.annotations
        return known


class Small(Trial):
    """Short lives with segments of a few KiB, in which more happens in less time.

    The log takes any size of a segment; only its users may not ask for less than 64 KiB.
    """

    lives = (1, 3)
    steps = (1, 7)
    sizes = ((0, 1, 30, 423, 424, 425, 512 - 80, 900), (30, 512 - 80, 900, 1500, 2500))
    counts = (0, 1, 1, 1, 3, 6)
    keeping = 3000

    def draw_options(self) -> LogOptions:
        rng = self.rng
        options = LogOptions(
            segment_age=rng.choice([None, None, 5.0]),
            frame_bytes=rng.choice([1024, 1024, 2048]),
            spool_bytes=rng.choice([1200, 1 << 20]),
            fill_step=rng.choice([0, 700, 4096]),
            head_sync=rng.choice([0.0, 1.0]),
            compress=rng.random() < 0.1,
            retain_bytes=rng.choice([0, 0, 0, 3000, None]),
            retain_age=rng.choice([None, None, 10.0]),
            reserve_bytes=4096 * (self.seed % 2),
        )
        object.__setattr__(options, "segment_bytes", rng.choice([2048, 4096]))
        return options


class SmallTrial(Small):
    """One seed of short lives."""


def _near(rng: random.Random) -> int:
    return rng.choice([rng.randint(1, 12), rng.randint(1, 40), rng.randint(1, 150)])
