"""The faces of GraphQL, over the WebSocket protocol of graphql-ws."""

from typing import Any, ClassVar, Final

import websockets

from publishers import Position
from tests.contracts.faces import Claimed, Given, Mux, Refused, Row, Seen, place_of
from tests.contracts.orders import Face, Following
from tests.contracts.place import Place

__all__ = ["Groups", "Slots"]

DELIVERY: Final = "{ at count changes { key body } }"
TYPES: Final = {
    "at": "[Cursor!]!",
    "consumer": "ConsumerInput!",
    "count": "Boolean",
    "delayMs": "Long",
    "durable": "Boolean",
    "error": "String",
    "history": "Boolean",
    "limit": "Int",
    "log": "String",
    "minIdleMs": "Long!",
    "onlyIds": "Boolean",
    "reason": "String!",
    "start": "Cursor",
    "upto": "Boolean",
}


class Connected:
    """A connection that lasts as long as the module."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self._last = 0
        self._open()

    def _open(self) -> None:
        url = self.place.server.graphql_url.replace("http:", "ws:")

        async def connected() -> Any:
            protocol: Any = "graphql-transport-ws"
            return await websockets.connect(
                url, proxy=None, compression=None, max_size=None, subprotocols=[protocol]
            )

        self.wire = Mux(self.place, self.place.run(connected()))
        self.wire.say(type="connection_init")
        self.wire.hear(None, "connection_ack")

    def close(self) -> None:
        self.place.run(self.wire.socket.close())

    def cut(self) -> None:
        """Loses the connection, and makes another one."""
        self.wire.socket.transport.abort()
        self._open()

    def operate(self, query: str, *, demand: int | None = None, **variables: Any) -> str:
        """Begins an operation; returns its id."""
        self._last += 1
        name = f"i{self._last}"
        payload: dict[str, Any] = {"query": query, "variables": variables}
        if demand is not None:
            payload["extensions"] = {"flow": {"credits": demand}}
        self.wire.say(type="subscribe", id=name, payload=payload)
        return name

    def request(self, name: str, count: int) -> None:
        self.wire.say(type="ping", payload={"request": {name: count}})
        self.wire.hear(None, "pong")

    def next(self, name: str) -> Any:
        """The data of the next event of an operation; None if it is complete.

        Raises:
            Refused: If it has ended with an error.
        """
        message = self.wire.hear(name, "next", "error", "complete")
        if message["type"] == "complete":
            return None
        payload = message["payload"]
        errors = payload if message["type"] == "error" else payload.get("errors")
        if errors:
            told = errors[0].get("extensions", {})
            raise Refused(told.get("code", errors[0]["message"]), told)
        return payload["data"]

    def answer(self, query: str, **variables: Any) -> Any:
        """What a query or a mutation is answered with."""
        name = self.operate(query, **variables)
        answer = self.next(name)
        self.wire.hear(name, "complete")
        return answer

    def call(self, kind: str, field: str, selection: str = "", **arguments: Any) -> Any:
        """What one field answers; arguments that are None are left out."""
        given = {name: value for name, value in arguments.items() if value is not None}
        head = ", ".join(f"${name}: {TYPES[name]}" for name in given)
        passed = ", ".join(f"{name}: ${name}" for name in given)
        return self.answer(f"{kind} ({head}) {{ {field}({passed}) {selection} }}", **given)[field]

    def complete(self, name: str) -> None:
        self.wire.say(type="complete", id=name)


class Groups(Connected, Face):
    """Groups over GraphQL."""

    name = "graphql"
    cannot: ClassVar[dict[str, str]] = {
        "create": "the schema has what consumers need; groups are made by who operates them",
        "drop": "likewise",
        "reset": "likewise",
        "pause": "likewise",
        "resume": "likewise",
        "release": "likewise",
        "info": "likewise",
        "dead": "likewise",
        "discard": "likewise",
    }
    lacks: ClassVar[dict[str, str]] = {"generation": "a client names its joining by its own `opening`"}

    def settle(self) -> None:
        self.wire.settle()

    def attempt(self, verb: str) -> None:
        """Says what would be said if it could be."""
        self.answer(f'mutation {{ {verb}Group(name: "pickers") {{ name }} }}')

    def join(self, group: str, consumer: str, *, history: bool = False) -> "Consumer":
        used: Consumer = self.keep(Consumer(self, group, consumer, history=history))
        return used

    def pending(
        self, name: str, consumer: str | None = None, min_idle: float = 0.0, limit: int = 100
    ) -> list[Row]:
        query = """query ($name: String!, $consumer: String, $minIdleMs: Long, $limit: Int, $log: String) {
            pendingDeliveries(group: $name, consumer: $consumer, minIdleMs: $minIdleMs, limit: $limit, log: $log) {
                rows { at consumer count } } }"""
        told = self.answer(
            query,
            name=name,
            consumer=consumer,
            minIdleMs=int(min_idle * 1000),
            limit=limit,
            log=self.log.name,
        )
        return [
            Row(place_of(one["at"]), one["consumer"], one["count"])
            for one in told["pendingDeliveries"]["rows"]
        ]


class Consumer(Following):
    """An operation with an opening of its own."""

    def __init__(self, face: Groups, group: str, name: str, *, history: bool) -> None:
        self.face = face
        self.named = {"group": group, "consumer": name, "opening": f"o{len(face.uses)}"}
        self.history = history
        self.id = ""
        self.again()

    def again(self) -> None:
        """Says the same once more, as clients do on their next connection; until it has joined."""
        query = f"""subscription ($consumer: ConsumerInput!, $history: Boolean!, $log: String) {{
            onDelivery(consumer: $consumer, history: $history, log: $log) {DELIVERY} }}"""
        log = self.face.log
        variables = {"consumer": self.named, "history": self.history, "log": log.name}
        self.id = self.face.operate(query, demand=0, **variables)
        try:
            self.say("inProgress", at=[str(log.token(log.oldest))])  # waits until it has joined
        except Refused:
            self.face.next(self.id)  # says why it has not
            raise

    def read(self, count: int) -> list[Given]:
        self.face.request(self.id, count)
        return [given(self.face.next(self.id)["onDelivery"]) for _ in range(count)]

    def say(self, verb: str, selection: str = "", **arguments: Any) -> Any:
        return self.face.call(
            "mutation",
            f"{verb}Deliveries",
            selection,
            consumer=self.named,
            log=self.face.log.name,
            **arguments,
        )

    def ack(self, *deliveries: Given, durable: bool = False) -> int:
        return int(self.say("ack", at=places(deliveries), durable=durable))

    def ack_upto(self, delivery: Given) -> int:
        return int(self.say("ack", at=[delivery.at], upto=True))

    def nack(
        self, *deliveries: Given, delay: float | None = None, count: bool = True, error: str = "no"
    ) -> int:
        delay_ms = None if delay is None else str(int(delay * 1000))
        return int(self.say("nack", at=places(deliveries), delayMs=delay_ms, count=count, error=error))

    def in_progress(self, *deliveries: Given) -> int:
        return int(self.say("inProgress", at=places(deliveries)))

    def term(self, *deliveries: Given, reason: str) -> int:
        return int(self.say("term", at=places(deliveries), reason=reason))

    def claim(
        self,
        min_idle: float,
        *deliveries: Given,
        start: Given | None = None,
        limit: int = 100,
        only_ids: bool = False,
    ) -> Claimed:
        told = self.say(
            "claim",
            f"{{ deliveries {DELIVERY} next lost }}",
            minIdleMs=str(int(min_idle * 1000)),
            at=places(deliveries) or None,
            start=start and start.at,
            limit=limit,
            onlyIds=only_ids,
        )
        following = told["next"] and place_of(told["next"])
        return Claimed(
            [given(one) for one in told["deliveries"]], following, [place_of(one) for one in told["lost"]]
        )

    def leave(self) -> None:
        self.face.complete(self.id)

    def await_end(self) -> None:
        self.face.next(self.id)


def places(deliveries: tuple[Given, ...]) -> list[str]:
    return [one.at for one in deliveries]


def given(told: dict[str, Any]) -> Given:
    changes = tuple((change["key"], change["body"]) for change in told["changes"])
    return Given(told["at"], place_of(told["at"]), told["count"], changes)


class Slots(Connected, Face):
    """Slots over GraphQL."""

    name = "graphql"
    cannot: ClassVar[dict[str, str]] = {
        "create": "the schema has what consumers need; slots are made by who operates them",
        "listed": "likewise",
        "info": "likewise",
        "seek": "likewise",
        "pause": "likewise",
        "resume": "likewise",
        "drop": "likewise",
    }
    lacks: ClassVar[dict[str, str]] = {"generation": "a client names its opening by its own `opening`"}

    def settle(self) -> None:
        self.wire.settle()

    def attempt(self, verb: str) -> None:
        """Says what would be said if it could be."""
        self.answer(f'mutation {{ {verb}Slot(name: "stock") {{ name }} }}')

    def open(self, name: str, *, take_over: bool = False, owner: str | None = None) -> "OpenSlot":
        slot = {"name": name, "takeOver": take_over, "owner": owner, "opening": f"o{len(self.uses)}"}
        used: OpenSlot = self.keep(OpenSlot(self, slot))
        return used


class OpenSlot(Following):
    """An operation with an opening of its own."""

    def __init__(self, face: Slots, slot: dict[str, Any]) -> None:
        self.face = face
        self.slot = slot
        self.again()

    def again(self) -> None:
        """Says the same once more, as clients do on their next connection; until the slot is open."""
        query = """subscription ($slot: SlotInput!, $log: String) {
            onSlot(slot: $slot, log: $log) { cursor version index key body } }"""
        log = self.face.log
        self.id = self.face.operate(query, demand=0, slot=self.slot, log=log.name)
        try:
            self._ack(str(log.token(log.oldest)))  # which says nothing, but waits until it is open
        except Refused as error:
            if error.code == "SLOT_NOT_OPEN":
                self.face.next(self.id)  # says why it is not
            raise

    def read(self, count: int) -> list[Seen]:
        self.face.request(self.id, count)
        found = [self.face.next(self.id)["onSlot"] for _ in range(count)]
        return [
            Seen(one["cursor"], Position(int(one["version"]), one["index"]), one["key"], one["body"])
            for one in found
        ]

    def ack(self, change: Seen, *, durable: bool = False) -> None:
        self._ack(change.at, durable=durable)

    def ack_beyond(self, position: Position) -> None:
        """Acknowledges what was not delivered."""
        self._ack(str(self.face.log.token(position)))

    def _ack(self, cursor: str, *, durable: bool = False) -> None:
        query = """mutation ($name: String!, $opening: String!, $cursor: Cursor!, $durable: Boolean!, $log: String) {
            ackSlot(slot: $name, opening: $opening, cursor: $cursor, durable: $durable, log: $log) { cursor } }"""
        named = {"name": self.slot["name"], "opening": self.slot["opening"], "log": self.face.log.name}
        self.face.answer(query, cursor=cursor, durable=durable, **named)

    def leave(self) -> None:
        self.face.complete(self.id)

    def await_end(self) -> None:
        self.face.next(self.id)


def camel(name: str) -> str:
    """A name as GraphQL has it."""
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))
