"""A group of a remote log, as one consumer of it sees it."""

import asyncio
import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, Self

import msgspec

from flow.bridges.iterable import IterablePublisher
from flow.contracts import Subscriber
from flow.executors import Executor
from publishers.errors import InvalidOption
from publishers.options import check_switches, check_whole
from publishers.slots.slots import check_slot_name
from publishers.views.view import Integers
from transports.client.remote_feed import FeedConnection, RemoteFeed, RemoteSubscription
from transports.codec.replies import Item, JoinedReply, RemoteDelivery, SubscribedReply, WireDelivery
from transports.errors import ConnectionLost, RemoteError
from transports.limits import CREDITS_MAX
from transports.protocol.client_consumers import ClientConsumer

__all__ = [
    "ConsumerConnection",
    "RemoteClaim",
    "RemoteDeliveries",
    "RemoteMember",
    "RemotePending",
    "RemotePendingRow",
]


class ConsumerConnection(FeedConnection, Protocol):
    """What consumers of groups need of the `RemoteLog` whose connection they share, beside what feeds do."""

    def consumer(self, payload: Mapping[str, Any]) -> ClientConsumer:
        """What the machine is to know a consumer by."""
        ...

    def call(self, entry: ClientConsumer) -> None:
        """Sends what it has said and was not sent; on the loop of the connection."""
        ...


@dataclass(frozen=True, slots=True)
class RemotePendingRow:
    """A delivery that is not acknowledged.

    Attributes:
        cursor: Its place.
        consumer: Which has it.
        generation: Of that consumer.
        idle: Seconds since it was delivered.
        count: How often it was delivered.
    """

    cursor: str
    consumer: str
    generation: int
    idle: float
    count: int


@dataclass(frozen=True, slots=True)
class RemotePending:
    """What is delivered and not acknowledged.

    Attributes:
        total: How many deliveries, in all of the group.
        rows: Those that were asked for, as they lie in the log.
    """

    total: int
    rows: tuple[RemotePendingRow, ...]


@dataclass(frozen=True, slots=True)
class RemoteClaim:
    """What a claim has moved.

    Attributes:
        deliveries: What the consumer has now.
        next: The place where the next claim may begin; None at the end.
        lost: Places that were asked for and that retention has taken before they were done.
    """

    deliveries: tuple[RemoteDelivery, ...]
    next: str | None
    lost: tuple[str, ...]


class _Claimed(msgspec.Struct):
    deliveries: list[WireDelivery]
    next: str | None
    lost: list[str]


class _Row(msgspec.Struct, rename="camel"):
    at: str
    consumer: str
    generation: int
    idle_ms: int
    count: int


class _Listed(msgspec.Struct):
    total: int
    rows: list[_Row]


class _Counted(msgspec.Struct):
    count: int


