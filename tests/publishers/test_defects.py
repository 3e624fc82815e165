"""The defects D1 to D9 of the reference system, each as the situation that showed it."""

import gc
import sys
import threading
import weakref

import pytest
from hypothesis import given
from hypothesis import strategies as st

import flow
from penstock_cdc.errors import HistoryPruned
from publishers import Criterion, Position, upsert
from publishers.fanout.ring import BEHIND
from publishers.fanout.state import Occurrence
from tests.harness.inside import files_of, housekeeping_of, service_of
from tests.harness.scale import scaled
from tests.publishers.fanout.test_ring import chunk, entered, poll, ring
from tests.publishers.movement import RETAIN
from tests.publishers.support import (
    BatchProbe,
    ManualExecutor,
    Probe,
    everything,
    fill,
    in_threads,
    opened,
    order,
    wait_until,
)


def test_d1_a_trimmed_ring_keeps_what_is_newer():
    """D1, E22: a ring of four, six events in, trimmed to the fifth: the fifth and sixth remain and are read."""
    one = ring(max_events=4)
    cursor = entered(one)
    for version in range(1, 5):
        assert one.link(chunk(version, 1), version - 1) == []
    assert poll(one, cursor, 4) == [(1, 1), (2, 1), (3, 1), (4, 1)]
    for version in (5, 6):
        assert one.link(chunk(version, 1), version - 1) == []
    assert one.start == Position(5, 0)
    assert poll(one, cursor, 6) == [(5, 1), (6, 1)]


