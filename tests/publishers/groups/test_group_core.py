"""What the core of a group decides, case by case."""

import random

import pytest

from penstock_cdc.errors import InvalidOption, TooCostly
from publishers import Position
from publishers.groups.errors import ConsumerFenced
from publishers.groups.machine import GroupMachine
from publishers.groups.record import GroupEntry, GroupRecord, OpenRow, replay_group
from publishers.groups.schedule import GroupBreaker
from publishers.groups.settings import GroupSettings
from publishers.groups.state import DELIVERY_TABLE, DeliveryEvent, DeliveryState
from tests.simulation.workload import Clock

KEY = ("order", "1")
OTHER = ("order", "2")
BARRIER = ("order", None)


def machine(*lanes, **options):
    """A group that has read so many changes of version 1."""
    made = GroupMachine("g", GroupSettings(**options), Position(1), clock=Clock(), chance=random.Random(1))
    made.feed([(Position(1, at), lane, None, 0) for at, lane in enumerate(lanes)], Position(2))
    return made


def after(group, us):
    """Sets the clock of `machine` on; returns its time."""
    group._clock.now += us
    return group._clock.monotonic()


def places(units):
    return [unit.position.index for unit in units]


def test_the_consumer_of_a_key_may_have_its_next_change_too_and_no_other_consumer_may():
    """F83."""
    group = machine(KEY, KEY, OTHER, KEY)
    one, two = group.join("one", 1), group.join("two", 2)
    assert places(group.take(one, 1)) == [0]
    assert places(group.take(two, 9)) == [2]
    assert places(group.take(one, 1)) == [1]
    assert places(group.take(two, 9)) == []
    assert places(group.take(one, 9)) == [3]
    group.ack(one, [Position(1, 0), Position(1, 3), Position(1, 1)])
    assert group.floor == Position(1, 2)


def test_a_refused_change_takes_the_later_ones_of_its_key_back_with_it():
    """F80, F83: so that all of them come again in order, at whichever consumer."""
    group = machine(KEY, KEY, OTHER, KEY)
    one, two = group.join("one", 1), group.join("two", 2)
    assert places(group.take(one, 9)) == [0, 1, 2, 3]
    assert group.nack(one, Position(1, 0), 0.0)
    assert group.pending == 1
    assert places(group.take(two, 9)) == [0, 1, 3]
    with pytest.raises(ConsumerFenced, match="consumer 'two' has 1:3 now"):
        group.ack(one, [Position(1, 2), Position(1, 3)])
    assert group.pending == 4
    assert group.ack(one, [Position(1, 2)]) == 1


def test_a_change_without_a_key_waits_for_all_of_its_type_and_they_for_it():
    """F83."""
    group = machine(KEY, ("item", "1"), BARRIER, OTHER, ("item", "1"), None)
    one, two = group.join("one", 1), group.join("two", 2)
    assert places(group.take(one, 9)) == [0, 1, 4, 5]
    assert places(group.take(two, 9)) == []
    group.ack(one, [Position(1, 0)])
    assert places(group.take(two, 9)) == [2]
    assert places(group.take(two, 9)) == []
    group.ack(two, [Position(1, 2)])
    assert places(group.take(one, 9)) == [3]


def test_a_claim_moves_a_delivery_and_takes_the_later_ones_of_its_key_from_the_other_consumer():
    """F79, F83: the count rises by one, the first delivery is kept."""
    group = machine(KEY, KEY)
    one, two = group.join("one", 1), group.join("two", 2)
    first, second = group.take(one, 9)
    began = first.first_us
    after(group, 10_000_000)
    assert group.claim(two, [Position(1, 0)], 11.0) == []
    assert group.claim(two, [Position(1, 1)], 0.0) == []  # the one before it is at the other
    assert group.claim(two, [Position(1, 0)], 10.0) == [first]
    assert (first.count, first.first_us) == (2, began)
    assert second.state is DeliveryState.DUE
    assert group.claim(two, [Position(1, 0)], 0.0, only_ids=True) == [first]
    assert first.count == 2
    assert places(group.take(two, 9)) == [1]


