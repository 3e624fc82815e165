"""One subscription: gaps, whole batches, reading from the log, its end."""

import re
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

import flow
from penstock_cdc.errors import HistoryPruned, InvalidOption, LogClosed, LogForked
from penstock_cdc.types import Gap
from publishers import Content, Position, upsert
from publishers.errors import LogExhausted
from publishers.fanout.gap import GapNotice
from publishers.fanout.ring import Ring
from publishers.fanout.subscription import ChangeSubscription
from tests.harness.constants import set_constant
from tests.harness.failing import failing
from tests.harness.inside import service_of
from tests.publishers.movement import RETAIN, Mover, caught_up, prune, settled
from tests.publishers.support import (
    BatchProbe,
    ManualExecutor,
    Probe,
    everything,
    fill,
    opened,
    order,
    wait_until,
)

# Gaps.


def test_a_start_below_the_oldest_position_jumps_if_that_is_wanted():
    """E37: a late start; the gap is told before the first change."""
    with opened(**RETAIN) as log:
        text = str(log.token(Position(1)))
        prune(log)
        oldest = settled(log)
        for since in (Position(1), text, 1):
            told = []
            for wanted, probe in (("jump", Mover(first=5)), (told.append, Probe(first=5))):
                log.changes(since=since, on_gap=wanted).subscribe(probe, executor=flow.INLINE)
                probe.wait_for(5)
                assert probe.positions[0] == oldest
                if wanted == "jump":
                    told += [gap for gap, before in probe.gaps if before == 0]
                assert probe.clean
            assert told == [Gap(Position(1), oldest)] * 2


@pytest.mark.parametrize("first", [0, 3])
@pytest.mark.parametrize("executor", [flow.INLINE, None])
def test_a_subscriber_that_retention_overtakes_jumps_if_that_is_wanted(first, executor):
    """E37: in mid-stream, with demand or without; what follows the gap is complete."""
    with opened(ring_events=10, **RETAIN) as log:
        probe = Mover(first=first)
        log.changes(on_gap="jump").subscribe(probe, executor=executor)
        wait_until(lambda: probe.subscription)
        fill(log, 2)
        probe.wait_for(first)
        where = probe.positions[-1:] or [Position(1, 0)]
        prune(log)
        oldest = settled(log)
        probe.request(10**6)
        caught_up(probe, log)
        assert probe.error is None
        assert probe.positions[first:] == everything(log)[-len(probe.positions[first:]) :]
        begins = [gap.begin for gap, _ in probe.gaps]
        ends = [gap.end for gap, _ in probe.gaps]
        assert begins[0] >= where[0]
        assert ends[-1] == probe.positions[first] >= oldest or probe.positions[first] in ends
        assert begins == sorted(begins)
        assert probe.clean


def test_a_gap_that_no_subscriber_can_be_told_of_is_refused(log):
    """E37: never in silence."""
    with pytest.raises(TypeError, match="on_gap"):
        log.changes(on_gap="jump").subscribe(Probe())
    with pytest.raises(InvalidOption, match="on_gap"):
        log.changes(on_gap="skip")


# Whole batches.


@given(st.lists(st.integers(0, 30), min_size=1, max_size=15), st.integers(1, 25), st.data())
def test_a_batch_splits_a_transaction_only_if_that_is_above_its_bound(sizes, bound, data):
    """F33: random sizes, LIVE and in RESYNC, with transactions of many frames."""
    late = data.draw(st.booleans())
    ring = data.draw(st.sampled_from([1, 20, 1000]))
    slice_bytes = data.draw(st.sampled_from([1, 2000, 65_536]))
    with opened(ring_events=ring, frame_bytes=1024, replay_slice_bytes=slice_bytes) as log:
        probe = BatchProbe(first=10**6)

        def subscribe():
            feed = log.changes(since="earliest")
            feed.subscribe(probe, batch_events=bound, batch_bytes=10**6, whole_batches=True)

        if not late:
            subscribe()
        for size in sizes:
            log.commit([order("w" * 80 + str(n)) for n in range(size)])
        if late:
            subscribe()
        wait_until(lambda: probe.subscription)
        caught_up(probe, log)
        assert probe.positions == everything(log)
        counts = {version: size + 1 for version, size in enumerate(sizes, 1)}
        for batch in probe.batches:
            assert len(batch) <= bound
            first, last = batch[0], batch[-1]
            if first.index:
                assert counts[first.version] > bound, "the rest of a transaction that would have fitted"
            if last.index < last.count - 1:
                assert counts[last.version] > bound, "a transaction that would have fitted was split"


