"""The timer of all logs: requests, roused jobs and closings from any thread while its threads come and go."""

import pytest

from publishers.log.housekeeping import SYNC, UPKEEP, LogTimer
from tests.harness.scale import scaled
from tests.interleaving.exploring import explore
from tests.interleaving.primitives import step
from tests.interleaving.scheduler import Scheduler

PERIOD = 0.01
LINES = ("log/housekeeping.py",)


class Work:
    """What a job does, and what is asked of it.

    Attributes:
        wanted: How often a run was requested, or work was made for one.
        seen: How much of that was there when the last run began.
        closed: Whether no run may begin any more.
    """

    def __init__(self, timer: LogTimer, again: float | None, rank: int) -> None:
        self.wanted = self.seen = self.deep = self.runs = 0
        self.closed = False
        self.again = again
        self.job = timer.add(self.run, PERIOD, PERIOD, rank)

    def run(self) -> float | None:
        self.deep += 1
        assert self.deep == 1, "one run at a time"
        assert not self.closed, "after the close has returned"
        seen = self.wanted
        for _ in range(3):
            step("a run")
        self.runs += 1
        self.seen = seen
        self.deep -= 1
        return self.again if self.runs < 4 else None

    def pokes(self) -> None:
        self.wanted += 1
        self.job.poke()

    def commits(self) -> None:
        """As a commit does: what it makes must be done by a run that begins afterwards."""
        self.wanted += 1
        if not self.job.armed:
            self.job.rouse()

    def closes(self) -> None:
        self.job.close()
        self.closed = True


def timer_serves(run: Scheduler) -> None:
    timer = LogTimer()
    works = [Work(timer, None, UPKEEP), Work(timer, PERIOD, UPKEEP), Work(timer, None, SYNC)]
    one, two, three = works
    run.together(one.pokes, one.pokes, one.commits, two.pokes, three.commits, three.pokes, two.closes)
    run.until(lambda: all(work.closed or work.seen == work.wanted for work in works), "work waits")
    for work in works:
        if not work.closed:
            work.closes()
    run.until(lambda: not timer.threads, "a thread is left")


def timer_begins_anew(run: Scheduler) -> None:
    """The last thread ends while the next job comes."""
    timer = LogTimer()
    first = Work(timer, None, UPKEEP)
    second: list[Work] = []

    def comes() -> None:
        second.append(Work(timer, None, UPKEEP))
        second[0].pokes()

    run.together(first.closes, comes)
    run.until(lambda: second[0].seen == 1, "work waits")
    second[0].closes()
    run.until(lambda: not timer.threads, "a thread is left")


@pytest.mark.parametrize("scenario", [timer_serves, timer_begins_anew], ids=lambda one: one.__name__)
def test_what_is_requested_of_the_timer_is_run_alone_and_nothing_after_a_close(scenario):
    explore(scenario, preemptions=2, most=scaled(400), walks=scaled(400))
    explore(scenario, most=0, walks=scaled(200), files=LINES)
