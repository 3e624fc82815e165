"""What an operator does: subscriptions are paused, resumed and reset by id."""

import threading
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flow
from penstock_cdc.errors import HistoryPruned, InvalidOption, LogClosed, PositionAhead
from penstock_cdc.types import State
from publishers import ChangeLog, ChangeStore, Criterion, Position
from publishers.model.change import Area
from tests.harness.inside import service_of
from tests.harness.scale import scaled
from tests.publishers.movement import RETAIN, Mover, caught_up, prune, settled
from tests.publishers.support import (
    QUICK,
    BatchProbe,
    ManualExecutor,
    Probe,
    chance,
    everything,
    fill,
    in_threads,
    opened,
    order,
    scratch,
    wait_until,
)
from tests.publishers.world import World


def told(log, probe):
    """What the statistics say of a subscription."""
    (found,) = [one for one in log.statistics().subscriptions if one.id == probe.subscription.id]
    return found


class HeldWorld(World):
    """A world in which somebody also pauses, resumes and resets."""

    def __init__(self, seed, **options):
        super().__init__(seed, **options)
        self.given = {}  # to each who is paused, since then
        self.pauses = self.resets = 0

    def request(self):
        watcher = self.some()
        draw = self.chance.random()
        if watcher is None or watcher.subscription.ended or draw > 0.3:
            super().request()
        else:
            # Nothing comes in between, else another request for this one would find it noted and not done yet.
            before, self.closed_to_others = self.closed_to_others, True
            self.hold(watcher)
            self.closed_to_others = before

    def hold(self, watcher):
        if watcher in self.given:
            del self.given[watcher]
            assert self.log.resume(watcher.subscription.id)
        else:
            self.given[watcher] = len(watcher.positions) + 10**6 * watcher.sought
            assert self.log.pause(watcher.subscription.id)
            self.pauses += 1

    def seek(self):
        watcher = self.some()
        if watcher is None or watcher.until is not None or self.chance.random() > 0.2:
            return
        watcher.sought += 1
        place = Position(self.chance.randint(1, self.log.head.version))
        if watcher in self.given:
            self.given[watcher] = 10**6  # counted anew from where it is told
        assert self.log.seek(watcher.subscription.id, place) or watcher.subscription.ended
        self.resets += 1

    def check(self):
        super().check()
        for watcher, before in self.given.items():
            assert len(watcher.positions) <= before + self.options["batch_events"], watcher.state()
            assert watcher.subscription.paused

    def at_rest(self):
        self.closed_to_others = True
        self.settle()
        self.check()
        counts = {watcher: len(watcher.positions) for watcher in self.given}
        with_room = [watcher for watcher in self.given if not watcher.subscription.ended]
        for watcher in with_room:
            watcher.request(1)
        self.settle()
        assert counts == {watcher: len(watcher.positions) for watcher in self.given}, (
            "a paused one was served"
        )
        for watcher in with_room:
            assert watcher.subscription._filled is None, "it keeps what was read for it"
            self.log.resume(watcher.subscription.id)
        self.given.clear()
        super().at_rest()


def held_life(seed, steps, **options):
    world = HeldWorld(seed, **options)
    with world.running():
        for _ in range(3):
            world.subscribe()
        for _ in range(steps):
            world.step()
            world.check()
        world.at_rest()
    world.settle()
    assert all(watcher.subscription.ended and watcher.terminals <= 1 for watcher in world.watchers)
    return world


@given(st.integers(0, 2**32))
@settings(max_examples=scaled(60))
def test_pauses_and_resets_between_any_two_steps_lose_and_repeat_nothing(seed):
    """F63, invariants 3, 6, 8 and 9: pauses, resumes and resets come in between every two steps of commits and polls.

    Each stream is compared with a plain list; at most one batch follows a pause, and nothing once all is at rest.
    """
    held_life(seed, 60)


def test_lives_with_many_pauses_over_small_rings_and_batches():
    """F63: counted, so that a world in which nothing happens is seen."""
    worlds = [
        held_life(seed, 200, ring_events=1 + seed % 3, batch_events=1 + seed % 4)
        for seed in range(scaled(20))
    ]
    assert sum(world.pauses for world in worlds) > scaled(100)
    assert sum(world.resets for world in worlds) > scaled(30)
    assert sum(world.switches for world in worlds) > scaled(20)


