"""Order: per key, per partition and of the whole log, as subscribers of every kind see it."""

import contextlib
import random

import pytest

import flow
from penstock_cdc.errors import LogClosed
from publishers import ChangeLog, Content, Criterion, Position
from tests.harness.inside import files_of, service_of
from tests.harness.scale import scaled
from tests.publishers.ordering import KEYS, PARTITIONS, WRITERS, Checker, Writers, stored
from tests.publishers.support import (
    QUICK,
    BatchProbe,
    Probe,
    chance,
    everything,
    fill,
    opened,
    order,
    scratch,
    wait_until,
)
from tests.publishers.world import ManualReplayer
from tests.simulation.rows import ROWS

MANY = scaled(250_000)
"""Changes of a huge transaction: 25 times as many as its test reads behind most places."""


def subscribed(log, probe, *wishes, **named):
    log.changes(*wishes, content=Content.BODY).subscribe(probe, **named)
    wait_until(lambda: probe.subscription)
    return probe


@pytest.mark.parametrize(("ring", "seed"), [(1, 0), (16, 1), (100_000, 2)])
def test_every_subscriber_sees_keys_partitions_and_transactions_in_the_order_of_their_commits(ring, seed):
    """F25, F26, F27: four writers beside each other; subscribers that keep up, ask for one at a time, lag, or are picky."""
    with opened(ring_events=ring) as log:
        writers = Writers(log, scaled(200), seed)
        everybody = {
            "fast": subscribed(log, BatchProbe(first=10**9)),
            "inline": subscribed(log, Probe(first=10**9), executor=flow.INLINE),
            "one at a time": subscribed(log, Probe(first=1, each=1)),
            "small batches": subscribed(log, Probe(first=10**9), batch_events=3),
        }
        late = subscribed(log, Probe())
        keys = [f"key{number}" for number in range(0, KEYS, 3)]
        picky = subscribed(log, Probe(first=10**9), Criterion(keys=keys))
        writers.run()
        late.request(10**9)
        whole = stored(log)
        for name, probe in {**everybody, "late": late}.items():
            probe.wait_for(len(whole))
            checker = Checker().look(probe.changes)
            checker.agrees(writers)
            assert checker.positions == whole, name
        wanted = sum(writers.of_key[key] for key in keys)
        picky.wait_for(wanted)
        seen = Checker().look(picky.changes, whole=False)
        assert seen.of_key == {key: writers.of_key[key] for key in keys if writers.of_key[key]}
        versions = [position.version for position in whole if position.index == 0]
        assert versions == list(range(1, WRITERS * scaled(200) + 1)), "F27: one order, without a hole"


def test_the_order_is_the_same_for_a_follower_and_after_a_restart():
    """F25, F26, F27: history, a follower beside the writer, and who opens the log afterwards."""
    path = scratch() / "log"
    with (
        ChangeLog.open(path, **QUICK, ring_events=8) as log,
        ChangeLog.open(path, read_only=True) as follower,
    ):
        writers = Writers(log, scaled(100), 7)
        probe = subscribed(follower, Probe(first=10**9))
        writers.run()
        whole = stored(log)
        probe.wait_for(len(whole))
        Checker().look(probe.changes).agrees(writers)
        assert probe.positions == whole
    with ChangeLog.open(path, **QUICK) as log:
        Checker().look(log.history(limit=10**6, content=Content.BODY).changes).agrees(writers)
        assert stored(log) == whole


def test_the_partition_of_a_key_is_one_and_does_not_change():
    """F26, F16: as many partitions as one likes; a subscriber that keeps one sees it in order."""
    with opened() as log:
        writers = Writers(log, scaled(50), 3)
        probe = subscribed(log, Probe(first=10**9), executor=flow.INLINE)
        writers.run()
        probe.wait_for(len(stored(log)))
        for number in range(PARTITIONS):
            own = [
                one for one in probe.changes if one.key is not None and one.partition(PARTITIONS) == number
            ]
            numbers = [one.body["ofPartition"] for one in own]
            assert numbers == list(range(1, writers.of_partition[number] + 1))


def test_the_checker_notices():
    """F25, F26, F27: each rule, broken on purpose."""
    with opened() as log:
        writers = Writers(log, 20, 5)
        writers.run()
        sound = list(log.history(limit=10**6, content=Content.BODY).changes)
        Checker().look(sound).agrees(writers)
        rows = [place for place, change in enumerate(sound) if change.key is not None]
        same_key = next(
            (one, other)
            for one in rows
            for other in rows
            if one < other and sound[one].key == sound[other].key
        )
        swapped = list(sound)
        for one, other in (same_key,):
            swapped[one], swapped[other] = swapped[other], swapped[one]
        for broken in (swapped, sound[: rows[0]] + sound[rows[0] + 1 :], [*sound, sound[-1]]):
            with pytest.raises(AssertionError, match=r"F2[567]"):
                Checker().look(broken)
        with pytest.raises(AssertionError):
            Checker().look(sound[:-1]).agrees(writers)


# Resuming inside a large transaction.


@pytest.fixture(scope="module")
def large():
    """A log whose second version has many changes: a million in `make prove`."""
    path = scratch() / "log"
    with ChangeLog.open(path, **QUICK) as log:
        fill(log, 1)
        row = order("same")
        log.commit([row] * MANY)
        fill(log, 1)
        yield log


