"""What faces have in common that keep consumers, and that give orders by a word: WebSocket and penstock.js."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

from publishers import ChangeLog, Criterion, Position
from publishers.criteria.criteria import Criteria
from tests.contracts.faces import Given, Refused, Row, SlotSeen, place_of

__all__ = ["Face", "Following", "GroupOrders", "SlotOrders", "info_of", "letter_of", "rows_of", "slot_seen"]


class Face:
    """A way to a log, with what was opened by it.

    Attributes:
        name: What tests are named by.
        rejoins: Whether a client comes back by itself, and says who it was.
        cannot: Verbs that it has to refuse, with the reason.
        lacks: What else a test may need that it does not have, with the reason.
        uses: The consumers that have joined, or the slots and subscriptions that were opened.
    """

    name: ClassVar[str]
    rejoins: ClassVar[bool] = False
    cannot: ClassVar[dict[str, str]] = {}
    lacks: ClassVar[dict[str, str]] = {}

    def begin(self, log: ChangeLog) -> None:
        self.log = log
        self.uses: list[Any] = []

    def end(self) -> None:
        for one in self.uses:
            one.close()
        self.settle()

    def settle(self) -> None:
        """Waits until the server knows it, where that can be asked for."""

    def keep(self, use: Any) -> Any:
        self.uses.append(use)
        return use


class Following:
    """What reads: a consumer of a group, or a slot that is open."""

    def read(self, count: int) -> list[Any]:
        raise NotImplementedError

    def read_meanwhile(self, count: int, act: Callable[[], object]) -> list[Given]:
        act()
        return self.read(count)

    def again(self) -> None:
        """Says the same on the next connection; here the client does that."""

    def close(self) -> None:
        self.leave()

    def leave(self) -> None:
        raise NotImplementedError

    def await_end(self) -> None:
        """Waits for what ends it, which is raised."""
        self.read(1)

    def end_told(self) -> str:
        """The code of what ended it."""
        try:
            self.await_end()
        except Refused as error:
            return error.code
        raise AssertionError("it goes on")


class GroupOrders(Face, ABC):
    """Groups, by messages of the protocol."""

    @abstractmethod
    def order(self, do: str, name: str, **more: Any) -> dict[str, Any]:
        """Gives an order; returns the answer."""

    @abstractmethod
    def asked(self, **which: Any) -> dict[str, Any]:
        """What the newest consumer is told that asks for pending deliveries."""

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
        which = positions and [str(one) for one in positions]
        return int(self.order("discard", name, positions=which)["count"])

    def release(self, name: str) -> int:
        return int(self.order("release", name)["count"])

    def pending(
        self, name: str, consumer: str | None = None, min_idle: float = 0.0, limit: int = 100
    ) -> list[Row]:
        if (consumer, min_idle) == (None, 0.0):
            return rows_of(self.order("pending", name, limit=limit))
        return rows_of(self.asked(consumer=consumer, minIdleMs=int(min_idle * 1000), limit=limit))


class SlotOrders(Face, ABC):
    """Slots, by messages of the protocol."""

    @abstractmethod
    def order(self, do: str, name: str | None = None, **more: Any) -> list[SlotSeen]:
        """Gives an order; returns the slots of the answer."""

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
        where = {"version": start} if isinstance(start, int) else start
        return self.order("seek", name, start=where)[0].version

    def pause(self, name: str) -> None:
        self.order("pause", name)

    def resume(self, name: str) -> None:
        self.order("resume", name)

    def drop(self, name: str) -> None:
        assert self.order("drop", name) == []


def rows_of(told: dict[str, Any]) -> list[Row]:
    return [Row(place_of(one["at"]), one["consumer"], one["count"]) for one in told["rows"]]


def info_of(told: dict[str, Any]) -> dict[str, Any]:
    return {
        "state": told["state"],
        "floor": place_of(told["floor"]["cursor"]),
        "pending": told["pending"],
        "dead": told["dead"],
        "consumers": told["consumerNames"],
    }


def letter_of(letter: dict[str, Any]) -> tuple[Position, str, str]:
    version, index = letter["position"].split(":")
    return Position(int(version), int(index)), letter["first_error"], letter["last_error"]


def slot_seen(told: Any) -> SlotSeen:
    """What a slot is told with: an object of the protocol, or what the Python client makes of it."""
    one = told.get if isinstance(told, dict) else lambda name: getattr(told, name)
    return SlotSeen(one("name"), one("version"), one("state"), one("paused"), one("owner"))
