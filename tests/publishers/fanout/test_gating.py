"""Writers that wait for gating subscribers."""

import threading
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

import flow
from penstock_cdc.errors import LogClosed
from publishers import ChangeLog, Position
from publishers.errors import AdmissionStopped, SubscriberStalled
from publishers.fanout.gating import Gating
from tests.harness.inside import service_of
from tests.publishers.support import Probe, fill, in_threads, opened, order, wait_until


class Hands:
    """A clock whose hands the test holds."""

    def __init__(self):
        self.at = 0.0
        self.step = 0.0

    def monotonic(self):
        self.at += self.step
        return self.at

    def now_us(self):
        return 1_000_000


@given(st.lists(st.integers(1, 9), max_size=30), st.integers(0, 40), st.integers(0, 9))
def test_lag_is_the_number_of_changes_from_a_position_to_the_watermark(counts, version, index):
    """E64."""
    admission = Gating(3, Hands(), list)
    for number, count in enumerate(counts, 4):
        admission.published(number, count)
    positions = [Position(v, i) for v, count in enumerate(counts, 4) for i in range(count)]
    position = Position(version, index)
    lag = admission.lag(position)
    if version < 4:
        assert lag is None
    elif version <= 3 + len(counts) and index < counts[version - 4]:
        assert lag == sum(1 for one in positions if one >= position)
    elif version > 3 + len(counts):
        assert lag == 0


def test_what_is_remembered_is_bounded():
    """F68."""
    admission = Gating(0, Hands(), list)
    for version in range(1, 70_000):
        admission.published(version, 2)
    assert admission.lag(Position(69_999, 1)) == 1
    assert admission.lag(Position(1, 0)) is None
    assert admission.lag(Position(69_999 - 65_000, 0)) == 2 * 65_001


def test_nobody_waits_where_nobody_gates(log):
    log.changes().subscribe(Probe(), executor=flow.INLINE)
    fill(log, 5)
    log.serving.admit(threading.Event(), 1)


def test_a_writer_waits_until_the_gating_subscriber_is_within_its_lag(log):
    """The design's section 7: demand ends the wait."""
    probe = Probe()
    log.changes().subscribe(probe, executor=flow.INLINE, max_lag=3)
    fill(log, 5)
    admitted = []

    def write():
        log.serving.admit(threading.Event(), 60)
        admitted.append(probe.subscription.lag)

    writer = threading.Thread(target=write)
    writer.start()
    while writer.is_alive():
        assert len(probe.positions) <= 10
        probe.request(1)
        writer.join(0.01)
        if len(probe.positions) < 6:  # of 10 changes 3 may be left, in steps of one
            assert not admitted
    assert admitted
    assert admitted[0] <= 3


def test_at_lag_zero_a_transaction_of_any_size_is_admitted(log):
    probe = Probe(first=1000)
    log.changes().subscribe(probe, executor=flow.INLINE, max_lag=0)
    for _ in range(3):
        log.serving.admit(threading.Event(), 1)
        log.commit([order(n) for n in range(50)])
    assert len(probe.positions) == 153


def test_a_subscriber_that_skips_everything_holds_nobody_up(log):
    """F70: versions without a match count as read."""
    probe = Probe()
    log.changes(_only("item")).subscribe(probe, executor=flow.INLINE, max_lag=0)
    fill(log, 5)
    log.serving.admit(threading.Event(), 1)
    assert probe.positions == []


def _only(kind):
    from publishers import Criterion

    return Criterion(entity_types={kind})


def test_a_subscriber_that_takes_nothing_is_named():
    clock = Hands()
    with opened(clock=clock) as log:
        probe = Probe()
        log.changes().subscribe(probe, executor=flow.INLINE, max_lag=1, name="warehouse")
        fill(log, 5)
        clock.step = 30.0
        with pytest.raises(SubscriberStalled, match="warehouse lags 10 changes") as caught:
            log.serving.admit(threading.Event(), 60)
        assert caught.value.lag == 10
        assert caught.value.retryable
        clock.step = 0.0


def test_a_gating_subscriber_that_starts_before_what_is_remembered_counts_as_behind():
    clock = Hands()
    with opened(clock=clock) as log:
        fill(log, 2)
        path = log.path
        log.close()
        with type(log).open(path, clock=clock, sync="os") as again:
            probe = Probe()
            again.changes(since=again.oldest).subscribe(probe, executor=flow.INLINE, max_lag=10**9)
            clock.step = 50.0
            with pytest.raises(SubscriberStalled, match="more changes than the log remembers") as caught:
                again.serving.admit(threading.Event(), 60)
            assert caught.value.lag is None
            clock.step = 0.0
            probe.request(100)
            again.serving.admit(threading.Event(), 60)


