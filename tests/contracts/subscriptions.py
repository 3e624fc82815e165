"""The faces by which a client subscribes to changes, or to the state and then changes."""

import asyncio
import contextlib
import dataclasses
from typing import Any, ClassVar, Final

from publishers import ChangeLog, Content, Criterion, Position
from publishers.criteria.criteria import Criteria
from tests.contracts import graphql, in_process, javascript, python, resp, websocket
from tests.contracts.faces import Refused, Seen
from tests.contracts.orders import Face
from tests.contracts.place import Place
from transports import RemoteError
from transports.problems import describe

__all__ = ["FACES"]

Start = str | int | None
AHEAD: Final = {"cursors ahead": "the client asks again, as the server may be behind"}


def plain_start(start: Start) -> Any:
    """A start as the wire has it."""
    return {"version": start} if isinstance(start, int) else start


def told(call: Any) -> str:
    """The code of what a stream ends with."""
    try:
        call()
    except Refused as error:
        return error.code
    raise AssertionError("it goes on")


class InProcess(Face):
    """Subscriptions in the process of the log."""

    name = "in-process"
    lacks: ClassVar[dict[str, str]] = {
        "grants": "the process that owns the log may do everything",
        "connection": "there is none that could be lost",
    }

    def __init__(self, place: Place) -> None:
        self.place = place

    def close(self) -> None:
        """There is no connection."""

    @in_process.refusals()
    def subscribe(
        self,
        *criteria: Criterion,
        start: Start = None,
        since: str | None = None,
        until: int | None = None,
        snapshot: Any = None,
    ) -> Any:
        feed = self.log.changes(
            *criteria,
            since=start if since is None else since,
            until=until,
            content=Content.BODY,
            snapshot=snapshot,
        )
        return self.keep(Heard(self.log, feed))


class Heard:
    """A subscriber in the process."""

    def __init__(self, log: ChangeLog, feed: Any) -> None:
        self.log = log
        self.heard = in_process.Heard()
        feed.subscribe(self.heard)

    @in_process.refusals()
    def read(self, count: int) -> list[Seen]:
        return [
            Seen(self.log.cursor(one), one.position, one.key, one.body, one.operation.name)
            for one in self.heard.take(count)
        ]

    def rest(self) -> list[Seen]:
        return self.read(1_000)

    def close(self) -> None:
        self.heard.subscription.cancel()

    def end_told(self) -> str:
        return describe(self.heard.ended()).code


class WebSocket(Face, websocket.Connected):
    """Subscriptions over the WebSocket protocol."""

    name = "websocket"

    def subscribe(
        self, *criteria: Criterion, start: Start = None, since: str | None = None, **more: Any
    ) -> Any:
        payload = {
            "criteria": Criteria.of(*criteria).to_json() if criteria else [{}],
            "start": plain_start(start),
            "since": since,
            "content": "BODY",
            "credits": 0,
            "log": self.log.name,
            **more,
        }
        return self.keep(Wired(self, payload))

    def settle(self) -> None:
        self.wire.settle()


class Wired:
    """A subscription with an id of its own."""

    def __init__(self, face: WebSocket, payload: dict[str, Any]) -> None:
        self.face = face
        self.payload = payload
        self.came: list[dict[str, Any]] = []
        self.id = face.new_id()
        face.ask("subscribe", "subscribed", id=self.id, payload=payload)

    def again(self) -> None:
        """Goes on behind what has come, as a client does."""
        self.id = self.face.new_id()
        payload = {**self.payload, "start": None, "since": self.behind}
        self.face.ask("subscribe", "subscribed", id=self.id, payload=payload)

    def read(self, count: int) -> list[Seen]:
        self.face.wire.say(type="request", id=self.id, n=count)
        found: list[dict[str, Any]] = []
        while len(found) < count:
            message = websocket.unrefused(self.face.wire.hear(self.id, "next", "error", "complete"))
            if message["type"] == "complete":
                break
            found += message["events"]
        assert len(found) <= count, f"more than the {count} that were requested: {found}"
        if found:
            self.behind = found[-1]["cursor"]
        return [operation_seen(one) for one in found]

    def rest(self) -> list[Seen]:
        return self.read(1_000)

    def close(self) -> None:
        self.face.wire.say(type="complete", id=self.id)

    def end_told(self) -> str:
        return str(self.face.wire.hear(self.id, "error")["payload"]["code"])


class Python(Face, python.Connected):
    """Subscriptions over the Python client."""

    name = "python"
    rejoins = True
    lacks: ClassVar[dict[str, str]] = AHEAD

    @python.refusals()
    def subscribe(
        self, *criteria: Criterion, start: Start = None, since: str | None = None, **more: Any
    ) -> Any:
        where = start if since is None else since
        feed = self.remote.changes(*criteria, since=where, content=Content.BODY, log=self.log.name, **more)
        return self.keep(Remote(self, feed))