def test_what_an_operator_takes_back_is_due_at_once_for_every_consumer_and_has_not_failed():
    """F79, F86: by the time of the delivery, together with later changes of its key, and its consumer may still acknowledge it."""
    group = machine(KEY, OTHER, KEY)
    one, two = group.join("one", 1), group.join("two", 2)
    assert places(group.take(one, 2)) == [0, 1]
    after(group, 10_000_000)
    (later,) = group.take(one, 1)
    assert group.release(11.0) == 0
    assert group.release(10.0) == 2
    assert later.state is DeliveryState.DUE
    assert (group.pending, group.last_error, one.pending) == (0, None, {})
    assert group.ack(one, [Position(1, 1)]) == 1
    assert [(unit.position.index, unit.count) for unit in group.take(two, 9)] == [(0, 2), (2, 2)]
    assert group.release(0.0) == 2


def test_a_claim_gives_a_consumer_no_more_than_it_may_have():
    """F79, F82."""
    group = machine(KEY, OTHER, max_consumer_pending=1)
    one, two = group.join("one", 1), group.join("two", 2)
    assert places(group.take(one, 9)) == [0]
    assert places(group.take(two, 9)) == [1]
    assert group.claim(two, [Position(1, 0)], 0.0) == []
    group.ack(two, [Position(1, 1)])
    assert places(group.claim(two, [Position(1, 0)], 0.0)) == [0]


def test_what_is_given_up_takes_the_later_ones_of_its_key_back_with_it():
    """F80, F83: they wait until it is in the dead letters."""
    group = machine(KEY, KEY, OTHER)
    one, two = group.join("one", 1), group.join("two", 2)
    assert places(group.take(one, 9)) == [0, 1, 2]
    assert group.term(one, Position(1, 0), "no stock")
    assert places(group.claim(two, [Position(1, 1)], 0.0)) == []
    assert group.pending == 1
    assert places(group.take(two, 9)) == []
    group.bury(Position(1, 0))
    assert places(group.take(two, 9)) == [1]


def test_what_is_refused_with_a_delay_comes_when_that_is_over():
    """F80."""
    group = machine(KEY)
    one = group.join("one", 1)
    group.take(one, 9)
    assert group.nack(one, Position(1, 0), 10.0)
    after(group, 9_000_000)
    group.tick()
    assert group.take(one, 9) == []
    after(group, 1_000_000)
    group.tick()
    assert places(group.take(one, 9)) == [0]


def test_a_consumer_that_joins_again_is_given_its_own_and_the_older_one_is_fenced():
    """F84."""
    group = machine(KEY, KEY, OTHER)
    old = group.join("one", 1)
    assert places(group.take(old, 2)) == [0, 1]
    new = group.join("one", 2)
    for call in (
        lambda: group.ack(old, [Position(1, 0)]),
        lambda: group.take(old, 1),
        lambda: group.nack(old, Position(1, 0)),
        lambda: group.in_progress(old, Position(1, 0)),
    ):
        with pytest.raises(ConsumerFenced, match="joined again"):
            call()
    assert places(group.take(new, 1, history=True)) == [0]
    assert places(group.take(new, 9, history=True)) == [1, 2]
    assert [unit.count for unit in group.units.values()] == [1, 1, 1]
    assert group.ack_upto(new, Position(1, 1)) == 2


def test_the_idle_time_of_a_delivery_counts_from_the_last_one():
    """F77, F79: so that nobody takes over what has just been delivered again."""
    group = machine(KEY)
    one, two = group.join("one", 1), group.join("two", 2)
    (unit,) = group.take(one, 1)
    after(group, 20_000_000)
    group.nack(one, unit.position, 0.0)
    after(group, 500_000)
    assert group.take(one, 1) == [unit]
    assert unit.last == after(group, 0)
    after(group, 500_000)
    assert group.claim(two, [unit.position], 1.0) == []
    after(group, 500_000)
    assert group.claim(two, [unit.position], 1.0) == [unit]


@pytest.mark.parametrize("moved", ["claimed", "taken again"])
@pytest.mark.parametrize(
    "say",
    [
        lambda group, one: group.ack(one, [Position(1, 0)]),
        lambda group, one: group.ack(one, [Position(1, 1), Position(1, 0)]),
        lambda group, one: group.nack(one, Position(1, 0)),
        lambda group, one: group.nack(one, Position(1, 0), count=False),
        lambda group, one: group.in_progress(one, Position(1, 0)),
        lambda group, one: group.term(one, Position(1, 0), "no"),
    ],
)
def test_what_another_consumer_has_by_now_is_not_touched_by_the_one_before(say, moved):
    """F84: whatever it says, and although it is a consumer of the group still."""
    group = machine(KEY, OTHER)
    one, two = group.join("one", 1), group.join("two", 2)
    assert places(group.take(one, 9)) == [0, 1]
    if moved == "claimed":
        assert places(group.claim(two, [Position(1, 0)], 0.0)) == [0]
    else:
        group.nack(one, Position(1, 0), 0.0)
        assert places(group.take(two, 9)) == [0]
    before = [(unit.position, unit.holder, unit.state, unit.count) for unit in group.units.values()]
    with pytest.raises(ConsumerFenced, match="consumer 'two' has 1:0 now"):
        say(group, one)
    assert [(unit.position, unit.holder, unit.state, unit.count) for unit in group.units.values()] == before
    assert group.ack(two, [Position(1, 0)]) == 1


