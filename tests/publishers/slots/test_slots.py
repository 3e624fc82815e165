"""Slots: places that the log keeps for consumers."""

from collections import deque

import pytest

import flow
from penstock_cdc.errors import (
    AckAhead,
    Fenced,
    InvalidCriteria,
    InvalidOption,
    LogClosed,
    LogReadOnly,
    NoSuchSlot,
    PositionAhead,
    PublishingOff,
    SlotBusy,
    SlotExists,
    TooCostly,
)
from penstock_cdc.types import SlotState
from publishers import ChangeLog, Content, Criteria, Criterion, Position, upsert
from publishers.errors import LogExhausted
from publishers.journal import Journal
from tests.harness.inside import service_of
from tests.publishers.slots.consumers import caught_up, served, take
from tests.publishers.support import QUICK, Probe, fill, opened, order, scratch, wait_until


def test_a_consumer_without_a_place_goes_on_where_its_slot_is():
    """F74, F85: reconnecting, and restarting the log, continue behind what was acknowledged."""
    path = scratch() / "log"
    with ChangeLog.open(path, **QUICK) as log:
        log.slots.create("stock", Criterion(entity_types={"order"}), since="earliest")
        fill(log, 3, 2)
        with log.slots.open("stock") as slot:
            assert (slot.name, slot.generation, slot.position) == ("stock", 1, Position(1))
            changes = take(slot, 4)
            assert [change.position for change in changes] == [(1, 1), (1, 2), (2, 1), (2, 2)]
            assert slot.ack(changes[1])
            assert slot.position == Position(2)
            assert take(slot, 1)[0].position == Position(2, 1)
    with ChangeLog.open(path, **QUICK) as log:
        assert list(log.slots) == ["stock"]
        assert "stock" in log.slots
        with log.slots.open("stock") as slot:
            assert slot.generation == 2
            assert slot.criteria == Criteria.of(Criterion(entity_types={"order"}))
            assert take(slot, 1)[0].position == Position(2, 1)


def test_a_place_inside_a_transaction_is_rounded_down_unless_the_slot_counts_changes(log):
    """F74: a restart repeats the whole transaction, or goes on in the middle of it."""
    for granularity in ("transaction", "change"):
        log.slots.create(granularity, since="earliest", granularity=granularity)
    fill(log, 2, 3)
    for name, place in (("transaction", Position(1)), ("change", Position(1, 2))):
        with log.slots.open(name) as slot:
            changes = take(slot, 6)
            assert slot.ack(Position(1, 2))
            assert slot.position == place
            assert slot.ack(changes[3])  # the last one of its transaction
            assert slot.position == Position(2)
            assert slot.ack(Position(2, 2))
    with pytest.raises(InvalidOption):
        log.slots.create("odd", granularity="row")


def test_the_index_behind_a_transaction_is_the_next_transaction(log):
    log.slots.create("stock", since="earliest")
    fill(log, 1, 2)
    with log.slots.open("stock") as slot:
        last = take(slot, 3)[-1]
        assert slot.ack(Position(last.version, last.index + 1))
        assert slot.position == Position(2)


def test_a_slot_has_one_consumer_at_a_time(log):
    """F123, F74: the second one is refused with the name of the first, or takes over and fences it."""
    log.slots.create("stock", since="earliest")
    fill(log, 2)
    first = log.slots.open("stock", owner="worker 1")
    with pytest.raises(SlotBusy) as caught:
        log.slots.open("stock")
    assert (caught.value.name, caught.value.owner, caught.value.retryable) == ("stock", "worker 1", True)
    probe = served(first)
    second = log.slots.open("stock", take_over=True)
    assert second.generation == first.generation + 1
    probe.wait_for_end()
    assert isinstance(probe.error, Fenced)
    for call in (
        lambda: first.ack(Position(2)),
        lambda: first.seek("earliest"),
        first.pause,
        first.resume,
        first.info,
        first.changes,
    ):
        with pytest.raises(Fenced) as caught:
            call()
        assert (caught.value.generation, caught.value.current) == (1, 2)
    assert second.position == Position(1)
    first.close()
    assert log.slots.info("stock").state is SlotState.SERVED
    assert log.slots.info("stock").owner.startswith("process ")
    second.close()
    second.close()
    with pytest.raises(Fenced, match="generation 2 of slot 'stock' is over; open"):
        second.ack(Position(1))
    log.slots.open("stock").close()
    for owner in (7, "", "two\nlines", "\x1b[2J", "x" * 257):
        with pytest.raises(InvalidOption):
            log.slots.open("stock", owner=owner)
    with pytest.raises(InvalidOption):
        log.slots.open("stock", take_over="yes")


