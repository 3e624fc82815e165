"""Slots on a disk that is full or fails, and what opening many of them costs."""

import errno

import pytest

from penstock_cdc.errors import SlotsUnwritten
from penstock_cdc.types import SlotState
from publishers import Position
from publishers.wal import HoldState
from tests.publishers.slots.owner import Owner, gave
from tests.publishers.wal.logs import commit
from tests.simulation.filesystem import SimulatedFileSystem
from tests.simulation.workload import LOG


def journal_of(owner):
    """The journal of the slots, whose writes fail or are held."""
    return owner.book._journal


def failing(owner, number):
    """From now on no write to the journal succeeds."""

    def fail(write):
        raise OSError(number, "no")

    journal_of(owner)._insist = fail


def test_what_is_acknowledged_while_the_log_vouches_for_another_place_is_durable_too():
    """F85: another thread goes on in the slot, so that its place is one for which the log has to vouch again."""
    system = SimulatedFileSystem(1)
    owner = Owner(system)
    owner.slots.create("stock", since="earliest")
    for _ in range(4):
        commit(owner.wal, b"body")
    slot = owner.slots.open("stock")
    gave(slot, Position(5))
    vouch, later = owner.log.vouch, [Position(4)]

    def vouching(version):
        vouch(version)
        if later:
            slot.ack(later.pop())

    owner.log.vouch = vouching
    assert slot.ack(Position(2), durable=True)
    assert later == []
    system.power_cut()
    assert Owner(system).slots.info("stock").position == Position(4)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_while_the_disk_fails_nothing_is_acknowledged_durably_and_nothing_is_lost(number, caplog):
    """T5, T18, F85: errors by name; places stay in memory, history stays held, and all is written once that is possible."""
    system = SimulatedFileSystem(1)
    owner = Owner(system)
    owner.slots.create("stock", since="earliest")
    for _ in range(3):
        commit(owner.wal, b"body")
    slot = owner.slots.open("stock")
    gave(slot, Position(4))
    write = journal_of(owner)._insist
    failing(owner, number)
    with pytest.raises(SlotsUnwritten) as caught:
        slot.ack(Position(3), durable=True)
    assert caught.value.retryable
    for call in (
        lambda: slot.seek(Position(2)),
        lambda: owner.slots.create("other"),
        lambda: owner.slots.rename("stock", "stick"),
        lambda: owner.slots.pause("stock"),
        lambda: owner.slots.open("stock", take_over=True),
    ):
        with pytest.raises(SlotsUnwritten):
            call()
    for _ in range(3):
        owner.settle()
    assert sum("cannot be written" in one.message for one in caplog.records) == 1
    told = owner.slots.info("stock")
    assert (told.position, told.generation, told.unsynced, told.paused) == (Position(3), 1, True, False)
    assert [hold.position for hold in owner.log.holds()] == [Position(1)]
    assert list(owner.slots) == ["stock"]
    journal_of(owner)._insist = write
    assert slot.ack(Position(3), durable=True)
    assert [hold.position for hold in owner.log.holds()] == [Position(3)]
    system.power_cut()
    again = Owner(system).slots.info("stock")
    assert (again.position, again.generation, again.history) == (Position(3), 1, HoldState.RESERVED)


def test_a_lost_slot_stays_lost_if_the_disk_fails_while_it_is_reset(caplog):
    """F92."""
    owner = Owner(SimulatedFileSystem(1))
    owner.slots.create("slow", since="earliest", keep_bytes=100_000)
    for _ in range(9):
        commit(owner.wal, b"x" * 30_000)
        owner.settle()
    assert owner.slots.info("slow").state is SlotState.LOST
    write = journal_of(owner)._insist
    failing(owner, errno.ENOSPC)
    with pytest.raises(SlotsUnwritten):
        owner.slots.seek("slow")
    assert owner.slots.info("slow").state is SlotState.LOST
    assert owner.log.holds() == ()
    journal_of(owner)._insist = write
    assert owner.slots.seek("slow").state is SlotState.FREE


def test_a_thousand_slots_are_opened_by_reading_two_files():
    """F74: what opening costs does not grow with reads."""
    system = SimulatedFileSystem(1)
    owner = Owner(system)
    commit(owner.wal, b"body")
    owner.close()
    before = system.reads
    owner = Owner(system)
    without = system.reads - before
    for number in range(1000):
        owner.slots.create(f"slot-{number}", since="earliest")
    owner.close()
    before, operations = system.reads, system.operations
    opened = Owner(system)
    assert len(opened.slots) == 1000
    assert system.reads - before <= without + 2
    assert all("slots" not in str(name) for name in system.trace or ())
    assert len(opened.log.holds()) == 1000
    written = system.operations - operations
    opened.close()
    assert written < 40
    assert {"JOURNAL", "JOURNAL.copy"} == set(system.names(LOG / "slots"))


def test_a_slot_that_nobody_serves_costs_a_commit_nothing():
    """F74: neither a write nor a read."""
    costs = []
    for slots in (0, 20):
        system = SimulatedFileSystem(1)
        owner = Owner(system)
        for number in range(slots):
            owner.slots.create(f"slot-{number}")
        before = system.operations, system.reads
        for _ in range(20):
            commit(owner.wal, b"body")
        costs.append((system.operations - before[0], system.reads - before[1]))
    assert costs[0] == costs[1]