def test_a_delivery_times_out_and_is_due_for_every_consumer_also_the_same():
    """F78: after a second time only with a delay."""
    group = machine(KEY, ack_wait=30.0, backoff=(10.0,))
    one = group.join("one", 1)
    group.take(one, 1)
    after(group, 20_000_000)
    assert group.in_progress(one, Position(1))
    after(group, 20_000_000)
    group.tick()
    assert group.pending == 1
    after(group, 10_000_000)
    group.tick()
    assert [unit.count for unit in group.take(one, 9)] == [2]
    after(group, 30_000_000)
    group.tick()
    assert group.take(one, 9) == []
    after(group, 12_000_000)
    group.tick()
    assert [unit.count for unit in group.take(one, 9)] == [3]
    assert group.ack(one, [Position(1)]) == 1
    assert group.next_due() is None or group.next_due() > 0


def test_what_times_out_can_be_acknowledged_with_all_up_to_it_until_another_consumer_has_it():
    """F76, F78: so a consumer that takes longer than that gets on all the same."""
    group = machine(KEY, KEY, OTHER, ("order", "3"), ("order", "4"), ack="all", ack_wait=30.0)
    one, two = group.join("one", 1), group.join("two", 2)
    assert places(group.take(one, 4)) == [0, 1, 2, 3]
    after(group, 31_000_000)
    assert group.tick()
    assert not group.tick()
    assert places(group.take(two, 2)) == [0, 1]
    assert group.ack_upto(one, Position(1, 2)) == 1
    assert places(group.take(one, 9)) == [3, 4]
    assert group.nack(one, Position(1, 3), 0.0)
    assert group.ack_upto(one, Position(1, 9)) == 1  # what it has refused, it has not done
    assert group.ack_upto(two, Position(1, 9)) == 2
    assert list(group.units) == [Position(1, 3)]


def test_what_a_consumer_had_before_it_joined_again_is_not_meant_by_all_up_to_it():
    group = machine(KEY, OTHER, ack="all")
    assert places(group.take(group.join("one", 1), 1)) == [0]
    one = group.join("one", 2)
    assert places(group.take(one, 1)) == [1]
    assert group.ack_upto(one, Position(1, 9)) == 1
    assert places(group.take(one, 1, history=True)) == [0]
    assert group.ack_upto(one, Position(1, 9)) == 1


def test_a_refusal_that_does_not_count_does_not_use_up_the_last_delivery():
    """F163."""
    group = machine(KEY, max_deliver=1)
    one = group.join("one", 1)
    for _ in range(5):
        (unit,) = group.take(one, 1)
        assert unit.count == 1
        assert group.nack(one, unit.position, count=False)
    group.take(one, 1)
    assert group.nack(one, unit.position, error="no stock")
    assert group.dying == {unit.position: unit}
    assert unit.errors == ("no stock", "no stock")
    assert group.floor == Position(1)
    group.bury(unit.position)
    group.bury(unit.position)
    assert group.floor == Position(2)
    assert group.totals[DeliveryState.DEAD] == 1


def test_a_change_that_was_delivered_too_often_before_a_restart_becomes_a_dead_letter():
    """F81: one that kills its process, too."""
    rows = [OpenRow(1, 0, 2, 77), OpenRow(1, 1)]
    group = GroupMachine("g", GroupSettings(max_deliver=2), Position(1, 2), rows, clock=Clock())
    assert (len(group._intake.resumed), group.floor, group.head) == (2, Position(1), Position(1, 2))
    group.feed([(Position(1, at), OTHER, None, 0) for at in range(3)], Position(2))
    assert places(group.take(group.join("one", 1), 9)) == []
    assert list(group.dying) == [Position(1)]
    group.bury(Position(1))
    assert places(group.take(group.consumers.listed()[0], 9)) == [1, 2]