class RemoteMember:
    """A consumer of a group of a remote log; made by ``RemoteLog.group``, and an async context manager that leaves.

    Subscribing to ``deliveries()`` joins, and the end of that subscription leaves: what was not acknowledged is due at once, for
    every consumer. A connection that is lost, with ``reconnect``, does neither: within the time of grace of the server the consumer goes on with
    the generation that it has, so what it was given is still its own. Its methods are for the loop of the connection.

    Attributes:
        group: The name of the group.
        name: What the consumer is called.
    """

    def __init__(
        self,
        log: ConsumerConnection,
        group: str,
        name: str,
        *,
        history: bool,
        integers: Integers,
        of: str | None,
    ) -> None:
        check_slot_name(group)
        check_switches(history=history)
        if not isinstance(name, str) or not 1 <= len(name) <= 256:
            raise InvalidOption("consumer", name, "a text of 1 to 256 characters")
        self.group = group
        self.name = name
        self._log = log
        told = {"group": group, "consumer": name, "history": history or None, "log": of}
        if integers is not Integers.NUMBER:
            told["integers"] = integers.value
        self._payload = {key: value for key, value in told.items() if value is not None}
        self._subscription: _DeliverySubscription | None = None

    @property
    def generation(self) -> int | None:
        """Of its joining, as the server last told; None while that is not known."""
        return None if self._subscription is None else self._subscription.consumer.generation

    def deliveries(self, *, window: int = 100) -> "RemoteDeliveries":
        """The deliveries as a publisher, for one subscriber at a time, over which a loop may be written too.

        Its subscriber gets ``on_error`` with ``RemoteError``: its code is ``FENCED`` if another consumer of this name has joined,
        ``GROUP_NOT_FOUND``, ``GROUP_LOST``, ``FORBIDDEN``.

        Args:
            window: Most deliveries under way or buffered. What is buffered is pending, and times out as what is in work does.

        Raises:
            InvalidOption: If it is out of its range.
        """
        check_whole("window", window, f"a whole number from 1 to {CREDITS_MAX}", 1, CREDITS_MAX)
        return RemoteDeliveries(self, self._log, window)

    def begin(self, window: int) -> RemoteSubscription:
        """Makes the subscription that joins; for ``deliveries``. One that was before it ends.

        Raises:
            InvalidOption: If there is one.
        """
        if self._subscription is not None and not self._subscription.ended:
            raise InvalidOption("consumer", self.name, "one without another subscription to its deliveries")
        self._subscription = made = _DeliverySubscription(
            self._log, self._log.consumer(self._payload), window
        )
        return made

    async def ack(self, *deliveries: RemoteDelivery | str, durable: bool = False) -> int:
        """Acknowledges deliveries, or their places; answers how many were newly acknowledged.

        Args:
            deliveries: Which. What is not known counts as acknowledged before, and so does what was on its way when a connection was lost.
            durable: Whether to return only when a crash of the server cannot take it.

        Raises:
            RemoteError: ``FENCED`` if one was given to another consumer since; nothing has changed. ``GROUP_UNWRITTEN`` with
                ``durable``, if the disk has no room; it is tried again.
            ConnectionLost: If the consumer has not joined, or the connection is lost, and not made again.
            LogForked: In a child of ``fork``.
        """
        check_switches(durable=durable)
        return await self._counted("ack", deliveries, durable=durable or None)

    async def ack_upto(self, delivery: RemoteDelivery | str, *, durable: bool = False) -> int:
        """Acknowledges everything that this consumer has up to and with a delivery; otherwise as `ack`."""
        check_switches(durable=durable)
        return await self._counted("ack_upto", (delivery,), durable=durable or None)

    async def nack(
        self,
        *deliveries: RemoteDelivery | str,
        delay: float | None = None,
        count: bool = True,
        error: str = "refused",
    ) -> int:
        """Refuses deliveries: they are due again after a delay, for every consumer; answers how many were pending.

        Args:
            deliveries: Which.
            delay: In seconds; None for the next one of ``backoff``.
            count: False if they were not tried, such as where a worker stops: then they count as no delivery.
            error: Why; for the dead letters.

        Raises:
            RemoteError, ConnectionLost, LogForked: As `ack`.
        """
        check_switches(count=count)
        told = {"delayMs": None if delay is None else round(delay * 1000), "error": error}
        return await self._counted("nack", deliveries, count=None if count else False, **told)

    async def in_progress(self, *deliveries: RemoteDelivery | str) -> int:
        """Begins ``ack_wait`` anew for deliveries that take long; answers how many are pending. Errors are those of `ack`."""
        return await self._counted("in_progress", deliveries)

    async def term(self, *deliveries: RemoteDelivery | str, reason: str) -> int:
        """Gives deliveries up: each becomes a dead letter; answers how many were not done before. Errors are those of `ack`."""
        return await self._counted("term", deliveries, reason=reason)

    async def pending(
        self,
        start: RemoteDelivery | str | None = None,
        *,
        consumer: str | None = None,
        min_idle: float = 0.0,
        limit: int = 100,
    ) -> RemotePending:
        """What the group has delivered and is not acknowledged, as it lies in the log.

        Args:
            start: From which place on; None for the first.
            consumer: Only of this one.
            min_idle: Only what was delivered at least so many seconds ago.
            limit: Most rows.

        Raises:
            RemoteError, ConnectionLost, LogForked: As `ack`.
        """
        told = {"start": None if start is None else _place(start), "consumer": consumer, "limit": limit}
        found = await self._said("pending", {**told, "minIdleMs": round(min_idle * 1000)})
        listed = msgspec.json.decode(found, type=_Listed)
        rows = tuple(
            RemotePendingRow(row.at, row.consumer, row.generation, row.idle_ms / 1000, row.count)
            for row in listed.rows
        )
        return RemotePending(listed.total, rows)

    async def claim(
        self,
        min_idle: float,
        *deliveries: RemoteDelivery | str,
        start: RemoteDelivery | str | None = None,
        limit: int = 100,
        only_ids: bool = False,
    ) -> RemoteClaim:
        """Takes over what other consumers have, and begins its ``ack_wait`` anew.

        Args:
            min_idle: Only what was delivered at least so many seconds ago.
            deliveries: Which; none for all from ``start`` on.
            start: From which place on; None for the first.
            limit: Most of them.
            only_ids: Whether they are only looked at: their count stays, and they come without changes.

        Raises:
            RemoteError: As `ack`; ``CONNECTION_LOST`` if nobody knows whether it was done.
            ConnectionLost, LogForked: As `ack`.
        """
        told = {
            "minIdleMs": round(min_idle * 1000),
            "at": [_place(one) for one in deliveries] or None,
            "start": None if start is None else _place(start),
            "limit": limit,
            "onlyIds": only_ids or None,
        }
        claimed = msgspec.json.decode(await self._said("claim", told), type=_Claimed)
        generation = self.generation or 0
        found = tuple(one.delivery(generation) for one in claimed.deliveries)
        return RemoteClaim(found, claimed.next, tuple(claimed.lost))

    async def close(self) -> None:
        """Leaves: what was not acknowledged is due at once. Idempotent."""
        if self._subscription is not None:
            self._subscription.cancel()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _counted(self, do: str, deliveries: tuple[RemoteDelivery | str, ...], **told: object) -> int:
        if not deliveries:
            return 0
        at = [_place(one) for one in deliveries]
        return msgspec.json.decode(await self._said(do, {"at": at, **told}), type=_Counted).count

    async def _said(self, do: str, payload: Mapping[str, Any]) -> bytes:
        if self._log.inherited is not None:
            raise self._log.inherited
        if self._subscription is None:
            raise ConnectionLost(self._log.url, f"consumer {self.name!r} has not joined", retryable=False)
        told = {name: value for name, value in payload.items() if value is not None}
        return await self._subscription.say(do, told)


