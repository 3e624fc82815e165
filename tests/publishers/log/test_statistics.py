"""What a log tells of itself."""

import threading

import flow
from penstock_cdc.types import State
from publishers import Criterion, LogOptions, Position
from tests.harness.inside import committer_of, queue_of
from tests.publishers.support import Held, ManualExecutor, Probe, fill, opened, order, stalled, wait_until


def test_statistics_agree_with_what_happened():
    """E63, E64: stalled and caught-up subscribers side by side."""
    with opened(ring_events=4) as log:
        slow = stalled(log, log.changes(), 4)
        fast = Probe(first=10_000)
        log.changes().subscribe(fast, executor=flow.INLINE, name="fast", max_lag=7)
        picky = Probe(first=5)
        log.changes(Criterion(keys={"nothing"})).subscribe(picky, executor=flow.INLINE)
        fill(log, 3)
        told = log.statistics()
        assert (told.name, told.epoch, told.oldest, told.head) == ("log", 1, Position(1), Position(9))
        assert len(told.publishers) == 2
        by_name = {
            one.name: one for one in told.subscriptions if one.position < log.head or one.name == "fast"
        }
        assert (by_name["fast"].lag, by_name["fast"].state, by_name["fast"].max_lag) == (0, State.LIVE, 7)
        assert by_name["fast"].demand == 10_000 - 6
        assert by_name["Probe"].lag == 16 - 2 * (slow.subscription.position.version - 1)
        assert by_name["Probe"].state is State.RESYNC
        ring = next(one.ring for one in told.publishers if not one.criteria)
        assert ring.events == ring.chunks == 0
        assert ring.linked_events == 16
        assert ring.evicted_events > 0
        assert ring.live == 1
        assert told.replay_waiting == 0
        slow.request(1000)
        slow.wait_for(16)
        after = log.statistics()
        assert after.frames_read > told.frames_read
        assert after.bytes_read > told.bytes_read
        assert 0 < after.replay_bytes <= log.options.replay_bytes


def test_a_subscription_that_only_skips_is_told_at_the_end(log):
    """F70: the position advances although nothing matches, without a wake-up and without a read."""
    probe = Probe(first=1)
    log.changes(Criterion(keys={"nothing"})).subscribe(probe, executor=flow.INLINE)
    fill(log, 5)
    told = log.statistics()
    assert told.subscriptions[0].position == log.head
    assert told.subscriptions[0].lag == 0
    assert told.frames_read == 0
    checkpoint = probe.subscription.checkpoint()
    assert (checkpoint.position, checkpoint.head, checkpoint.state) == (log.head, log.head, State.LIVE)


def test_a_checkpoint_inside_a_signal_does_not_pass_what_is_being_delivered(log):
    seen = []

    class Looking(Probe):
        def take(self, change):
            seen.append((change.position, self.subscription.checkpoint().position))
            super().take(change)

    probe = Looking(first=100)
    log.changes().subscribe(probe, executor=flow.INLINE)
    fill(log, 3, 2)
    assert all(at <= position for position, at in seen)
    assert probe.subscription.position == log.head


def test_an_idle_log_has_no_publishers(log):
    told = log.statistics()
    assert told.publishers == told.subscriptions == ()
    assert (told.evaluations, told.frames_read) == (0, 0)


BOUNDS = {
    "ring_events": 4,
    "ring_bytes": 10_000,
    "batch_events": 5,
    "replay_bytes": 50_000,
    "queue_bytes": 5_000,
    "withheld_bytes": 8_000,
    "producers": 3,
}


def test_every_buffer_has_a_bound_a_name_a_default_and_a_metric(monkeypatch):
    """Invariant 12: each is offered more than it may hold, and tells what it holds."""
    assert all(getattr(LogOptions(), name) > bound for name, bound in BOUNDS.items())
    most = dict.fromkeys(BOUNDS, 0)

    def look():
        told = log.statistics()
        (publisher,) = told.publishers
        (subscription,) = publisher.subscriptions
        found = {
            "ring_events": publisher.ring.events,
            "ring_bytes": publisher.ring.nbytes,
            "batch_events": subscription.queued,
            "replay_bytes": told.replay_bytes,
            "queue_bytes": told.queue_bytes,
            "withheld_bytes": told.withheld_bytes,
            "producers": told.producers,
        }
        for name, value in found.items():
            most[name] = max(most[name], value)
        return told

    executor = ManualExecutor()
    with opened(**BOUNDS, frame_bytes=1024) as log:
        probe = Probe(first=1000)
        log.changes(since=log.oldest).subscribe(probe, executor=executor)
        held = Held(log, monkeypatch)
        commits = [
            threading.Thread(target=log.commit, args=([order(n)] * 50,), kwargs={"producer": (str(n), 1)})
            for n in range(12)
        ]
        for one in commits:
            one.start()
        assert held.inside.wait(60)
        wait_until(lambda: look().queued and queue_of(committer_of(log)).outside)
        held.go.set()
        for one in commits:
            one.join(60)

        def caught_up():
            told = look()
            if not told.replay_waiting:  # what was read for it is there before its turn comes
                executor.run_one()
            return told.subscriptions[0].state is State.LIVE

        wait_until(caught_up)
        for _ in range(9):
            fill(log, 1)
            look()
        for _ in range(9):
            log.commit([order(0)] * 50, visible=False)
            look()
        log.publish(log.withheld[-1])
        assert all(0 < most[name] <= bound for name, bound in BOUNDS.items()), str(most)