def test_a_feed_that_was_made_before_the_slot_was_taken_over_is_refused(log):
    """F74."""
    log.slots.create("stock", since="earliest")
    first = log.slots.open("stock")
    feed = first.changes()
    log.slots.open("stock", take_over=True)
    probe = Probe(first=1)
    feed.subscribe(probe, executor=flow.INLINE)
    assert isinstance(probe.error, Fenced)


def test_an_opening_has_one_subscription_at_a_time(log):
    log.slots.create("stock", since="earliest")
    fill(log, 1)
    with log.slots.open("stock") as slot:
        first = caught_up(slot, log)
        second = served(slot)
        assert isinstance(second.error, SlotBusy)
        first.subscription.cancel()
        third = caught_up(slot, log)
        assert third.positions == first.positions
    assert third.error is None  # closing cancels


def test_a_refused_subscription_does_not_count(log):
    """A subscription that the log refused leaves the slot to the next one."""
    log.slots.create("stock", since="earliest")
    fill(log, 1)
    with log.slots.open("stock") as slot:
        feed = slot.changes()
        refused = service_of(log).registry.add

        def refuse(*given):
            raise TooCostly("match_weight", 2, 1, "less")

        service_of(log).registry.add = refuse
        probe = Probe(first=1)
        feed.subscribe(probe, executor=flow.INLINE)
        service_of(log).registry.add = refused
        assert isinstance(probe.error, TooCostly)
        assert caught_up(slot, log).positions == [Position(1), Position(1, 1)]


def test_a_log_that_takes_no_subscribers_keeps_places_all_the_same():
    """Such as those of a process that reads history."""
    with opened(publish=False) as log:
        log.slots.create("stock")
        with log.slots.open("stock") as slot:
            assert isinstance(served(slot).error, PublishingOff)


def test_a_slot_begins_where_it_is_told(log):
    """F74: the next version by default, the oldest, a position, a version, where another slot is."""
    fill(log, 4)
    slots = log.slots
    assert slots.create("latest").position == Position(5)
    assert slots.create("earliest", since="earliest").position == Position(1)
    assert slots.create("place", since=Position(3, 1)).position == Position(3, 1)
    assert slots.create("version", since=2).position == Position(2)
    assert slots.create("token", since=str(log.token(Position(4)))).position == Position(4)
    copied = slots.create("copy", Criterion(entity_types={"order"}), copy_from="version")
    assert copied.position == Position(2)
    with slots.open("copy") as slot:
        slots.create("same", copy_from="copy")
        with slots.open("same") as other:
            assert other.criteria == slot.criteria
    with pytest.raises(PositionAhead):
        slots.create("ahead", since=Position(6))
    with pytest.raises(InvalidOption):
        slots.create("both", since=Position(2), copy_from="copy")
    with pytest.raises(NoSuchSlot):
        slots.create("none", copy_from="nothing")
    assert len(slots) == 7


@pytest.mark.parametrize("name", ["", "A", "a b", "ü", "x" * 65, "a/b", "..", 7, None, "a\n"])
def test_a_name_has_small_letters_digits_and_dashes(log, name):
    with pytest.raises(InvalidOption, match="name"):
        log.slots.create(name)
    log.slots.create("good")
    with pytest.raises(InvalidOption, match="name"):
        log.slots.rename("good", name)


def test_what_is_not_there_or_there_already_is_refused(log):
    slots = log.slots
    slots.create("stock")
    with pytest.raises(SlotExists):
        slots.create("stock")
    for call in (slots.open, slots.drop, slots.info, slots.pause, slots.resume, slots.seek):
        for name in ("stack", 7, None):
            with pytest.raises(NoSuchSlot, match="stock") as caught:
                call(name)
            assert caught.value.known == ["stock"]
    with pytest.raises(NoSuchSlot):
        slots.rename("stack", "stick")
    slots.create("other")
    with pytest.raises(SlotExists):
        slots.rename("stock", "other")
    with pytest.raises(InvalidOption, match="criteria"):
        slots.create("nothing", Criteria(frozenset()))
    with pytest.raises(InvalidOption, match="UTF-8"):
        slots.create("letters", Criterion(keys={"\udc80"}))
    for caps in ({"keep_bytes": -1}, {"keep_bytes": "1"}, {"keep_age": -1.0}):
        with pytest.raises(InvalidOption):
            slots.create("caps", **caps)
    assert [hold.name for hold in log.statistics().holds] == ["slot:stock", "slot:other"]


