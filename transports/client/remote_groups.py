"""The groups of a remote log: create, inspect, move, pause and drop them, list their dead letters; and a consumer of one."""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, Self

import msgspec

from flow.bridges.iterators import IterablePublisher
from flow.contracts import Subscriber
from flow.executors import Executor
from publishers.criteria.criteria import Criteria, Criterion
from publishers.errors import InvalidOption
from publishers.log.start import Since
from publishers.model.position import Position
from publishers.options import check_label, check_switches, check_whole
from publishers.slots.slots import check_slot_name
from publishers.views.view import Integers
from transports.client.remote_feed import FeedConnection, RemoteFeed, RemoteSubscription
from transports.codec.replies import Item, JoinedReply, RemoteDelivery, SubscribedReply, WireDelivery
from transports.codec.starts import start_json
from transports.errors import ConnectionLost, RemoteError
from transports.limits import CREDITS_MAX
from transports.operations import groups
from transports.operations.operation import LogOperation
from transports.protocol.client_consumers import ClientConsumer

__all__ = ["RemoteDeliveries", "RemoteGroups", "RemoteMember"]


class ConsumerConnection(FeedConnection, Protocol):
    """The `RemoteLink` as group consumers on it use it, in addition to what feeds use."""

    def consumer(self, payload: Mapping[str, Any]) -> ClientConsumer:
        """Creates the protocol machine's entry of a consumer."""
        ...

    def call(self, entry: ClientConsumer) -> None:
        """Sends the calls of a consumer that were not sent yet; on the loop of the connection."""
        ...


@dataclass(frozen=True, slots=True)
class RemotePendingRow:
    """A delivery that is not acknowledged.

    Attributes:
        cursor: Its position, as the text of a token.
        consumer: The consumer that holds it.
        generation: The generation of that consumer.
        idle: Seconds since the last delivery.
        count: How often it was delivered.
    """

    cursor: str
    consumer: str
    generation: int
    idle: float
    count: int


@dataclass(frozen=True, slots=True)
class RemotePending:
    """Deliveries of a group that are not acknowledged.

    Attributes:
        total: Number of these deliveries in the whole group.
        rows: The requested deliveries, in log order.
    """

    total: int
    rows: tuple[RemotePendingRow, ...]


