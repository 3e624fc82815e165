"""What a slot promises, on every face. The slot is named ``stock`` and has the orders of its log."""

from collections.abc import Callable
from typing import Any, Final

import pytest

from publishers import ChangeLog, Criterion, Position
from tests.contracts import graphql, in_process, javascript, python, websocket
from tests.contracts.faces import Refused, Seen, SlotSeen, apart
from tests.contracts.place import Place, put
from tests.publishers.support import wait_until
from transports import Grant, LogAction

FACES: Final = (in_process.Slots, websocket.Slots, python.Slots, graphql.Slots, javascript.Slots)
ORDERS: Final = Criterion(entity_types={"order"})


@pytest.fixture
def stock(log: ChangeLog) -> None:
    log.slots.create("stock", ORDERS, since="earliest")


def keys(seen: list[Seen]) -> list[str | None]:
    return [one.key for one in seen]


def refused(call: Callable[[], Any]) -> Refused:
    with pytest.raises(Refused) as caught:
        call()
    return caught.value


def version(log: ChangeLog) -> int:
    return log.slots.info("stock").position.version


@pytest.mark.usefixtures("stock")
def test_a_consumer_goes_on_behind_what_was_acknowledged(face: Any, log: ChangeLog) -> None:
    """F74: changes of the slot's criteria, each with its body; what was not acknowledged comes again."""
    put(log, "customer", entity_type="customer")
    put(log, "1", "2", "3")
    slot = face.open("stock")
    first, second = slot.read(2)
    assert (first.key, first.body, first.position) == ("1", {"key": "1"}, Position(2, 1))
    slot.ack(first, durable=True)
    assert version(log) == 3
    slot.ack(second)
    wait_until(lambda: version(log) == 4)
    slot.ack(first)  # which says nothing any more
    put(log, "4")
    assert keys(slot.read(2)) == ["3", "4"]
    slot.close()
    wait_until(lambda: log.slots.info("stock").state.value == "free")
    assert keys(face.open("stock").read(2)) == ["3", "4"]


@pytest.mark.usefixtures("stock")
def test_what_was_not_delivered_is_not_acknowledged(face: Any, log: ChangeLog) -> None:
    """F74: and the subscription goes on."""
    put(log, "1", "2", "3")
    slot = face.open("stock")
    assert keys(slot.read(1)) == ["1"]
    assert refused(lambda: slot.ack_beyond(log.head)).code == "ACK_AHEAD"
    assert version(log) == 1
    assert keys(slot.read(2)) == ["2", "3"]


@pytest.mark.usefixtures("stock")
def test_a_slot_has_one_consumer_from_which_another_may_take_it(face: Any, log: ChangeLog) -> None:
    """F74, F84: the older one is told, and acknowledges nothing any more."""
    put(log, "1")
    old = face.open("stock", owner="the old one")
    (first,) = old.read(1)
    told = refused(lambda: face.open("stock").read(1))
    assert (told.code, told.data["owner"]) == ("SLOT_BUSY", "the old one")
    new = face.open("stock", take_over=True)
    (again,) = new.read(1)
    assert again == first
    assert old.end_told() == "FENCED"
    assert refused(lambda: old.ack(first)).code in ("FENCED", "SLOT_NOT_OPEN")
    assert version(log) == 1
    new.ack(again, durable=True)
    assert version(log) == 2


@pytest.mark.needs("generation")
@pytest.mark.usefixtures("stock")
def test_each_opening_has_a_higher_generation(face: Any, log: ChangeLog) -> None:
    """F84."""
    put(log, "1")
    for generation in (1, 2):
        slot = face.open("stock", take_over=True)
        slot.read(1)
        assert slot.generation == generation


@pytest.mark.needs("connection")
@pytest.mark.usefixtures("stock")
def test_a_lost_connection_takes_nothing_from_a_consumer(face: Any, log: ChangeLog) -> None:
    """F74, F84: it goes on behind what it has, which it may still acknowledge."""
    put(log, "1", "2", "3")
    with apart(face, log) as lone:
        slot = lone.open("stock")
        first, second = slot.read(2)
        lone.cut()
        slot.again()
        seen = slot.read(1)
        while seen[-1].key != "3":  # a face without cursors of its own begins at the place of the slot
            seen += slot.read(1)
        slot.ack(second, durable=True)
        assert version(log) == 3
    assert log.slots.info("stock").generation == 1
    assert first.position < seen[0].position or face.name == "graphql"


