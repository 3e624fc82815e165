"""What several laggards of one publisher read from the WAL, read once for all of them."""

import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flow
from publishers import Content, Criterion, Position
from publishers.blocks.slices import Slice
from publishers.fanout.batch import Batch
from publishers.fanout.stretches import Stretches
from tests.harness.inside import service_of
from tests.harness.scale import scaled
from tests.publishers.support import Probe, everything, fill, opened, wait_until

EARLIEST = Position(1)


class Reader(Probe):
    """Takes everything, as soon as it is let."""

    def __init__(self, gate):
        super().__init__(first=10**6)
        self.gate = gate

    def on_next(self, change, /):
        self.gate.wait()
        super().on_next(change)


def small(**more):
    """A log whose rings cover nothing of what is written first, read in turns of a few frames."""
    return opened(batch_events=20, replay_slice_bytes=2048, dispatch_threads=8, **more)


def read_by(log, readers, **asked):
    for reader in readers:
        log.changes(since=EARLIEST, until=log.head.version - 1, **asked).subscribe(reader)
    for reader in readers:
        assert reader.ended.wait(60)
        assert reader.completed


def test_laggards_of_one_publisher_are_given_what_one_of_them_has_read():
    """F27, F68."""
    gate = threading.Event()
    first, others = Probe(first=10**6), [Reader(gate) for _ in range(5)]
    with small() as log:
        fill(log, 100, 3)
        for reader in others:  # before the first one ends, so that each has company
            log.changes(since=EARLIEST, until=100).subscribe(reader)
        read_by(log, [first])
        frames, shared = service_of(log).frames.reads, service_of(log).stretches.shared
        gate.set()
        for reader in others:
            assert reader.ended.wait(60)
            assert reader.positions == first.positions == everything(log)
        assert service_of(log).frames.reads == frames == 100
        assert service_of(log).stretches.shared - shared >= 5 * 10


@pytest.mark.parametrize(
    ("end", "taken"), [(Position(3), True), (Position(3, 1), False), (Position(4), False)]
)
def test_a_stretch_that_ends_behind_what_a_subscription_may_read_is_not_for_it(end, taken):
    """F27: ``until``, or the watermark, is the last version, and not one change of the next is given."""
    kept = Stretches(1 << 20)
    with opened() as log:
        fill(log, 3, 2)
        log.changes().subscribe(Probe(), executor=flow.INLINE)
        (subscription,) = service_of(log).registry.subscriptions()
        cursor, predicate = subscription.cursor, subscription.shared.predicate
        block, _ = service_of(log).frames.read(service_of(log).frames.locate(1, 0))
        cursor.next = end
        kept.keep(predicate, EARLIEST, 2, cursor, Batch((Slice(block, (0, 1)),), end, subscription.view))
        cursor.next = EARLIEST
        found = kept.take(predicate, cursor, subscription.view, 2, 100, 1 << 20)
        assert (found is not None, cursor.next) == ((True, end) if taken else (False, EARLIEST))


def test_one_alone_shares_nothing():
    with small() as log:
        fill(log, 100, 3)
        read_by(log, [Probe(first=10**6)])
        assert service_of(log).stretches.nbytes == 0


def test_what_is_kept_stays_within_a_quarter_of_the_bound_and_is_told():
    """F68, F49."""
    with small(replay_bytes=400_000) as log:
        fill(log, 300, 3)
        read_by(log, [Probe(first=10**6) for _ in range(4)])
        kept = service_of(log).stretches.nbytes
        assert 0 < kept <= 100_000
        assert log.statistics().replay_bytes == kept + service_of(log).frames.nbytes <= 400_000


def test_each_view_is_shown_what_it_asks_for():
    with small() as log:
        fill(log, 60, 3)
        seen = {content: [Probe(first=10**6), Probe(first=10**6)] for content in Content}
        for content, readers in seen.items():
            for reader in readers:
                log.changes(since=EARLIEST, until=60, content=content).subscribe(reader)
        for content, readers in seen.items():
            for reader in readers:
                assert reader.ended.wait(60)
                assert reader.positions == everything(log)
                entities = [change for change in reader.changes if change.key is not None]
                assert {change.body is not None for change in entities} == {content is Content.BODY}


def test_of_many_views_the_batches_of_a_few_are_kept():
    with small() as log:
        fill(log, 60, 3)
        views = [{"fields": [str(number)]} for number in range(6)]
        readers = [Probe(first=10**6) for _ in range(18)]
        for number, reader in enumerate(readers):
            log.changes(since=EARLIEST, until=60, content=Content.BODY, **views[number % 6]).subscribe(reader)
        for reader in readers:
            assert reader.ended.wait(60)
            assert reader.positions == everything(log)
        assert all(len(one.batches) <= 4 for one in service_of(log).stretches._kept.values())


def test_publishers_do_not_share():
    with small() as log:
        fill(log, 60, 3)
        wishes = [Criterion(keys={"0", "2"}), Criterion(keys={"1"})]
        readers = [(wish, Probe(first=10**6)) for wish in wishes for _ in range(3)]
        for wish, reader in readers:
            log.changes(wish, since=EARLIEST, until=60).subscribe(reader)
        for wish, reader in readers:
            assert reader.ended.wait(60)
            assert reader.positions == everything(log, wish)


def test_a_stretch_above_the_bound_is_not_kept():
    one = Stretches(0)
    with small() as log:
        fill(log, 60, 3)
        service_of(log).stretches = one
        read_by(log, [Probe(first=10**6) for _ in range(3)])
        assert (one.nbytes, one.shared) == (0, 0)


@settings(max_examples=scaled(25), deadline=None)
@given(st.data())
def test_whatever_laggards_ask_for_together_each_gets_everything_once_and_in_order(data):
    """Invariants 2 and 3; F27."""
    bounds = {name: data.draw(st.integers(1, 60), name) for name in ("batch_events", "replay_slice_bytes")}
    bounds["replay_slice_bytes"] *= 100
    with opened(ring_events=8, **bounds) as log:
        fill(log, 40, data.draw(st.integers(1, 5), "rows"))
        probes = []
        for _ in range(data.draw(st.integers(2, 5), "subscriptions")):
            probe = Probe(first=data.draw(st.sampled_from([0, 1, 7, 10**6]), "first"))
            start = Position(data.draw(st.integers(1, 40), "start"))
            executor = data.draw(st.sampled_from([None, flow.INLINE]), "executor")
            log.changes(since=start).subscribe(probe, executor=executor)
            probes.append((start, probe))
        for _ in range(data.draw(st.integers(0, 5), "commits")):
            fill(log, 1, 2)
        for _, probe in probes:
            wait_until(lambda probe=probe: probe.subscription is not None)
            probe.request(10**6)
        for start, probe in probes:
            due = [position for position in everything(log) if position >= start]
            probe.wait_for(len(due))
            assert probe.positions == due
            assert probe.clean
