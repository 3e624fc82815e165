"""The age of segments under a wall clock that is wrong for a moment, or for longer."""

import logging
from datetime import UTC, datetime
from uuid import uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from publishers import ChangeLog
from publishers.wal.keep.segment_ages import AGREEMENT, Ages
from publishers.wal.read.catalog import SegmentEntry
from tests.harness.inside import catalog_of, head_writer_of, writer_of
from tests.harness.scale import scaled
from tests.publishers.support import QUICK, fill, opened, wait_until
from tests.publishers.wal import logs
from tests.publishers.wal.logs import commit, fill_segments, options
from tests.simulation.filesystem import SimulatedFileSystem

SECOND = 1_000_000
DAY = 86_400.0
YEARS = 10 * 365 * DAY
NOW = 1_780_000_000_000_000
WEEK = options(retain_bytes=None, retain_age=7 * DAY)


class Clocks:
    """A machine: time goes by, and its wall clock is wrong by so much."""

    def __init__(self):
        self.elapsed = 1000.0
        self.wrong = 0.0

    def monotonic(self):
        return self.elapsed

    def now_us(self):
        return NOW + int((self.elapsed + self.wrong) * SECOND)


class Machine:
    """A log on such a machine."""

    def __init__(self, settings=WEEK):
        self.clocks, self.system, self.settings = Clocks(), SimulatedFileSystem(), settings
        self.open()

    def open(self):
        self.wal = logs.opened(self.system, self.settings, clock=self.clocks)

    def reopen(self):
        self.wal.close()
        self.open()

    def grow(self):
        """Begins another segment."""
        fill_segments(self.wal, len(catalog_of(self.wal).entries) + 1)

    def sweep(self):
        """The housekeeping of a moment; the numbers of the segments that are left."""
        while self.wal.maintain():
            pass
        return [entry.number for entry in catalog_of(self.wal).entries]

    def wait(self, seconds):
        self.clocks.elapsed += seconds
        return self.sweep()


@pytest.fixture
def machine():
    return Machine()


def test_a_commit_in_2036_retires_nothing_early_and_keeps_nothing_for_ever(machine):
    """F45: also where a segment was begun at that moment."""
    machine.grow()
    machine.wait(DAY)
    machine.clocks.wrong = YEARS
    machine.grow()
    assert machine.sweep() == [1, 2, 3]
    machine.clocks.wrong = 0.0
    assert machine.wait(DAY) == [1, 2, 3]
    machine.grow()
    assert machine.wait(5 * DAY - 1) == [1, 2, 3, 4]
    assert machine.wait(2) == [2, 3, 4], "seven days after the first was closed"
    assert machine.wait(DAY) == [3, 4], "seven days after the second was closed, in 2036 by its clock"
    assert machine.wait(DAY) == [4]


def test_a_clock_that_is_ahead_for_a_minute_deletes_nothing(machine):
    """F45: in a pass of retention, and at an opening."""
    for _ in range(3):
        machine.grow()
    machine.clocks.wrong = YEARS
    for _ in range(60):
        assert machine.wait(1) == [1, 2, 3, 4]
    machine.reopen()
    for _ in range(60):
        assert machine.wait(1) == [1, 2, 3, 4]
    machine.clocks.wrong = 0.0
    assert machine.wait(2 * AGREEMENT) == [1, 2, 3, 4]
    assert machine.wait(2 * AGREEMENT) == [1, 2, 3, 4]


def test_after_a_reopening_history_is_old_once_the_clocks_have_agreed_for_a_while(machine):
    """F45: what was closed before is judged by the wall clock, but not by one reading of it."""
    machine.grow()
    machine.grow()
    machine.wal.close()
    machine.clocks.elapsed += 8 * DAY
    machine.open()
    assert machine.sweep() == [1, 2, 3]
    assert machine.wait(AGREEMENT - 1) == [1, 2, 3]
    assert machine.wait(1) == [3]