def test_the_bound_of_a_group_counts_what_was_delivered_before_a_restart_although_it_is_not_read_again():
    """F82: and what may be parked does not keep it from being read."""
    rows = [OpenRow(1, 0), OpenRow(1, 1), OpenRow(1, 2, 1, 77), OpenRow(1, 3, 0, 77)]
    options = GroupSettings(max_ack_pending=2, max_parked=2, ordering="none")
    group = GroupMachine("g", options, Position(1, 4), rows, clock=Clock())
    one = group.join("one", 1)
    lanes = [(Position(1, at), OTHER, None, 0) for at in range(6)]
    group.feed(lanes[:2], Position(1, 2))
    assert places(group.take(one, 9)) == []
    assert group.room == 2
    group.feed(lanes[2:4], Position(1, 4))
    assert group.room == 0
    assert places(group.take(one, 9)) == [2, 3]
    group.ack(one, [Position(1, 2)])
    assert places(group.take(one, 9)) == [0]


def test_where_most_deliveries_fail_the_group_is_paused_instead():
    """F81."""
    group = machine(*[("order", str(at)) for at in range(300)], max_deliver=1)
    one = group.join("one", 1)
    for unit in group.take(one, 99):
        group.nack(one, unit.position)
    assert len(group.dying) == 99
    assert not group.paused
    (unit,) = group.take(one, 1)
    group.nack(one, unit.position)
    assert (group.paused, group.tripped) == (True, True)
    assert unit.state is DeliveryState.DUE
    assert group.take(one, 9) == []
    group.resume()
    assert group.take(one, 1)
    assert unit.position in group.dying


def test_the_breaker_forgets_what_lies_further_back():
    breaker = GroupBreaker()
    for failed in [True] * 60 + [False] * 40:
        assert not breaker.tripped
        breaker.note(failed=failed)
    assert breaker.tripped
    for _ in range(10):
        breaker.note(failed=False)
    assert (breaker.tripped, breaker.failures) == (False, 50)
    breaker.clear()
    assert breaker.failures == 0


def test_what_happens_while_the_journal_is_written_is_told_it_the_next_time():
    """F85."""
    group = machine(KEY, OTHER)
    one = group.join("one", 1)
    group.take(one, 9)
    assert group.unsynced
    head, opened, closed = group.news()
    assert [(row.position.index, row.count) for row in opened] == [(0, 1), (1, 1)]
    group.nack(one, Position(1, 1), 0.0)
    group.take(one, 9)
    group.ack(one, [Position(1)])
    group.stored(head, opened, closed)
    assert group.unsynced
    head, opened, closed = group.news()
    assert ([(row.position.index, row.count) for row in opened], closed) == ([(1, 2)], [Position(1)])
    assert group.opens() == opened
    group.stored(head, opened, closed)
    assert not group.unsynced


def test_what_was_read_ahead_of_all_deliveries_is_no_news_to_the_journal():
    """F85: it is read again after a restart; what waits for its key is told, as later ones were delivered."""
    group = machine(KEY, KEY, OTHER, *(("order", str(number)) for number in range(3, 100)))
    one, two = group.join("one", 1), group.join("two", 2)
    assert (group.unsynced, group.stored_head, group.head) == (False, Position(1, 0), Position(2))
    group.take(one, 1)
    group.take(two, 1)
    head, opened, closed = group.news()
    assert (head, closed) == (Position(1, 3), [])
    assert [(row.position.index, row.count) for row in opened] == [(0, 1), (1, 0), (2, 1)]
    assert group.opens() == opened
    group.stored(head, opened, closed)
    group.ack(two, [Position(1, 2)])
    group.ack(one, [Position(1, 0)])
    assert group.news() == (Position(1, 3), [], [Position(1, 0), Position(1, 2)])
    assert (group.floor, group.stored_head) == (Position(1, 1), Position(1, 3))
    group.prune(Position(2), Position(2))
    assert (group.floor, group.stored_head) == (Position(2), Position(2))
    assert group.news()[2] == [Position(1, 0), Position(1, 1), Position(1, 2)]


def test_a_consumer_that_was_cut_off_has_what_it_had_once_more_and_no_other_one_has():
    """F84: its generation stays, and so do the counts."""
    group = machine(KEY, KEY, OTHER)
    one, two = group.join("one", 1), group.join("two", 2)
    group.take(one, 9)
    group.ack(one, [Position(1, 2)])
    assert group.recall(one)
    assert places(group.take(two, 9)) == []
    assert places(group.take(one, 9)) == []
    again = group.take(one, 9, history=True)
    assert [(unit.position.index, unit.count, unit.holder) for unit in again] == [
        (at, 1, ("one", 1)) for at in (0, 1)
    ]
    assert group.ack(one, [Position(1, 0), Position(1, 1)]) == 2
    assert not group.recall(one)


