"""Slots between two steps: what comes while something else is being done with them."""

from types import SimpleNamespace

import pytest

from penstock_cdc.errors import LogForked, NoSuchSlot
from penstock_cdc.types import SlotState
from publishers import Content, Position, View
from publishers.slots.errors import SlotsUnwritten
from publishers.slots.progress import SlotProgress
from tests.publishers.slots.consumers import take
from tests.publishers.support import fill


@pytest.fixture
def kept(log):
    """What is known of a slot."""
    log.slots.create("stock", since="earliest", granularity="change")
    fill(log, 1, 3)
    return log.slots.book.kept["stock"]


@pytest.mark.usefixtures("kept")
def test_a_consumer_reads_a_slot_through_a_view_of_its_own(log):
    """F74: as a server does, whose grant says what is shown."""
    with log.slots.open("stock") as slot:
        (change,) = take(slot, 1, view=View(content=Content.BODY))
        assert change.body is not None


@pytest.mark.usefixtures("kept")
def test_an_operator_pauses_a_slot_that_a_consumer_has_open(log):
    """F74: its subscription gives nothing until it is resumed."""
    with log.slots.open("stock") as slot:
        assert take(slot, 1)
        assert log.slots.pause("stock")
        assert slot.paused
        assert not log.slots.pause("stock")
        assert log.slots.resume("stock")
        assert take(slot, 1)


def test_what_is_acknowledged_while_the_journal_is_written_is_written_next(log, kept, monkeypatch):
    """F85: a place that has moved on is not taken for a stored one."""
    book, appended = log.slots.book, []
    append = book.append
    with log.slots.open("stock") as slot:
        changes = take(slot, 3)

        def late(entry):
            append(entry)
            if not appended:
                appended.append(entry)
                assert slot.ack(changes[1])

        slot.ack(changes[0])
        monkeypatch.setattr(book, "append", late)
        book.flush()
        assert slot.position == Position(1, 2)
        assert log.slots.info("stock").unsynced
        book.flush()
        assert not log.slots.info("stock").unsynced
        assert str(log.position_of(kept.record.place)) == "1:2"


def test_a_slot_without_a_hold_is_dropped_and_renamed_like_any_other(log, kept, monkeypatch):
    """F74: one of another history has none."""
    kept.hold.release()
    kept.hold = None

    def full(_entry):
        raise SlotsUnwritten("no room")

    with monkeypatch.context() as broken:
        broken.setattr(log.slots.book, "append", full)
        with pytest.raises(SlotsUnwritten):
            log.slots.rename("stock", "wood")
    assert list(log.slots) == ["stock"]
    log.slots.drop("stock")
    assert list(log.slots) == []
    assert kept.state is SlotState.DROPPED
    assert isinstance(kept.refusal(), NoSuchSlot)


def test_a_hold_that_is_lost_no_more_says_nothing(log, kept):
    """F92: such as one whose slot was moved meanwhile."""
    log.slots.book._lose(kept)
    assert log.slots.info("stock").state is SlotState.FREE


def test_what_was_given_before_a_seek_is_not_noted_behind_it(log, kept):
    """F74."""
    with log.slots.open("stock") as slot:
        (change,) = take(slot, 1)
    progress = SlotProgress(Position(1))
    progress.sought = True
    progress.note(change)
    assert progress.given == Position(1)


def test_a_slot_is_given_back_although_its_log_was_closed_before(log, kept):
    """F74: what was acknowledged was written then."""
    slot = log.slots.open("stock")
    (change,) = take(slot, 1)
    slot.ack(change)
    log.close()
    slot.close()
    slot.close()
    assert kept.consumer is None


def test_a_slot_of_the_parent_is_left_alone_in_a_child_of_fork(log, kept, monkeypatch):
    """F74: there is no parent to be harmed here, and what would refuse the child stands for it."""
    slot = log.slots.open("stock")

    def refuse():
        raise LogForked(log.path, 1)

    with monkeypatch.context() as child:
        child.setattr(log.slots, "_log", SimpleNamespace(check=refuse))
        slot.close()
    assert kept.consumer is slot