def test_criteria_that_cannot_be_stored_are_refused():
    """F74: a slot or a group of them could not be read at the next opening, and with it no other one."""
    path, criteria = scratch() / "log", Criterion(where="n > 1", also={Criterion(where="m > 1")})
    with ChangeLog.open(path, **QUICK) as log:
        log.slots.create("stock")
        for made in (log.slots, log.groups):
            with pytest.raises(InvalidCriteria, match="also"):
                made.create("narrow", criteria)
    with ChangeLog.open(path, **QUICK) as log:
        assert list(log.slots) == ["stock"]
        assert list(log.groups) == []


def test_a_consumer_may_ask_for_other_changes_than_its_slot(log):
    """F180: as a sink does that also has to hear of what leaves its criteria."""
    log.slots.create("stock", Criterion(entity_types={"order"}), since="earliest")
    log.commit([order(1), upsert("bill", "1", {})])
    with log.slots.open("stock") as slot:
        wider = Criteria.of(Criterion(entity_types={"order", "bill"}))
        assert [change.entity_type for change in take(slot, 2, criteria=wider)] == ["order", "bill"]
        assert slot.criteria == Criteria.of(Criterion(entity_types={"order"}))


def test_the_number_and_the_bytes_of_slots_are_bounded():
    """F74: each bound is an option, and statistics tell how far it is used."""
    with opened(slots=2, slot_journal_bytes=2048) as log:
        log.slots.create("one")
        with pytest.raises(TooCostly) as caught:
            log.slots.create("two", Criterion(keys={f"key {n}" for n in range(500)}))
        assert caught.value.option == "slot_journal_bytes"
        log.slots.create("two")
        with pytest.raises(TooCostly) as caught:
            log.slots.create("three")
        assert (caught.value.option, caught.value.cost, caught.value.limit) == ("slots", 3, 2)
        told = log.statistics().slots
        assert (told.count, told.lost) == (2, 0)
        assert [slot.name for slot in told.listed] == ["one", "two"]
        assert 0 < told.journal_bytes < 4096
        assert [slot.name for slot in log.statistics(listed=1).slots.listed] == ["one"]
        log.slots.drop("one")
        log.slots.create("three")


def test_only_the_owner_of_a_log_has_slots(log):
    """A read-only opening refuses, and says whose they are."""
    log.slots.create("stock")
    with (
        ChangeLog.open(log.path, read_only=True) as follower,
        pytest.raises(LogReadOnly, match="slots belong to its owner"),
    ):
        follower.slots.open("stock")
    slot = log.slots.open("stock")
    log.close()
    for call in (lambda: log.slots, lambda: slot.ack(Position(1)), slot.info, slot.changes):
        with pytest.raises(LogClosed):
            call()
    slot.close()


def test_a_consumer_can_go_elsewhere(log):
    """F74: forward and back, live or not; what was given before cannot be acknowledged any more."""
    log.slots.create("stock", since="earliest")
    fill(log, 5)
    with log.slots.open("stock") as slot:
        assert slot.seek(4) == Position(4)
        assert (slot.generation, slot.position, slot.delivered) == (2, Position(4), Position(4))
        probe = caught_up(slot, log)
        assert probe.positions[0] == Position(4)
        assert slot.ack(log.head)
        slot.seek("earliest")
        wait_until(lambda: len(probe.positions) == 14, probe.state)
        assert slot.position == Position(1)
        assert slot.delivered == log.head
        with pytest.raises(PositionAhead):
            slot.seek(Position(7))
        with pytest.raises(InvalidOption):
            slot.seek(-1)
    with pytest.raises(Fenced):
        slot.seek(1)


def test_what_was_given_before_a_seek_does_not_count_behind_it(log):
    """F74: also while the seek is under way."""
    log.slots.create("stock", since="earliest")
    fill(log, 5)
    told = []

    class Seeking(Probe):
        def on_next(self, change):
            super().on_next(change)
            if change.position == Position(4) and not told:
                told.append(slot.seek(2))
                told.append(slot.delivered)
                with pytest.raises(AckAhead):
                    slot.ack(change)

        def on_seek(self, position):
            told.append(position)

    with log.slots.open("stock") as slot:
        probe = served(slot, probe=Seeking(first=10**6))
        wait_until(lambda: len(probe.positions) == 7 + 8, probe.state)
        assert told == [Position(2)] * 3
        assert probe.error is None
        assert slot.delivered == log.head


