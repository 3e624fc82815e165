"""One timer for the background work of all logs of a process."""

import threading
from math import inf

import pytest

from flow.clock import SystemClock
from publishers import ChangeLog, Position
from publishers.background import in_background
from publishers.errors import LogExhausted
from publishers.log.health import HealthStatus, health_of
from publishers.log.housekeeping import SYNC, LogTimer
from publishers.wal import RealFileSystem
from tests.forking import in_child
from tests.harness.inside import files_of, house_step_of, housekeeping_of, service_of
from tests.publishers.support import QUICK, fill, opened, scratch, wait_until


class Clock(SystemClock):
    """Goes on by itself, and ahead when it is told to."""

    ahead = 0.0

    def monotonic(self):
        return super().monotonic() + self.ahead


@pytest.fixture
def timer():
    timer = LogTimer()
    yield timer
    wait_until(lambda: timer.threads == 0)


def test_a_job_runs_when_it_is_requested_and_as_often_as_it_says(timer):
    done = []
    waits = timer.add(lambda: done.append(in_background()), 60.0, inf)
    waits.poke()
    wait_until(lambda: done)
    waits.close()
    assert done == [True]
    often = []
    job = timer.add(lambda: often.append(1) or 0.0, 60.0)
    wait_until(lambda: len(often) >= 3)
    job.close()
    job.close()
    count = len(often)
    job.poke()
    assert len(often) == count


def test_what_is_requested_during_a_run_is_run_after_it(timer):
    began, go, runs, passed = threading.Event(), threading.Event(), [], []

    def step():
        runs.append(1)
        began.set()
        go.wait(60)

    job, other = timer.add(step, 60.0), timer.add(lambda: passed.append(1), 60.0, inf)
    began.wait(60)
    job.poke()
    other.poke()
    wait_until(lambda: passed)
    assert len(runs) == 1
    go.set()
    wait_until(lambda: len(runs) == 2)
    for one in (job, other):
        one.close()


def test_a_request_comes_before_what_was_due_later_and_takes_its_place(timer):
    runs, passed = [], []
    job = timer.add(lambda: runs.append(1) or 60.0, 0.01, 0.01)
    assert job.armed
    job.poke()
    wait_until(lambda: runs)
    other = timer.add(lambda: passed.append(1), 60.0, 0.02)
    wait_until(lambda: passed)
    assert not job.armed, "its next run is further away than a period"
    assert len(runs) == 1
    for one in (job, other):
        one.close()


def test_a_run_that_raises_is_logged_and_the_next_one_comes_after_the_period(timer, caplog):
    done = []

    def step():
        done.append(1)
        if len(done) == 1:
            raise ValueError("once")

    job = timer.add(step, 0.001)
    wait_until(lambda: len(done) >= 2)
    job.close()
    assert "once" in caplog.text


def test_an_error_of_a_job_that_was_closed_meanwhile_is_not_logged(timer, caplog):
    """As after a close that an interrupt has ended: the files are closed under the run."""
    began, go = threading.Event(), threading.Event()

    def step():
        began.set()
        go.wait(60)
        raise OSError(9, "Bad file descriptor")

    job = timer.add(step, 60.0)
    began.wait(60)
    job.ended = True
    go.set()
    job.close()
    assert caplog.text == ""


def test_a_close_waits_for_the_run_in_progress_unless_that_run_closes(timer):
    began, go = threading.Event(), threading.Event()
    ended = []

    def step():
        began.set()
        go.wait(60)
        ended.append(1)

    job = timer.add(step, 60.0)
    began.wait(60)
    closer = threading.Thread(target=job.close)
    closer.start()
    go.set()
    closer.join(60)
    assert ended

    def close_own():
        own.close()
        ended.append(2)

    own = timer.add(close_own, 60.0, inf)
    own.poke()
    wait_until(lambda: ended == [1, 2])


def test_a_job_that_hangs_delays_no_other_one_and_is_late(timer):
    hangs, go, others = threading.Event(), threading.Event(), []

    def hang():
        hangs.set()
        go.wait(60)

    job = timer.add(hang, 60.0)
    hangs.wait(60)
    rest = [timer.add(lambda: others.append(1) or 0.0, 60.0) for _ in range(20)]
    wait_until(lambda: len(others) > 100)
    assert job.late > 0
    assert timer.threads <= 4
    go.set()
    for one in [job, *rest]:
        one.close()
    assert job.late == 0


def test_syncs_come_first(timer):
    """F39: of what is due at once."""
    go, order = threading.Event(), []
    blocked = [timer.add(lambda: go.wait(60) and None, 60.0) for _ in range(4)]
    wait_until(lambda: sum(one.late > 0 and one.due == inf for one in blocked) == 4)
    keeps = [timer.add(lambda: order.append("keeps"), 60.0) for _ in range(5)]
    syncs = timer.add(lambda: order.append("syncs"), 60.0, 0.0, SYNC)
    for one in blocked[1:]:
        one.ended = True
    go.set()
    wait_until(lambda: len(order) == 6)
    assert order.index("syncs") < 4, "each of the four threads may have taken one before"
    for one in [*blocked, *keeps, syncs]:
        one.close()