@dataclass(frozen=True, slots=True)
class RemoteClaim:
    """The result of a claim.

    Attributes:
        deliveries: The deliveries moved to the consumer.
        next: The cursor at which the next claim may start; None at the end.
        lost: Requested cursors that retention deleted before they were done.
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
    """A consumer of a group of a remote log; created by ``RemoteLog.group``, and an async context manager that leaves.

    Subscribing to ``deliveries()`` joins the group. The end of that subscription leaves it: deliveries not acknowledged are due
    at once, for every consumer. A lost connection does not leave the group if ``reconnect`` is set: within the server's grace
    period the consumer resumes with its generation, and its deliveries stay its own. Call its methods on the loop of the
    connection.

    Attributes:
        group: The name of the group.
        name: The name of the consumer.
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
        check_label("consumer", name)
        self.group = group
        self.name = name
        self._log = log
        fields = {"group": group, "consumer": name, "history": history or None, "log": of}
        if integers is not Integers.NUMBER:
            fields["integers"] = integers.value
        self._payload = {key: value for key, value in fields.items() if value is not None}
        self._subscription: _DeliverySubscription | None = None

    @property
    def generation(self) -> int | None:
        """The generation of its joining, as the server last reported it; None if it is not known."""
        return None if self._subscription is None else self._subscription.consumer.generation

    def deliveries(self, *, window: int = 100) -> "RemoteDeliveries":
        """The deliveries as a publisher, for one subscriber at a time, which also supports ``for`` and ``async for``.

        If it fails, its subscriber gets ``on_error`` with ``RemoteError``: the code is ``FENCED`` if another consumer has joined
        under this name, or ``GROUP_NOT_FOUND``, ``GROUP_LOST``, ``FORBIDDEN``.

        Args:
            window: Most deliveries in flight or buffered. Buffered deliveries are pending, and time out like those in work.

        Raises:
            InvalidOption: If it is out of its range.
        """
        check_whole("window", window, f"a whole number from 1 to {CREDITS_MAX}", 1, CREDITS_MAX)
        return RemoteDeliveries(self, self._log, window)

    def begin(self, window: int) -> RemoteSubscription:
        """Creates the subscription that joins; for ``deliveries``.

        Raises:
            InvalidOption: If an earlier subscription has not ended.
        """
        if self._subscription is not None and not self._subscription.ended:
            raise InvalidOption("consumer", self.name, "one without another subscription to its deliveries")
        self._subscription = made = _DeliverySubscription(
            self._log, self._log.consumer(self._payload), window
        )
        return made

    async def ack(self, *deliveries: RemoteDelivery | str, durable: bool = False) -> int:
        """Acknowledges deliveries; returns how many were newly acknowledged.

        Args:
            deliveries: Deliveries or their cursors. An unknown one counts as acknowledged before, and so does one whose
                acknowledgement was in flight when a connection was lost.
            durable: Whether to return only once the acknowledgement survives a crash of the server.

        Raises:
            RemoteError: ``FENCED`` if one was delivered to another consumer since; nothing is acknowledged then.
                ``GROUP_UNWRITTEN`` with ``durable``, if the disk has no room; the write is retried.
            ConnectionLost: If the consumer has not joined, or the connection is lost without a reconnection.
            LogForked: In a child of ``fork``.
        """
        check_switches(durable=durable)
        return await self._counted("ack", deliveries, durable=durable or None)

    async def ack_upto(self, delivery: RemoteDelivery | str, *, durable: bool = False) -> int:
        """Acknowledges every delivery of this consumer up to and including one; otherwise as `ack`."""
        check_switches(durable=durable)
        return await self._counted("ack_upto", (delivery,), durable=durable or None)

    async def nack(
        self,
        *deliveries: RemoteDelivery | str,
        delay: float | None = None,
        count: bool = True,
        error: str = "refused",
    ) -> int:
        """Refuses deliveries: they are due again after a delay, for every consumer; returns how many were pending.

        Args:
            deliveries: Deliveries or their cursors.
            delay: Seconds; None for the next delay of ``backoff``.
            count: False if they were not tried, as when a worker stops: they then count as no delivery.
            error: The reason, for the dead letters.

        Raises:
            RemoteError, ConnectionLost, LogForked: As `ack`.
        """
        check_switches(count=count)
        fields = {"delayMs": None if delay is None else round(delay * 1000), "error": error}
        return await self._counted("nack", deliveries, count=None if count else False, **fields)

    async def in_progress(self, *deliveries: RemoteDelivery | str) -> int:
        """Restarts ``ack_wait`` of deliveries that take long; returns how many are pending. Errors are those of `ack`."""
        return await self._counted("in_progress", deliveries)

    async def term(self, *deliveries: RemoteDelivery | str, reason: str) -> int:
        """Terminates deliveries, which become dead letters; returns how many were not done before. Errors are those of `ack`."""
        return await self._counted("term", deliveries, reason=reason)

    async def pending(
        self,
        start: RemoteDelivery | str | None = None,
        *,
        consumer: str | None = None,
        min_idle: float = 0.0,
        limit: int = 100,
    ) -> RemotePending:
        """Lists deliveries of the group that are not acknowledged, in log order.

        Args:
            start: The first delivery or cursor; None for the first one.
            consumer: Lists only deliveries of this consumer; None for all.
            min_idle: Seconds; lists only deliveries made at least so long ago.
            limit: Most rows.

        Raises:
            RemoteError, ConnectionLost, LogForked: As `ack`.
        """
        fields = {"start": None if start is None else _place(start), "consumer": consumer, "limit": limit}
        found = await self._said("pending", {**fields, "minIdleMs": round(min_idle * 1000)})
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
        """Claims pending deliveries of other consumers and restarts their ``ack_wait``.

        Args:
            min_idle: Seconds; only deliveries made at least so long ago are claimed.
            deliveries: Deliveries or their cursors; without any, all from ``start`` on.
            start: The first delivery or cursor to claim; None for the first pending one.
            limit: Most deliveries.
            only_ids: Whether to return the deliveries without changes and without counting a delivery.

        Raises:
            RemoteError: As `ack`; ``CONNECTION_LOST`` if it is not known whether the server carried out the claim.
            ConnectionLost, LogForked: As `ack`.
        """
        fields = {
            "minIdleMs": round(min_idle * 1000),
            "at": [_place(one) for one in deliveries] or None,
            "start": None if start is None else _place(start),
            "limit": limit,
            "onlyIds": only_ids or None,
        }
        claimed = msgspec.json.decode(await self._said("claim", fields), type=_Claimed)
        generation = self.generation or 0
        found = tuple(one.delivery(generation) for one in claimed.deliveries)
        return RemoteClaim(found, claimed.next, tuple(claimed.lost))

    async def close(self) -> None:
        """Leaves the group: deliveries not acknowledged are due at once. Idempotent."""
        if self._subscription is not None:
            self._subscription.cancel()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _counted(self, do: str, deliveries: tuple[RemoteDelivery | str, ...], **fields: object) -> int:
        if not deliveries:
            return 0
        at = [_place(one) for one in deliveries]
        return msgspec.json.decode(await self._said(do, {"at": at, **fields}), type=_Counted).count

    async def _said(self, do: str, payload: Mapping[str, Any]) -> bytes:
        if self._log.inherited is not None:
            raise self._log.inherited
        if self._subscription is None:
            raise ConnectionLost(self._log.url, f"consumer {self.name!r} has not joined", retryable=False)
        fields = {name: value for name, value in payload.items() if value is not None}
        return await self._subscription.say(do, fields)


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
        """Joins the group; from any thread. Errors and arguments are those of `RemoteFeed.subscribe`."""
        self._feed.subscribe(subscriber, executor=executor)  # type: ignore[arg-type]  # the feed reads only the cursor of an element