@pytest.mark.parametrize("ring", [1, 3, 1000])
@pytest.mark.parametrize("kind", [Probe, BatchProbe])
@pytest.mark.parametrize("executor", [flow.INLINE, None])
def test_nothing_is_lost_or_repeated_over_a_pause(ring, kind, executor):
    """F63: with demand all the while; the others, and the writer, go on."""
    with opened(ring_events=ring) as log:
        held, other = kind(first=10**6), Probe(first=10**6)
        for probe in (held, other):
            log.changes().subscribe(probe, executor=executor)
        wait_until(lambda: held.subscription and other.subscription)
        fill(log, 3)
        caught_up(held, log)
        assert log.pause(held.subscription.id)
        fill(log, 20, 2)
        caught_up(other, log)
        assert other.positions == everything(log)
        assert held.positions == everything(log)[:6]
        assert told(log, held).state is State.PAUSED
        assert told(log, held).demand == 10**6 - 6
        assert log.resume(held.subscription.id)
        caught_up(held, log)
        assert held.positions == everything(log)
        assert told(log, held).state in (State.LIVE, State.RESYNC)
        assert held.clean


def test_a_paused_subscription_pins_nothing_and_resyncs_when_it_is_resumed():
    """F63, E24, invariant 8: the ring is trimmed past it as past one without demand."""
    with opened(ring_events=4) as log:
        probe = Probe(first=10**6)
        log.changes().subscribe(probe, executor=flow.INLINE)
        log.pause(probe.subscription.id)
        fill(log, 50)
        ring = log.statistics().publishers[0].ring
        assert ring.events <= 4
        assert ring.live == 0, "it was overtaken"
        assert probe.states == ["RESYNC"]
        log.resume(probe.subscription.id)
        caught_up(probe, log)
        wait_until(lambda: probe.states[-1] == "LIVE", probe.state)
        assert probe.positions == everything(log)


def test_a_paused_subscription_is_not_woken():
    """F63, F69: commits submit nothing to its executor, although it has demand."""
    executor = ManualExecutor()
    with opened() as log:
        probe = Probe(first=10**6)
        log.changes().subscribe(probe, executor=executor)
        executor.run_all()
        log.pause(probe.subscription.id)
        before = executor.submitted
        fill(log, 100)
        assert executor.submitted == before
        log.resume(probe.subscription.id)
        assert executor.submitted == before + 1
        executor.run_all()
        assert probe.positions == everything(log)


def test_checkpoints_of_a_paused_subscription_go_on():
    """F63, F70: it moves over versions in which nothing matches, and stays before the first that does."""
    with opened() as log:
        probe = Probe(first=10)
        log.changes(Criterion(keys={"rare"})).subscribe(probe, executor=flow.INLINE)
        log.pause(probe.subscription.id)
        fill(log, 5)
        assert probe.subscription.checkpoint().position == (6, 0)
        assert told(log, probe).position == log.head
        log.commit([order("rare")])
        fill(log, 5)
        assert probe.subscription.checkpoint().position == (6, 0)
        assert probe.positions == []
        log.resume(probe.subscription.id)
        assert probe.positions == [(6, 1)]


@pytest.mark.parametrize("given", [0, 4])
def test_what_the_replayer_has_read_ahead_is_let_go(given):
    """F63: the part that was not given is read again after the pause, and nothing is kept meanwhile."""
    executor = ManualExecutor()
    with opened(ring_events=1, batch_events=10) as log:
        fill(log, 20)
        probe = Probe(first=10)
        log.changes(since=1).subscribe(probe, executor=executor)
        executor.run_one()
        one = probe.subscription
        wait_until(lambda: one._filled is not None and executor.tasks, probe.state)
        if given:
            one.drain._turn_items = given  # as if the rest of the turn had been used up
            executor.run_one()
        assert len(probe.positions) == given
        log.pause(one.id)
        executor.run_all()
        assert one._filled is None
        assert one.position == everything(log)[given]
        assert len(probe.positions) == given
        log.resume(one.id)
        probe.request(100)
        wait_until(lambda: (executor.run_all(), len(probe.positions) >= 40)[1], probe.state)
        assert probe.positions == everything(log)


