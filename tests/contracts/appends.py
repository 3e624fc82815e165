"""The faces by which a transaction is appended."""

import contextlib
import http.client
import json
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from publishers import ChangeLog, Position
from publishers.commits.submission import Wait
from publishers.mutations.mutation import expire, rekey, remove, truncate, upsert
from tests.contracts import graphql, in_process, javascript, python, resp, websocket
from tests.contracts.faces import Refused
from tests.contracts.place import DEADLINE, Place

__all__ = ["FACES", "Appended", "mutation"]

Change = dict[str, Any]
Expect = str | tuple[str, list[tuple[str, str]]] | None


@dataclass(frozen=True)
class Appended:
    """What is told of a transaction.

    Attributes:
        version: Its version; 0 if that is not known any more.
        cursor: The place behind it.
        duplicate: Whether it had been written before.
        changes: How many it has, with the TRANSACTION event; 0 if it had been written before.
    """

    version: int
    cursor: str | None
    duplicate: bool
    changes: int

    @classmethod
    def of(cls, told: dict[str, Any]) -> "Appended":
        return cls(int(told["version"]), told["cursor"], told["duplicate"], told["changes"])


def expected(expect: Expect) -> Any:
    """An expectation as JSON."""
    if not isinstance(expect, tuple):
        return expect
    cursor, keys = expect
    return {"cursor": cursor, "keys": [{"entity_type": kind, "key": key} for kind, key in keys]}


def asked(changes: list[Change], **more: Any) -> dict[str, Any]:
    more["expect"] = expected(more.get("expect"))
    return {"changes": changes, **{name: value for name, value in more.items() if value is not None}}


def mutation(change: Change) -> Any:
    """A change as a program writes it."""
    more = dict(change)
    operation, entity_type = more.pop("operation", "UPSERT"), more.pop("entity_type", None)
    key = more.pop("key", None)
    match operation:
        case "UPSERT":
            return upsert(entity_type, key, more.pop("body", None), **more)
        case "REMOVE":
            return remove(entity_type, key, **more)
        case "EXPIRE":
            return expire(entity_type, key, **more)
        case "TRUNCATE":
            return truncate(entity_type, **more)
        case _:
            return rekey(entity_type, key, more.pop("new_key"), more.pop("body", None), **more)


class Appending:
    """What has a log to append to."""

    cannot: ClassVar[dict[str, str]] = {}
    lacks: ClassVar[dict[str, str]] = {}

    def begin(self, log: ChangeLog) -> None:
        self.log = log

    def end(self) -> None:
        """A transaction leaves nothing open."""


class InProcess(Appending):
    """Appends in the process of the log."""

    name = "in-process"
    lacks: ClassVar[dict[str, str]] = {
        "grants": "the process that owns the log may do everything",
        "older repetitions": "its version is 0: the log looks only for that of the last sequence",
    }

    def __init__(self, place: Place) -> None:
        self.place = place

    def close(self) -> None:
        """There is no connection."""

    def append(
        self,
        changes: list[Change],
        *,
        producer: str | None = None,
        sequence: int | None = None,
        expect: Expect = None,
        meta: Any = None,
        wait: str = "durable",
    ) -> Appended:
        labelled = {} if producer is None else {"producer": (producer, sequence)}
        with in_process.refusals(self.log):
            rows = [mutation(one) for one in changes]
            told = self.log.commit(rows, expect=expect, meta=meta, durable=wait == "durable", **labelled)
        behind = str(self.log.token(self.log.head)) if not told.duplicate else self._behind(told.version)
        return Appended(told.version, behind, told.duplicate, told.changes)

    def _behind(self, version: int) -> str | None:
        return str(self.log.token(Position(version + 1))) if version else None


class WebSocket(Appending, websocket.Connected):
    """Appends over the WebSocket protocol."""

    name = "websocket"

    def append(self, changes: list[Change], **more: Any) -> Appended:
        payload = {**asked(changes, **more), "log": self.log.name, "first": True}
        return Appended.of(self.ask("append", "appended", payload=payload))


class Python(Appending, python.Connected):
    """Appends over the Python client."""

    name = "python"

    @in_process.refusals()
    def append(
        self,
        changes: list[Change],
        *,
        producer: str | None = None,
        sequence: int | None = None,
        expect: Expect = None,
        meta: Any = None,
        wait: str = "durable",
    ) -> Appended:
        rows = [mutation(one) for one in changes]
        labelled: Any = {} if producer is None else {"producer": (producer, sequence)}
        told = self.ask(
            self.remote.commit_async(
                rows, meta=meta, expect=expect, wait=Wait(wait), log=self.log.name, **labelled
            )
        )
        return Appended(told.version, told.cursor, told.duplicate, told.changes)


class GraphQL(Appending, graphql.Connected):
    """Appends by a mutation of GraphQL."""

    name = "graphql"

    def append(
        self, changes: list[Change], *, expect: Expect = None, wait: str = "durable", **more: Any
    ) -> Appended:
        query = """mutation ($changes: [ChangeInput!]!, $producer: String, $sequence: Long, $expect: Cursor,
                $keys: [KeyInput!], $meta: JSON, $wait: Wait!, $log: String) {
            append(changes: $changes, producer: $producer, sequence: $sequence, expect: $expect, keys: $keys,
                meta: $meta, wait: $wait, log: $log) { version cursor duplicate changes } }"""
        keys = None
        if isinstance(expect, tuple):
            expect, pairs = expect
            keys = [{"entityType": kind, "key": key} for kind, key in pairs]
        inputs = [{graphql.camel(name): value for name, value in one.items()} for one in changes]
        for one in inputs:
            if "newKey" in one:  # which says enough: `Operation` is that of events
                del one["operation"]
        told = self.answer(
            query, changes=inputs, expect=expect, keys=keys, wait=wait.upper(), log=self.log.name, **more
        )
        return Appended.of(told["append"])


class Http(Appending):
    """Appends by ``POST /changes``."""

    name = "http"

    def __init__(self, place: Place) -> None:
        self.place = place

    def close(self) -> None:
        """Each request has a connection of its own."""

    def append(self, changes: list[Change], **more: Any) -> Appended:
        body = json.dumps({**asked(changes, **more), "log": self.log.name})
        connection = http.client.HTTPConnection("127.0.0.1", self.place.server.port, timeout=DEADLINE)
        with contextlib.closing(connection):
            connection.request("POST", "/changes", body, {"content-type": "application/json"})
            answer = connection.getresponse()
            told = json.loads(answer.read())
        if answer.status not in (200, 201):
            raise Refused(told["code"], told)
        assert (answer.status == 200) is told["duplicate"]
        return Appended.of(told)


class Resp(Appending, resp.Connected):
    """The Redis protocol, which writes nothing."""

    name = "resp"
    cannot: ClassVar[dict[str, str]] = {"append": "no command of Kora writes to a log"}

    def attempt(self, _verb: str) -> None:
        """Says what would be said if it could be."""
        self.say("SET", "order:1", "{}")


class JavaScript(Appending, javascript.Connected):
    """Appends over penstock.js."""

    name = "javascript"

    def append(self, changes: list[Change], **more: Any) -> Appended:
        options = asked(changes, **more)
        del options["changes"]
        return Appended.of(self.node.call("client", "commit", changes, {**options, "log": self.log.name}))


FACES: Final = (InProcess, WebSocket, Python, GraphQL, Http, Resp, JavaScript)
