"""Section 5 of the design, played in random lives of the real code, and with real threads."""

import threading
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flow
from publishers import Area, Criterion, Position
from tests.harness.inside import service_of
from tests.harness.scale import scaled
from tests.publishers.support import (
    BatchProbe,
    Probe,
    chance,
    everything,
    fill,
    in_threads,
    opened,
    order,
    wait_until,
)
from tests.publishers.world import ManualReplayer, live


@given(st.integers(0, 2**32))
@settings(max_examples=scaled(60))
def test_every_rule_holds_in_a_random_life(seed):
    """Invariants 1 to 9 and 11: F13, F14, F64, F65, F67, F70, E5, E35.

    Registrations, requests, cancels, turns and slices of replay come in between every two steps of commits and polls.
    """
    live(seed, 60)


@pytest.mark.parametrize("ring_events", [1, 2, 5])
def test_random_lives_over_small_rings(ring_events):
    """F65, invariants 6 and 8."""
    for seed in range(scaled(15)):
        live(seed, 150, ring_events=ring_events, ring_bytes=10**6)


def slices(replayer, draw, most):
    """Gives at most so many slices to those who lag, in random order."""
    while replayer.tasks and most > 0:
        most -= 1
        task = replayer.tasks.pop(draw.randrange(len(replayer.tasks)))
        if task.replay():
            replayer.enlist(task)


@pytest.mark.parametrize("ring_events", [1, 2, 3, 5])
def test_thousands_of_switches_between_ring_and_wal_lose_and_repeat_nothing(ring_events):
    """F65, invariant 6: no gap, no duplicate, for any stall; the switches are counted."""
    draw = chance(ring_events)
    wishes = [[], [Criterion(keys={"0"})], [Criterion(keys={"0", "1"})]]
    with opened(ring_events=ring_events, batch_events=7) as log:
        service_of(log).replayer.close()
        replayer = service_of(log).replayer = ManualReplayer()
        probes = [Probe() for _ in range(9)]
        for number, probe in enumerate(probes):
            log.changes(*wishes[number % 3]).subscribe(probe, executor=flow.INLINE)
        due = [0, 0, 0]  # what has been committed for each of the wishes
        for _ in range(scaled(500)):
            for _ in range(draw.randrange(ring_events + 3)):
                keys = [draw.randrange(3) for _ in range(draw.randrange(4))]
                log.commit([order(key) for key in keys])
                due = [due[0] + len(keys) + 1, due[1] + keys.count(0), due[2] + keys.count(0) + keys.count(1)]
            for number in draw.sample(range(9), 6):
                left = due[number % 3] - probes[number].requested
                probes[number].request(draw.choice([1, 2, max(1, left), max(1, left), max(1, left)]))
            slices(replayer, draw, draw.choice([2, 20, 10**6]))
        for probe in probes:
            probe.request(10**9)
        slices(replayer, draw, 10**6)
        for number, probe in enumerate(probes):
            assert probe.positions == everything(log, *wishes[number % 3])
            assert probe.clean
            assert all(one != other for one, other in pairwise(probe.states))
        assert sum(len(probe.states) for probe in probes) > scaled(900)


def test_a_run_can_be_repeated_from_its_seed():
    lives = [live(77, 120) for _ in range(2)]
    assert [w.positions for w in lives[0].watchers] == [w.positions for w in lives[1].watchers]


@given(st.lists(st.integers(0, 5), min_size=1, max_size=12), st.data())
def test_positions_are_equal_under_every_criteria(sizes, data):
    """E5, F14, F15, invariant 1: index counts from 0 inside a version before any filter."""
    wishes = [
        Criterion(),
        Criterion(keys={"1"}),
        Criterion(entity_types={"item"}),
        Criterion(areas={Area.DATA}),
        Criterion(areas={Area.INFRASTRUCTURE}),
        Criterion(key_globs={"?"}, operations={"UPSERT"}),
    ]
    with opened() as log:
        probes = [Probe(first=10**6) for _ in wishes]
        for probe, wish in zip(probes, wishes, strict=True):
            log.changes(wish).subscribe(probe, executor=flow.INLINE)
        told = {}
        for version, size in enumerate(sizes, 1):
            log.commit([order(n % 3, data.draw(st.sampled_from(["order", "item"]))) for n in range(size)])
            told[version] = size + 1
        everything = {change.position: change for change in probes[0].changes}
        assert sorted(everything) == [Position(v, i) for v, count in told.items() for i in range(count)]
        for probe in probes:
            assert all(everything[change.position] == change for change in probe.changes)
            assert all(change.count == told[change.version] for change in probe.changes)
            assert all(change.timestamp == everything[change.position].timestamp for change in probe.changes)