@pytest.mark.parametrize("wrong", [YEARS, -YEARS])
def test_a_segment_closed_under_a_wrong_clock_goes_with_the_next_one_after_a_reopening(machine, wrong):
    """F45: a time that is in the future, or before that of an older segment, does not count."""
    machine.grow()
    machine.wait(DAY)
    machine.clocks.wrong = wrong
    machine.grow()
    machine.clocks.wrong = 0.0
    machine.wait(DAY)
    machine.grow()
    machine.reopen()
    machine.wait(AGREEMENT)
    assert machine.wait(5 * DAY - AGREEMENT - 1) == [1, 2, 3, 4]
    assert machine.wait(2) == [2, 3, 4]
    assert machine.wait(DAY) == [2, 3, 4], "when the second was closed is not known, but not after the third"
    assert machine.wait(DAY) == [4]


def test_where_no_time_counts_history_is_as_old_as_the_opening(machine):
    """F45: nothing is kept for ever, although all was closed in 2036."""
    machine.clocks.wrong = YEARS
    machine.grow()
    machine.grow()
    machine.clocks.wrong = 0.0
    machine.reopen()
    machine.wait(AGREEMENT)
    assert machine.wait(7 * DAY - AGREEMENT) == [1, 2, 3]
    assert machine.wait(1) == [3]


def test_of_two_clocks_that_were_agreed_on_the_one_counts_by_which_less_has_passed():
    clocks = Clocks()
    entries = [SegmentEntry(number, number, clocks.now_us()) for number in (1, 2)]
    clocks.elapsed += DAY
    ages = Ages(clocks)

    def after(wrong):
        clocks.wrong = wrong
        for _ in range(2):
            ages.observe()
            clocks.elapsed += AGREEMENT
        ages.observe()
        return ages.of(entries)[0]

    assert after(0.0) == DAY + 2 * AGREEMENT
    assert after(YEARS) == DAY + 4 * AGREEMENT
    assert after(-3600.0) == DAY + 6 * AGREEMENT - 3600
    assert after(0.0) == DAY + 8 * AGREEMENT - 3600


def test_a_clock_that_is_slewed_is_agreed_on():
    clocks = Clocks()
    ages = Ages(clocks)
    for _ in range(int(AGREEMENT)):
        clocks.elapsed += 1.0
        clocks.wrong += 500e-6
        ages.observe()
    assert abs(ages.now - clocks.now_us()) < SECOND


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("wait"), st.sampled_from([1.0, 59.0, 600.0, 3600.0, DAY, 3 * DAY])),
        st.tuples(st.just("jump"), st.floats(-YEARS, YEARS)),
        st.tuples(st.just("jump"), st.just(0.0)),
        st.tuples(st.just("grow"), st.none()),
        st.tuples(st.just("reopen"), st.none()),
    ),
    max_size=25,
)


@given(STEPS)
@settings(max_examples=scaled(60), deadline=None)
def test_no_jump_of_the_wall_clock_retires_a_segment_before_its_time_or_keeps_it_for_ever(steps):
    """F45: by the truth of the monotonic clock within one opening."""
    machine = Machine(options(retain_bytes=None, retain_age=7 * DAY, segment_bytes=65536))
    opened_at, closed = machine.clocks.elapsed, {}
    for action, value in steps:
        if action == "wait":
            machine.clocks.elapsed += value
        elif action == "jump":
            machine.clocks.wrong = value
        elif action == "grow":
            closed[writer_of(machine.wal).active.number] = machine.clocks.elapsed
            machine.grow()
        else:
            machine.reopen()
            opened_at, closed = machine.clocks.elapsed, {}
        before = [entry.number for entry in catalog_of(machine.wal).entries]
        after = machine.sweep()
        for number in set(before) - set(after):
            since = closed.get(number)
            assert since is None or machine.clocks.elapsed - since > 7 * DAY
        for number in after[:-1]:
            assert machine.clocks.elapsed - closed.get(number, opened_at) <= 7 * DAY