# Going over what is missing, in step with retention.


def test_what_goes_between_naming_the_beginning_and_coming_is_no_gap():
    """E37: who wants the earliest gets what is the earliest when he has come."""
    with opened(**RETAIN) as log:
        fill(log, 3)
        registry = service_of(log).registry
        add = registry.add

        def late(criteria, make, prepared):
            subscription = add(criteria, make, prepared)
            assert subscription.position == Position(1)
            prune(log)
            settled(log)  # what goes while he reads would be a gap
            return subscription

        registry.add = late
        probe = Mover(first=10**6)
        log.changes(since="earliest", on_gap="jump").subscribe(probe, executor=flow.INLINE)
        caught_up(probe, log)
        assert probe.error is None
        assert probe.gaps == []
        assert probe.positions[0] > Position(1)
        assert probe.positions == everything(log)


def test_what_retention_has_taken_and_a_ring_still_covers_is_no_gap_for_who_wants_to_jump():
    """E37: nothing is missing while the ring serves it."""
    with opened(**RETAIN) as log:
        stuck = Probe()
        log.changes().subscribe(stuck, executor=flow.INLINE)  # without demand, so the ring keeps everything
        fill(log, 3)
        prune(log)
        oldest = settled(log)
        assert oldest > Position(2)
        probe = Mover(first=10**6)
        log.changes(since=Position(2), on_gap="jump").subscribe(probe, executor=flow.INLINE)
        caught_up(probe, log)
        assert (probe.gaps, probe.error) == ([], None)
        assert probe.positions[0] == Position(2)
        stuck.request(10**6)
        caught_up(stuck, log)
        assert stuck.positions[2:] == probe.positions


def test_a_gap_that_grows_just_when_it_is_told_is_told_once_and_whole(monkeypatch, log):
    """E37: the drain takes the gap to tell it while the replayer is making it longer."""
    fill(log, 5)
    gaps, pool = [], ManualExecutor()
    probe = Probe()
    log.changes(since=Position(1), on_gap=gaps.append).subscribe(probe, executor=pool)
    pool.run_all()
    subscription = probe.subscription
    subscription._jump(Position(2))
    telling = threading.Thread(target=subscription._missing.deliver, args=(probe,), daemon=True)

    def looked_at(self):
        gap = vars(self)["_gap"]
        if gap is not None and telling.ident is None:
            telling.start()
            wait_until(lambda: not telling.is_alive() or self._lock.locked())
        return gap

    note = property(looked_at, lambda self, gap: vars(self).update(_gap=gap))
    monkeypatch.setattr(GapNotice, "_gap", note, raising=False)
    subscription._jump(Position(4))
    telling.join(60)
    pool.run_all()
    assert gaps == [Gap(Position(1), Position(4))]


def test_a_gap_that_grows_while_it_is_told_is_told_once(monkeypatch, log):
    """E37: with the end that it has then; there is no empty one behind it."""
    fill(log, 5)
    gaps, pool = [], ManualExecutor()
    probe = Probe()
    log.changes(since=Position(1), on_gap=gaps.append).subscribe(probe, executor=pool)
    pool.run_all()
    deliver = GapNotice.deliver
    grown = []

    def growing(self, subscriber):
        if not grown:
            grown.append(self)
            probe.subscription._jump(Position(4))
        deliver(self, subscriber)

    monkeypatch.setattr(GapNotice, "deliver", growing)
    probe.subscription._jump(Position(2))
    pool.run_all()
    assert gaps == [Gap(Position(1), Position(4))]
    probe.request(10**6)
    pool.run_all()
    wait_until(lambda: pool.run_all() or probe.subscription.position == log.head, probe.state)
    assert probe.positions[0] == Position(4)


