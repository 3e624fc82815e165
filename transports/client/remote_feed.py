"""A remote feed: what a server tells, as a publisher at the pace of its subscriber."""

import asyncio
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Protocol

from flow.bridges.iterable import IterablePublisher
from flow.contracts import Subscriber
from flow.drain import COMPLETED, Drain, Failed, Outcome
from flow.executors import Executor
from publishers.errors import InvalidOption, LogForked, PenstockError
from publishers.fanout.gap import OnGap, require_told
from publishers.snapshots.signals import telling
from publishers.snapshots.subscription import checked_again
from transports.codec.replies import Item, JoinedReply, RemoteChange, RemoteGap, RemoteSignal, SubscribedReply
from transports.errors import ConnectionLost, RemoteError
from transports.protocol.client_slots import ClientSlot
from transports.protocol.client_subscription import ClientSubscription

__all__ = ["FeedConnection", "RemoteFeed", "RemoteSubscription"]


_TOLD: Final = (RemoteGap, RemoteSignal)
"""What is told, and is no element."""


class FeedConnection(Protocol):
    """What subscriptions need of the `RemoteLog` whose connection they share."""

    url: str
    inherited: LogForked | None

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """That of the connection."""
        ...

    def entry(self, payload: Mapping[str, Any], slot: ClientSlot | None = None) -> ClientSubscription:
        """What the machine is to know a subscription by."""
        ...

    def enlist(self, subscription: "RemoteSubscription") -> None:
        """Subscribes at the server."""
        ...

    def demand(self, subscription: "RemoteSubscription") -> None:
        """Requests what the subscription wants."""
        ...

    def ask_rows(self, subscription: "RemoteSubscription") -> None:
        """Asks for rows once more."""
        ...

    def forget(self, subscription: "RemoteSubscription") -> None:
        """Ends the subscription at the server."""
        ...


class RemoteFeed(IterablePublisher[RemoteChange]):
    """A publisher of the changes of a remote log (Reactive Streams 1.0.4), made by ``RemoteLog.changes``.

    ``async for`` takes it too, and ``for`` in a thread that is not that of the connection's event loop.

    Cold: each subscriber is a subscription of its own at the server. What its subscriber requests is requested there, at
    most ``window`` events at a time and again when half of them are used, so no more than that is ever under way or
    buffered here.
    """

    def __init__(self, log: FeedConnection, payload: dict[str, Any], *, window: int, on_gap: OnGap) -> None:
        self._log = log
        self._payload = payload
        self._window = window
        self._on_gap = on_gap

    def subscribe(
        self,
        subscriber: Subscriber[RemoteChange],
        /,
        *,
        executor: Executor | asyncio.AbstractEventLoop | None = None,
    ) -> None:
        """Subscribes at the server; from any thread.

        Args:
            subscriber: Gets ``RemoteChange`` objects; refusal comes as ``on_error(RemoteError)``.
            executor: Where signals run; by default the event loop of the client.

        A connection that was not opened, or whose loop is closed, is told by ``on_error(ConnectionLost)``; one that was
        inherited by a child of ``fork``, by ``on_error(LogForked)``.

        Raises:
            TypeError: If the subscriber is None (rule 1.9), or cannot be told of a gap that it wants to jump.
        """
        if subscriber is None:
            raise TypeError("the subscriber is None (Reactive Streams rule 1.9)")
        require_told(self._on_gap, subscriber)
        try:
            loop = self._log.loop
            subscription = self._make()
        except PenstockError as error:
            Drain(subscriber, _Refused(error), executor=executor).start()
            return
        subscription.begin(subscriber, executor or loop)

    def _make(self) -> "RemoteSubscription":
        """A subscription that is not begun."""
        return RemoteSubscription(self._log, self._log.entry(self._payload), self._window, self._on_gap)


class _Refused:
    """The feed of a subscription that cannot be: ``on_subscribe``, then ``on_error`` (rule 1.9)."""

    def __init__(self, error: Exception) -> None:
        self._failed = Failed(error)

    def pull(self, _limit: int, /) -> tuple[()]:
        return ()

    def outcome(self) -> Outcome:
        return self._failed

    def release(self) -> None: ...


