"""What is acknowledged to a slot, how it is kept, and what history it keeps."""

import logging
import threading

import pytest

import flow
from penstock_cdc.errors import (
    AckAhead,
    Fenced,
    FormatTooNew,
    HistoryPruned,
    InvalidOption,
    LogUnreadable,
    PositionAhead,
    SlotBusy,
    SlotForked,
    SlotLost,
    SlotsCorrupted,
)
from penstock_cdc.types import HoldState, SlotState
from publishers import ChangeLog, Criterion, Position
from publishers.journal import Journal
from publishers.slots.inspection import stored_slots
from publishers.slots.record import SLOTS_NAME
from publishers.wal import RealFileSystem
from tests.harness.inside import files_of, head_writer_of, house_step_of, housekeeping_of, schemas_of
from tests.publishers.movement import RETAIN
from tests.publishers.slots.consumers import caught_up, served, take
from tests.publishers.support import QUICK, Probe, fill, opened, scratch, wait_until


@pytest.fixture
def quiet(caplog):
    for name in ("penstock.retention", "penstock.slots"):
        caplog.set_level(logging.CRITICAL, name)


def move_past(log, versions=400):
    """Commits so much that retention takes what no hold needs."""
    fill(log, versions, 20)
    housekeeping_of(log).poke()


def test_a_further_subscription_of_an_opening_begins_with_what_was_not_acknowledged(log):
    """F34, F74: however much the one before had been given."""
    log.slots.create("stock", since="earliest")
    fill(log, 5)
    with log.slots.open("stock") as slot:
        first = take(slot, 7)
        slot.ack(Position(2))
        again = take(slot, 7)
        assert [change.position for change in again][:3] == [change.position for change in first][2:5]
        assert again[0].position == slot.position == Position(2)


def test_an_acknowledgement_never_goes_back_nor_beyond_what_was_delivered(log):
    """F74: what lies before the place is ignored, what was not delivered is refused."""
    log.slots.create("stock", since="earliest")
    fill(log, 5)
    with log.slots.open("stock") as slot:
        for ahead in (Position(1, 1), Position(6), Position(99)):
            with pytest.raises(AckAhead) as caught:
                slot.ack(ahead)
            assert (caught.value.position, caught.value.delivered) == (ahead, Position(1))
        take(slot, 5)  # version 3 up to its TRANSACTION event
        assert slot.delivered == Position(3, 1)
        with pytest.raises(AckAhead, match="cannot be acknowledged"):
            slot.ack(Position(3, 2))
        assert slot.ack(Position(3, 1))
        assert slot.ack(Position(2)) is False
        assert slot.position == Position(3)
        take(slot, 2)  # version 3 from its beginning
        assert slot.ack(Position(3, 2))  # behind its last change, as ``change.after`` is the next version
        assert slot.position == Position(4)
        for bad in (3, "3:0", None, (3, 0)):
            with pytest.raises(InvalidOption):
                slot.ack(bad)
        with pytest.raises(InvalidOption):
            slot.ack(Position(3), durable="yes")


def test_what_does_not_match_is_acknowledged_too(log):
    """F74: a rare predicate pins no history."""
    log.slots.create("rare", Criterion(entity_types={"rare"}), since="earliest")
    fill(log, 3)
    with log.slots.open("rare") as slot:
        probe = caught_up(slot, log)
        assert log.head == Position(4)
        assert slot.ack(slot.delivered)
        assert slot.position == Position(4)
        fill(log, 1, kind="rare")
        fill(log, 5)
        wait_until(lambda: slot.delivered == log.head)
        (change,) = probe.changes
        assert slot.ack(change)
        assert slot.position == log.head == Position(10)


def test_batches_are_noted_before_they_are_given(log):
    """F74: a subscriber of batches may acknowledge the batch that it is given."""
    log.slots.create("stock", since="earliest")
    fill(log, 4, 2)

    class Batches(Probe):
        def on_next_batch(self, changes):
            self.changes += changes
            slot.ack(changes[-1])

    with log.slots.open("stock") as slot:
        probe = served(slot, probe=Batches(first=10**6))
        wait_until(lambda: slot.position == log.head, probe.state)