def test_who_was_inherited_by_a_child_is_neither_moved_nor_served_nor_cancelled(log, monkeypatch):
    """F143."""
    fill(log, 3)
    probe = Mover(first=10)
    log.changes(since=Position(1)).subscribe(probe, executor=flow.INLINE)
    before = probe.subscription.position
    with monkeypatch.context() as child:
        child.setattr(service_of(log), "inherited", LogForked(log.path, 7))
        with pytest.raises(LogForked):
            probe.subscription.seek(Position(1))
        with pytest.raises(LogForked):
            probe.subscription.request(1)
        probe.subscription.cancel()
    assert probe.subscription.position == before
    assert not probe.subscription.ended


# Reading from the WAL, and the end.


def lagging(log, probe, **options):
    """A subscription that reads from the WAL when it runs, and its executor, on which it has begun."""
    executor = ManualExecutor()
    service_of(log).frames.clear()
    log.changes(since=Position(1), **options).subscribe(probe, executor=executor)
    return executor


def ends(probe, executor):
    wait_until(lambda: executor.run_all() < 0 or probe.error is not None or probe.completed, probe.state)
    return probe.error


@pytest.mark.parametrize(
    ("error", "told"), [(OSError(5, "gone"), "could not be read.*gone"), (ValueError("odd"), "odd")]
)
def test_whatever_a_read_raises_its_subscriber_is_told(log, monkeypatch, error, told):
    """F30, E11."""
    fill(log, 3)
    executor = lagging(log, probe := Probe(first=10))

    failing(monkeypatch, service_of(log).frames, "run", error)
    assert re.search(told, str(ends(probe, executor)))


def test_a_read_for_which_a_descriptor_is_lacking_is_repeated_and_its_subscriber_is_told_nothing(
    log, monkeypatch
):
    fill(log, 3)
    expected = everything(log)
    set_constant(monkeypatch, "publishers.fanout.replayer._REST", 0.0)
    executor = lagging(log, probe := Probe(first=100))
    run, asked = service_of(log).frames.run, []

    def lacking(location, *bounds):
        asked.append(location)
        if len(asked) < 3:
            raise LogExhausted("descriptors")
        return run(location, *bounds)

    monkeypatch.setattr(service_of(log).frames, "run", lacking)
    wait_until(lambda: executor.run_all() < 0 or len(probe.positions) == len(expected), probe.state)
    assert (probe.positions, probe.error) == (expected, None)
    assert asked[0] == asked[1] == asked[2]


@pytest.mark.parametrize("begun", [False, True])
def test_history_that_goes_while_it_is_read_ends_it_or_is_told_behind_what_was_read(log, monkeypatch, begun):
    """E37, invariant 7: one ends with ``HistoryPruned``; what another one has read already, it is given before a gap."""
    fill(log, 3)
    probe = Mover(first=100) if begun else Probe(first=100)
    executor = lagging(log, probe, on_gap="jump" if begun else "fail")
    run, asked = service_of(log).frames.run, []

    def pruned(location, *_bounds):
        asked.append(location)
        if len(asked) == 1 + begun:
            raise HistoryPruned(Position(9))
        return run(location, 0, 0)

    monkeypatch.setattr(service_of(log).frames, "run", pruned)
    if begun:
        wait_until(lambda: executor.run_all() < 0 or len(probe.positions) == 6, probe.state)
        monkeypatch.undo()
        assert (probe.positions, probe.gaps) == (everything(log), [])
    else:
        assert isinstance(ends(probe, executor), HistoryPruned)


def test_a_log_that_was_lost_ends_a_subscription_with_the_reason(log, monkeypatch):
    """Invariant 11: also one that came too late to be ended by the closing itself."""
    probe = Probe(first=1)
    log.changes().subscribe(probe, executor=flow.INLINE)
    with monkeypatch.context() as lost:
        lost.setattr(service_of(log), "closed", True)
        lost.setattr(service_of(log), "reason", reason := LogClosed())
        probe.subscription.wake()
    assert probe.error is reason


@pytest.mark.parametrize("demand", [0, 100])
def test_a_feed_that_is_closed_ends_its_subscriptions(log, demand):
    """Invariant 11: completed if everything was given, else with ``LogClosed``."""
    probe = Probe(first=demand)
    feed = log.changes()
    feed.subscribe(probe, executor=flow.INLINE)
    fill(log, 2)
    feed.close()
    assert (probe.completed, isinstance(probe.error, LogClosed)) == (demand > 0, demand == 0)