class RemoteSubscription:
    """What links one subscriber to a remote log.

    Attributes:
        entry: What the machine knows it by.
        state: ``"LIVE"`` or ``"RESYNC"``, as the server last told; None before that.
        head: Cursor of the end of the log, as the server last told.
        live: The newest version that subscribers may be given, as a checkpoint last told; None before that.
    """

    def __init__(self, log: FeedConnection, entry: ClientSubscription, window: int, on_gap: OnGap) -> None:
        self.entry = entry
        self.state: str | None = None
        self.head: str | None = None
        self.live: int | None = None
        self._log = log
        self._window = window
        self._on_gap = on_gap
        self._lock = threading.Lock()
        self._buffer: deque[Any] = deque()  # changes, or deliveries; gaps; and what was told of a snapshot
        self._outstanding = 0  # wanted from the server, and not in the buffer yet
        self._received = entry.cursor  # behind what is in the buffer
        self._delivered = self._received
        self._gap: RemoteGap | None = None  # not told yet
        self._signals = 0
        self._outcome: Outcome | None = None
        self._drain: Drain[RemoteChange]

    def begin(
        self, subscriber: Subscriber[RemoteChange], executor: Executor | asyncio.AbstractEventLoop
    ) -> None:
        """Gives the subscriber its subscription, and subscribes at the server."""
        self._drain = Drain(subscriber, self, executor=executor)
        try:
            self._log.enlist(self)
        except RuntimeError:
            self.end(ConnectionLost(self._log.url, "its event loop is closed", retryable=False))
        self._drain.start(self)

    # What a subscriber may do.

    def request(self, n: int, /) -> None:
        """Asks for ``n`` more changes (rule 3.8).

        Raises:
            LogForked: In a child of ``fork``, where they would never come.
        """
        if self._log.inherited is not None:
            raise self._log.inherited
        self._drain.request(n)

    def cancel(self) -> None:
        """Ends the subscription here and at the server (rule 3.12)."""
        if self._log.inherited is None:  # else it is the parent's
            self._drain.cancel()

    def again(self, *wishes: Any, after: str | None = None, until: str | None = None) -> int:
        """Asks for rows of the present once more, as ``SnapshotSubscription.again`` does; over lost connections too.

        If a connection is lost among these rows, all rows of the subscription that were still to come are given on the next one.
        What the server refuses ends the subscription with a `RemoteError`.

        Args:
            wishes: Of which rows; what the subscription was made with must be fulfilled too. None for all of those.
            after: The key behind which they begin, in the order of the source; None for the first.
            until: The last key; None for no bound.

        Returns:
            Their number, from 1, which ``SnapshotBegin.asked`` tells.

        Raises:
            InvalidCriteria: If a wish is not one.
            InvalidOption: If keys are given, and not exactly one entity type; or if it was not subscribed with ``since="state"``, or
                with ``snapshot`` ``"initial"`` or ``"on_gap"``.
            LogForked: In a child of ``fork``.
        """
        if self._log.inherited is not None:
            raise self._log.inherited
        if not self.entry.takes_rows:
            right = "'initial' or 'on_gap', or since='state', where rows are asked for again"
            raise InvalidOption("snapshot", None, right)
        criteria = checked_again(*wishes, after=after, until=until)
        told = {"criteria": criteria.to_json(), "after": after, "until": until}
        number = self.entry.ask_again({name: value for name, value in told.items() if value})
        self._log.ask_rows(self)
        return number

    @property
    def cursor(self) -> str | None:
        """Everything before it was delivered, or did not match: the place to resume; None before it is known."""
        return self._delivered

    @property
    def ended(self) -> bool:
        """Whether no signal will follow."""
        return self._drain.ended

    # What its connection does with it, on the event loop of the client.

    def buffer(self, events: Sequence[Any], cursor: str) -> None:
        """Some events have come, a gap, or what was told of a snapshot, behind which the cursor is."""
        with self._lock:
            self._outstanding -= sum(not isinstance(event, _TOLD) for event in events)
            self._received = cursor
            self._buffer.extend(events)
        self._drain.signal()

    def told(self, item: SubscribedReply | JoinedReply | Item) -> None:
        """The server has registered it, or a checkpoint has come."""
        if isinstance(item, JoinedReply):
            return
        self.head = item.head
        if isinstance(item, Item):
            self.live, self.state = item.live, item.state
        with self._lock:
            if isinstance(item, Item) or self._received is None:
                self._received = item.cursor
                if not self._buffer:
                    self._delivered = item.cursor

    def acked(self, n: int, error: RemoteError | None) -> None:
        """What was acknowledged of a slot was answered; see ``RemoteSlot``."""

    def called(self, n: int, result: bytes, error: RemoteError | None) -> None:
        """What a consumer of a group has said was answered; see ``RemoteMember``."""

    def end(self, error: Exception | None) -> None:
        """The last message has come; what is buffered is delivered first."""
        self._outcome = COMPLETED if error is None else Failed(error)
        self._drain.signal()

    # What its drain pulls from.

    def pull(self, limit: int, /) -> Sequence[RemoteChange]:
        """Takes what is buffered, and requests more when half of the window is used."""
        demand = self._drain.demand
        with self._lock:
            buffer = self._buffer
            taken: list[RemoteChange] = []
            while buffer and len(taken) < limit:
                if not isinstance(first := buffer[0], _TOLD):
                    taken.append(first)
                elif taken:
                    break  # it is told when all that was before it has been delivered
                else:
                    self._tell(first)
                buffer.popleft()
            if taken:
                self._delivered = taken[-1].cursor if buffer else self._received
            want = min(demand - len(taken), self._window)
            here = len(buffer) + self._outstanding
            more = want - here if here * 2 <= want and self._outcome is None else 0
            self._outstanding += max(more, 0)
            self.entry.wanted += max(more, 0)
        if more > 0:
            self._log.demand(self)
        return taken

    def _tell(self, told: RemoteGap | RemoteSignal) -> None:
        """Notes what is not a change for the subscriber; under the lock, on the drain."""
        if isinstance(told, RemoteGap):
            self._jump(told)
            return
        self._delivered = told.cursor
        self._signals += 1  # under a key of its own, as none may replace another
        self._drain.tell(("snapshot", self._signals), telling(told.signal))

    def _jump(self, gap: RemoteGap) -> None:
        """Notes a gap for the subscriber, who is told before what follows; under the lock, on the drain."""
        if self._gap is not None:
            gap = replace(gap, begin=self._gap.begin, begin_cursor=self._gap.begin_cursor)
        self._gap = gap
        self._delivered = gap.end_cursor
        self._drain.tell("gap", self._deliver_gap)

    def _deliver_gap(self, subscriber: Any) -> None:
        gap, self._gap = self._gap, None
        if gap is not None:
            told = self._on_gap if callable(self._on_gap) else subscriber.on_gap
            told(gap)

    def outcome(self) -> Outcome | None:
        """Whether it has ended and everything was delivered."""
        with self._lock:
            while self._buffer and isinstance(first := self._buffer[0], _TOLD):
                self._tell(first)
                self._buffer.popleft()
        return None if self._buffer else self._outcome

    def release(self) -> None:
        """Leaves the connection."""
        self._log.forget(self)
        self._buffer.clear()