def test_a_dropped_slot_holds_nothing_and_does_not_come_back():
    path = scratch() / "log"
    with ChangeLog.open(path, **QUICK) as log:
        log.slots.create("stock")
        slot = log.slots.open("stock")
        with pytest.raises(SlotBusy):
            log.slots.drop("stock")
        slot.close()
        log.slots.drop("stock")
        assert log.statistics().holds == ()
        with pytest.raises(Fenced):
            slot.ack(Position(1))
        log.slots.create("stock")
        assert log.slots.info("stock").generation == 0
        log.slots.drop("stock")
    with ChangeLog.open(path, **QUICK) as log:
        assert list(log.slots) == []


def test_history_stays_until_the_consumer_has_acknowledged_it_durably():
    """F126, F45: nothing behind a stored place is deleted, and it goes once the place has moved on."""
    with opened(**RETAIN, ack_sync=3600.0) as log:
        log.slots.create("slow", since="earliest")
        with log.slots.open("slow") as slot:
            move_past(log)
            probe = caught_up(slot, log)
            while files_of(log).maintain(schemas_of(log).settle()):
                pass
            assert slot.info().history is HoldState.EXTENDED
            assert slot.ack(probe.changes[-1])
            for _ in range(20):
                files_of(log).maintain(schemas_of(log).settle())
            assert log.oldest == Position(1)  # acknowledged, and not durable yet
            assert slot.ack(probe.changes[-1], durable=True)
            wait_until(lambda: housekeeping_of(log).poke() or log.oldest > Position(1), slot.info)
            assert slot.info().history is HoldState.RESERVED


def test_a_lost_slot_is_told_loudly_and_names_the_bootstrap(caplog, quiet):
    """F92, F74: the subscription ends, all calls are refused, a restart remembers it, and a reset makes it good again."""
    path = scratch() / "log"
    with ChangeLog.open(path, **RETAIN, **QUICK) as log:
        log.slots.create("slow", since="earliest", keep_bytes=100_000)
        slot = log.slots.open("slow")
        probe = served(slot, demand=1)
        while slot.position and log.slots.info("slow").state is not SlotState.LOST:
            move_past(log, 5)
        probe.wait_for_end()
        assert isinstance(probe.error, SlotLost)
        assert "bootstrap its consumer from a snapshot" in str(probe.error)
        assert probe.error.name == "slow"
        assert probe.error.oldest > Position(1)
        for call in (lambda: slot.ack(Position(1)), lambda: slot.seek(log.head), slot.changes):
            with pytest.raises(SlotLost) as caught:
                call()
            assert isinstance(caught.value, HistoryPruned)
        slot.close()
        for call in (lambda: log.slots.open("slow"), lambda: log.slots.create("x", copy_from="slow")):
            with pytest.raises(SlotLost):
                call()
        assert log.slots.info("slow").history is HoldState.LOST
        assert log.statistics().slots.lost == 1
        wait_until(lambda: not log.slots.info("slow").unsynced)
        log.slots.rename("slow", "lost")
        log.slots.pause("lost")
        log.slots.resume("lost")
    with ChangeLog.open(path, **RETAIN, **QUICK) as log:
        assert log.slots.info("lost").state is SlotState.LOST
        with pytest.raises(SlotLost):
            log.slots.open("lost")
        with pytest.raises(HistoryPruned):
            log.slots.seek("lost", Position(1))
        assert log.slots.info("lost").state is SlotState.LOST
        assert log.slots.seek("lost").state is SlotState.FREE
        with log.slots.open("lost") as slot:
            fill(log, 1)
            probe = caught_up(slot, log)
            assert slot.ack(probe.changes[-1])
    with ChangeLog.open(path, **RETAIN, **QUICK) as log:
        assert log.slots.info("lost").state is SlotState.FREE
        log.slots.drop("lost")


def test_a_place_that_retention_has_passed_while_nobody_looked_is_lost(quiet):
    """F92: such as that of a log whose slots were put back from an old copy."""
    path = scratch() / "log"
    with ChangeLog.open(path, **RETAIN, **QUICK) as log:
        log.slots.create("slow", since="earliest")
    saved = {name: (path / "slots" / name).read_bytes() for name in ("JOURNAL", "JOURNAL.copy")}
    with ChangeLog.open(path, **RETAIN, **QUICK) as log:
        log.slots.drop("slow")
        move_past(log)
        wait_until(lambda: housekeeping_of(log).poke() or log.oldest > Position(1))
    for name, data in saved.items():
        (path / "slots" / name).write_bytes(data)
    with ChangeLog.open(path, **RETAIN, **QUICK) as log, pytest.raises(SlotLost):
        log.slots.open("slow")


