"""The faces of the Python client."""

import asyncio
from collections import deque
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from flow import Subscription
from publishers import ChangeLog, Content, Criterion, Position
from publishers.errors import PenstockError
from tests.contracts.faces import Claimed, Given, Refused, Row, Seen, SlotSeen, place_of
from tests.contracts.orders import Face, Following, info_of, letter_of, rows_of, slot_seen
from tests.contracts.place import Place
from transports import Backoff, RemoteError, connect
from transports.client.remote_groups import RemoteMember
from transports.client.remote_slots import RemoteSlot
from transports.codec.replies import RemoteDelivery
from transports.problems import describe

__all__ = ["Groups", "Slots"]

_T = TypeVar("_T")


@contextmanager
def refusals() -> Iterator[None]:
    """Errors by their codes; what the client refuses by itself by that which the server would have."""
    try:
        yield
    except RemoteError as error:
        raise Refused(error.code, error.data) from error
    except PenstockError as error:
        problem = describe(error)
        raise Refused(problem.code, problem.data) from error


class Heard:
    """A subscriber that requests what its test reads.

    Args:
        place: Whose loop it lives on.
    """

    def __init__(self, place: Place) -> None:
        self.place = place
        self.came: deque[Any] = deque()
        self.end: Exception | str | None = None
        self._more = asyncio.Event()

    def on_subscribe(self, subscription: Subscription) -> None:
        self.subscription = subscription

    def on_next(self, item: Any) -> None:
        self.came.append(item)
        self._more.set()

    def on_error(self, error: Exception) -> None:
        self.end = error
        self._more.set()

    def on_complete(self) -> None:
        self.end = "complete"
        self._more.set()

    def take(self, count: int) -> list[Any]:
        """So many elements.

        Raises:
            The error, if the stream fails before.
        """
        self.place.run(self._take(count))
        assert len(self.came) == count, f"more than the {count} that were requested: {self.came}"
        found = list(self.came)
        self.came.clear()
        return found

    async def _take(self, count: int) -> None:
        self.subscription.request(count)
        while len(self.came) < count:
            if isinstance(self.end, Exception):
                raise self.end
            assert self.end is None, "it is complete"
            self._more.clear()
            await self._more.wait()

    async def ended(self) -> Exception | str:
        while self.end is None:
            self._more.clear()
            await self._more.wait()
        return self.end


