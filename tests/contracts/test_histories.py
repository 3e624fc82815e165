"""What a page of the history promises, on every face that has one; clients of the others subscribe with a last version."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest

from publishers import ChangeLog, Criterion, upsert
from tests.contracts import graphql, in_process, resp
from tests.contracts.faces import Refused
from tests.contracts.place import Place, put
from transports import Grant


@dataclass(frozen=True)
class Page:
    """The keys of a page, and where the next one begins."""

    keys: list[str | None]
    next: Any


class Reading:
    """What has a log to read; nothing stays open."""

    cannot: ClassVar[dict[str, str]] = {}
    lacks: ClassVar[dict[str, str]] = {}

    def begin(self, log: ChangeLog) -> None:
        self.log = log

    def end(self) -> None:
        """A page leaves nothing open."""


class InProcess(Reading):
    """Pages in the process of the log."""

    name = "in-process"
    lacks: ClassVar[dict[str, str]] = {"grants": "the process that owns the log may do everything"}

    def __init__(self, place: Place) -> None:
        self.place = place

    def close(self) -> None:
        """There is no connection."""

    @in_process.refusals()
    def read(
        self, entity_type: str, since: Any = "earliest", limit: int = 100, *, reverse: bool = False
    ) -> Page:
        criterion = Criterion(entity_types={entity_type})
        page = self.log.history(criterion, since, limit, reverse=reverse)
        return Page([one.key for one in page.changes], str(self.log.token(page.next)))

    def beyond(self) -> Any:
        return str(self.log.token(self.log.head)).removesuffix("1:0") + "99:0"


class GraphQL(Reading, graphql.Connected):
    """Pages over GraphQL."""

    name = "graphql"

    def read(
        self, entity_type: str, since: Any = "earliest", limit: int = 100, *, reverse: bool = False
    ) -> Page:
        query = """query ($criteria: [Criterion!], $since: Cursor, $start: Start, $limit: Int!, $reverse: Boolean!, $log: String) {
            history(criteria: $criteria, since: $since, start: $start, limit: $limit, reverse: $reverse, log: $log) {
                changes { key } next } }"""
        named = {"earliest": "EARLIEST", "latest": "LATEST"}
        where = {"start": {"place": named[since]}} if since in named else {"since": since}
        told = self.answer(
            query,
            criteria=[{"entityTypes": [entity_type]}],
            limit=limit,
            reverse=reverse,
            log=self.log.name,
            **where,
        )["history"]
        return Page([one["key"] for one in told["changes"]], told["next"])

    def beyond(self) -> Any:
        return str(self.log.token(self.log.head)).removesuffix("1:0") + "99:0"


class Resp(Reading, resp.Connected):
    """Polls of Kora."""

    name = "resp"
    cannot: ClassVar[dict[str, str]] = {"reverse": "a poll goes on behind the last number"}

    def read(self, entity_type: str, since: Any = 0, limit: int = 100) -> Page:
        words = ["LOG", self.log.name, "MATCH", f"{entity_type}:*", "RESULT"]
        told = self.say("CDCPOLL", since, limit, *words)
        told = dict(zip(told[::2], told[1::2], strict=True)) if isinstance(told, list) else told
        return Page([one[3].decode().partition(":")[2] for one in told[b"events"]], told[b"next_seq"])

    def beyond(self) -> Any:
        return 99 << resp.BITS

    def attempt(self, _verb: str) -> None:
        """Says what would be said if it could be."""
        self.say("CDCPOLL", "$", 100, "LOG", self.log.name, "REVERSE")


FACES = (InProcess, GraphQL, Resp)


def refused(call: Callable[[], Any]) -> str:
    with pytest.raises(Refused) as caught:
        call()
    return caught.value.code


@pytest.mark.parametrize("limit", [1, 2, 7])
def test_pages_of_any_size_lose_and_repeat_nothing(face: Any, log: ChangeLog, limit: int) -> None:
    """E52, F133: also inside a transaction, and behind what did not match."""
    log.commit([upsert("order", str(number), {}) for number in range(3)])
    put(log, "x", entity_type="item")
    log.commit([upsert("item", "y", {}), upsert("order", "3", {}), upsert("order", "4", {})])
    put(log, "z", entity_type="item")
    found: list[str | None] = []
    page = face.read("order", limit=limit)
    while page.keys:
        assert len(page.keys) <= limit
        found += page.keys
        page = face.read("order", page.next, limit)
    assert found == ["0", "1", "2", "3", "4"]
    put(log, "5")
    assert face.read("order", page.next, limit).keys == ["5"]


def test_a_place_beyond_the_end_is_refused(face: Any, log: ChangeLog) -> None:
    """E52, F133: going on there would lose what is in between."""
    assert refused(lambda: face.read("order", face.beyond())) == "CURSOR_AHEAD"


@pytest.mark.needs("reverse")
def test_pages_may_begin_with_the_newest(face: Any, log: ChangeLog) -> None:
    """E52."""
    put(log, *"1234")
    page = face.read("order", "latest", 3, reverse=True)
    assert page.keys == ["4", "3", "2"]
    assert face.read("order", page.next, 3, reverse=True).keys == ["1"]


@pytest.mark.needs("grants")
def test_a_page_needs_a_grant(face: Any, log: ChangeLog, place: Place) -> None:
    """F140."""
    place.grants[log.name] = Grant(set())
    assert refused(lambda: face.read("order")) in ("FORBIDDEN", "LOG_NOT_FOUND")


def test_what_a_face_cannot_do_it_refuses(face: Any, log: ChangeLog, verb: str) -> None:
    """Or it could, and its contract has to be tested."""
    assert face.cannot[verb]
    assert refused(lambda: face.attempt(verb)) == "INVALID_REQUEST"