@pytest.mark.parametrize("wrong", [YEARS, -YEARS])
def test_a_wrong_clock_neither_forgets_a_producer_nor_stops_head_and_rolls(wrong):
    """F15, F41: idle producers, HEAD and segments of an age are timed by more than one reading."""
    machine = Machine(options(retain_bytes=None, retain_age=None, segment_age=3600.0, head_sync=1.0))
    producer = uuid4()
    machine.wal.append([logs.sealed(b"a", producer=producer, sequence=7)])
    machine.wal.sync()
    machine.clocks.wrong = wrong
    machine.grow()
    assert machine.wal.producer(producer).sequence == 7
    commit(machine.wal, b"b")
    machine.wait(2.0)
    assert head_writer_of(machine.wal).head.state.durable == machine.wal.durable
    machine.clocks.wrong = 0.0
    assert not machine.wal.overdue
    machine.wait(3600.0)
    assert machine.wal.overdue


def test_an_idle_producer_is_forgotten_once_the_clocks_have_agreed():
    """F15."""
    machine = Machine(options(retain_bytes=None, retain_age=None, producer_ttl=DAY))
    producer = uuid4()
    machine.wal.append([logs.sealed(b"a", producer=producer, sequence=7)])
    machine.wait(AGREEMENT)
    machine.wait(2 * DAY)
    machine.grow()
    assert machine.wal.producer(producer) is None


def test_commits_that_are_stamped_with_the_future_are_told_once(caplog):
    """E63: and the times of commits rise all the same."""
    machine = Machine()
    with caplog.at_level(logging.WARNING, "penstock.housekeeping"):
        commit(machine.wal, b"a")
        assert machine.wal.clock_ahead < 0.001
        machine.clocks.wrong = YEARS
        commit(machine.wal, b"a")
        machine.sweep()
        assert machine.wal.clock_ahead < 0.001
        assert caplog.text == ""
        machine.clocks.wrong = 0.0
        for _ in range(5):
            commit(machine.wal, b"a")
            machine.wait(60)
        assert machine.wal.clock_ahead == pytest.approx(YEARS - 300)
        assert caplog.text.count("ahead of the clock") == 1
        machine.reopen()
        machine.sweep()
        assert machine.wal.clock_ahead == pytest.approx(YEARS - 300)
        assert caplog.text.count("ahead of the clock") == 2, "each opening tells"
        machine.wait(YEARS)
        commit(machine.wal, b"a")
        assert machine.wal.clock_ahead == 0
        machine.sweep()
        assert caplog.text.count("ahead of the clock") == 2


def test_a_place_by_time_is_right_on_both_sides_of_a_jump():
    """F52: nothing that was committed at a time or later is left out, whatever the clock said between."""
    clocks = Clocks()
    with opened(clock=clocks, retain_age=7 * DAY) as log:
        truth = []
        for wrong in (0.0, 0.0, YEARS, 0.0, 0.0):
            clocks.elapsed += 60
            clocks.wrong = wrong
            truth.append(clocks.now_us() - int(wrong * SECOND))
            fill(log, 1)
        wait_until(lambda: log.statistics().visible == 5)
        assert log.statistics().clock_ahead == pytest.approx(YEARS - 120)
        clocks.elapsed += YEARS
        fill(log, 1)
        assert log.statistics().clock_ahead == 0

        def version(us):
            return log.position_at(datetime.fromtimestamp(us / SECOND, UTC)).version

        with ChangeLog.open(log.path, read_only=True, **QUICK) as follower:
            assert follower.statistics().clock_ahead == 0
            assert follower.position_at(log.time_of(4)) == log.position_at(log.time_of(4))
        assert [version(at) for at in truth] == [1, 2, 3, 3, 3]
        assert [log.position_at(log.time_of(number)).version for number in range(1, 7)] == [1, 2, 3, 4, 5, 6]
        assert version(clocks.now_us()) == 6