def test_a_place_beyond_the_end_of_its_log_is_damage_and_not_nothing_new(quiet):
    """F85: and so is one of another history."""
    path = scratch() / "log"
    with ChangeLog.open(path, **QUICK) as log:
        log.slots.create("stock", since="earliest")
    before = {one.name: one.read_bytes() for one in path.iterdir() if one.is_file()}
    with ChangeLog.open(path, **QUICK) as log:
        fill(log, 3)
        with log.slots.open("stock") as slot:
            slot.ack(caught_up(slot, log).changes[-1])
    for name in ("JOURNAL", "JOURNAL.copy"):
        before[f"slots/{name}"] = (path / "slots" / name).read_bytes()
    other = scratch() / "log"
    (other / "slots").mkdir(parents=True)
    for name, data in before.items():
        (other / name).write_bytes(data)
    with ChangeLog.open(other, **QUICK) as log:
        fill(log, 5)
        assert log.slots.info("stock").state is SlotState.FORKED
        assert log.slots.info("stock").history is None
        (stored,) = stored_slots(RealFileSystem(), other, log.log_id, log.position_of)
        assert (stored.state, stored.position) == (SlotState.FORKED, Position(4))
        for call in (lambda: log.slots.open("stock"), lambda: log.slots.create("x", copy_from="stock")):
            with pytest.raises(SlotForked, match="not in the history") as caught:
                call()
            assert caught.value.place.endswith(":4:0")
        log.slots.rename("stock", "stick")
        log.slots.pause("stick")
        assert log.slots.seek("stick", 2).state is SlotState.FREE
        log.slots.open("stick").close()


def test_acknowledgements_are_made_durable_after_a_while_or_after_many():
    """F85: ``ack_sync`` later at the latest, and at once after `ACK_EVERY` of them."""
    with opened(ack_sync=0.01) as log:
        log.slots.create("stock", since="earliest")
        fill(log, 3)
        with log.slots.open("stock") as slot:
            slot.ack(caught_up(slot, log).changes[-1])
            wait_until(lambda: not slot.info().unsynced)
    with opened(ack_sync=3600.0, ack_every=3) as log:
        log.slots.create("stock", since="earliest")
        fill(log, 5)
        with log.slots.open("stock") as slot:
            probe = caught_up(slot, log)
            for change in probe.changes[1:5:2]:
                slot.ack(change)
            housekeeping_of(log).poke()
            assert slot.info().unsynced
            slot.ack(probe.changes[5])
            wait_until(lambda: not slot.info().unsynced)


