"""The faces of penstock.js, in one process of Node for a module."""

import contextlib
import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

from publishers import ChangeLog, Criterion, Position
from publishers.criteria.criteria import Criteria
from tests.contracts.faces import Claimed, Given, Refused, Row, Seen, SlotSeen, place_of
from tests.contracts.node import Node
from tests.contracts.place import Place
from tests.contracts.websocket import claimed, event_seen, given, info_of, letter_of, rows_of, slot_seen
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


class Groups(Connected):
    """Groups over penstock.js."""

    rejoins = True
    name = "javascript"
    cannot: ClassVar[dict[str, str]] = {}
    lacks: ClassVar[dict[str, str]] = {}

    def begin(self, log: ChangeLog) -> None:
        self.log = log
        self.joined: list[Consumer] = []

    def end(self) -> None:
        for one in self.joined:
            one.leave()

    def join(self, group: str, consumer: str, *, history: bool = False) -> "Consumer":
        self.joined.append(Consumer(self, group, consumer, history=history))
        return self.joined[-1]

    def order(self, do: str, name: str, **more: Any) -> dict[str, Any]:
        order = {key: value for key, value in more.items() if value is not None}
        told: dict[str, Any] = self.node.call(
            "client", "groups", do, {"name": name, "log": self.log.name, **order}
        )
        return told

    def create(
        self, name: str, criterion: Criterion | None = None, start: str = "latest", **options: Any
    ) -> None:
        criteria = None if criterion is None else Criteria.of(criterion).to_json()
        self.order("create", name, criteria=criteria, start=start, options=options)

    def drop(self, name: str) -> None:
        self.order("drop", name)

    def reset(self, name: str, start: str) -> Position:
        return place_of(self.order("reset", name, start=start)["cursor"])

    def pause(self, name: str) -> bool:
        return bool(self.order("pause", name)["changed"])

    def resume(self, name: str) -> bool:
        return bool(self.order("resume", name)["changed"])

    def info(self, name: str) -> dict[str, Any]:
        return info_of(self.order("info", name))

    def dead(self, name: str) -> list[tuple[Position, str, str]]:
        return [letter_of(one) for one in self.order("dead", name)["letters"]]

    def discard(self, name: str, positions: list[Position] | None = None) -> int:
        return int(
            self.order("discard", name, positions=positions and [str(one) for one in positions])["count"]
        )

    def release(self, name: str) -> int:
        return int(self.order("release", name)["count"])

    def pending(
        self, name: str, consumer: str | None = None, min_idle: float = 0.0, limit: int = 100
    ) -> list[Row]:
        if (consumer, min_idle) == (None, 0.0):
            return rows_of(self.order("pending", name, limit=limit))
        asked = {"consumer": consumer, "minIdleMs": int(min_idle * 1000), "limit": limit}
        return rows_of(
            self.joined[-1].call("pending", {key: one for key, one in asked.items() if one is not None})
        )


class Consumer:
    """An iterable of deliveries."""

    def __init__(self, face: Groups, group: str, name: str, *, history: bool) -> None:
        self.face = face
        self.key = f"{face.log.name}-{len(face.joined)}"
        wish = {"log": face.log.name, "history": history, "window": 1}
        face.node.call("client", "group", group, name, wish, keep=self.key)
        self.call("pending")  # waits until it has joined

    def call(self, method: str, *args: Any, **more: Any) -> Any:
        return self.face.node.call(self.key, method, *args, **more)

    @property
    def generation(self) -> int | None:
        generation: int | None = self.call("generation", get="generation")
        return generation

    def again(self) -> None:
        """The client does that."""

    def read(self, count: int) -> list[Given]:
        return [given(self.call("next")["value"]) for _ in range(count)]

    def read_meanwhile(self, count: int, act: Callable[[], object]) -> list[Given]:
        act()
        return self.read(count)

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

    def end_told(self) -> str:
        try:
            self.call("next")
        except Refused as error:
            return error.code
        raise AssertionError("it goes on")


def items(deliveries: tuple[Given, ...]) -> list[dict[str, Any]]:
    return [{"at": one.at} for one in deliveries]


class Slots(Connected):
    """Slots over penstock.js."""

    rejoins = True
    name = "javascript"
    cannot: ClassVar[dict[str, str]] = {}
    lacks: ClassVar[dict[str, str]] = {}

    def begin(self, log: ChangeLog) -> None:
        self.log = log
        self.opened: list[OpenSlot] = []

    def end(self) -> None:
        for one in self.opened:
            one.close()

    def open(self, name: str, *, take_over: bool = False, owner: str | None = None) -> "OpenSlot":
        wish = {"takeOver": take_over, **({} if owner is None else {"owner": owner})}
        self.opened.append(OpenSlot(self, name, wish))
        return self.opened[-1]

    def order(self, do: str, name: str | None = None, **more: Any) -> list[SlotSeen]:
        order = {"name": name, "log": self.log.name, **more}
        told = self.node.call(
            "client", "slots", do, {key: one for key, one in order.items() if one is not None}
        )
        return [slot_seen(one) for one in told]

    def create(
        self, name: str, criterion: Criterion | None = None, start: str | None = None, **more: Any
    ) -> None:
        criteria = None if criterion is None else Criteria.of(criterion).to_json()
        more["copyFrom"] = more.pop("copy_from", None)
        self.order("create", name, criteria=criteria, start=start, **more)

    def listed(self) -> list[SlotSeen]:
        return self.order("list")

    def info(self, name: str) -> SlotSeen:
        return self.order("info", name)[0]

    def seek(self, name: str, start: Any) -> int:
        return self.order("seek", name, start={"version": start} if isinstance(start, int) else start)[
            0
        ].version

    def pause(self, name: str) -> None:
        self.order("pause", name)

    def resume(self, name: str) -> None:
        self.order("resume", name)

    def drop(self, name: str) -> None:
        assert self.order("drop", name) == []


class OpenSlot:
    """An iterable of changes."""

    def __init__(self, face: Slots, name: str, wish: dict[str, Any]) -> None:
        self.face = face
        self.key = f"{face.log.name}-{len(face.opened)}"
        wish = {**wish, "log": face.log.name, "content": "BODY", "window": 1}
        face.node.call("client", "slot", name, wish, keep=self.key)

    def call(self, method: str, *args: Any, **more: Any) -> Any:
        return self.face.node.call(self.key, method, *args, **more)

    @property
    def generation(self) -> int | None:
        generation: int | None = self.call("generation", get="generation")
        return generation

    def again(self) -> None:
        """The client does that."""

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

    def close(self) -> None:
        self.call("return")

    def end_told(self) -> str:
        try:
            self.call("next")
        except Refused as error:
            return error.code
        raise AssertionError("it goes on")