def test_a_paused_subscription_does_not_gate_writers():
    """F63: who holds Spark back does not while it is paused, and does again afterwards."""
    with opened() as log:
        probe = Probe(first=10**6)
        log.changes().subscribe(probe, executor=ManualExecutor(), max_lag=0)
        stopped, admitted = threading.Event(), threading.Event()
        (one,) = service_of(log).registry.subscriptions()
        fill(log, 1)

        def write():
            log.serving.admit(stopped, 60.0)
            admitted.set()

        def operate():
            wait_until(lambda: service_of(log).admission._moved._waiters)
            assert not admitted.is_set()
            assert log.pause(one.id)

        in_threads(write, operate)
        assert admitted.is_set()
        log.resume(one.id)
        stopped.set()
        with pytest.raises(Exception, match="stop"):
            log.serving.admit(stopped, 60.0)


@pytest.mark.parametrize("left", [False, True])
def test_a_paused_subscription_ends_with_its_log(left):
    """F63, invariant 11: completed if it has everything, else it is told that something is left."""
    with opened() as log:
        probe = Probe(first=10)
        log.changes().subscribe(probe, executor=flow.INLINE)
        fill(log, 1)
        log.pause(probe.subscription.id)
        if left:
            fill(log, 1)
        log.close()
        assert probe.completed is not left
        assert isinstance(probe.error, LogClosed) is left
        assert probe.clean


@pytest.mark.parametrize("jumps", [False, True])
def test_retention_passes_a_paused_subscription_and_tells_it(jumps):
    """F63, invariant 7: at once, as one without demand; or it jumps, and goes on there when it is resumed."""
    with opened(ring_events=10, **RETAIN) as log:
        probe = Mover(first=10**6)
        log.changes(on_gap="jump" if jumps else "fail").subscribe(probe, executor=flow.INLINE)
        log.pause(probe.subscription.id)
        prune(log)
        if not jumps:
            probe.wait_for_end()
            assert isinstance(probe.error, HistoryPruned)
            assert probe.positions == []
            return
        wait_until(lambda: probe.gaps, probe.state)
        assert probe.positions == []
        settled(log)  # what goes while he reads would be another gap
        log.resume(probe.subscription.id)
        caught_up(probe, log)
        oldest = probe.positions[0]
        assert probe.gaps[0][1] == 0, "the gap comes first"
        assert oldest == probe.gaps[-1][0].end
        assert probe.positions == [position for position in everything(log) if position >= oldest]


def test_a_pause_inside_on_next_lets_what_was_pulled_come_and_no_more():
    """F63: at most one batch."""
    with opened(batch_events=4) as log:

        class Pausing(Probe):
            def take(self, change):
                super().take(change)
                log.pause(self.subscription.id)

        probe = Pausing(first=100)
        log.changes(since=1).subscribe(probe, executor=flow.INLINE)
        for number in range(1, 4):
            log.commit([order(n) for n in range(9)])
            before = len(probe.positions)
            assert before <= 4 * number
            log.resume(probe.subscription.id)
            assert len(probe.positions) <= before + 4
        assert probe.positions == everything(log)[: len(probe.positions)]
        assert probe.clean


def test_pausing_again_and_resuming_what_was_not_paused_change_nothing(log):
    """F63."""
    probe = Probe(first=10)
    log.changes().subscribe(probe, executor=flow.INLINE)
    one = probe.subscription.id
    assert log.resume(one)
    assert log.pause(one)
    assert log.pause(one)
    fill(log, 1)
    assert log.resume(one)
    assert log.resume(one)
    assert probe.positions == everything(log)


def test_operating_on_nobody_says_so(log):
    """F63, E48."""
    probe = Probe()
    log.changes().subscribe(probe, executor=flow.INLINE)
    gone = probe.subscription.id
    probe.subscription.cancel()
    for nobody in (gone, -1):
        assert not log.pause(nobody)
        assert not log.resume(nobody)
        assert not log.seek(nobody, None)
        assert not log.unsubscribe(nobody)


