"""The background thread, and what it must not do."""

import threading

import flow
from publishers import ChangeLog
from publishers.background import in_background
from publishers.log.tailing import FollowerThread
from tests.harness.inside import thread_of
from tests.publishers.support import QUICK, Probe, fill, opened, scratch, wait_until


class Often:
    """A timer whose steps are due at once."""

    def wait(self):
        pass

    def wake(self):
        pass


def test_a_step_of_a_follower_that_raises_is_logged_and_the_next_one_runs(caplog):
    done = []

    def step():
        done.append(in_background())
        if len(done) == 1:
            raise ValueError("once")

    house = FollowerThread(step, Often(), "house")
    wait_until(lambda: len(done) >= 2)
    house.close()
    assert "once" in caplog.text
    assert all(done)
    assert not in_background()


def test_a_thread_that_outlives_an_interrupted_close_ends_in_silence(caplog):
    """What it waits at is closed already then."""
    waits, closed = threading.Event(), threading.Event()

    class Alarm:
        def wait(self):
            waits.set()
            closed.wait(60)
            raise OSError(9, "Bad file descriptor")

        def wake(self):
            pass

    house = FollowerThread(lambda: None, Alarm(), "house")
    waits.wait(60)
    thread_of(house).join, joined = lambda: None, thread_of(house).join
    house.close()
    closed.set()
    joined(20)
    assert not thread_of(house).is_alive()
    assert caplog.text == ""


def test_close_waits_for_the_step_in_progress():
    began, go = threading.Event(), threading.Event()
    ended = []

    def step():
        began.set()
        go.wait(60)
        ended.append(1)

    house = FollowerThread(step, Often(), "house")
    began.wait(60)
    closer = threading.Thread(target=house.close)
    closer.start()
    go.set()
    closer.join(60)
    assert ended


class Where(Probe):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.background = []

    def take(self, change):
        self.background.append(in_background())
        super().take(change)


def test_what_the_interval_sync_triggers_runs_on_the_pool():
    """F39, design section 6: no subscriber's code runs on a thread that serves everybody."""
    with opened(sync="interval", sync_interval=0.001) as log:
        probe = Where(first=10)
        log.changes().subscribe(probe, executor=flow.INLINE)
        fill(log, 3)
        probe.wait_for(6)
        assert not any(probe.background)
        assert probe.clean


def test_what_the_replayer_triggers_runs_on_the_pool():
    """Design section 6."""
    with opened() as log:
        fill(log, 50)
        probe = Where(first=1000)
        log.changes(since=log.oldest).subscribe(probe, executor=flow.INLINE)
        probe.wait_for(100)
        assert not any(probe.background)
        assert probe.clean


def test_a_follower_that_is_inline_is_told_on_the_pool():
    path = scratch()
    with (
        ChangeLog.open(path / "log", **QUICK) as owner,
        ChangeLog.open(path / "log", read_only=True, tail_poll=0.001) as log,
    ):
        probe = Where(first=100)
        log.changes().subscribe(probe, executor=flow.INLINE)
        fill(owner, 5)
        probe.wait_for(10)
        assert not any(probe.background)


def test_a_blocking_inline_subscriber_does_not_stop_those_who_lag():
    with opened(replay_threads=1) as log:
        fill(log, 20)
        go = threading.Event()

        class Stuck(Probe):
            def take(self, change):
                super().take(change)
                go.wait(60)

        stuck, other = Stuck(first=5), Probe(first=100)
        log.changes(since=log.oldest).subscribe(stuck, executor=flow.INLINE)
        stuck.wait_for(1)
        log.changes(since=log.oldest).subscribe(other)
        other.wait_for(40)
        go.set()
        stuck.wait_for(5)
