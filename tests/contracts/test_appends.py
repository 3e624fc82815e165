"""What an append promises, on every face."""

from collections.abc import Callable
from typing import Any

import pytest

from publishers import ChangeLog, Content, Position
from publishers.model.change import Change
from tests.contracts import appends
from tests.contracts.appends import Appended, mutation
from tests.contracts.faces import Refused
from tests.contracts.place import Place
from transports import Grant, LogAction

FACES = appends.FACES
pytestmark = pytest.mark.needs("append")
KINDS: list[dict[str, Any]] = [
    {
        "entity_type": "order",
        "key": "1",
        "body": {"a": 1, "b": [1.5, None, "ü"]},
        "before": {"a": 0},
        "changed": ["a"],
        "meta": {"x": 1},
    },
    {"operation": "REKEY", "entity_type": "order", "key": "1", "new_key": "2", "body": {"a": 1}},
    {"operation": "REMOVE", "entity_type": "order", "key": "2", "before": {"a": 1}},
    {"operation": "EXPIRE", "entity_type": "order", "key": "3"},
    {"operation": "TRUNCATE", "entity_type": "item"},
]


def order(key: object, **body: Any) -> dict[str, Any]:
    return {"entity_type": "order", "key": str(key), "body": body}


def refused(call: Callable[[], Any]) -> Refused:
    with pytest.raises(Refused) as caught:
        call()
    return caught.value


def written(log: ChangeLog) -> list[Change]:
    return log.history(since="earliest", limit=100, content=Content.BODY).changes


def test_a_transaction_is_written_and_tells_where_to_go_on(face: Any, log: ChangeLog) -> None:
    """F145: all of its changes, with annotations, durable when it is answered."""
    told = face.append([order(1, n=1), order(2)], meta={"by": "ann"})
    assert told == Appended(1, str(log.token(Position(2))), duplicate=False, changes=3)
    assert log.durable == 1
    leading, first, _ = written(log)
    assert (leading.meta, first.key, first.body) == ({"by": "ann"}, "1", {"n": 1})
    assert face.append([order(3)]).version == 2


def test_every_kind_of_change_arrives_as_it_is(face: Any, log: ChangeLog, place: Place) -> None:
    """F145: what is appended by a face is what a program commits."""
    face.append(KINDS)
    with place.open() as other:
        other.commit([mutation(one) for one in KINDS])
        for here, there in zip(written(log)[1:], written(other)[1:], strict=True):
            for field in ("operation", "entity_type", "key", "body", "before", "changed", "meta", "linked"):
                assert getattr(here, field) == getattr(there, field), field
    del place.logs[other.name]


def test_a_repetition_is_written_once(face: Any, log: ChangeLog) -> None:
    """F145: and told with the version of the first."""
    first = face.append([order(1)], producer="etl", sequence=7)
    again = face.append([order(1)], producer="etl", sequence=7)
    assert again == Appended(1, first.cursor, duplicate=True, changes=0)
    assert log.visible == 1


@pytest.mark.needs("older repetitions")
def test_a_repetition_of_long_ago_is_told_as_the_first_was(face: Any, log: ChangeLog) -> None:
    """F145: and one that was never written, and never will be, without a version."""
    first = face.append([order(1)], producer="etl", sequence=7)
    face.append([order(2)], producer="etl", sequence=9)
    again = face.append([order(1)], producer="etl", sequence=7)
    assert again == Appended(1, first.cursor, duplicate=True, changes=0)
    assert face.append([order(1)], producer="etl", sequence=8) == Appended(0, None, duplicate=True, changes=0)
    assert log.visible == 2


def test_another_transaction_of_a_sequence_is_refused(face: Any, log: ChangeLog) -> None:
    """F145: as it would be taken for the first one, and be lost."""
    face.append([order(1)], producer="etl", sequence=1)
    told = refused(lambda: face.append([order(2)], producer="etl", sequence=1))
    assert (told.code, told.data["version"]) == ("PRODUCER_CONFLICT", 1)
    assert log.visible == 1


def test_what_was_not_expected_is_refused(face: Any, log: ChangeLog) -> None:
    """F145: a commit behind a place, or of certain keys; what is expected is told."""
    start = str(log.token(log.head))
    first = face.append([order(1)], expect=start)
    told = refused(lambda: face.append([order(2)], expect=start))
    assert (told.code, told.data["expected"], told.data["found"]) == (
        "EXPECTATION_FAILED",
        start,
        first.cursor,
    )
    told = refused(lambda: face.append([order(2)], expect=(start, [("order", "9"), ("order", "1")])))
    assert (told.code, told.data["key"], told.data["at"]) == (
        "EXPECTATION_FAILED",
        "1",
        str(log.token(Position(1, 1))),
    )
    assert face.append([order(2)], expect=(start, [("order", "9")])).version == 2
    assert log.visible == 2


@pytest.mark.parametrize("wait", ["accepted", "durable", "visible"])
def test_an_append_is_answered_at_the_stage_that_was_asked_for(face: Any, log: ChangeLog, wait: str) -> None:
    """F145."""
    assert face.append([order(1)], wait=wait).version == 1
    assert log.durable == 1 or wait == "accepted"


@pytest.mark.parametrize(
    ("changes", "code", "path"),
    [
        ([order(1), {"entity_type": "order", "body": {}}], "INVALID_CHANGE", "key"),
        ([order(1), {"entity_type": "", "key": "1", "body": {}}], "INVALID_CHANGE", "entity_type"),
        (
            [
                order(1),
                {"operation": "REKEY", "entity_type": "order", "key": "1", "new_key": "1", "body": {}},
            ],
            "INVALID_CHANGE",
            None,
        ),
        ([order(1), order("k" * 2_000)], "TRANSACTION_TOO_LARGE", None),
    ],
    ids=["no key", "no entity type", "a new key that is the old one", "a key too long"],
)
def test_what_is_wrong_with_a_change_is_named_and_nothing_is_written(
    face: Any, log: ChangeLog, changes: list[dict[str, Any]], code: str, path: str | None
) -> None:
    """F145."""
    told = refused(lambda: face.append(changes))
    assert told.code == code
    assert path is None or path in told.data["path"]
    assert log.head == Position(1)
    assert face.append([order(1)]).version == 1


@pytest.mark.needs("grants")
def test_an_append_needs_its_grant(face: Any, log: ChangeLog, place: Place) -> None:
    """F140, F145."""
    place.grants[log.name] = Grant({LogAction.READ})
    assert refused(lambda: face.append([order(1)])).code == "FORBIDDEN"
    assert log.head == Position(1)


def test_a_log_that_is_followed_takes_no_appends(face: Any, log: ChangeLog, place: Place) -> None:
    """F145."""
    log.close()
    with place.open(log.name, read_only=True) as follower:
        face.begin(follower)
        assert refused(lambda: face.append([order(1)])).code == "LOG_READ_ONLY"


def test_what_a_face_cannot_do_it_refuses(face: Any, log: ChangeLog, verb: str) -> None:
    """Or it could, and its contract has to be tested."""
    assert face.cannot[verb]
    assert refused(lambda: face.attempt(verb))
    assert log.head == Position(1)