class _Feed(RemoteFeed):
    def __init__(self, member: RemoteMember, log: ConsumerConnection, window: int) -> None:
        super().__init__(log, {}, window=window, on_gap="fail")
        self._member = member

    def _make(self) -> RemoteSubscription:
        return self._member.begin(self._window)


class _DeliverySubscription(RemoteSubscription):
    """The subscription of one joining.

    Attributes:
        consumer: The consumer's entry in the protocol machine.
    """

    def __init__(self, log: ConsumerConnection, consumer: ClientConsumer, window: int) -> None:
        super().__init__(log, consumer, window, "fail")
        self.consumer = consumer
        self._calling: ConsumerConnection = log
        self._generation: int | None = None
        self._over: Exception | None = None
        self._waiting: dict[int, asyncio.Future[bytes]] = {}

    def confirm(self, item: SubscribedReply | JoinedReply | Item) -> None:
        """Handles the server's reply to the joining.

        Buffered deliveries of an older generation are dropped and requested again: they do not belong to this consumer any more.
        """
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
        """Sends a call and waits for its answer; on the loop."""
        if self._over is not None:
            raise self._over
        number = self.consumer.call(do, payload)
        waiting = self._waiting[number] = self._log.loop.create_future()
        self._calling.call(self.consumer)
        answer: bytes = await waiting
        return answer

    def called(self, n: int, result: bytes, error: RemoteError | None) -> None:
        """Handles the answer to a call."""
        waiting = self._waiting.pop(n, None)
        if waiting is None or waiting.done():
            return
        if error is None:
            waiting.set_result(result)
        else:
            waiting.set_exception(error)

    def end(self, error: Exception | None) -> None:
        """Ends the subscription after its last message."""
        self._finish(error)
        super().end(error)

    def release(self) -> None:
        """Leaves the connection."""
        super().release()
        with contextlib.suppress(RuntimeError):  # the loop is closed, so no call can wait on it
            self._log.loop.call_soon_threadsafe(self._finish, None)

    def _finish(self, error: Exception | None) -> None:
        left = ConnectionLost(self._log.url, "the consumer has left its group", retryable=False)
        self._over = self._over or error or left
        waiting, self._waiting = self._waiting, {}
        for one in waiting.values():
            if not one.done():
                one.set_exception(self._over)
                one.exception()  # read, so that asyncio does not report it as never retrieved


def _place(delivery: RemoteDelivery | str) -> str:
    return delivery if isinstance(delivery, str) else delivery.cursor


_Ask = Callable[[LogOperation[dict[str, Any]]], Awaitable[dict[str, Any]]]
_AT_ONCE = 1_000