class RemoteDeliveries(IterablePublisher[RemoteDelivery]):
    """The deliveries of a consumer of a remote group, as a publisher; what ``RemoteMember.deliveries()`` returns."""

    def __init__(self, member: RemoteMember, log: ConsumerConnection, window: int) -> None:
        self._feed = _Feed(member, log, window)

    def subscribe(
        self,
        subscriber: Subscriber[RemoteDelivery],
        /,
        *,
        executor: Executor | asyncio.AbstractEventLoop | None = None,
    ) -> None:
        """Joins; from any thread. Errors and arguments are those of `RemoteFeed.subscribe`."""
        self._feed.subscribe(subscriber, executor=executor)  # type: ignore[arg-type]  # of the elements it knows the cursor only


class _Feed(RemoteFeed):
    def __init__(self, member: RemoteMember, log: ConsumerConnection, window: int) -> None:
        super().__init__(log, {}, window=window, on_gap="fail")
        self._member = member

    def _make(self) -> RemoteSubscription:
        return self._member.begin(self._window)


class _DeliverySubscription(RemoteSubscription):
    """One joining.

    Attributes:
        consumer: What the machine knows of it.
    """

    def __init__(self, log: ConsumerConnection, consumer: ClientConsumer, window: int) -> None:
        super().__init__(log, consumer, window, "fail")
        self.consumer = consumer
        self._calling: ConsumerConnection = log
        self._generation: int | None = None
        self._over: Exception | None = None
        self._waiting: dict[int, asyncio.Future[bytes]] = {}

    def told(self, item: SubscribedReply | JoinedReply | Item) -> None:
        """The server has let it join; what is buffered of an older generation is another one's by now, and comes again."""
        if not isinstance(item, JoinedReply):
            return
        generation = item.group.generation
        with self._lock:
            stale = len(self._buffer) if self._generation not in (None, generation) else 0
            self._generation = generation
            if stale:
                self._buffer.clear()
                self._outstanding += stale
                self.entry.wanted += stale
        if stale:
            self._log.demand(self)

    async def say(self, do: str, payload: Mapping[str, Any]) -> bytes:
        """Says something, and waits for the answer; on the loop."""
        if self._over is not None:
            raise self._over
        number = self.consumer.call(do, payload)
        waiting = self._waiting[number] = self._log.loop.create_future()
        self._calling.call(self.consumer)
        answer: bytes = await waiting
        return answer

    def called(self, n: int, result: bytes, error: RemoteError | None) -> None:
        """The server has answered."""
        waiting = self._waiting.pop(n, None)
        if waiting is None or waiting.done():
            return
        if error is None:
            waiting.set_result(result)
        else:
            waiting.set_exception(error)

    def end(self, error: Exception | None) -> None:
        """The last message has come."""
        self._finish(error)
        super().end(error)

    def release(self) -> None:
        """Leaves the connection."""
        super().release()
        with contextlib.suppress(RuntimeError):  # the loop is closed, and nobody waits
            self._log.loop.call_soon_threadsafe(self._finish, None)

    def _finish(self, error: Exception | None) -> None:
        left = ConnectionLost(self._log.url, "the consumer has left its group", retryable=False)
        self._over = self._over or error or left
        waiting, self._waiting = self._waiting, {}
        for one in waiting.values():
            if not one.done():
                one.set_exception(self._over)
                one.exception()  # looked at: nobody may wait any more


def _place(delivery: RemoteDelivery | str) -> str:
    return delivery if isinstance(delivery, str) else delivery.cursor