class Remote:
    """A subscriber of the client."""

    def __init__(self, face: Python, feed: Any) -> None:
        self.face = face
        self.heard = python.Heard(face.place)
        feed.subscribe(self.heard)
        with contextlib.suppress(RemoteError):
            face.place.run(
                face.remote.schema("none", log=face.log.name)
            )  # what was said before has been heard

    def again(self) -> None:
        """The client does that."""

    @python.refusals()
    def read(self, count: int) -> list[Seen]:
        return [
            Seen(one.cursor, Position(one.version, one.index), one.key, one.body, one.operation.name)
            for one in self.heard.take(count)
        ]

    def rest(self) -> list[Seen]:
        self.heard.subscription.request(1_000)
        end = self.face.place.run(self.heard.ended())
        assert end == "complete", end
        came = list(self.heard.came)
        self.heard.came.clear()
        return [
            Seen(one.cursor, Position(one.version, one.index), one.key, one.body, one.operation.name)
            for one in came
        ]

    def close(self) -> None:
        async def closed() -> None:
            self.heard.subscription.cancel()
            for _ in range(3):  # turns of the loop until it is said
                await asyncio.sleep(0)

        self.face.place.run(closed())

    def end_told(self) -> str:
        return told(lambda: self.read(1))


class GraphQL(Face, graphql.Connected):
    """Subscriptions over GraphQL."""

    name = "graphql"

    def subscribe(
        self,
        *criteria: Criterion,
        start: Start = None,
        since: str | None = None,
        until: int | None = None,
        snapshot: Any = None,
    ) -> Any:
        place = {"version": str(start)} if isinstance(start, int) else start and {"place": start.upper()}
        variables = {
            "criteria": [camel(one) for one in Criteria.of(*criteria).to_json()] if criteria else None,
            "start": place,
            "since": since,
            "until": until and str(until),
            "snapshot": snapshot and snapshot.upper(),
            "log": self.log.name,
        }
        return self.keep(Operation(self, variables))

    def settle(self) -> None:
        self.wire.settle()


class Operation:
    """An operation with an id of its own."""

    QUERY: Final = """subscription ($criteria: [Criterion!], $start: Start, $since: Cursor, $until: Long,
            $snapshot: Snapshot, $log: String) {
        onChange(criteria: $criteria, start: $start, since: $since, until: $until, snapshot: $snapshot, log: $log) {
            cursor version index key body operation } }"""

    def __init__(self, face: GraphQL, variables: dict[str, Any]) -> None:
        self.face = face
        self.variables = variables
        self._begin(variables)

    def _begin(self, variables: dict[str, Any]) -> None:
        self.id = self.face.operate(self.QUERY, demand=0, **variables)
        self.face.answer("{ __typename }")  # what was said before has been heard
        if self.face.wire.has(self.id, "error"):
            self.face.next(self.id)

    def again(self) -> None:
        """Goes on behind what has come, as a client does."""
        self._begin({**self.variables, "start": None, "since": self.behind})

    def read(self, count: int) -> list[Seen]:
        self.face.request(self.id, count)
        return self._read(count)

    def _read(self, count: int) -> list[Seen]:
        found: list[Seen] = []
        while len(found) < count:
            data = self.face.next(self.id)
            if data is None:
                break
            one = data["onChange"]
            self.behind = one["cursor"]
            position = Position(int(one["version"]), one["index"])
            found.append(Seen(one["cursor"], position, one["key"], one["body"], one["operation"]))
        return found

    def rest(self) -> list[Seen]:
        return self.read(1_000)

    def close(self) -> None:
        self.face.complete(self.id)

    def end_told(self) -> str:
        return told(lambda: self.face.next(self.id))


class Resp(Face, resp.Connected):
    """The Redis protocol, whose clients poll."""

    name = "resp"
    cannot: ClassVar[dict[str, str]] = {
        "subscribe": "Kora's clients poll: CDCPOLL reads a page of the history"
    }

    def attempt(self, _verb: str) -> None:
        """Says what would be said if it could be."""
        self.say("SUBSCRIBE", "order")


class JavaScript(Face, javascript.Connected):
    """Subscriptions over penstock.js."""

    name = "javascript"
    rejoins = True
    lacks: ClassVar[dict[str, str]] = AHEAD

    def subscribe(
        self, *criteria: Criterion, start: Start = None, since: str | None = None, **more: Any
    ) -> Any:
        wish = {
            "criteria": Criteria.of(*criteria).to_json() if criteria else None,
            "start": plain_start(start),
            "since": since,
            "content": "BODY",
            "log": self.log.name,
            **more,
        }
        return self.keep(Iterable(self, {name: one for name, one in wish.items() if one is not None}))


class Iterable:
    """An iterable of events in Node."""

    def __init__(self, face: JavaScript, wish: dict[str, Any]) -> None:
        self.face = face
        self.key = f"{face.log.name}-{len(face.uses)}"
        face.node.call("client", "changes", wish, keep=self.key)
        with contextlib.suppress(Refused):
            face.node.call(
                "client", "schema", "none", {"log": face.log.name}
            )  # what was said before has been heard

    def again(self) -> None:
        """The client does that."""

    def read(self, count: int) -> list[Seen]:
        return [operation_seen(self.face.node.call(self.key, "next")["value"]) for _ in range(count)]

    def rest(self) -> list[Seen]:
        found = []
        while not (told := self.face.node.call(self.key, "next"))["done"]:
            found.append(operation_seen(told["value"]))
        return found

    def close(self) -> None:
        self.face.node.call(self.key, "return")

    def end_told(self) -> str:
        return told(lambda: self.read(1))


def operation_seen(event: dict[str, Any]) -> Seen:
    return dataclasses.replace(websocket.event_seen(event), operation=event["operation"])


def camel(criterion: dict[str, Any]) -> dict[str, Any]:
    """A criterion as GraphQL names its fields."""
    return {graphql.camel(name): value for name, value in criterion.items()}


FACES: Final = (InProcess, WebSocket, Python, GraphQL, Resp, JavaScript)
