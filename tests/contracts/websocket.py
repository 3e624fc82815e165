"""The faces of the WebSocket protocol, by hand."""

from typing import Any

import websockets

from publishers import Position
from tests.contracts.faces import Claimed, Given, Mux, Refused, Seen, SlotSeen, place_of
from tests.contracts.orders import Following, GroupOrders, SlotOrders, slot_seen
from tests.contracts.place import Place

__all__ = ["Groups", "Slots"]


class Connected:
    """A connection that lasts as long as the module, whose ids are new for each use."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self._last = 0
        self._open()

    def _open(self) -> None:
        connecting = websockets.connect(self.place.server.url, proxy=None, compression=None, max_size=None)
        self.wire = Mux(self.place, self.place.run(_entered(connecting)))
        self.wire.say(type="connection_init")
        self.wire.hear(None, "connection_ack")

    def close(self) -> None:
        self.place.run(self.wire.socket.close())

    def cut(self) -> None:
        """Loses the connection, and makes another one."""
        self.wire.socket.transport.abort()
        self._open()

    def new_id(self) -> str:
        self._last += 1
        return f"i{self._last}"

    def ask(self, kind: str, answer: str, **message: Any) -> dict[str, Any]:
        """What is answered under a new id.

        Raises:
            Refused: If that is an error.
        """
        name = message.pop("id", None) or self.new_id()
        self.wire.say(type=kind, id=name, **message)
        return unrefused(self.wire.hear(name, answer, "error"))


async def _entered(connecting: Any) -> Any:
    return await connecting


def unrefused(message: dict[str, Any]) -> dict[str, Any]:
    if message["type"] == "error":
        raise Refused(message["payload"]["code"], message["payload"])
    return message


class Groups(Connected, GroupOrders):
    """Groups over the WebSocket protocol."""

    name = "websocket"

    def settle(self) -> None:
        self.wire.settle()

    def join(self, group: str, consumer: str, *, history: bool = False) -> "Consumer":
        made = Consumer(self, {"group": group, "consumer": consumer, "history": history})
        self.keep(made)
        return made

    def order(self, do: str, name: str, **more: Any) -> dict[str, Any]:
        payload = {"do": do, "name": name, "log": self.log.name, **more}
        answer: dict[str, Any] = self.ask("groups", "groups", payload=payload)["payload"]
        return answer

    def asked(self, **which: Any) -> dict[str, Any]:
        told: dict[str, Any] = self.uses[-1].say("pending", **which)
        return told


class Consumer(Following):
    """A consumer with an id of its own."""

    def __init__(self, face: Groups, payload: dict[str, Any]) -> None:
        self.face = face
        self.payload = {**payload, "log": face.log.name, "credits": 0}
        self.items: list[dict[str, Any]] = []
        self.calls = self.received = 0
        self.id = face.new_id()
        self.generation = face.ask("join", "joined", id=self.id, payload=self.payload)["group"]["generation"]

    def read(self, count: int) -> list[Given]:
        self.face.wire.say(type="request", id=self.id, n=count)
        while len(self.items) < count:
            self.items += unrefused(self.face.wire.hear(self.id, "deliveries", "error"))["items"]
        found, self.items = self.items, []
        assert len(found) == count, f"more than the {count} that were requested: {found}"
        self.received += count
        return [given(one) for one in found]

    def say(self, do: str, **payload: Any) -> dict[str, Any]:
        self.calls += 1
        self.face.wire.say(type="group", id=self.id, n=self.calls, do=do, payload=payload)
        answer = unrefused(self.face.wire.hear(self.id, "group", "error"))
        assert answer["n"] == self.calls
        if "error" in answer:
            raise Refused(answer["error"]["code"], answer["error"])
        result: dict[str, Any] = answer["result"]
        return result

    def ack(self, *deliveries: Given, durable: bool = False) -> int:
        return int(self.say("ack", at=places(deliveries), durable=durable)["count"])

    def ack_upto(self, delivery: Given) -> int:
        return int(self.say("ack_upto", at=[delivery.at])["count"])

    def nack(
        self, *deliveries: Given, delay: float | None = None, count: bool = True, error: str = "no"
    ) -> int:
        delay_ms = None if delay is None else int(delay * 1000)
        return int(
            self.say("nack", at=places(deliveries), delayMs=delay_ms, count=count, error=error)["count"]
        )

    def in_progress(self, *deliveries: Given) -> int:
        return int(self.say("in_progress", at=places(deliveries))["count"])

    def term(self, *deliveries: Given, reason: str) -> int:
        return int(self.say("term", at=places(deliveries), reason=reason)["count"])

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
            minIdleMs=int(min_idle * 1000),
            at=places(deliveries) or None,
            start=start and start.at,
            limit=limit,
            onlyIds=only_ids,
        )
        return claimed(told)

    def leave(self) -> None:
        self.face.wire.say(type="complete", id=self.id)

    def end_told(self) -> str:
        return str(self.face.wire.hear(self.id, "error")["payload"]["code"])

    def again(self) -> None:
        """Says the same on the next connection, as a client does."""
        self.id = self.face.new_id()
        payload = {**self.payload, "generation": self.generation, "received": self.received}
        self.generation = self.face.ask("join", "joined", id=self.id, payload=payload)["group"]["generation"]


def places(deliveries: tuple[Given, ...]) -> list[str]:
    return [one.at for one in deliveries]


def given(item: dict[str, Any]) -> Given:
    changes = tuple((event.get("key"), event.get("body")) for event in item["events"])
    return Given(item["at"], place_of(item["at"]), item["count"], changes)


def claimed(told: dict[str, Any]) -> Claimed:
    following = told["next"] and place_of(told["next"])
    return Claimed(
        [given(one) for one in told["deliveries"]], following, [place_of(one) for one in told["lost"]]
    )


class Slots(Connected, SlotOrders):
    """Slots over the WebSocket protocol."""

    name = "websocket"

    def settle(self) -> None:
        self.wire.settle()

    def open(self, name: str, *, take_over: bool = False, owner: str | None = None) -> "OpenSlot":
        slot = {"name": name, "takeOver": take_over, "owner": owner, "opening": f"o{len(self.uses)}"}
        used: OpenSlot = self.keep(OpenSlot(self, slot))
        return used

    def order(self, do: str, name: str | None = None, **more: Any) -> list[SlotSeen]:
        payload = {"do": do, "name": name, "log": self.log.name, **more}
        return [slot_seen(one) for one in self.ask("slot", "slot", payload=payload)["payload"]]


class OpenSlot(Following):
    """A subscription of a slot."""

    def __init__(self, face: Slots, slot: dict[str, Any]) -> None:
        self.face = face
        self.slot = slot
        self.events: list[dict[str, Any]] = []
        self.acks = 0
        self.behind: str | None = None
        self.over = ""
        self._subscribe()

    def _subscribe(self) -> None:
        self.id = self.face.new_id()
        payload = {
            "slot": self.slot,
            "content": "BODY",
            "credits": 0,
            "log": self.face.log.name,
            "since": self.behind,
        }
        self.told = self.face.ask("subscribe", "subscribed", id=self.id, payload=payload)["slot"]

    @property
    def generation(self) -> int:
        return int(self.told["generation"])

    def again(self) -> None:
        """Says the same on the next connection, as a client does."""
        self.slot = {**self.slot, "generation": self.generation}
        self._subscribe()

    def read(self, count: int) -> list[Seen]:
        self.face.wire.say(type="request", id=self.id, n=count)
        while len(self.events) < count:
            self.events += unrefused(self.face.wire.hear(self.id, "next", "error"))["events"]
        found, self.events = self.events, []
        assert len(found) == count, f"more than the {count} that were requested: {found}"
        self.behind = found[-1]["cursor"]
        return [event_seen(one) for one in found]

    def ack(self, change: Seen, *, durable: bool = False) -> None:
        self._ack(change.at, durable=durable)

    def ack_beyond(self, position: Position) -> None:
        """Acknowledges what was not delivered."""
        self._ack(str(self.face.log.token(position)))

    def _ack(self, cursor: str, *, durable: bool = False) -> None:
        self.acks += 1
        if self.over:
            self.face.wire.say(type="ack", id=self.id, cursor=cursor)
            self.face.wire.settle()
            raise Refused(self.over)  # it was said once, and what comes later is ignored
        self.face.wire.say(type="ack", id=self.id, cursor=cursor, n=self.acks, durable=durable)
        answer = unrefused(self.face.wire.hear(self.id, "acked", "error"))
        if "error" in answer:
            raise Refused(answer["error"]["code"], answer["error"])

    def leave(self) -> None:
        self.face.wire.say(type="complete", id=self.id)

    def end_told(self) -> str:
        self.over = str(self.face.wire.hear(self.id, "error")["payload"]["code"])
        return self.over


def event_seen(event: dict[str, Any]) -> Seen:
    return Seen(
        event["cursor"], Position(event["version"], event["index"]), event.get("key"), event.get("body")
    )