def test_a_restart_repeats_what_was_not_acknowledged_durably(face: Any, log: ChangeLog, place: Place) -> None:
    """F85, F74."""
    log.slots.create("stock", ORDERS, since="earliest")
    put(log, "1", "2")
    slot = face.open("stock")
    first, _ = slot.read(2)
    slot.ack(first, durable=True)
    slot.close()
    log.close()
    with place.open(log.name) as again:
        face.begin(again)
        slot = face.open("stock")
        assert keys(slot.read(1)) == ["2"]
        face.end()
    face.begin(log)


@pytest.mark.needs("create", "listed", "info", "seek", "drop")
def test_slots_are_made_listed_moved_and_dropped(face: Any, log: ChangeLog) -> None:
    """F74, F86: by default a slot begins at the next version."""
    put(log, "1", "2", "3")
    face.create("stock", ORDERS, "earliest", granularity="change")
    face.create("stock-2", copy_from="stock")
    face.create("stock-3")
    assert refused(lambda: face.create("stock")).code == "SLOT_EXISTS"
    assert log.slots.info("stock").position == Position(1)
    assert [(one.name, one.version) for one in face.listed()] == [
        ("stock", 1),
        ("stock-2", 1),
        ("stock-3", 4),
    ]
    assert face.seek("stock", 3) == 3
    assert face.info("stock") == SlotSeen("stock", 3, "free", paused=False, owner=None)
    slot = face.open("stock", owner="me")
    assert keys(slot.read(1)) == ["3"]
    assert face.info("stock") == SlotSeen("stock", 3, "served", paused=False, owner="me")
    for call in (lambda: face.seek("stock", "latest"), lambda: face.drop("stock")):
        assert refused(call).code == "SLOT_BUSY"
    face.drop("stock-2")
    assert [one.name for one in face.listed()] == ["stock", "stock-3"]
    assert refused(lambda: face.info("stock-2")).code == "SLOT_NOT_FOUND"


@pytest.mark.needs("pause", "resume")
@pytest.mark.usefixtures("stock")
def test_a_slot_is_paused_while_a_consumer_has_it(face: Any, log: ChangeLog) -> None:
    """F74, F62: it delivers nothing until it is resumed."""
    put(log, "1")
    slot = face.open("stock")
    assert keys(slot.read(1)) == ["1"]
    face.pause("stock")
    assert face.info("stock").paused
    put(log, "2")
    assert log.slots.info("stock").lag.versions == 2
    face.resume("stock")
    assert not face.info("stock").paused
    assert keys(slot.read(1)) == ["2"]


@pytest.mark.usefixtures("stock")
def test_what_is_wrong_has_a_name(face: Any, log: ChangeLog) -> None:
    """F74: slots that are not there, names that are none; the slot beside goes on."""
    slot = face.open("stock")
    assert refused(lambda: face.open("stick").read(1)).code == "SLOT_NOT_FOUND"
    assert refused(lambda: face.open("stock", owner="two\nlines").read(1)).code == "INVALID_REQUEST"
    put(log, "1")
    assert keys(slot.read(1)) == ["1"]


@pytest.mark.needs("grants")
@pytest.mark.parametrize("slots", [[], ["other"]], ids=["none", "another one"])
@pytest.mark.usefixtures("stock")
def test_a_slot_needs_a_grant_that_names_it(
    face: Any, log: ChangeLog, place: Place, slots: list[str]
) -> None:
    """F74, F140: whether there is such a slot is not told."""
    place.grants[log.name] = Grant({LogAction.CONSUME}, slots=slots)
    put(log, "1")
    for name in ("stock", "none"):
        assert refused(lambda name=name: face.open(name).read(1)).code == "FORBIDDEN"
    assert log.slots.info("stock").generation == 0


def test_a_log_that_is_followed_opens_no_slots(face: Any, log: ChangeLog, place: Place) -> None:
    """F74."""
    log.close()
    with place.open(log.name, read_only=True) as follower:
        face.begin(follower)
        assert refused(lambda: face.open("stock").read(1)).code == "LOG_READ_ONLY"
        face.end()
    face.begin(log)


@pytest.mark.usefixtures("stock")
def test_what_a_face_cannot_do_it_refuses(face: Any, log: ChangeLog, verb: str) -> None:
    """Or it could, and its contract has to be tested."""
    assert face.cannot[verb]
    assert refused(lambda: face.attempt(verb))
    assert log.slots.info("stock").state.value == "free"