class Connected:
    """A connection that lasts as long as the module, and comes back when it is lost."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.remote = connect(place.server.url, reconnect=Backoff(first=0.001, limit=0.01))
        before = place.connections()
        place.run(self.remote.__aenter__())
        self._mine = place.connections() - before

    def close(self) -> None:
        self.place.run(self.remote.__aexit__(None, None, None))

    def cut(self) -> None:
        """Loses the connection; the client makes another one."""
        self.place.cut(self._mine)

    def ask(self, question: Coroutine[Any, Any, _T]) -> _T:
        with refusals():
            return self.place.run(question)


class Groups(Connected, Face):
    """Groups over the Python client."""

    rejoins = True
    name = "python"

    def begin(self, log: ChangeLog) -> None:
        super().begin(log)
        self.groups = self.remote.groups.of(log.name)

    @refusals()
    def join(self, group: str, consumer: str, *, history: bool = False) -> "Consumer":
        used: Consumer = self.keep(
            Consumer(self, self.remote.group(group, consumer, history=history, log=self.log.name))
        )
        return used

    def create(
        self, name: str, criterion: Criterion | None = None, start: str = "latest", **options: Any
    ) -> None:
        criteria = [] if criterion is None else [criterion]
        self.ask(self.groups.create(name, *criteria, since=start, **options))

    def drop(self, name: str) -> None:
        self.ask(self.groups.drop(name))

    def reset(self, name: str, start: str) -> Position:
        return place_of(self.ask(self.groups.seek(name, start))["cursor"])

    def pause(self, name: str) -> bool:
        return bool(self.ask(self.groups.pause(name))["changed"])

    def resume(self, name: str) -> bool:
        return bool(self.ask(self.groups.resume(name))["changed"])

    def info(self, name: str) -> dict[str, Any]:
        return info_of(self.ask(self.groups.info(name)))

    def dead(self, name: str) -> list[tuple[Position, str, str]]:
        async def listed() -> list[dict[str, Any]]:
            return [one async for one in self.groups.dead_letters(name)]

        return [letter_of(one) for one in self.ask(listed())]

    def discard(self, name: str, positions: list[Position] | None = None) -> int:
        return self.ask(self.groups.discard(name, positions))

    def release(self, name: str) -> int:
        return self.ask(self.groups.release(name))

    def pending(
        self, name: str, consumer: str | None = None, min_idle: float = 0.0, limit: int = 100
    ) -> list[Row]:
        if (consumer, min_idle) == (None, 0.0):
            return rows_of(self.ask(self.groups.pending(name, limit)))
        asker = self.uses[-1].member
        listed = self.ask(asker.pending(consumer=consumer, min_idle=min_idle, limit=limit))
        return [Row(place_of(one.cursor), one.consumer, one.count) for one in listed.rows]


class Consumer(Following):
    """A member with its one subscriber."""

    def __init__(self, face: Groups, member: RemoteMember) -> None:
        self.face = face
        self.member = member
        self.heard = Heard(face.place)
        member.deliveries().subscribe(self.heard)
        face.ask(member.pending())  # waits until it has joined

    @property
    def generation(self) -> int | None:
        return self.member.generation

    @refusals()
    def read(self, count: int) -> list[Given]:
        return [given(one) for one in self.heard.take(count)]

    def ack(self, *deliveries: Given, durable: bool = False) -> int:
        return self.face.ask(self.member.ack(*places(deliveries), durable=durable))

    def ack_upto(self, delivery: Given) -> int:
        return self.face.ask(self.member.ack_upto(delivery.at))

    def nack(
        self, *deliveries: Given, delay: float | None = None, count: bool = True, error: str = "no"
    ) -> int:
        return self.face.ask(self.member.nack(*places(deliveries), delay=delay, count=count, error=error))

    def in_progress(self, *deliveries: Given) -> int:
        return self.face.ask(self.member.in_progress(*places(deliveries)))

    def term(self, *deliveries: Given, reason: str) -> int:
        return self.face.ask(self.member.term(*places(deliveries), reason=reason))

    def claim(
        self,
        min_idle: float,
        *deliveries: Given,
        start: Given | None = None,
        limit: int = 100,
        only_ids: bool = False,
    ) -> Claimed:
        begin = start and start.at
        told = self.face.ask(
            self.member.claim(min_idle, *places(deliveries), start=begin, limit=limit, only_ids=only_ids)
        )
        following = None if told.next is None else place_of(told.next)
        return Claimed(
            [given(one) for one in told.deliveries], following, [place_of(one) for one in told.lost]
        )

    def leave(self) -> None:
        self.face.place.run(self.member.close())

    def end_told(self) -> str:
        end = self.face.place.run(self.heard.ended())
        assert isinstance(end, RemoteError)
        return end.code


def places(deliveries: tuple[Given, ...]) -> list[RemoteDelivery | str]:
    return [one.at for one in deliveries]


def given(one: RemoteDelivery) -> Given:
    changes = tuple((change.key, change.body) for change in one.changes)
    return Given(one, place_of(one.cursor), one.count, changes)


class Slots(Connected, Face):
    """Slots over the Python client."""

    rejoins = True
    name = "python"

    def begin(self, log: ChangeLog) -> None:
        super().begin(log)
        self.slots = self.remote.slots.of(log.name)

    @refusals()
    def open(self, name: str, *, take_over: bool = False, owner: str | None = None) -> "OpenSlot":
        slot = self.remote.slot(name, take_over=take_over, owner=owner, log=self.log.name)
        used: OpenSlot = self.keep(OpenSlot(self, slot))
        return used

    def create(
        self, name: str, criterion: Criterion | None = None, start: str | None = None, **more: Any
    ) -> None:
        criteria = [] if criterion is None else [criterion]
        self.ask(self.slots.create(name, *criteria, since=start, **more))

    def listed(self) -> list[SlotSeen]:
        return [slot_seen(one) for one in self.ask(self.slots.list())]

    def info(self, name: str) -> SlotSeen:
        return slot_seen(self.ask(self.slots.info(name)))

    def seek(self, name: str, start: Any) -> int:
        return self.ask(self.slots.seek(name, start)).version

    def pause(self, name: str) -> None:
        self.ask(self.slots.pause(name))

    def resume(self, name: str) -> None:
        self.ask(self.slots.resume(name))

    def drop(self, name: str) -> None:
        self.ask(self.slots.drop(name))


class OpenSlot(Following):
    """A slot with its one subscriber."""

    def __init__(self, face: Slots, slot: RemoteSlot) -> None:
        self.face = face
        self.slot = slot
        self.heard = Heard(face.place)
        slot.changes(content=Content.BODY).subscribe(self.heard)
        face.place.run(self._opened())

    async def _opened(self) -> None:
        while self.slot.generation is None:
            if isinstance(self.heard.end, Exception):
                raise self.heard.end
            await asyncio.sleep(0.001)

    @property
    def generation(self) -> int | None:
        return self.slot.generation

    @refusals()
    def read(self, count: int) -> list[Seen]:
        return [
            Seen(one, Position(one.version, one.index), one.key, one.body) for one in self.heard.take(count)
        ]

    def ack(self, change: Seen, *, durable: bool = False) -> None:
        self.face.ask(self.slot.ack_durably(change.at))

    def ack_beyond(self, position: Position) -> None:
        """Acknowledges what was not delivered."""
        self.face.ask(self.slot.ack_durably(str(self.face.log.token(position))))

    def leave(self) -> None:
        self.face.place.run(self._closed())

    async def _closed(self) -> None:
        await self.slot.close()
        for _ in range(3):  # turns of the loop until it is said
            await asyncio.sleep(0)

    def end_told(self) -> str:
        end = self.face.place.run(self.heard.ended())
        assert isinstance(end, RemoteError)
        return end.code
