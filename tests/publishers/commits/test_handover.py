"""A writer that never pauses lets the threads run that deliver what it writes."""

import pytest

from publishers.commits import handover
from publishers.commits.handover import Handover
from tests.harness.inside import committer_of
from tests.publishers.support import opened, order


class Time:
    """A clock that stands still but for sleeping; how long that takes is said before."""

    def __init__(self):
        self.now = 0.0
        self.takes = 0.0001
        self.slept = 0

    def monotonic(self):
        return self.now

    def sleep(self, _seconds):
        self.slept += 1
        self.now += self.takes


@pytest.fixture
def clock(monkeypatch):
    clock = Time()
    monkeypatch.setattr(handover, "time", clock)
    return clock


def milliseconds(one, count):
    """How many pauses there are in so many milliseconds of commits of 0.1 ms each."""
    before = one.pauses
    for _ in range(10 * count):
        one.worked(0.0001)
    return one.pauses - before


def test_a_thread_that_commits_on_and_on_pauses(clock):
    one = Handover()
    clock.takes = 0.004  # another thread had the interpreter meanwhile
    assert 30 <= milliseconds(one, 100) <= 50
    assert clock.slept == one.pauses


def test_a_thread_that_is_alone_pauses_ever_more_seldom(clock):
    one = Handover()
    milliseconds(one, 10_000)
    assert 25 <= milliseconds(one, 1_000) <= 35
    clock.takes = 0.004
    milliseconds(one, 64)
    assert milliseconds(one, 100) >= 30


def test_a_few_commits_are_never_paused(clock):
    assert milliseconds(Handover(), 1) == clock.slept == 0


def test_a_commit_that_meets_no_other_counts(clock):
    clock.takes = 0.0
    with opened() as log:
        noted = committer_of(log).handover
        for rows in ([order(1)], [order(n) for n in range(10)]):
            noted._slice = 0.0  # it is time to
            log.commit(rows)
        assert noted.pauses == clock.slept == 2