def test_each_delivery_is_told_to_the_journal():
    """F85, F81: so that one that kills its process counts."""
    group = machine(KEY)
    one = group.join("one", 1)
    group.stored(*group.news())
    assert not group.unsynced
    for count in (1, 2):
        group.take(one, 9)
        assert group.unsynced
        assert [row.count for row in group.news()[1]] == [count]
        group.stored(*group.news())
        group.nack(one, Position(1, 0), 0.0)


def test_a_whole_transaction_is_one_delivery():
    """F83: it waits for its keys, and is acknowledged by the place of any of its changes."""
    group = GroupMachine("g", GroupSettings(ack="transaction"), Position(1), clock=Clock())
    group.feed([(Position(1, 1), KEY, None, 0), (Position(1, 2), OTHER, None, 0)], Position(1, 3))
    assert (group.units, group.head, group.floor) == ({}, Position(1), Position(1))
    group.feed([(Position(1, 3), None, None, 0), (Position(2, 1), OTHER, None, 0)], Position(3))
    one, two = group.join("one", 1), group.join("two", 2)
    assert [unit.position for unit in group.take(one, 1)] == [Position(1)]
    assert group.take(two, 9) == []
    assert group.ack(one, [Position(1, 2), Position(1, 3)]) == 1
    assert group.floor == Position(2)
    group.feed([(Position(3, at), ("order", str(at)), None, 0) for at in range(500)], Position(4))
    assert group.units[Position(3)].lanes == ((None, None),)


def test_consumers_that_say_nothing_are_removed_and_there_is_a_bound_on_them():
    """F78: what an absent one has pending is due at once."""
    group = machine(KEY, consumer_ttl=60.0, ack_wait=1000.0, max_consumers=1)
    one = group.join("one", 1)
    group.take(one, 1)
    group.consumers.check_room("one")
    with pytest.raises(TooCostly):
        group.consumers.check_room("two")
    after(group, 61_000_000)
    group.tick()
    assert len(group.consumers) == 0
    assert places(group.take(group.join("two", 2), 1)) == [0]
    with pytest.raises(ConsumerFenced, match="removed"):
        group.ack(one, [Position(1)])
    group.remove(one)


def test_what_retention_took_is_counted_and_never_left_pending():
    rows = [OpenRow(1, 1), OpenRow(5, 1)]
    group = GroupMachine("g", GroupSettings(), Position(6), rows, clock=Clock())
    assert group.prune(Position(4), Position(4)) == [Position(1, 1)]
    assert (group.reading, group.floor) == (Position(5, 1), Position(5, 1))
    group.feed([(Position(5, 1), KEY, None, 0), (Position(7, 1), OTHER, None, 0)], Position(8))
    group.take(group.join("one", 1), 9)
    assert group.prune(Position(9), Position(9)) == [Position(5, 1), Position(7, 1)]
    assert (group.pending, group.floor, group.totals[DeliveryState.LOST]) == (0, Position(9), 3)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ordering", "most"), ("ack", None), ("max_parked", 0), ("max_deliver", True), ("ack_wait", "1"),
        ("breaker", 1), ("backoff", ()), ("backoff", (1, -1)), ("backoff", [True]), ("on_gap", "snapshot"),
        ("keep_bytes", -1), ("colour", 1),
    ],
)  # fmt: skip
def test_an_option_that_is_wrong_is_named(name, value):
    with pytest.raises(InvalidOption, match=name):
        GroupSettings.chosen({name: value})


def test_options_may_come_as_lists():
    assert GroupSettings.chosen({"backoff": [1, 2.5]}).backoff == (1, 2.5)


def test_no_end_is_left():
    for state in (DeliveryState.ACKED, DeliveryState.DEAD, DeliveryState.LOST):
        assert not any((state, event) in DELIVERY_TABLE for event in DeliveryEvent)


def test_a_journal_that_begins_with_no_group_is_damaged():
    import msgspec

    with pytest.raises(ValueError, match="no group"):
        replay_group([msgspec.json.encode(GroupEntry(head="x"))])
    assert replay_group([]) is None
    dropped = GroupRecord(name="g", head="x", dropped=True)
    assert replay_group([msgspec.json.encode(GroupEntry(group=dropped))]) == dropped
