"""What a snapshot promises, on every face that subscribes: the state first, and then every change."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from publishers import ChangeLog, Criterion, remove, upsert
from publishers.criteria.criteria import Criteria
from tests.contracts import subscriptions
from tests.contracts.faces import Refused, Seen
from tests.contracts.place import Place, put
from transports import Grant, LogAction

FACES = subscriptions.FACES
pytestmark = pytest.mark.needs("subscribe")
ORDERS = Criterion(entity_types={"order"})


@pytest.fixture
def log(place: Place, face: Any) -> Iterator[ChangeLog]:
    """A log that keeps its state, in which two of three orders are left."""
    with place.open(state=True) as log:
        put(log, "1", "2", "3")
        log.commit(
            [upsert("order", "1", {"key": "1", "n": 2}), remove("order", "2"), upsert("item", "1", {})]
        )
        face.begin(log)
        yield log
        face.end()
    del place.logs[log.name]


def told(seen: list[Seen]) -> list[tuple[str, str | None, Any]]:
    return [(one.operation, one.key, one.body) for one in seen]


def refused(call: Callable[[], Any]) -> Refused:
    with pytest.raises(Refused) as caught:
        call()
    return caught.value


ROWS = [("READ", "1", {"key": "1", "n": 2}), ("READ", "3", {"key": "3"})]


def test_rows_come_first_and_then_every_change(face: Any, log: ChangeLog) -> None:
    """F88, F93, F158: the entities that there are, each once and as it is; nothing is missing or repeated behind them."""
    stream = face.subscribe(ORDERS, start="state")
    assert sorted(told(stream.read(2))) == ROWS
    put(log, "4")
    assert told(stream.read(1)) == [("UPSERT", "4", {"key": "4"})]


def test_a_subscriber_may_want_the_rows_only(face: Any, log: ChangeLog) -> None:
    """F90: it completes behind them."""
    stream = face.subscribe(ORDERS, start="state", snapshot="initial_only")
    assert sorted(told(stream.rest())) == ROWS


def test_a_snapshot_goes_on_behind_any_row(face: Any, log: ChangeLog) -> None:
    """F89: with the rows that are missing, and every change since it began."""
    stream = face.subscribe(ORDERS, start="state")
    (first,) = stream.read(1)
    stream.close()
    put(log, "4")
    again = face.subscribe(ORDERS, since=first.at)
    seen = told([first, *again.read(2)])
    assert sorted(one for one in seen if one[0] == "READ") == ROWS
    assert [one for one in seen if one[0] != "READ"] == [("UPSERT", "4", {"key": "4"})]


def test_a_log_without_state_says_so(face: Any, log: ChangeLog, place: Place) -> None:
    """F92."""
    with place.open() as other:
        face.log = other
        assert refused(lambda: face.subscribe(ORDERS, start="state").read(1)).code == "STATE_OFF"
    face.log = log
    del place.logs[other.name]


@pytest.mark.needs("grants")
def test_who_may_not_see_every_change_of_an_entity_has_no_state(
    face: Any, log: ChangeLog, place: Place
) -> None:
    """F140, F59."""
    place.grants[log.name] = Grant({LogAction.READ}, criteria=Criteria.of(Criterion(operations={"REMOVE"})))
    assert refused(lambda: face.subscribe(ORDERS, start="state").read(1)).code == "FORBIDDEN"
