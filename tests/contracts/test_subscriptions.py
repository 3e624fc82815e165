"""What a subscription promises, on every face."""

from collections.abc import Callable
from typing import Any

import pytest

from publishers import ChangeLog, Criterion, Position, upsert
from publishers.criteria.criteria import Criteria
from publishers.model.change import Area
from tests.contracts import subscriptions
from tests.contracts.faces import Refused, Seen, apart
from tests.contracts.place import Place, put
from transports import Grant, LogAction

FACES = subscriptions.FACES
pytestmark = pytest.mark.needs("subscribe")
ORDERS = Criterion(entity_types={"order"})


def keys(seen: list[Seen]) -> list[str | None]:
    return [one.key for one in seen]


def refused(call: Callable[[], Any]) -> Refused:
    with pytest.raises(Refused) as caught:
        call()
    return caught.value


def test_changes_come_once_and_in_order_from_now_on(face: Any, log: ChangeLog) -> None:
    """F61, F67, F128, F131, E9: no more than was requested, and none that was committed before."""
    put(log, "0")
    stream = face.subscribe(ORDERS)
    put(log, *"12345")
    first, second = stream.read(2)
    assert (first.position, first.key, first.body, first.operation) == (
        Position(2, 1),
        "1",
        {"key": "1"},
        "UPSERT",
    )
    assert keys([second, *stream.read(3)]) == ["2", "3", "4", "5"]


def test_only_what_matches_any_of_the_criteria_comes(face: Any, log: ChangeLog) -> None:
    """F53, F56, E5: at the positions that it has for everybody."""
    log.commit(
        [
            upsert("order", "1", {}),
            upsert("item", "1", {}),
            upsert("item", "20", {}),
            upsert("order", "2", {}),
        ]
    )
    stream = face.subscribe(
        Criterion(entity_types={"order"}, keys={"2"}), Criterion(key_globs={"2*"}), start="earliest"
    )
    assert [one.position for one in stream.read(2)] == [Position(1, 3), Position(1, 4)]
    put(log, "1", "21")
    assert keys(stream.read(1)) == ["21"]


def test_a_subscription_begins_where_it_is_told_and_ends_after_a_version(face: Any, log: ChangeLog) -> None:
    """F61: at the oldest change, a version or a cursor; it completes behind its last version."""
    put(log, *"1234")
    assert keys(face.subscribe(ORDERS, start="earliest", until=4).rest()) == ["1", "2", "3", "4"]
    assert keys(face.subscribe(ORDERS, start=3, until=4).rest()) == ["3", "4"]
    assert keys(face.subscribe(ORDERS, since=str(log.token(Position(2))), until=3).rest()) == ["2", "3"]


def test_each_cursor_is_a_place_to_go_on(face: Any, log: ChangeLog) -> None:
    """E4, F131: behind its change, also inside a transaction and under other criteria."""
    log.commit([upsert("order", str(number), {}) for number in range(3)])
    put(log, "3")
    seen = face.subscribe(ORDERS, start="earliest", until=2).rest()
    assert keys(seen) == ["0", "1", "2", "3"]
    for place, one in enumerate(seen[:-1]):
        rest = face.subscribe(Criterion(areas={Area.DATA}), since=one.at, until=2).rest()
        assert keys(rest) == keys(seen[place + 1 :])


def test_a_cursor_that_is_none_of_this_log_is_refused(face: Any, log: ChangeLog) -> None:
    """F144: each by its own name."""
    other = "0" * 32 + str(log.token(log.head))[32:]
    assert refused(lambda: face.subscribe(ORDERS, since="nonsense").read(1)).code == "CURSOR_INVALID"
    assert refused(lambda: face.subscribe(ORDERS, since=other).read(1)).code == "CURSOR_FOREIGN"


@pytest.mark.needs("cursors ahead")
def test_a_cursor_beyond_the_end_is_refused(face: Any, log: ChangeLog) -> None:
    """F144: and never taken for a place that is to come."""
    beyond = str(log.token(log.head)).removesuffix("1:0") + "99:0"
    assert refused(lambda: face.subscribe(ORDERS, since=beyond).read(1)).code == "CURSOR_AHEAD"


def test_a_subscriber_is_told_that_its_log_was_dropped_or_closed(face: Any, log: ChangeLog) -> None:
    """E45: unless its client waits until the log is there again."""
    stream = face.subscribe(ORDERS)
    put(log, "1")
    log.close()
    if not face.rejoins:
        assert stream.end_told() == "LOG_CLOSED"


@pytest.mark.needs("connection")
def test_a_lost_connection_loses_and_repeats_nothing(face: Any, log: ChangeLog) -> None:
    """F65, E4."""
    put(log, *"12")
    with apart(face, log) as lone:
        stream = lone.subscribe(ORDERS, start="earliest")
        assert keys(stream.read(1)) == ["1"]
        lone.cut()
        stream.again()
        put(log, "3")
        assert keys(stream.read(2)) == ["2", "3"]


@pytest.mark.needs("grants")
def test_a_subscription_sees_what_its_grant_allows(face: Any, log: ChangeLog, place: Place) -> None:
    """F140, F59: nothing at all, or what matches the criteria of the grant too."""
    put(log, "1", "2")
    place.grants[log.name] = Grant(set())
    assert refused(lambda: face.subscribe(start="earliest").read(1)).code in ("FORBIDDEN", "LOG_NOT_FOUND")
    place.grants[log.name] = Grant({LogAction.READ}, criteria=Criteria.of(Criterion(keys={"2"})))
    assert keys(face.subscribe(ORDERS, start="earliest", until=2).rest()) == ["2"]


def test_what_is_wrong_has_a_name(face: Any, log: ChangeLog) -> None:
    """F61, F55: and harms no other subscription."""
    stream = face.subscribe(ORDERS)
    assert refused(lambda: face.subscribe(ORDERS, start="noon").read(1)).code in (
        "INVALID_REQUEST",
        "CURSOR_INVALID",
    )
    put(log, "1")
    assert keys(stream.read(1)) == ["1"]


def test_what_a_face_cannot_do_it_refuses(face: Any, log: ChangeLog, verb: str) -> None:
    """Or it could, and its contract has to be tested."""
    assert face.cannot[verb]
    assert refused(lambda: face.attempt(verb))
    assert log.head == Position(1)
