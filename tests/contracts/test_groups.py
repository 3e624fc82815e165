"""What a group promises, on every face.

The group is named ``pickers`` and has the orders of its log. The clock of the log stands still, so nothing times out unless a test
moves it.
"""

from collections.abc import Callable
from typing import Any, Final

import pytest

from publishers import ChangeLog, Criterion, Position, View, upsert
from publishers.groups import ConsumerGroup
from publishers.groups.state import GroupState
from tests.contracts import graphql, in_process, javascript, python, resp, websocket
from tests.contracts.faces import Given, Refused, Row, apart
from tests.contracts.place import Place, put
from tests.simulation.workload import Clock
from transports import Grant, LogAction

FACES: Final = (
    in_process.Groups,
    websocket.Groups,
    python.Groups,
    graphql.Groups,
    resp.Groups,
    javascript.Groups,
)
ORDERS: Final = Criterion(entity_types={"order"})
LONG: Final = 600.0


@pytest.fixture
def group(log: ChangeLog) -> ConsumerGroup:
    return log.groups.create("pickers", ORDERS, since="earliest", ack_wait=LONG, backoff=(0.0,))


def keys(given: list[Given]) -> list[str | None]:
    return [key for one in given for key in one.keys]


def counts(given: list[Given]) -> list[int | None]:
    return [one.count for one in given]


def refused(call: Callable[[], Any]) -> str:
    with pytest.raises(Refused) as caught:
        call()
    return caught.value.code


def test_each_change_goes_to_one_consumer_and_all_are_given(face: Any, log: ChangeLog) -> None:
    """F75, F76, F82, F86: no consumer has more than it may; an acknowledgement is told how many were new."""
    log.groups.create("pickers", ORDERS, since="earliest", max_consumer_pending=2)
    put(log, "customer", entity_type="customer")
    put(log, *"12345")
    one = face.join("pickers", "one")
    first, second = one.read(2)
    assert (keys([first, second]), counts([first, second])) == (["1", "2"], [1, 1])
    assert first.changes == (("1", {"key": "1"}),)
    two = face.join("pickers", "two")
    third, fourth = two.read(2)
    assert keys([third, fourth]) == ["3", "4"]
    assert one.ack(first, second, durable=True) == 2
    assert one.ack(first) == 0
    (fifth,) = one.read(1)
    assert (keys([fifth]), log.groups.info("pickers").pending) == (["5"], 3)
    assert one.ack(fifth) == 1
    assert two.ack(third, fourth) == 2
    told = face.info("pickers") if "info" not in face.cannot else None
    assert told in (
        None,
        {"state": "serving", "floor": log.head, "pending": 0, "dead": 0, "consumers": ["one", "two"]},
    )
    assert log.groups.info("pickers").acked == 5


def test_a_read_waits_for_the_next_change(face: Any, log: ChangeLog, group: ConsumerGroup) -> None:
    """F75, F83."""
    one = face.join("pickers", "one")
    assert keys(one.read_meanwhile(1, lambda: put(log, "1"))) == ["1"]


def test_a_change_of_a_key_waits_for_the_one_before_it(
    face: Any, log: ChangeLog, group: ConsumerGroup
) -> None:
    """F83: at another consumer; its own may have both."""
    put(log, "a", "a", "b")
    one = face.join("pickers", "one")
    (first,) = one.read(1)
    assert keys(face.join("pickers", "two").read(1)) == ["b"]
    assert keys(one.read(1)) == ["a"]
    assert log.groups.info("pickers").pending == 3
    assert one.ack(first) == 1


def test_what_a_consumer_has_that_leaves_is_due_at_once(
    face: Any, log: ChangeLog, group: ConsumerGroup
) -> None:
    """F75, F133."""
    put(log, "1", "2")
    one = face.join("pickers", "one")
    assert counts(one.read(2)) == [1, 1]
    one.leave()
    again = face.join("pickers", "two").read(2)
    assert (keys(again), counts(again)) == (["1", "2"], [2, 2])


def test_what_is_refused_comes_again(face: Any, log: ChangeLog, group: ConsumerGroup) -> None:
    """F80, F163, F133: a refusal counts unless it is said that the change was not tried; it may ask for a delay."""
    put(log, "1", "2")
    one = face.join("pickers", "one")
    first, second = one.read(2)
    assert one.nack(first, second, count=False, delay=0.0) == 2
    assert counts(one.read(2)) == [1, 1]
    assert one.nack(first, second, delay=0.0) == 2
    again = one.read(2)
    assert (keys(again), counts(again)) == (["1", "2"], [2, 2])
    assert one.nack(first, delay=LONG) == 1
    assert one.nack(first) == 0
    put(log, "3")
    assert keys(one.read(1)) == ["3"]