class RemoteGroups:
    """The groups of a remote log, for the event loop of its connection: ``RemoteLog.groups``.

    The results are JSON values: ``name``, ``state``, ``cursor``, ``version``, ``generation``, and whether the call has ``changed`` the
    group. A refusal of the server raises ``RemoteError``, with the code ``GROUP_NOT_FOUND``, ``GROUP_EXISTS``, or ``FORBIDDEN`` if the
    grant does not name the group. With ``reconnect``, unanswered requests are sent again after a lost connection: a repeated ``create``
    or ``drop`` may then fail because the first one succeeded.

    Args:
        ask: Sends a request, and returns the answer.
        log: Name of the log; None for the only one.
    """

    def __init__(self, ask: _Ask, log: str | None = None) -> None:
        self._ask = ask
        self._log = log

    def of(self, log: str) -> "RemoteGroups":
        """The groups of another log of the server."""
        return RemoteGroups(self._ask, log)

    async def create(
        self, name: str, *criteria: Criterion | Criteria, since: Since = None, **options: Any
    ) -> dict[str, Any]:
        """Creates a group; durable when it returns.

        Args:
            name: Its name.
            *criteria: Select its changes; none for all changes.
            since: Its position, as for ``RemoteLog.changes``; the next version by default.
            options: As for ``log.groups.create``.

        Raises:
            InvalidOption: If an argument is invalid; the server checks the options.
        """
        return await self._ask(
            groups.CreateGroup(
                log=self._log,
                name=name,
                criteria=Criteria.of(*criteria).to_json() if criteria else None,
                options=options,
                **start_json(since),
            )
        )

    async def info(self, name: str) -> dict[str, Any]:
        """The statistics of a group, as ``/statistics`` has them: floor, head, consumers, pending, dead, lag and others."""
        return await self._ask(groups.ShowGroup(log=self._log, name=name))

    async def seek(self, name: str, since: Since) -> dict[str, Any]:
        """Moves a group in any state; all its consumers are fenced."""
        return await self._ask(groups.ResetGroup(log=self._log, name=name, **start_json(since)))

    async def pause(self, name: str) -> dict[str, Any]:
        """Stops the deliveries of a group until it is resumed, also over restarts."""
        return await self._ask(groups.PauseGroup(log=self._log, name=name))

    async def resume(self, name: str) -> dict[str, Any]:
        """Resumes a group, also after its breaker has paused it."""
        return await self._ask(groups.ResumeGroup(log=self._log, name=name))

    async def drop(self, name: str) -> None:
        """Drops a group; its dead letters stay."""
        await self._ask(groups.DropGroup(log=self._log, name=name))

    async def pending(self, name: str, limit: int = 100) -> dict[str, Any]:
        """The pending deliveries: ``total``, and ``rows`` of ``at``, ``consumer``, ``generation``, ``idleMs``, ``count``.

        Args:
            name: The group.
            limit: Most rows, up to 1,000.
        """
        return await self._ask(groups.ListPending(log=self._log, name=name, limit=limit))

    async def release(self, name: str, min_idle: float = 0.0) -> int:
        """Takes pending deliveries back from their consumers: they are due at once, for every consumer.

        Args:
            name: The name of the group.
            min_idle: Seconds; only deliveries made at least so long ago.

        Returns:
            Their number, without later deliveries of the same keys, which are taken back too.
        """
        idle = round(min_idle * 1000)
        return int(
            (await self._ask(groups.ReleaseGroup(log=self._log, name=name, min_idle_ms=idle)))["count"]
        )

    def dead_letters(self, name: str) -> AsyncIterator[dict[str, Any]]:
        """The dead letters, in the order of their positions, a page at a time."""

        async def read(after: str | None) -> tuple[list[dict[str, Any]], str | None]:
            page = await self._ask(groups.ListDead(log=self._log, name=name, limit=_AT_ONCE, after=after))
            return page["letters"], page["next"]

        return _Pages(read)

    async def discard(self, name: str, positions: Iterable[Position | str] | None = None) -> int:
        """Removes dead letters, durably.

        Args:
            name: The group.
            positions: Their positions, such as ``"42:1"``; None for all.

        Returns:
            The number of removed letters.
        """
        if positions is None:
            return int((await self._ask(groups.DiscardDead(log=self._log, name=name)))["count"])
        wanted, count = [str(one) for one in positions], 0
        for first in range(0, len(wanted), _AT_ONCE):
            part = tuple(wanted[first : first + _AT_ONCE])
            count += (await self._ask(groups.DiscardDead(log=self._log, name=name, positions=part)))["count"]
        return count


class _Pages:
    """Iterates over pages. A generator would end, as if it were complete, when a wait for the next page is cancelled."""

    def __init__(
        self, read: Callable[[str | None], Awaitable[tuple[list[dict[str, Any]], str | None]]]
    ) -> None:
        self._read = read
        self._here: deque[dict[str, Any]] = deque()
        self._after: str | None = None
        self._more = True

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> dict[str, Any]:
        while not self._here:
            if not self._more:
                raise StopAsyncIteration
            page, self._after = await self._read(self._after)
            self._here.extend(page)
            self._more = self._after is not None
        return self._here.popleft()
