"""How far a slot is behind, and for how long."""

import errno

from penstock_cdc.types import HoldState, SlotState
from publishers import ChangeLog
from publishers.log.start import Places
from publishers.wal.keep import holds
from tests.publishers.slots.consumers import take
from tests.publishers.support import QUICK, fill, scratch
from tests.simulation.workload import Clock


def test_a_slot_tells_how_far_it_is_behind(log):
    """F86, F74: in versions, changes, bytes and seconds, as a model counts them."""
    log.slots.create("stock", since="earliest")
    assert log.slots.info("stock").lag == type(log.slots.info("stock").lag)(0, 0, 0, 0.0)
    fill(log, 4, 2)
    with log.slots.open("stock", owner="me") as slot:
        for version in range(1, 5):
            change = next(one for one in take(slot, 3) if one.index == 2)
            info = slot.info()
            assert (info.state, info.owner, info.generation) == (SlotState.SERVED, "me", 1)
            assert (info.lag.versions, info.lag.changes) == (5 - version, 3 * (5 - version))
            assert info.lag.nbytes > 0
            assert 0 <= info.lag.seconds < 60
            assert info.history is HoldState.RESERVED
            assert info.held_bytes + info.bytes_left == log.options.slot_keep_bytes
            slot.ack(change)
            assert slot.info().unsynced
        info = slot.info()
        assert (info.lag.versions, info.lag.changes, info.lag.nbytes) == (0, 0, 0)
    assert not log.slots.info("stock").unsynced


def test_how_old_the_backlog_of_a_slot_is_is_known_after_a_restart_too():
    """F74: an alarm for consumers that have gone must not end because the log was opened again."""
    path, clock = scratch() / "log", Clock()
    with ChangeLog.open(path, **QUICK, clock=clock) as log:
        for name, start in (("stock", 1), ("audit", 2), ("done", 3)):
            log.slots.create(name, since="latest")
            fill(log, start, start)
            clock.now += 100_000_000
    with ChangeLog.open(path, **QUICK, clock=clock) as log:
        listed = {one.name: one.lag for one in log.statistics().slots.listed}
        assert [(name, lag.versions) for name, lag in listed.items()] == [
            ("audit", 5),
            ("done", 3),
            ("stock", 6),
        ]
        assert [round(lag.seconds) for lag in listed.values()] == [200, 100, 300]
        assert {lag.changes for lag in listed.values()} == {None}
        clock.now += 7_000_000
        assert round(log.slots.info("stock").lag.seconds) == 307
        log.slots.seek("stock", "latest")
        assert log.slots.info("stock").lag.seconds == 0


def test_a_backlog_whose_age_cannot_be_read_has_statistics_all_the_same(monkeypatch):
    """F74: statistics of a log must not fail with its disk."""
    path = scratch() / "log"
    with ChangeLog.open(path, **QUICK) as log:
        log.slots.create("stock", since="latest")
        fill(log, 1, 1)

    def broken(_places, _version):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(Places, "committed_at", broken)
    with ChangeLog.open(path, **QUICK) as log:
        assert log.slots.info("stock").lag.seconds is None


def test_the_commit_times_of_as_many_backlogs_as_there_may_be_are_read_once(monkeypatch):
    """F74: statistics are due every few seconds; they must not read the log for each slot again."""
    path, count = scratch() / "log", 1_100
    with ChangeLog.open(path, **QUICK, slots=count) as log:
        fill(log, count)
        for number in range(count):
            log.slots.create(f"s{number}", since=number + 1)
    read, committed_at = [], Places.committed_at

    def counted(places, version):
        read.append(version)
        return committed_at(places, version)

    monkeypatch.setattr(Places, "committed_at", counted)
    with ChangeLog.open(path, **QUICK, slots=count) as log:
        for _ in range(2):
            assert None not in {one.lag.seconds for one in log.slots.statistics().listed}
        assert sorted(read) == list(range(1, count + 1))


def test_the_statistics_of_one_slot_look_at_its_own_hold_only(log, monkeypatch):
    fill(log, 3)
    for name in ("stock", "bills", "mail"):
        log.slots.create(name, since=2)
    looked_at, judge = [], holds._statistics

    def noted(hold, extent):
        looked_at.append(hold.name)
        return judge(hold, extent)

    monkeypatch.setattr(holds, "_statistics", noted)
    assert log.slots.info("bills").held_bytes > 0
    assert looked_at == ["slot:bills"]