def test_a_seek_before_the_subscription_has_begun_on_its_executor_is_not_lost(log):
    """F74: the first change is that of the new place."""
    turns = deque()

    class Later:
        submit = turns.append

    log.slots.create("stock", since="latest")
    fill(log, 5)
    with log.slots.open("stock") as slot:
        slot.seek(4)
        probe = Probe(first=10**6)
        slot.changes().subscribe(probe, executor=Later())
        slot.seek(2)

        def all_came():
            while turns:
                turns.popleft()()
            return len(probe.positions) >= 8

        wait_until(all_came, probe.state)
        assert probe.positions[0] == Position(2)
        assert slot.ack(log.head)


def test_a_paused_slot_gives_nothing_over_restarts_too():
    path = scratch() / "log"
    with ChangeLog.open(path, **QUICK) as log:
        log.slots.create("stock", since="earliest")
        with log.slots.open("stock") as slot:
            probe = served(slot)
            assert slot.pause()
            assert not slot.pause()
            assert slot.paused
            fill(log, 2)
            assert probe.positions == []
            assert log.slots.resume("stock")
            assert not slot.resume()
            wait_until(lambda: len(probe.positions) == 4)
            log.slots.pause("stock")
    with ChangeLog.open(path, **QUICK) as log:
        assert log.slots.info("stock").paused
        with log.slots.open("stock") as slot:
            probe = served(slot)
            fill(log, 1)
            assert probe.positions == []
            slot.resume()
            wait_until(lambda: len(probe.positions) == 6)
        assert log.slots.pause("stock")  # also while nobody has it open


def test_a_renamed_slot_is_the_same_slot():
    path = scratch() / "log"
    with ChangeLog.open(path, **QUICK) as log:
        log.slots.create("old", since="earliest")
        fill(log, 2)
        with log.slots.open("old") as slot:
            probe = caught_up(slot, log)
            log.slots.rename("old", "new")
            assert slot.name == "new"
            assert slot.ack(probe.changes[-1])
            assert slot.info().position == Position(3)
            assert [hold.name for hold in log.statistics().holds] == ["slot:new"]
    with ChangeLog.open(path, **QUICK) as log:
        assert list(log.slots) == ["new"]
        assert log.slots.info("new").position == Position(3)
        assert log.slots.info("new").generation == 1


def test_an_operator_moves_a_slot_that_nobody_has_open(log):
    log.slots.create("stock")
    fill(log, 3)
    assert log.slots.seek("stock", "earliest").position == Position(1)
    assert log.slots.info("stock").generation == 1
    assert log.slots.seek("stock").position == log.head
    with log.slots.open("stock"), pytest.raises(SlotBusy):
        log.slots.seek("stock")
    with pytest.raises(PositionAhead):
        log.slots.seek("stock", Position(9))


def test_views_apply_to_slots(log):
    log.slots.create("stock", since="earliest")
    log.commit([order(7)])
    with log.slots.open("stock") as slot:
        assert take(slot, 2, content=Content.BODY)[1].body == {"n": "7"}
        assert repr(slot) == "<Slot 'stock' at 1:0, generation 1>"


def test_the_end_of_the_log_is_told_to_the_consumer(log):
    log.slots.create("stock", since="earliest")
    fill(log, 2)
    slot = log.slots.open("stock")
    probe = caught_up(slot, log)
    slot.ack(probe.changes[-1])
    log.close()
    probe.wait_for_end()
    assert probe.completed
    with ChangeLog.open(log.path, **QUICK) as again:
        assert again.slots.info("stock").position == Position(3)


def test_a_journal_for_which_something_is_lacking_refuses_the_opening(monkeypatch):
    """F147: it is not damaged, so the slots are not taken for broken."""

    def lacking(*_args, **_named):
        raise LogExhausted("descriptors")

    monkeypatch.setattr(Journal, "load", lacking)
    with pytest.raises(LogExhausted):
        ChangeLog.open(scratch() / "log")


def test_a_slot_may_be_paused_before_its_consumer_subscribes(log):
    """F123: the consumer subscribes to a paused slot then, and gets nothing until it is resumed."""
    fill(log, 2)
    log.slots.create("stock", since="earliest")
    with log.slots.open("stock") as slot:
        assert slot.pause()
        probe = served(slot)
        assert not probe.changes
        assert slot.resume()
        wait_until(lambda: len(probe.changes) == 4)
