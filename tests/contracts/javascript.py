"""The faces of penstock.js, in one process of Node for a module."""

import contextlib
import dataclasses
from pathlib import Path
from typing import Any

from publishers import Position
from tests.contracts.faces import Claimed, Given, Refused, Seen, SlotSeen
from tests.contracts.node import Node
from tests.contracts.orders import Following, GroupOrders, SlotOrders, slot_seen
from tests.contracts.place import Place
from tests.contracts.websocket import claimed, event_seen, given
from tests.publishers.support import scratch

__all__ = ["Groups", "Slots"]


class Connected:
    """A client in a process that lasts as long as the module."""

    def __init__(self, place: Place) -> None:
        self.place = place
        before = place.connections()
        self.node = Node(place, Path(scratch()))
        with contextlib.suppress(Refused):  # which tells that it is connected
            self.node.call("client", "schema", "none", {"log": "none"})
        self._mine = place.connections() - before

    def close(self) -> None:
        self.node.close()

    def cut(self) -> None:
        """Loses the connection; the client makes another one."""
        self.place.cut(self._mine)


class Groups(Connected, GroupOrders):
    """Groups over penstock.js."""

    rejoins = True
    name = "javascript"

    def join(self, group: str, consumer: str, *, history: bool = False) -> "Consumer":
        used: Consumer = self.keep(Consumer(self, group, consumer, history=history))
        return used

    def order(self, do: str, name: str, **more: Any) -> dict[str, Any]:
        order = {key: value for key, value in more.items() if value is not None}
        told: dict[str, Any] = self.node.call(
            "client", "groups", do, {"name": name, "log": self.log.name, **order}
        )
        return told

    def asked(self, **which: Any) -> dict[str, Any]:
        wanted = {key: one for key, one in which.items() if one is not None}
        told: dict[str, Any] = self.uses[-1].call("pending", wanted)
        return told


class Consumer(Following):
    """An iterable of deliveries."""

    def __init__(self, face: Groups, group: str, name: str, *, history: bool) -> None:
        self.face = face
        self.key = f"{face.log.name}-{len(face.uses)}"
        wish = {"log": face.log.name, "history": history, "window": 1}
        face.node.call("client", "group", group, name, wish, keep=self.key)
        self.call("pending")  # waits until it has joined

    def call(self, method: str, *args: Any, **more: Any) -> Any:
        return self.face.node.call(self.key, method, *args, **more)

    @property
    def generation(self) -> int | None:
        generation: int | None = self.call("generation", get="generation")
        return generation

    def read(self, count: int) -> list[Given]:
        return [given(self.call("next")["value"]) for _ in range(count)]

    def ack(self, *deliveries: Given, durable: bool = False) -> int:
        return int(self.call("ack", items(deliveries), {"durable": durable}))

    def ack_upto(self, delivery: Given) -> int:
        return int(self.call("ack", items((delivery,)), {"upto": True}))

    def nack(
        self, *deliveries: Given, delay: float | None = None, count: bool = True, error: str = "no"
    ) -> int:
        how = {"count": count, "error": error, **({} if delay is None else {"delayMs": int(delay * 1000)})}
        return int(self.call("nack", items(deliveries), how))

    def in_progress(self, *deliveries: Given) -> int:
        return int(self.call("inProgress", items(deliveries)))

    def term(self, *deliveries: Given, reason: str) -> int:
        return int(self.call("term", items(deliveries), reason))

    def claim(
        self,
        min_idle: float,
        *deliveries: Given,
        start: Given | None = None,
        limit: int = 100,
        only_ids: bool = False,
    ) -> Claimed:
        which: dict[str, Any] = {"minIdleMs": int(min_idle * 1000), "limit": limit, "onlyIds": only_ids}
        which |= {"at": [one.at for one in deliveries]} if deliveries else {}
        which |= {"start": start.at} if start else {}
        return claimed(self.call("claim", which))

    def leave(self) -> None:
        self.call("return")

    def await_end(self) -> None:
        self.call("next")


def items(deliveries: tuple[Given, ...]) -> list[dict[str, Any]]:
    return [{"at": one.at} for one in deliveries]


class Slots(Connected, SlotOrders):
    """Slots over penstock.js."""

    rejoins = True
    name = "javascript"

    def open(self, name: str, *, take_over: bool = False, owner: str | None = None) -> "OpenSlot":
        wish = {"takeOver": take_over, **({} if owner is None else {"owner": owner})}
        used: OpenSlot = self.keep(OpenSlot(self, name, wish))
        return used

    def order(self, do: str, name: str | None = None, **more: Any) -> list[SlotSeen]:
        order = {"name": name, "log": self.log.name, **more}
        told = self.node.call(
            "client", "slots", do, {key: one for key, one in order.items() if one is not None}
        )
        return [slot_seen(one) for one in told]


class OpenSlot(Following):
    """An iterable of changes."""

    def __init__(self, face: Slots, name: str, wish: dict[str, Any]) -> None:
        self.face = face
        self.key = f"{face.log.name}-{len(face.uses)}"
        wish = {**wish, "log": face.log.name, "content": "BODY", "window": 1}
        face.node.call("client", "slot", name, wish, keep=self.key)

    def call(self, method: str, *args: Any, **more: Any) -> Any:
        return self.face.node.call(self.key, method, *args, **more)

    @property
    def generation(self) -> int | None:
        generation: int | None = self.call("generation", get="generation")
        return generation

    def read(self, count: int) -> list[Seen]:
        found = [self.call("next")["value"] for _ in range(count)]
        return [dataclasses.replace(event_seen(one), at=one) for one in found]

    def ack(self, change: Seen, *, durable: bool = False) -> None:
        self.call("ackDurably", change.at)

    def ack_beyond(self, position: Position) -> None:
        """Acknowledges what was not delivered."""
        event = {
            "cursor": str(self.face.log.token(position)),
            "version": position.version,
            "index": position.index,
        }
        self.call("ackDurably", event)

    def leave(self) -> None:
        self.call("return")

    def await_end(self) -> None:
        self.call("next")