def test_refusing_several_of_one_key_says_how_many_were_pending(
    face: Any, log: ChangeLog, group: ConsumerGroup
) -> None:
    """F80: each counts by itself, although a refusal takes back the later ones of its key."""
    put(log, "a", "a", "a")
    one = face.join("pickers", "one")
    assert one.nack(*one.read(3), delay=0.0) == 3
    assert counts(one.read(3)) == [2, 2, 2]


def test_what_a_consumer_does_not_acknowledge_in_time_is_due_again(
    face: Any, log: ChangeLog, group: ConsumerGroup, clock: Clock
) -> None:
    """F78, F133: also for the same consumer."""
    put(log, "1")
    one = face.join("pickers", "one")
    assert counts(one.read(1)) == [1]
    clock.now += int(LONG * 1_000_000)
    put(log, "2")
    again = one.read(2)
    assert (keys(again), counts(again)) == (["1", "2"], [2, 1])


@pytest.mark.needs("in_progress")
def test_a_delivery_that_takes_long_may_be_lengthened(
    face: Any, log: ChangeLog, group: ConsumerGroup, clock: Clock
) -> None:
    """F80: the answer is how many are pending."""
    put(log, "1", "2")
    one = face.join("pickers", "one")
    first, _ = one.read(2)
    clock.now += int(LONG * 600_000)
    assert one.in_progress(first) == 1
    clock.now += int(LONG * 600_000)
    put(log, "3")
    again = one.read(2)
    assert (keys(again), counts(again)) == (["2", "3"], [2, 1])
    assert one.ack(first) == 1
    assert one.in_progress(first) == 0


@pytest.mark.needs("ack_upto")
def test_all_up_to_a_delivery_may_be_acknowledged_at_once(
    face: Any, log: ChangeLog, group: ConsumerGroup
) -> None:
    """F76: what another consumer has is left to it."""
    put(log, *"1234")
    one = face.join("pickers", "one")
    first, second, _, fourth = one.read(4)
    assert keys(face.join("pickers", "two").claim(0.0, second).given) == ["2"]
    assert one.ack(first) == 1
    assert one.ack_upto(fourth) == 2
    assert [row.consumer for row in face.pending("pickers")] == ["two"]


@pytest.mark.needs("term", "dead", "discard")
def test_what_is_given_up_is_a_dead_letter(face: Any, log: ChangeLog, group: ConsumerGroup) -> None:
    """F81: which tells why, and can be discarded."""
    put(log, "1", "2", "3")
    one = face.join("pickers", "one")
    first, second, third = one.read(3)
    assert one.nack(first, delay=0.0, error="no room") == 1
    assert counts(one.read(1)) == [2]
    assert one.term(first, second, reason="broken") == 2
    assert one.term(second, reason="broken") == 0
    assert face.dead("pickers") == [
        (first.position, "no room", "broken"),
        (second.position, "broken", "broken"),
    ]
    assert face.discard("pickers", [first.position, Position(999)]) == 1
    assert face.discard("pickers") == 1
    assert face.dead("pickers") == []
    assert one.ack(third) == 1
    assert log.groups.info("pickers").floor == log.head


def test_what_always_fails_is_a_dead_letter(face: Any, log: ChangeLog) -> None:
    """F81, F163, F133: after so many deliveries that were tried."""
    log.groups.create("pickers", ORDERS, since="earliest", backoff=(0.0,), max_deliver=2)
    put(log, "1")
    one = face.join("pickers", "one")
    for count in (False, True, True):
        (first,) = one.read(1)
        assert one.nack(first, delay=0.0, count=count) == 1
    put(log, "2")
    assert keys(one.read(1)) == ["2"]
    told = log.groups.info("pickers")
    assert (told.dead, told.pending) == (1, 1)


def test_what_is_pending_is_listed(face: Any, log: ChangeLog, clock: Clock) -> None:
    """F77: in the order of the log, by consumer and idle time."""
    log.groups.create("pickers", ORDERS, since="earliest", ack_wait=LONG, max_consumer_pending=2)
    put(log, "1", "2", "3")
    first, second = face.join("pickers", "one").read(2)
    clock.now += 7_000_000
    (third,) = face.join("pickers", "two").read(1)
    rows = [Row(first.position, "one", 1), Row(second.position, "one", 1), Row(third.position, "two", 1)]
    assert face.pending("pickers") == rows
    assert face.pending("pickers", limit=2) == rows[:2]
    assert face.pending("pickers", consumer="two") == rows[2:]
    assert face.pending("pickers", min_idle=7.0) == rows[:2]
    assert face.pending("pickers", min_idle=8.0) == []