@pytest.mark.parametrize("end", ["stop", "close", "cancel", "fail"])
def test_whatever_ends_the_wait_ends_it(end):
    with opened() as log:
        probe = Probe()
        log.changes().subscribe(probe, executor=flow.INLINE, max_lag=0)
        fill(log, 3)
        stopped = threading.Event()
        outcome = []

        def write():
            try:
                log.serving.admit(stopped, 600)
                outcome.append(None)
            except (AdmissionStopped, LogClosed) as error:
                outcome.append(type(error))

        def act():
            wait_until(lambda: service_of(log).admission._moved._waiters)
            if end == "stop":
                stopped.set()
            elif end == "close":
                log.close()
            elif end == "cancel":
                probe.subscription.cancel()
            else:
                probe.subscription.request(0)

        in_threads(write, act)
        assert outcome == [{"stop": AdmissionStopped, "close": LogClosed}.get(end)]


def test_a_gating_subscriber_that_commits_inline_does_not_hold_the_lock_of_others(log):
    """To look how far a subscriber is may run its code; no lock is held meanwhile."""
    seen = []

    class Nudging(Probe):
        def take(self, change):
            super().take(change)
            in_threads(service_of(log).admission.nudge, timeout=60)
            seen.append(change)

    probe = Nudging(first=1)
    log.changes().subscribe(probe, executor=flow.INLINE, max_lag=100)
    fill(log, 3)
    log.serving.admit(threading.Event(), 10)
    assert seen


def test_what_nobody_has_counted_is_not_counted_as_nothing():
    """E64: a follower that skips, and what is shown of a log that was opened again; from there on it is known again."""
    admission = Gating(5, Hands(), list)
    admission.published(1000, 0)
    assert admission.counted(Position(6)) == (None, None, None)
    assert admission.counted(Position(1000)) == (None, None, None)
    assert admission.counted(Position(1001)) == (0, 0, None)
    admission.published(1001, 3, 70, 9)
    assert admission.lag(Position(1000, 1)) is None
    assert admission.counted(Position(1001, 1)) == (2, 70, 9)


def test_a_gating_subscriber_holds_writers_back_from_a_recovered_backlog():
    """The design's section 7: what is shown after an opening is more than any ``max_lag`` until it is taken."""
    clock = Hands()
    with opened(clock=clock) as log:
        fill(log, 1)
        for number in range(9):
            log.commit([order(number)], visible=False)
        path = log.path
        log.close()
        with type(log).open(path, clock=clock, sync="os") as again:
            probe = Probe()
            again.changes().subscribe(probe, executor=flow.INLINE, max_lag=3)
            again.publish(again.withheld[-1])
            assert probe.subscription.lag is None
            assert probe.subscription.behind.versions == 9
            clock.step = 50.0
            with pytest.raises(SubscriberStalled):
                again.serving.admit(threading.Event(), 60)
            clock.step = 0.0
            probe.request(100)
            again.serving.admit(threading.Event(), 60)


def test_a_writer_waits_while_the_oldest_change_not_taken_is_older_than_the_lag_in_time(tmp_path):
    """The design's section 7: a lag in time is counted from the commit, whatever the number of changes."""
    hands = Hands()
    hands.micros = 1_000_000
    hands.now_us = lambda: hands.micros
    with ChangeLog.open(tmp_path / "log", clock=hands, sync="os") as log:
        probe = Probe()
        log.changes().subscribe(probe, executor=flow.INLINE, max_lag=timedelta(seconds=5), name="warehouse")
        log.serving.admit(threading.Event(), 0)
        fill(log, 3)
        hands.micros += 4_000_000
        fill(log, 1)
        log.serving.admit(threading.Event(), 0)  # eight changes of four seconds at most
        hands.micros += 2_000_000
        with pytest.raises(SubscriberStalled, match=r"warehouse lags 8 changes \(max_lag is 0:00:05\)"):
            log.serving.admit(threading.Event(), 0)
        probe.request(6)
        log.serving.admit(threading.Event(), 0)  # what is left is two seconds old
        hands.micros += 100_000_000
        probe.request(2)
        log.serving.admit(threading.Event(), 0)


def test_what_was_committed_at_a_time_that_is_not_known_is_too_old(tmp_path):
    """What is shown after an opening is older than any ``max_lag`` until it is taken."""
    with ChangeLog.open(tmp_path / "log", sync="os") as log:
        log.commit([order(1)])
    with ChangeLog.open(tmp_path / "log", sync="os") as log:
        probe = Probe()
        log.changes(since=log.oldest).subscribe(probe, executor=flow.INLINE, max_lag=timedelta(days=9))
        with pytest.raises(SubscriberStalled, match="9 days"):
            log.serving.admit(threading.Event(), 0)
        probe.request(2)
        log.serving.admit(threading.Event(), 60)
