"""Holds of a log: what a slow reader may keep from retention, and how he learns that he has lost it."""

import logging
import os

import pytest

import flow
from penstock_cdc.errors import HistoryPruned, InvalidOption, LogReadOnly, PositionAhead
from penstock_cdc.types import HoldState
from publishers import ChangeLog, Position
from tests.harness.inside import catalog_of, files_of, housekeeping_of
from tests.publishers.movement import RETAIN
from tests.publishers.support import QUICK, Probe, everything, fill, opened, order, wait_until


def write(log, segments=3):
    """Commits until there are so many segments more than there were."""
    last = catalog_of(files_of(log).reader).entries[-1].number
    while catalog_of(files_of(log).reader).entries[-1].number < last + segments:
        fill(log, 10, 20)


def swept(log):
    """Retention has done what it can; from here on nobody else does."""
    housekeeping_of(log).close()
    while files_of(log).maintain():
        pass
    return log.oldest


@pytest.fixture
def quiet(caplog):
    caplog.set_level(logging.CRITICAL, "penstock.retention")


def test_a_held_position_can_be_read_as_long_as_it_is_held():
    """F45: subscribing at the position of the hold gives everything from there on."""
    with opened(**RETAIN) as log:
        fill(log, 3)
        hold = log.hold("slow", Position(2, 1))
        write(log, 5)
        swept(log)
        assert hold.state is HoldState.EXTENDED
        probe = Probe(first=10**6)
        log.changes(since=hold.position).subscribe(probe, executor=flow.INLINE)
        wait_until(lambda: probe.subscription.position == log.head, probe.state)
        assert probe.positions[0] == Position(2, 1)
        assert len(probe.positions) == len(everything(log)) - 3
        hold.move(probe.subscription.position)
        assert swept(log) > Position(3)
        assert hold.state is HoldState.RESERVED
        hold.release()


def test_a_lost_hold_is_told_loudly(quiet):
    """F47: the callback is called once, with where to go on; statistics say so; its subscription ends; space is freed."""
    with opened(slot_keep_bytes=200_000, **RETAIN) as log:
        fill(log, 3)
        told = []
        hold = log.hold("slow", Position(1), on_lost=told.append)
        (before,) = log.statistics().holds
        assert (before.name, before.state, before.position) == ("slow", HoldState.RESERVED, Position(1))
        assert before.held_bytes + before.bytes_left == 200_000
        assert before.seconds_left is None
        probe = Probe()
        log.changes(since=Position(1)).subscribe(probe, executor=flow.INLINE)
        write(log, 6)
        housekeeping_of(log).poke()
        wait_until(lambda: housekeeping_of(log).poke() or told, lambda: hold)
        assert told == [hold]
        assert hold.state is HoldState.LOST
        assert Position(3) < hold.oldest <= log.oldest  # retention may have gone on since
        with pytest.raises(HistoryPruned) as caught:
            hold.move(log.head)
        assert caught.value.oldest == hold.oldest
        (after,) = log.statistics().holds
        assert (after.state, after.held_bytes) == (HoldState.LOST, 0)
        probe.wait_for_end()
        assert isinstance(probe.error, HistoryPruned)
        assert not (log.path / "wal-000000000001.log").exists()
        with pytest.raises(HistoryPruned):
            log.hold("again", Position(1))


def test_a_callback_that_raises_is_reported_and_harms_nobody(quiet, dropped):
    """F47."""

    def fails(hold):
        raise RuntimeError("no")

    with opened(**RETAIN) as log:
        log.hold("slow", keep_bytes=0, on_lost=fails)
        write(log, 3)
        wait_until(lambda: housekeeping_of(log).poke() or dropped)
        assert dropped[0][:2] == (RuntimeError, "no")
        write(log, 1)
        assert log.statistics().holds[0].state is HoldState.LOST


def test_what_a_hold_may_be(log):
    """F45, F47: without a position it is the next version; its caps are those of the log if not given."""
    fill(log, 2)
    hold = log.hold("one", keep_age=5.0)
    assert hold.position == log.head == Position(3)
    assert (hold.keep_bytes, hold.keep_age) == (log.options.slot_keep_bytes, 5.0)
    with pytest.raises(PositionAhead):
        log.hold("two", Position(4))
    for caps in (
        {"keep_bytes": -1},
        {"keep_bytes": 1.5},
        {"keep_bytes": True},
        {"keep_age": -0.5},
        {"keep_age": "1"},
    ):
        with pytest.raises(InvalidOption, match="keep"):
            log.hold("two", **caps)
    with pytest.raises(InvalidOption, match="name"):
        log.hold("one")
    with ChangeLog.open(log.path, read_only=True, **QUICK) as follower:
        with pytest.raises(LogReadOnly):
            follower.hold("three")
        assert follower.statistics().holds == ()


def test_history_is_pruned_for_those_who_do_not_hold_it(quiet):
    """F45, E37: in process, for history and for the subscribers of a follower, which learns of it without reading."""
    with (
        opened(tail_poll=0.001, **RETAIN) as log,
        ChangeLog.open(log.path, read_only=True, **QUICK) as follower,
    ):
        log.commit([order(1)])
        wait_until(lambda: follower.head == log.head)
        probe = Probe()
        follower.changes(since=Position(1)).subscribe(probe, executor=flow.INLINE)
        fill(log, 5)
        write(log, 4)
        wait_until(lambda: housekeeping_of(log).poke() or log.oldest > Position(1))
        for one in (log, follower):
            wait_until(lambda one=one: one.oldest > Position(1))
            with pytest.raises(HistoryPruned):
                one.history(since=Position(1))
            with pytest.raises(HistoryPruned):
                one.time_of(1)


def open_files(log):
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            found.append(os.readlink(f"/proc/self/fd/{name}"))
        except OSError:
            continue
    return [path for path in found if str(log.path) in path and "wal-" in path]


def test_the_slice_being_read_keeps_its_file_until_it_ends():
    """F46: the segment is unlinked in the middle of a read, which still gets its bytes; then the file is let go."""
    with opened(**RETAIN) as log:
        fill(log, 3)
        catalog = catalog_of(files_of(log).reader)
        first = catalog.entries[0].number
        handle = catalog._acquire(first)  # a reader is at work
        expected = handle.file.pread(600, 0)
        write(log, 4)
        swept(log)
        assert log.oldest > Position(1)
        assert any("wal-000000000001.log (deleted)" in path for path in open_files(log))
        assert handle.file.pread(600, 0) == expected
        catalog._release(handle)
        assert not any("deleted" in path for path in open_files(log))


def test_a_subscriber_without_demand_holds_no_file_of_what_is_deleted():
    """F46, invariant 7: after retention nobody has a deleted file open, however many have stalled in it."""
    with opened(ring_events=2, batch_events=4, **RETAIN) as log:
        fill(log, 5)
        probes = [Probe(first=3) for _ in range(5)]
        for probe in probes:
            log.changes(since=Position(1)).subscribe(probe, executor=flow.INLINE)
            probe.wait_for(3)
        write(log, 4)
        swept(log)
        assert log.oldest > Position(1)
        assert not any("deleted" in path for path in open_files(log))