def test_what_another_consumer_has_may_be_claimed(
    face: Any, log: ChangeLog, group: ConsumerGroup, clock: Clock
) -> None:
    """F79, F84, F133: by idle time and place; the one before is fenced, and what it says of several changes nothing."""
    put(log, "1", "2", "3")
    one = face.join("pickers", "one")
    first, second, third = one.read(3)
    two = face.join("pickers", "two")
    clock.now += 7_000_000
    assert two.claim(8.0).given == []
    claimed = two.claim(7.0, limit=1)
    assert (keys(claimed.given), counts(claimed.given)) == (["1"], [2])
    assert (claimed.next, claimed.lost) == (second.position, [])
    looked = two.claim(0.0, second, only_ids=True)
    assert [(one.position, one.count, one.keys) for one in looked.given] == [(second.position, 1, [])]
    for say in (one.ack, one.nack):
        assert refused(lambda say=say: say(third, first)) == "FENCED"
    assert [row.consumer for row in face.pending("pickers")] == ["two", "two", "one"]
    assert two.ack(first, second) == 2
    assert keys(two.claim(0.0, start=third).given) == ["3"]


def test_another_consumer_of_a_name_takes_its_place(face: Any, log: ChangeLog, group: ConsumerGroup) -> None:
    """F84: it is given what the one before had, uncounted, if it asks for that; that one acknowledges nothing any more."""
    put(log, "1", "2")
    old = face.join("pickers", "one")
    first, _ = old.read(2)
    with group.join("one") as other:
        assert refused(lambda: old.ack(first)) in ("FENCED", "CONSUMER_NOT_JOINED")
        assert [delivery.change.key for delivery in other.read(history=True, wait=0)] == ["1", "2"]
        new = face.join("pickers", "one", history=True)
        again = new.read(2)
        assert (keys(again), counts(again)) == (["1", "2"], [1, 1])
        assert new.ack(*again) == 2


@pytest.mark.needs("end told")
def test_a_consumer_is_told_what_ends_it(face: Any, log: ChangeLog, group: ConsumerGroup) -> None:
    """F75, F84: another one of its name, or the end of the group."""
    old = face.join("pickers", "one")
    with group.join("one"):
        assert old.end_told() == "FENCED"
    other = face.join("pickers", "two")
    log.groups.drop("pickers")
    assert other.end_told() == "GROUP_NOT_FOUND"


@pytest.mark.needs("generation")
def test_each_joining_has_a_higher_generation(face: Any, log: ChangeLog, group: ConsumerGroup) -> None:
    """F84."""
    assert face.join("pickers", "one").generation == 1
    assert face.join("pickers", "two").generation == 2
    assert face.join("pickers", "one").generation == 3


@pytest.mark.needs("connection")
def test_a_lost_connection_takes_nothing_from_a_consumer(
    face: Any, log: ChangeLog, group: ConsumerGroup
) -> None:
    """F84: what it has stays its own, and counts as one delivery."""
    put(log, "1", "2", "3")
    with apart(face, log) as lone:
        one = lone.join("pickers", "one")
        first, second = one.read(2)
        lone.cut()
        one.again()
        assert one.ack(first) == 1
        given = one.read(1)
        while keys(given)[-1] != "3":  # where a client cannot say what it has, that comes again
            given += one.read(1)
        assert set(counts(given)) == {1}
        assert one.ack(second, given[-1]) == 2
    assert group.info().redelivered == 0


def test_a_restart_repeats_what_was_not_acknowledged_durably(face: Any, log: ChangeLog, place: Place) -> None:
    """F85, F78, F133: and nothing else."""
    log.groups.create("pickers", ORDERS, since="earliest")
    put(log, *"123")
    one = face.join("pickers", "one")
    first, second, third = one.read(3)
    assert one.ack(first, third, durable=True) == 2
    log.close()
    with place.open(log.name) as again:
        put(again, "4")
        face.begin(again)
        if not face.rejoins:
            one = face.join("pickers", "one")
        seen: set[str | None] = set()
        while seen != {"2", "4"}:
            (given,) = one.read(1)
            assert given.position in (second.position, Position(4, 1))
            seen.update(given.keys)
            one.ack(given)
        assert again.groups.info("pickers").floor == again.head
        one.leave()
        face.end()
    face.begin(log)


@pytest.mark.needs("whole transactions")
def test_a_delivery_may_be_a_whole_transaction(face: Any, log: ChangeLog) -> None:
    """F75, F76."""
    log.groups.create("pickers", ORDERS, since="earliest", ack="transaction")
    log.commit([upsert("order", "1", {}), upsert("customer", "1", {}), upsert("order", "2", {})])
    put(log, "3")
    one = face.join("pickers", "one")
    first, second = one.read(2)
    assert (first.keys, second.keys) == (["1", "2"], ["3"])
    assert one.ack(first) == 1
    assert log.groups.info("pickers").floor == second.position