class Rest(Probe):
    """Checks positions as they come, and keeps none."""

    def __init__(self, start, count, first):
        super().__init__()
        self.due = start
        self.left = count
        self.wrong = []
        self.first = first

    def on_next_batch(self, batch, /):
        for part in batch.slices:
            version, indices = part.block.version, part.indices
            if (version, indices[0]) != self.due or len(indices) != indices[-1] - indices[0] + 1:
                self.wrong.append((self.due, version, indices[0]))
            self.due = Position(version, indices[-1] + 1)
            if self.due == (2, MANY + 1):
                self.due = Position(3)
        self.left -= len(batch)
        if self.left <= 0:
            self.subscription.cancel()
            self.ended.set()


@pytest.mark.parametrize("seed", range(4))
def test_resuming_at_any_index_of_a_large_transaction_gives_the_equal_rest(large, seed):
    """F32: one huge transaction; at random indexes, and at its ends, the rest is exact and nothing else is read."""
    draw = random.Random(seed)
    places = [draw.randrange(MANY + 1) for _ in range(scaled(12))] + [0, 1, MANY - 1, MANY]
    for index in places:
        start = Position(2, index)
        left = MANY + 1 - index + 2  # and the two of version 3
        count = left if index > MANY - 10_000 or index == places[0] else 5000
        before = large.statistics().frames_read
        rest = Rest(start, count, first=count)
        large.changes(since=start).subscribe(rest, executor=flow.INLINE)
        rest.wait_for_end()
        assert not rest.wrong
        assert rest.left == 0
        if count < left:
            assert large.statistics().frames_read - before <= 3, "F32: it begins where it was told to"
        page = large.history(since=start, limit=3).changes
        after = page[0].after
        assert page[0].position == start
        assert page[1].position == (after if index < MANY else Position(3))


# At least once.


class Consumer:
    """Processes changes and stores where it is; dies at any step, and goes on from what it stored."""

    def __init__(self, draw):
        self.draw = draw
        self.stored = Position(1)
        self.processed = []
        self.runs = self.repeats = 0

    def live(self, log):
        """One life: it ends by a crash at a drawn step."""
        self.runs += 1
        life = _Life(self)
        log.changes(since=self.stored).subscribe(life, executor=flow.INLINE, batch_events=life.batch)
        replayer = service_of(log).replayer
        replayer = service_of(log).replayer
        for _ in range(3):
            if not life.dead:
                life.ask()
            while replayer.tasks:
                task = replayer.tasks.pop()
                if task.replay():
                    replayer.enlist(task)
            while replayer.tasks:
                task = replayer.tasks.pop()
                if task.replay():
                    replayer.enlist(task)
        if not life.dead:
            life.die()


class _Life(Probe):
    def __init__(self, consumer):
        super().__init__()
        self.consumer = consumer
        self.batch = consumer.draw.choice([1, 2, 7])
        self.fuse = consumer.draw.randrange(12)
        self.dead = False

    def ask(self):
        self.subscription.request(self.consumer.draw.choice([1, 2, 5]))

    def burn(self):
        """A step; the crash may come before it."""
        self.fuse -= 1
        if self.fuse < 0 and not self.dead:
            self.die()
        return self.dead

    def die(self):
        self.dead = True
        self.subscription.cancel()

    def on_next(self, change, /):
        consumer = self.consumer
        if self.dead or self.burn():
            return
        consumer.processed.append(change.position)
        if self.burn():
            return
        consumer.stored = change.after
        self.burn()


def stepped(path, options):
    """A log whose replayer works when the test says so."""
    log = ChangeLog.open(path, **options)
    service_of(log).replayer.close()
    service_of(log).replayer = ManualReplayer()
    log.changes().subscribe(Probe(), executor=flow.INLINE)  # keeps the ring
    return log


def test_ten_thousand_crashes_lose_nothing():
    """F34: 10^4 crash runs, 0 lost: consumers die before, between and after processing and storing, writers in between.

    What a consumer needs for it, that everything acknowledged is there again after a crash of the machine, is proved by 2,900
    further crash runs per commit: T1 (lives in which readers go on from a stored place that retention must not pass), short
    and long, and T2 (every state of the disk), in tests/simulation, and by kill -9 of real processes (T8) in tests/crash.
    """
    draw = chance(34)
    path = scratch() / "log"
    options = {**QUICK, "segment_bytes": 65_536, "retain_bytes": None, "retain_age": None}
    consumers = [Consumer(draw) for _ in range(5)]
    log = stepped(path, {**options, "ring_events": 6})
    acknowledged = 0
    try:
        for number in range(10_000):
            if number % 7 == 0:
                done = log.commit([order(n) for n in range(draw.choice([0, 1, 3]))])
                acknowledged += done.changes
            if number % 500 == 499:  # the process of the log dies: its files stay as they are
                files_of(log).abandon()
                with contextlib.suppress(LogClosed):
                    log.close()
                log = stepped(path, {**options, "ring_events": draw.choice([6, 100_000, 100_000])})
            draw.choice(consumers).live(log)
        whole = everything(log)
        assert len(whole) == acknowledged
        for consumer in consumers:
            while consumer.stored < log.head:
                consumer.live(log)
            assert list(dict.fromkeys(consumer.processed)) == whole, "lost, or out of order"
        assert sum(consumer.runs for consumer in consumers) >= 10_000
        repeats = sum(len(consumer.processed) - len(whole) for consumer in consumers)
        assert repeats > 500, "at least once, and not exactly once: crashes came in between"
    finally:
        log.close()
    assert sum(ROWS[name].per_commit() for name in ("T1", "T1-small", "T2")) >= scaled(5_800)