@pytest.mark.parametrize("paused", [False, True])
@pytest.mark.parametrize("ring", [1, 1000])
def test_a_reset_starts_where_told(ring, paused):
    """F63: at each kind of place; a paused subscription is moved, told, and stays paused."""
    with opened(ring_events=ring) as log:
        commits = [log.commit([order(n), order(n + 1)]) for n in range(10)]
        times = [log.time_of(commit.version) for commit in commits]
        stream = everything(log)
        places = {
            "earliest": Position(1),
            "latest": log.head,
            None: log.head,
            4: Position(4),
            commits[5]: Position(6),
            times[7]: Position(8),
            Position(3, 2): Position(3, 2),
            str(log.token(Position(9, 1))): Position(9, 1),
        }
        probe = Mover(first=10**6)
        log.changes().subscribe(probe, executor=flow.INLINE)
        one = probe.subscription
        for since, place in places.items():
            if paused:
                log.pause(one.id)
            assert log.seek(one.id, since)
            wait_until(lambda place=place: probe.sought[-1:] == [place], probe.state)
            if paused:
                assert probe.since == []
                assert told(log, probe).position == place
                assert told(log, probe).state is State.PAUSED
                log.resume(one.id)
            caught_up(probe, log)
            assert probe.since == [position for position in stream if position >= place]
        assert probe.clean


def test_a_reset_to_where_nothing_can_be_read_is_refused_and_moves_nobody(log):
    """F63."""
    fill(log, 2)
    probe = Probe(first=1)
    log.changes().subscribe(probe, executor=flow.INLINE)
    where = probe.subscription.position
    for since, error in ((Position(99), PositionAhead), (True, InvalidOption), ("nowhere", Exception)):
        with pytest.raises(error):
            log.seek(probe.subscription.id, since)
    assert probe.subscription.position == where
    assert not probe.terminals


def test_a_follower_operates_its_own_subscriptions():
    """F63: ids are those of the process that serves; the owner's are others."""
    path = scratch()
    with (
        ChangeLog.open(path / "log", **QUICK) as owner,
        ChangeLog.open(path / "log", read_only=True) as follower,
    ):
        probe = Probe(first=100)
        follower.changes().subscribe(probe, executor=flow.INLINE)
        one = probe.subscription.id
        assert not owner.pause(one)
        assert follower.pause(one)
        fill(owner, 3)
        wait_until(lambda: follower.head == owner.head)
        assert probe.positions == []
        assert follower.resume(one)
        probe.wait_for(6)
        assert probe.positions == everything(owner)


def test_the_system_log_tells_what_an_operator_did():
    """F63, E51: and an event of this process waits while its reader is paused."""
    with ChangeStore.open(scratch() / "store") as store:
        log = store.create("orders", **QUICK)
        auditor, probe = Probe(first=100), Probe(first=100)
        store.system.changes(Criterion(areas={Area.HOST})).subscribe(auditor, executor=flow.INLINE)
        log.changes().subscribe(probe, executor=flow.INLINE)
        one = probe.subscription.id
        for act in (log.pause, log.pause, log.resume, log.resume, log.unsubscribe):
            act(one)
        events = [change.meta["event"] for change in auditor.changes]
        assert events == ["PAUSED", "RESUMED", "UNSUBSCRIBED"]
        store.system.pause(auditor.subscription.id)
        other = Probe(first=1)
        log.changes().subscribe(other, executor=flow.INLINE)
        log.seek(other.subscription.id, "earliest")
        assert len(auditor.changes) == 3
        store.system.resume(auditor.subscription.id)
        assert [change.meta["event"] for change in auditor.changes[3:]] == ["RESET"]


@pytest.mark.parametrize("seed", range(4))
def test_an_operator_races_with_commits_and_delivery(seed):
    """F63, F65: real threads pause and resume while others commit; what arrives is the log."""
    draw = chance(seed)
    with opened(ring_events=draw.choice([1, 4, 1000]), batch_events=draw.choice([1, 7, 100])) as log:
        probes = [draw.choice([Probe, BatchProbe])(first=10**9) for _ in range(4)]
        for probe in probes:
            log.changes().subscribe(probe, executor=draw.choice([flow.INLINE, None]))
            wait_until(lambda probe=probe: probe.subscription)
        done = threading.Event()

        def write():
            fill(log, scaled(300), 2)
            done.set()

        def operate(own):
            while not done.is_set():
                one = own.choice(probes).subscription.id
                own.choice([log.pause, log.resume])(one)

        in_threads(write, lambda: operate(chance(seed + 10)), lambda: operate(chance(seed + 20)))
        for probe in probes:
            log.resume(probe.subscription.id)
            caught_up(probe, log)
            assert probe.positions == everything(log)
            assert probe.clean
            assert all(one != other for one, other in pairwise(probe.states))