def test_a_pause_just_before_a_commit_takes_the_flag_keeps_the_change_back(log, monkeypatch):
    """F63: the group asks under the lock under which it is paused."""
    probe = Probe(first=100)
    log.changes().subscribe(probe, executor=flow.INLINE)
    take = Ring.take

    def pausing(*given):
        probe.subscription.pause()
        return take(*given)

    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(Ring, "take", pausing)
        fill(log, 1)
    assert (probe.positions, probe.subscription.paused) == ([], True)
    probe.subscription.resume()
    assert probe.positions == everything(log)


def test_what_lies_in_the_queue_comes_before_what_its_group_takes(log):
    """Invariant 9: the group asks with the flag in its hands, since who had it before may have left something."""
    other, probe = BatchProbe(first=100), Probe(first=100)
    log.changes().subscribe(other, executor=flow.INLINE)
    fill(log, 1)
    log.changes().subscribe(probe, executor=flow.INLINE)
    probe.subscription._filled = other.batches[0]
    fill(log, 1)
    assert probe.positions == everything(log)
    assert other.positions == everything(log)


def test_a_laggard_comes_back_into_the_ring_behind_the_head():
    """It need not catch up with the head in the WAL, which beside a writer that never pauses it may never do."""
    with opened(ring_events=20, batch_events=4) as log:
        probe = Probe()
        log.changes().subscribe(probe, executor=flow.INLINE)
        fill(log, 15)  # of two changes each, so that the ring keeps the last ten
        (subscription,) = service_of(log).registry.subscriptions()
        assert subscription.state.name == "RESYNC"
        probe.request(10**6)
        probe.wait_for(30)
        assert probe.positions == everything(log)
        assert subscription.state.name == "LIVE"
        assert subscription.reads <= 8
        fill(log, 1)
        probe.wait_for(32)
        assert service_of(log).registry.publishers()[0].ring.statistics().events == 0


def test_one_that_waits_for_a_thread_that_reads_is_ended_once_when_the_log_closes():
    """E45, F72: it is told so in the line, and reads no more."""
    gate, busy = threading.Event(), threading.Event()

    class Reading:
        detached = heavy = False

        def replay(self):
            busy.set()
            gate.wait(60)
            return False

        def replay_stopped(self):
            pass

    with opened(replay_threads=1) as log:
        fill(log, 3)
        service_of(log).replayer.enlist(Reading())
        assert busy.wait(60)
        probe = Probe(first=100)
        log.changes(since=Position(1)).subscribe(probe, executor=flow.INLINE)
        assert service_of(log).replayer.waiting == 1
        closer = threading.Thread(target=log.close)
        closer.start()
        wait_until(lambda: not service_of(log).replayer.waiting)
        gate.set()
        closer.join(60)
        assert not closer.is_alive()
        assert probe.terminals == 1
        assert isinstance(probe.error, LogClosed)
        assert probe.positions == []


def test_subscribers_that_lag_alike_are_given_the_same_batch():
    """What is made of it for one of them, such as a frame, is there for the others; another view has its own."""
    with opened() as log:
        first, second, other = BatchProbe(0), BatchProbe(0), BatchProbe(0)
        for probe, content in ((first, Content.BODY), (second, Content.BODY), (other, Content.HEADER)):
            log.changes(content=content).subscribe(probe, executor=flow.INLINE)
        for number in range(3):
            log.commit([upsert("order", str(number), {})])
        for probe in (first, second, other):
            probe.request(4)
        assert first.batches[0] is second.batches[0]
        assert first.batches[0].slices is other.batches[0].slices
        assert (first.batches[0].view.content, other.batches[0].view.content) == (
            Content.BODY,
            Content.HEADER,
        )


def test_a_commit_may_serve_the_group_before_a_new_member_that_observes_its_state_is_whole(log, monkeypatch):
    """E41: the member has entered and has no demand yet, so it is passed over, and the commit succeeds."""
    lent, state = [], ChangeSubscription.state

    def read(subscription):
        if not lent:  # in the constructor: as the thread of a commit does once the cursor is in its group
            lent.append(subscription.lend(1))
        return state.fget(subscription)

    monkeypatch.setattr(ChangeSubscription, "state", property(read))
    probe = Probe(first=9)
    log.changes().subscribe(probe, executor=flow.INLINE)
    log.commit([order(1)])
    probe.wait_for(1)
    assert lent == [None]