@given(st.lists(st.sampled_from([1, 2, 5, 2**62, 2**63 - 1, 2**70]), min_size=1, max_size=8))
def test_demand_adds_up_and_saturates(requests):
    """F67, invariant 9: at most what was requested, sums near the maximum included."""
    with opened() as log:
        probe = Probe()
        log.changes().subscribe(probe, executor=flow.INLINE)
        for n in requests:
            probe.request(n)
        fill(log, 6)
        assert len(probe.positions) == min(12, sum(requests))
        assert probe.subscription.demand == (
            2**63 - 1 if sum(requests) >= 2**63 - 1 else max(0, sum(requests) - 12)
        )
        assert probe.clean


@pytest.mark.parametrize("bad", [0, -1, True, 1.5, "1", None])
@pytest.mark.parametrize("resync", [False, True])
def test_a_request_out_of_contract_ends_in_an_error(bad, resync):
    """E26, F67, invariant 9."""
    with opened(ring_events=1) as log:
        probe = Probe()
        log.changes().subscribe(probe, executor=flow.INLINE)
        if resync:
            fill(log, 3)
        probe.subscription.request(bad)
        assert isinstance(probe.error, ValueError)
        assert "rule 3.9" in str(probe.error)
        probe.subscription.request(5)
        fill(log, 1)
        assert probe.positions == []
        assert probe.terminals == 1
        assert not service_of(log).registry.publishers()


class Storm:
    """Real threads of every kind over one log."""

    def __init__(self, log, seed):
        self.log = log
        self.seed = seed
        self.stop = threading.Event()
        self.fast = BatchProbe(first=10**9)
        log.changes().subscribe(self.fast)
        self.steady = []
        for number in range(6):
            probe = Probe()
            wishes = [Criterion(keys={str(number)})] if number > 3 else []
            log.changes(*wishes).subscribe(probe, executor=flow.INLINE if number % 2 else None)
            wait_until(lambda probe=probe: probe.subscription)
            self.steady.append((probe, wishes))

    def commit(self, number):
        own = chance(self.seed * 10 + number)
        for _ in range(scaled(150)):
            self.log.commit([order(own.randrange(8)) for _ in range(own.randrange(4))])

    def commits(self):
        try:
            in_threads(*[lambda number=number: self.commit(number) for number in range(3)])
        finally:
            self.stop.set()

    def ask(self):
        own = chance(self.seed + 100)
        while not self.stop.is_set():
            probe, _ = own.choice(self.steady)
            probe.request(own.choice([1, 2, 5, 30]))
            probe.subscription.checkpoint()

    def churn(self):
        own = chance(self.seed + 200)
        while not self.stop.is_set():
            since = None if own.random() < 0.5 else Position(own.randint(1, self.log.head.version))
            probe = Probe(first=own.choice([0, 1, 5, 10**6]))
            self.log.changes(since=since).subscribe(probe, executor=own.choice([flow.INLINE, None]))
            version = self.log.commit([order("churn")]).version
            if probe.requested > 10**5:
                self.watch(probe, since, version)
            if probe.subscription is not None:
                probe.subscription.cancel()
            assert probe.clean

    def watch(self, probe, since, version):
        """It began where it asked to, and reached a commit that came after it without a gap."""
        wait_until(lambda: probe.positions and probe.positions[-1] >= Position(version, 1), probe.state)
        found = probe.positions[: len(probe.positions)]
        assert found[0] == (since or Position(found[0].version))
        assert found[0].version <= version
        for one, other in pairwise(found):
            assert other in {(one.version, one.index + 1), (one.version + 1, 0)}

    def check(self):
        whole = everything(self.log)
        self.fast.wait_for(len(whole))
        assert self.fast.positions == whole
        for probe, wishes in self.steady:
            expected = everything(self.log, *wishes)
            probe.request(10**9)
            probe.wait_for(len(expected))
            assert probe.positions == expected
            assert probe.clean


@pytest.mark.parametrize("seed", range(4))
def test_threads_of_every_kind_agree_with_the_log(seed):
    """F65, F66, invariants 3 to 6 and 9: real threads commit, stall, request, subscribe and cancel."""
    draw = chance(seed)
    with opened(ring_events=draw.choice([1, 3, 20]), batch_events=draw.choice([1, 5, 100])) as log:
        storm = Storm(log, seed)
        in_threads(storm.commits, storm.ask, storm.churn, storm.churn)
        storm.check()
