"""The faces of the process that owns the log."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from queue import SimpleQueue
from typing import Any, ClassVar

from flow import Subscription
from publishers import ChangeLog, Content, Criterion, Position
from publishers.errors import PenstockError
from publishers.groups import GroupDelivery, GroupMember
from publishers.slots.slot import Slot
from publishers.slots.state import SlotStatistics
from tests.contracts.faces import DEADLINE, Claimed, Given, Refused, Row, Seen, SlotSeen
from tests.contracts.orders import Face, Following
from tests.contracts.place import Place
from transports.problems import describe

__all__ = ["Groups", "Slots"]


@contextmanager
def refusals(log: ChangeLog | None = None) -> Iterator[None]:
    """Errors by the codes that the wire has for them, and places by the cursors of a log."""
    try:
        yield
    except PenstockError as error:
        problem = describe(error) if log is None else describe(error, lambda place: str(log.token(place)))
        raise Refused(problem.code, problem.data) from error


class Groups(Face):
    """Groups in the process of their log."""

    name = "in-process"
    cannot: ClassVar[dict[str, str]] = {}
    lacks: ClassVar[dict[str, str]] = {
        "grants": "the process that owns the log may do everything",
        "connection": "there is none that could be lost",
    }

    def __init__(self, place: Place) -> None:
        self.place = place

    def close(self) -> None:
        """There is no connection."""

    @refusals()
    def join(self, group: str, consumer: str, *, history: bool = False) -> "Consumer":
        used: Consumer = self.keep(Consumer(self.log.groups.join(group, consumer), history=history))
        return used

    @refusals()
    def create(
        self, name: str, criterion: Criterion | None = None, start: str = "latest", **options: Any
    ) -> None:
        self.log.groups.create(name, criterion, since=start, **options)

    @refusals()
    def drop(self, name: str) -> None:
        self.log.groups.drop(name)

    @refusals()
    def reset(self, name: str, start: str) -> Position:
        return self.log.groups.seek(name, start).floor

    @refusals()
    def pause(self, name: str) -> bool:
        return self.log.groups.open(name).pause()

    @refusals()
    def resume(self, name: str) -> bool:
        return self.log.groups.open(name).resume()

    @refusals()
    def info(self, name: str) -> dict[str, Any]:
        told = self.log.groups.info(name)
        return {
            "state": told.state.value,
            "floor": told.floor,
            "pending": told.pending,
            "dead": told.dead,
            "consumers": list(told.consumers),
        }

    @refusals()
    def dead(self, name: str) -> list[tuple[Position, str, str]]:
        letters = self.log.groups.open(name).dead.inspect()
        return [(one.position, one.first_error, one.last_error) for one in letters]

    @refusals()
    def discard(self, name: str, positions: list[Position] | None = None) -> int:
        return self.log.groups.open(name).dead.discard(positions)

    @refusals()
    def release(self, name: str) -> int:
        return self.log.groups.open(name).release()

    @refusals()
    def pending(
        self, name: str, consumer: str | None = None, min_idle: float = 0.0, limit: int = 100
    ) -> list[Row]:
        rows = self.log.groups.open(name).pending_rows(consumer=consumer, min_idle=min_idle, limit=limit)
        return [Row(one.position, one.consumer, one.count) for one in rows]


class Consumer(Following):
    """A member of a group."""

    def __init__(self, member: GroupMember, *, history: bool) -> None:
        self.member = member
        self.history = history

    @property
    def generation(self) -> int:
        return self.member.generation

    @refusals()
    def read(self, count: int) -> list[Given]:
        found: list[GroupDelivery] = []
        while len(found) < count:
            more = self.member.read(count - len(found), history=self.history, wait=DEADLINE)
            assert more, f"there are only {found}"
            found += more
        return [given(one) for one in found]

    def read_meanwhile(self, count: int, act: Callable[[], object]) -> list[Given]:
        return while_waiting(lambda: self.read(count), act)

    @refusals()
    def ack(self, *deliveries: Given, durable: bool = False) -> int:
        return self.member.ack(*(one.at for one in deliveries), durable=durable)

    @refusals()
    def ack_upto(self, delivery: Given) -> int:
        return self.member.ack_upto(delivery.at)

    @refusals()
    def nack(
        self, *deliveries: Given, delay: float | None = None, count: bool = True, error: str = "no"
    ) -> int:
        return self.member.nack([one.at for one in deliveries], delay, count=count, error=error)

    @refusals()
    def in_progress(self, *deliveries: Given) -> int:
        return self.member.in_progress([one.at for one in deliveries])

    @refusals()
    def term(self, *deliveries: Given, reason: str) -> int:
        return self.member.term([one.at for one in deliveries], reason)

    @refusals()
    def claim(
        self,
        min_idle: float,
        *deliveries: Given,
        start: Given | None = None,
        limit: int = 100,
        only_ids: bool = False,
    ) -> Claimed:
        found = self.member.claim(
            min_idle,
            [one.at for one in deliveries] or None,
            start=start and start.at,
            limit=limit,
            only_ids=only_ids,
        )
        return Claimed([given(one) for one in found.deliveries], found.next, list(found.lost))

    def leave(self) -> None:
        self.member.leave()


def given(one: GroupDelivery) -> Given:
    changes = tuple((change.key, change.body) for change in one.changes)
    return Given(one.position, one.position, one.count, changes)


def while_waiting(wait: Callable[[], Any], act: Callable[[], object]) -> Any:
    """What a call returns that another thread makes meanwhile; it may have begun to wait or not."""
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(wait()))
    thread.start()
    act()
    thread.join(DEADLINE)
    assert not thread.is_alive()
    return found[0]


class Slots(Face):
    """Slots in the process of their log."""

    name = "in-process"
    cannot: ClassVar[dict[str, str]] = {}
    lacks: ClassVar[dict[str, str]] = {
        "grants": "the process that owns the log may do everything",
        "connection": "there is none that could be lost",
    }

    def __init__(self, place: Place) -> None:
        self.place = place

    def close(self) -> None:
        """There is no connection."""

    @refusals()
    def open(self, name: str, *, take_over: bool = False, owner: str | None = None) -> "OpenSlot":
        used: OpenSlot = self.keep(OpenSlot(self.log.slots.open(name, take_over=take_over, owner=owner)))
        return used

    @refusals()
    def create(
        self, name: str, criterion: Criterion | None = None, start: str | None = None, **more: Any
    ) -> None:
        self.log.slots.create(name, criterion, **({} if start is None else {"since": start}), **more)

    def listed(self) -> list[SlotSeen]:
        return [slot_seen(one) for one in self.log.slots.statistics().listed]

    @refusals()
    def info(self, name: str) -> SlotSeen:
        return slot_seen(self.log.slots.info(name))

    @refusals()
    def seek(self, name: str, start: Any) -> int:
        return self.log.slots.seek(name, start).position.version

    @refusals()
    def pause(self, name: str) -> None:
        self.log.slots.pause(name)

    @refusals()
    def resume(self, name: str) -> None:
        self.log.slots.resume(name)

    @refusals()
    def drop(self, name: str) -> None:
        self.log.slots.drop(name)


class OpenSlot(Following):
    """A slot with its one subscriber."""

    def __init__(self, slot: Slot) -> None:
        self.slot = slot
        self.heard = Heard()
        slot.changes(content=Content.BODY).subscribe(self.heard)

    @property
    def generation(self) -> int:
        return self.slot.generation

    @refusals()
    def read(self, count: int) -> list[Seen]:
        return [Seen(one, one.position, one.key, one.body) for one in self.heard.take(count)]

    @refusals()
    def ack(self, change: Seen, *, durable: bool = False) -> None:
        self.slot.ack(change.at, durable=durable)

    @refusals()
    def ack_beyond(self, position: Position) -> None:
        """Acknowledges what was not delivered."""
        self.slot.ack(position)

    def leave(self) -> None:
        self.slot.close()


class Heard:
    """A subscriber that requests what its test reads, and waits for it."""

    def __init__(self) -> None:
        self._begun: SimpleQueue[Subscription] = SimpleQueue()
        self._came: SimpleQueue[Any] = SimpleQueue()

    @cached_property
    def subscription(self) -> Subscription:
        return self._begun.get(timeout=DEADLINE)

    def on_subscribe(self, subscription: Subscription) -> None:
        self._begun.put(subscription)

    def on_next(self, item: Any) -> None:
        self._came.put(item)

    def on_error(self, error: Exception) -> None:
        self._came.put(error)

    def on_complete(self) -> None:
        self._came.put(None)

    def ended(self) -> Any:
        """The next signal, without a request: the end."""
        return self._came.get(timeout=DEADLINE)

    def take(self, count: int) -> list[Any]:
        """So many elements, or those until the end.

        Raises:
            The error, if the stream fails before.
        """
        self.subscription.request(count)
        found: list[Any] = []
        while len(found) < count:
            item = self._came.get(timeout=DEADLINE)
            if isinstance(item, Exception):
                raise item
            if item is None:
                break
            found.append(item)
        return found


def slot_seen(told: SlotStatistics) -> SlotSeen:
    return SlotSeen(told.name, told.position.version, told.state.value, told.paused, told.owner)