def test_an_acknowledgement_may_be_of_all_before_it(face: Any, log: ChangeLog) -> None:
    """F76."""
    log.groups.create("pickers", ORDERS, since="earliest", ack="all")
    put(log, *"123")
    one = face.join("pickers", "one")
    _, second, third = one.read(3)
    assert one.ack(second) == 2
    assert log.groups.info("pickers").floor == third.position


@pytest.mark.needs("create")
def test_a_group_is_made_and_begins_where_it_was_told(face: Any, log: ChangeLog) -> None:
    """F75, F74."""
    put(log, "1")
    face.create("all", ORDERS, "earliest")
    face.create("new", ORDERS, max_deliver=3)
    assert refused(lambda: face.create("new")) == "GROUP_EXISTS"
    put(log, "customer", entity_type="customer")
    put(log, "2")
    assert keys(face.join("all", "one").read(2)) == ["1", "2"]
    assert keys(face.join("new", "one").read(1)) == ["2"]
    assert log.groups.open("new").book.record.settings.max_deliver == 3


@pytest.mark.needs("pause", "resume", "reset", "release", "drop")
def test_an_operator_pauses_moves_and_drops_a_group(face: Any, log: ChangeLog, group: ConsumerGroup) -> None:
    """F86, F79: and takes deliveries back."""
    put(log, "1", "2")
    one = face.join("pickers", "one")
    assert keys(one.read(2)) == ["1", "2"]
    assert face.release("pickers") == 2
    assert counts(one.read(2)) == [2, 2]
    assert (face.pause("pickers"), face.pause("pickers")) == (True, False)
    assert face.info("pickers")["state"] == "paused"
    assert (face.resume("pickers"), face.resume("pickers")) == (True, False)
    assert face.reset("pickers", "latest") == log.head
    put(log, "3")
    assert keys(face.join("pickers", "one").read(1)) == ["3"]
    face.drop("pickers")
    assert "pickers" not in log.groups
    assert refused(lambda: face.pause("pickers")) == "GROUP_NOT_FOUND"


def test_what_is_wrong_has_a_name(face: Any, log: ChangeLog, group: ConsumerGroup) -> None:
    """F75: groups that are not there, and names that are none; the consumer beside goes on."""
    one = face.join("pickers", "one")
    assert refused(lambda: face.join("pickets", "one").read(1)) == "GROUP_NOT_FOUND"
    for consumer in ("", "two\nlines", "x" * 257):
        assert refused(lambda consumer=consumer: face.join("pickers", consumer).read(1)) == "INVALID_REQUEST"
    put(log, "1")
    assert keys(one.read(1)) == ["1"]


def test_a_lost_group_says_so(face: Any, log: ChangeLog, group: ConsumerGroup) -> None:
    """F85."""
    group.book.state = GroupState.LOST
    assert refused(lambda: face.join("pickers", "one").read(1)) == "GROUP_LOST"


@pytest.mark.needs("grants")
@pytest.mark.parametrize(
    "grant",
    [
        Grant({LogAction.READ}),
        Grant({LogAction.CONSUME}, groups=["other"]),
        Grant({LogAction.CONSUME}, View(), groups=["pickers"]),
    ],
    ids=["read only", "another group", "a view"],
)
def test_a_group_needs_a_grant_that_names_it(
    face: Any, log: ChangeLog, place: Place, group: ConsumerGroup, grant: Grant
) -> None:
    """F75, F140: whether there is such a group is not told."""
    place.grants[log.name] = grant
    put(log, "1")
    for name in ("pickers", "none"):
        assert refused(lambda name=name: face.join(name, "one").read(1)) == "FORBIDDEN"
    assert group.info().consumers == ()


def test_a_log_that_is_followed_has_no_groups(face: Any, log: ChangeLog, place: Place) -> None:
    """F75, F133."""
    log.close()
    with place.open(log.name, read_only=True) as follower:
        face.begin(follower)
        assert refused(lambda: face.join("pickers", "one").read(1)) == "LOG_READ_ONLY"
        face.end()
    face.begin(log)


def test_what_a_face_cannot_do_it_refuses(face: Any, log: ChangeLog, group: ConsumerGroup, verb: str) -> None:
    """Or it could, and its contract has to be tested."""
    assert face.cannot[verb]
    assert refused(lambda: face.attempt(verb))
    assert log.groups.info("pickers").state is GroupState.SERVING