def test_many_slots_are_acknowledged_by_many_threads(log):
    """F74: each keeps its own place."""
    names = [f"slot-{n}" for n in range(8)]
    for name in names:
        log.slots.create(name, since="earliest")
    fill(log, 50)

    def consume(name, places):
        with log.slots.open(name) as slot:
            for change in take(slot, 60):
                slot.ack(change, durable=change.version % 10 == 0)
            places[name] = slot.position

    places = {}
    threads = [threading.Thread(target=consume, args=(name, places)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert places == dict.fromkeys(names, Position(31))
    assert [log.slots.info(name).position for name in names] == [Position(31)] * 8


def test_a_durable_acknowledgement_from_an_inline_subscriber_does_not_wait_for_itself():
    """F74, F85: HEAD covers the place, whatever the sync policy is."""
    for sync in ("always", "interval", "os"):
        with opened(sync=sync, sync_interval=0.01) as log:
            log.slots.create("stock")
            with log.slots.open("stock") as slot:

                class Acking(Probe):
                    def on_next(self, change):
                        super().on_next(change)
                        slot.ack(change, durable=True)

                probe = served(slot, probe=Acking(first=10**6))
                fill(log, 5)
                wait_until(lambda: slot.position == Position(6), probe.state)
                assert head_writer_of(files_of(log)).head.state.durable >= 5


@pytest.mark.parametrize("damage", ["cut", "nonsense", "newer"])
def test_a_damaged_journal_keeps_no_commit_up_and_history_from_nothing(damage, quiet):
    """F85, F126: the log is open, its slots are refused by name, and nothing that they may need is deleted."""
    path = scratch() / "log"
    with ChangeLog.open(path, **RETAIN, **QUICK) as log:
        log.slots.create("stock", since="earliest")
        log_id = log.log_id
    if damage == "cut":
        for name in ("JOURNAL", "JOURNAL.copy"):
            (path / "slots" / name).write_bytes(b"")
    else:
        journal = Journal(RealFileSystem(), path / SLOTS_NAME, log_id)
        journal.load()
        journal.append(b"nonsense" if damage == "nonsense" else b'{"format":99}', lambda: b"")
    error = FormatTooNew if damage == "newer" else SlotsCorrupted
    with ChangeLog.open(path, **RETAIN, **QUICK) as log:
        for call in (lambda: log.slots.open("stock"), lambda: log.slots.create("x"), lambda: list(log.slots)):
            with pytest.raises(error):
                call()
        move_past(log)
        for _ in range(5):
            house_step_of(log)()
        assert log.oldest == Position(1)
        assert log.statistics().slots.count == 0
        with pytest.raises(error):
            stored_slots(RealFileSystem(), path, log_id, log.position_of)


def test_a_journal_that_cannot_be_opened_is_not_called_damaged(quiet):
    """F85, F126: as it is good, and moving it away would lose every place."""
    path = scratch() / "log"
    with ChangeLog.open(path, **RETAIN, **QUICK) as log:
        log.slots.create("stock", since="earliest")
    good = {one: one.read_bytes() for one in (path / "slots").iterdir()}
    for one in good:
        one.unlink()
        one.mkdir()
    with ChangeLog.open(path, **RETAIN, **QUICK) as log:
        with pytest.raises(LogUnreadable) as caught:
            log.slots.open("stock")
        assert caught.value.path.parent.name == "slots"
        assert "move" not in str(caught.value)
        move_past(log)
        assert log.oldest == Position(1)
    for one, data in good.items():
        one.rmdir()
        one.write_bytes(data)
    with ChangeLog.open(path, **RETAIN, **QUICK) as log:
        assert log.slots.info("stock").position == Position(1)


def test_a_lost_slot_is_told_as_it_is_stored(quiet):
    """F92: to those who do not own the log."""
    with opened(**RETAIN) as log:
        log.slots.create("slow", since="earliest", keep_bytes=0)
        wait_until(lambda: move_past(log, 5) or log.slots.info("slow").state is SlotState.LOST)
        stored = lambda: stored_slots(RealFileSystem(), log.path, log.log_id, log.position_of)  # noqa: E731 - asked twice
        wait_until(lambda: stored()[0].record.lost)  # noted behind the loss, and by another thread
        (found,) = stored()
        assert (found.state, found.position, found.record.lost) == (SlotState.LOST, Position(1), True)


def test_a_consumer_that_comes_back_goes_on_behind_what_it_has(log):
    """F74: with the generation that it had, and what it was given before may be acknowledged."""
    log.slots.create("stock", since="earliest")
    fill(log, 3)
    with log.slots.open("stock") as slot:
        assert take(slot, 1)[0].version == 1
        slot.cancel()
        with flow.iter_blocking(slot.changes(since=Position(2)), prefetch=1) as changes:
            assert next(changes).position == Position(2)
            assert slot.position == Position(1)
            assert slot.ack(Position(2))
        with flow.iter_blocking(slot.changes(since=Position(1)), prefetch=1) as changes:
            assert next(changes).position == Position(2)  # never before its place
        with pytest.raises(PositionAhead):
            slot.changes(since=Position(99))
        with pytest.raises(InvalidOption, match="since"):
            slot.changes(since="earliest")
    with log.slots.open("stock", generation=1) as slot:
        assert slot.generation == 2
    for stale in (1, 3):
        with pytest.raises(Fenced) as caught:
            log.slots.open("stock", generation=stale)
        assert (caught.value.generation, caught.value.current) == (stale, 2)


def test_another_subscription_may_begin_behind_one_that_is_cancelled(log):
    log.slots.create("stock", since="earliest")
    fill(log, 1)
    with log.slots.open("stock") as slot:
        slot.cancel()
        probe = served(slot, 0)
        slot.cancel()
        again = served(slot, 1)
        wait_until(lambda: again.changes, again.state)
        assert not probe.changes