class Crowded(LogTimer):
    """A timer on a machine that has only some threads for it."""

    def __init__(self, left):
        self.left = left
        super().__init__()

    def _start(self):
        if not self.left:
            raise LogExhausted("threads")
        self.left -= 1
        super()._start()


@pytest.mark.parametrize("present", [0, 1])
def test_without_a_thread_a_first_job_is_refused_and_a_later_one_shares(present):
    timer, done = Crowded(present), []
    if not present:
        with pytest.raises(LogExhausted):
            timer.add(lambda: None, 60.0)
        assert timer.threads == 0
        return
    jobs = [timer.add(lambda: done.append(1), 60.0) for _ in range(4)]
    wait_until(lambda: len(done) == 4)
    assert timer.threads == 1
    for one in jobs:
        one.close()
    wait_until(lambda: timer.threads == 0)


class Inherited(LogTimer):
    """A timer as a child of ``fork`` finds it: the thread that it counts lives in the parent."""

    def _start(self):
        self._threads += 1
        self._free += 1

    def forked(self, pid, /):
        super().forked(pid)
        self._start = super()._start


def test_a_timer_begins_anew_in_a_child_of_fork():
    """F143: neither the threads of its parent nor their jobs are its own."""
    timer, runs = Inherited(), []
    theirs = timer.add(lambda: runs.append("theirs"), 60.0)
    assert timer.threads == 1
    timer.forked(1)
    assert timer.threads == 0
    theirs.poke()
    mine = timer.add(lambda: runs.append("mine"), 60.0)
    wait_until(lambda: runs)
    mine.close()
    wait_until(lambda: timer.threads == 0)
    assert runs == ["mine"]


def test_a_log_of_a_child_of_fork_is_synced_by_a_timer_of_the_child(tmp_path):
    """F143, F39: the threads of the parent's timer do not live in the child."""
    with ChangeLog.open(tmp_path / "log", sync="interval") as log:
        fill(log, 1)

        def run():
            with ChangeLog.open(tmp_path / "own", sync="interval") as own:
                fill(own, 1)
                wait_until(lambda: own.visible == 1)
            return "synced"

        assert in_child(run) == "synced"
        fill(log, 1)
        wait_until(lambda: log.visible == 2)


def test_a_log_that_is_idle_is_looked_after_seldom_until_a_commit():
    """A store of a thousand logs of which a few are in use costs what these few cost."""
    clock = Clock()
    with ChangeLog.open(scratch() / "log", clock=clock, **QUICK) as log:
        house = housekeeping_of(log)
        house.close()
        step = house_step_of(log)
        assert step() == 0.2
        clock.ahead += 10
        step()
        clock.ahead += 10
        assert step() == 5.0
        house.armed = False
        fill(log, 1)
        assert house.armed, "the commit has requested a step"
        assert step() == 0.2
        clock.ahead += 10
        step()
        clock.ahead += 10
        assert step() == 5.0


@pytest.mark.parametrize("kind", ["slot", "group"])
def test_what_consumers_acknowledge_keeps_the_log_awake_until_it_is_written(kind):
    """F74, F75: the acknowledgement, or the timeout of what was delivered."""
    clock = Clock()
    with ChangeLog.open(scratch() / "log", clock=clock, **QUICK) as log:
        fill(log, 3)
        (log.slots if kind == "slot" else log.groups).create("stock", since=log.oldest)
        house, step = housekeeping_of(log), house_step_of(log)
        house.close()
        for _ in range(3):
            clock.ahead += 10
            step()
        assert step() == 5.0
        house.armed = False
        if kind == "slot":
            slot = log.slots.open("stock")
            changes = iter(slot.changes())
            next(changes), next(changes)
            slot.ack(Position(2))
        else:
            log.groups.join("stock", "one").read(1)
            clock.ahead += 25
        assert house.armed
        assert step() == 0.2


@pytest.mark.parametrize(
    ("interval", "late", "status"),
    [
        (0.05, 0.9, HealthStatus.OK),
        (0.05, 1.1, HealthStatus.LATE),
        (60.0, 59.0, HealthStatus.OK),
        (60.0, 61.0, HealthStatus.LATE),
    ],
)
def test_a_sync_that_is_late_by_more_than_its_interval_and_a_second_is_told(interval, late, status):
    """F39: a disk that hangs; a machine that is busy for a moment is no fault."""
    with opened(sync="interval", sync_interval=interval) as log:
        health = health_of(
            log.path, RealFileSystem(), files_of(log), service_of(log), None, late, log.time_of
        )
    assert health.status is status
    if status is HealthStatus.LATE:
        assert str(health.why) == f"a sync has been due for {late} s: the disk hangs"