@given(st.integers(1, 6), st.lists(st.integers(-1, 3), max_size=40))
def test_d1_a_ring_equals_a_plain_list_after_every_step(bound, steps):
    """D1, E22, F64: random appends, trims and reads; what the ring still claims to cover it has."""
    one = ring(max_events=bound)
    cursors, places = [entered(one), entered(one)], [0, 0]
    log = []
    version = 0
    for step in steps:
        if step < 0:
            version += 1
            one.link(chunk(version, 1), version - 1)
            log.append((version, 1))
        else:
            number = step % 2
            found = poll(one, cursors[number], version, events=1 + step // 2)
            if found is BEHIND:
                places[number] = len(log)
                cursors[number].next = Position(version + 1, 0)
                assert one.move(cursors[number], Occurrence.ENTER)
            else:
                assert found == log[places[number] : places[number] + len(found)]
                places[number] += len(found)
        held = one.statistics()
        assert held.events <= bound
        assert held.start <= Position(version + 1, 0)


@pytest.mark.parametrize("ring_events", [1, 4, 64])
def test_d1_no_gap_under_threads(ring_events):
    """D1, F13, E22: 5,000 commits by threads, one healthy subscriber, one that dawdles, and a gap detector."""
    with opened(ring_events=ring_events) as log:
        healthy, dawdling = BatchProbe(first=10**9), Probe(first=3, each=1)
        log.changes().subscribe(healthy)
        log.changes().subscribe(dawdling)
        in_threads(*[lambda: fill(log, scaled(5000) // 3 // 4)] * 4)
        truth = everything(log)
        for probe in (healthy, dawdling):
            probe.wait_for(len(truth))
            assert probe.positions == truth
            assert probe.clean


@pytest.mark.parametrize("limit", [1, 7, 256])
@pytest.mark.parametrize("way", ["ring", "wal", "small ring"])
def test_d2_a_record_is_never_cut_short_by_a_limit(limit, way):
    """D2, E35: 402 changes of one transaction and 700 of a hundred, whatever the limit."""
    with opened(ring_events=5 if way == "small ring" else 10_000, frame_bytes=2048) as log:
        since = log.oldest
        probe = Probe(first=limit, each=1)
        if way != "wal":
            log.changes(since=since).subscribe(probe, executor=flow.INLINE, batch_events=limit)
        log.commit([order("parent")] + [upsert("order", "1", {"field": n}) for n in range(400)])
        for number in range(100):
            log.commit([order(number)] * 6)
        if way == "wal":
            log.changes(since=since).subscribe(probe, executor=flow.INLINE, batch_events=limit)
        probe.wait_for(402 + 700)
        assert probe.positions == everything(log)
        assert sum(position.version == 1 for position in probe.positions) == 402
        assert probe.clean


def test_d3_resume_at_every_position_gives_exactly_the_rest():
    """D3, E4, E36."""
    with opened(frame_bytes=1024) as log:
        log.commit([upsert("order", "1", {"field": n}, changed=[str(n)]) for n in range(10)] + [order(2)])
        log.commit([])
        log.commit([upsert("order", str(n), {"x": "y" * 100}) for n in range(40)])
        whole = everything(log)
        assert len(whole) == 12 + 1 + 41
        for place, position in enumerate(whole):
            probe = Probe(first=1000)
            log.changes(since=position).subscribe(probe, executor=flow.INLINE)
            probe.wait_for(len(whole) - place)
            assert probe.positions == whole[place:]
            assert probe.changes[0].position == position
            again = log.history(since=probe.changes[0].after, limit=1000).changes
            assert [change.position for change in again] == whole[place + 1 :]
            probe.subscription.cancel()


class Depth(Probe):
    """Asks for one more inside each signal, and watches the stack."""

    def __init__(self):
        super().__init__(first=1)
        self.count = 0
        self.version = 0
        self.gaps = 0
        self.deepest = 0

    def on_next(self, change, /):
        self.count += 1
        self.gaps += not change.index and change.version != self.version + 1
        self.version = change.version
        if self.count % 97 == 1:
            frame, depth = sys._getframe(), 0
            while frame is not None:
                frame, depth = frame.f_back, depth + 1
            self.deepest = max(self.deepest, depth)
        self.subscription.request(1)


@pytest.mark.parametrize(
    ("backlog", "executor"), [(10_000, flow.INLINE), (10_000, None), (1000 * scaled(250), flow.INLINE)]
)
def test_d4_a_backlog_read_with_request_inside_on_next(backlog, executor):
    """D4, E27: everything arrives on a constant stack, and so does a commit after it."""
    with opened(ring_events=100) as log:
        rows = [order(n) for n in range(999)]
        for _ in range(backlog // 1000):
            log.commit(rows)
        probe = Depth()
        log.changes(since=log.oldest).subscribe(probe, executor=executor)
        wait_until(lambda: probe.count == backlog, lambda: (probe.count, probe.state()), timeout=280)
        fill(log, 1)
        wait_until(lambda: probe.count == backlog + 2, lambda: (probe.count, probe.state()))
        assert probe.gaps == 0
        assert probe.deepest < 120
        assert probe.terminals == 0


def prune(log):
    """Commits until retention has taken the beginning."""
    begin = log.oldest
    for _ in range(50):
        fill(log, 30, 20)
        housekeeping_of(log).poke()
    wait_until(lambda: log.oldest > begin, lambda: log.oldest)


def test_d5_a_start_below_the_oldest_segment_is_told():
    """D5, E37."""
    with opened(**RETAIN) as log:
        prune(log)
        for first in (0, 10):
            probe = Probe(first=first)
            log.changes(since=Position(1)).subscribe(probe, executor=flow.INLINE)
            probe.wait_for_end()
            assert isinstance(probe.error, HistoryPruned)
            assert probe.error.oldest > Position(1)
            assert probe.positions == []


@pytest.mark.parametrize("first", [0, 3])
@pytest.mark.parametrize("executor", [flow.INLINE, None])
def test_d5_a_subscriber_that_retention_overtakes_is_told(first, executor):
    """D5, E37, invariant 7: with demand or without, in mid-stream."""
    with opened(ring_events=10, **RETAIN) as log:
        probe = Probe(first=first)
        log.changes().subscribe(probe, executor=executor)
        wait_until(lambda: probe.subscription)
        fill(log, 2)
        probe.wait_for(first)
        prune(log)
        probe.wait_for_end()
        assert isinstance(probe.error, HistoryPruned), probe.state()
        assert len(probe.positions) == first
        assert probe.terminals == 1
        assert not log.statistics().publishers


def test_d5_a_subscriber_that_the_ring_still_serves_is_not_ended_by_retention():
    """Invariant 7: not those LIVE in a ring that still serves them."""
    with opened(ring_events=10, **RETAIN) as log:
        probe = Probe()
        log.changes(Criterion(keys={"rare"})).subscribe(probe, executor=flow.INLINE)
        log.commit([order("rare")])
        prune(log)
        assert not probe.terminals
        probe.request(5)
        assert probe.positions == [Position(1, 1)]


@pytest.mark.parametrize("order_of_cancels", [(0, 0, 1, 2), (1, 1, 0, 0, 2), (2, 0, 2, 1)])
def test_d6_cancelling_twice_takes_nothing_from_the_others(order_of_cancels):
    """D6, E42: three subscribers at one place, all behind; cancel one, cancel it again, commit."""
    with opened() as log:
        probes = [Probe() for _ in range(3)]
        for probe in probes:
            log.changes().subscribe(probe, executor=flow.INLINE)
        fill(log, 3)
        shared = service_of(log).registry.publishers()[0]
        gone = set()
        for number in order_of_cancels:
            probes[number].subscription.cancel()
            gone.add(number)
            fill(log, 1)
            held = shared.ring.statistics()
            assert held.live == len(shared.subscriptions) == 3 - len(gone)
            assert held.events == (2 * (log.head.version - 1) if held.live > 1 else held.live * held.events)
            left = [n for n in range(3) if n not in gone]
            if len(left) == 1:
                probes[left[0]].request(10_000)
                assert probes[left[0]].positions == everything(log)
        assert shared.ring.statistics().live == 0
        assert log.statistics().frames_read == 0 + files_of(log).reader.statistics.frames


@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize("executor", [flow.INLINE, None])
@pytest.mark.parametrize("signal", ["on_subscribe", "on_next", "on_next_batch", "on_state"])
def test_d7_a_subscriber_that_raises_is_cancelled_reported_and_unregistered(dropped, alone, executor, signal):
    """D7, E44: no further signal, the ring is released if it was the last, and others are unharmed."""

    def explode(self, *_):
        raise ValueError("mine")

    kind = type("Bad", (Probe,), {signal: explode})
    with opened(ring_events=2) as log:
        bad, good = kind(first=0 if signal == "on_state" else 1000), Probe(first=1000)
        log.changes().subscribe(bad, executor=executor)
        if not alone:
            log.changes().subscribe(good, executor=flow.INLINE)
        fill(log, 3)
        wait_until(lambda: dropped, bad.state)
        wait_until(lambda: len(service_of(log).registry.subscriptions()) == (not alone))
        fill(log, 3)
        assert dropped == [(ValueError, "mine", kind)]
        assert not bad.terminals
        if alone:
            assert not service_of(log).registry.publishers()
        else:
            assert good.positions == everything(log)
        reference = weakref.ref(bad)
        del bad
        gc.collect()
        assert reference() is None


def test_d8_a_full_executor_loses_no_wake_up_and_does_not_reach_the_writer():
    """D8, E41: 500 subscribers on an executor that rejects beyond 100 tasks."""
    executor = ManualExecutor(room=100)
    with opened() as log:
        probes = [Probe(first=10) for _ in range(500)]
        for probe in probes:
            log.changes().subscribe(probe, executor=executor)
        wait_until(lambda: (executor.run_all(), all(probe.subscription for probe in probes))[1])
        fill(log, 1)
        wait_until(lambda: (executor.run_all(), all(len(probe.positions) == 2 for probe in probes))[1])
        assert executor.refused > 0
        assert all(probe.positions == everything(log) for probe in probes)
        for probe in probes:
            probe.subscription.cancel()


@pytest.mark.parametrize("executor", [flow.INLINE, None])
@pytest.mark.parametrize("ring_events", [1, 1000])
def test_d9_demand_and_visible_changes_never_rest_together(executor, ring_events):
    """D9, E29: two requesters and a committer race for many thousands of rounds."""
    with opened(ring_events=ring_events) as log:
        probe = Probe()
        log.changes().subscribe(probe, executor=executor)
        wait_until(lambda: probe.subscription)
        rounds = scaled(3000)
        total = 2 * rounds

        def ask():
            for _ in range(rounds):
                probe.subscription.request(1)

        probe.requested = total
        in_threads(ask, ask, lambda: fill(log, rounds))
        probe.wait_for(total, timeout=200)
        assert probe.positions == everything(log)[:total]
        assert probe.clean


def test_d9_each_round_comes_to_rest():
    """D9, E29: request and commit at the same moment, thousands of times; each round must deliver."""
    with opened() as log:
        probe = Probe()
        log.changes(Criterion(entity_types={"order"})).subscribe(probe, executor=flow.INLINE)
        rounds = scaled(4000)
        barrier = threading.Barrier(3)

        def ask():
            for number in range(rounds):
                barrier.wait()
                probe.subscription.request(1)
                barrier.wait()
                # Everything returned: what is visible and asked for was delivered, or is being so.
                assert len(probe.positions) >= 2 * (number + 1)

        def commit():
            for _ in range(rounds):
                barrier.wait()
                log.commit([order(1), order(2)])
                barrier.wait()

        in_threads(ask, ask, commit)
        assert len(probe.positions) == 2 * rounds
