"""A remote feed: the changes that a server sends, as a publisher at the pace of its subscriber."""

import asyncio
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Protocol

from flow.bridges.iterators import IterablePublisher
from flow.contracts import Subscriber
from flow.drain import COMPLETED, Drain, Failed, Outcome
from flow.executors import Executor
from publishers.errors import InvalidOption, LogForked, PenstockError
from publishers.fanout.gap import OnGap, require_on_gap
from publishers.snapshots.signals import delivering
from publishers.snapshots.subscription import checked_refresh
from transports.codec.replies import Item, JoinedReply, RemoteChange, RemoteGap, RemoteSignal, SubscribedReply
from transports.errors import ConnectionLost, RemoteError
from transports.protocol.client_slots import ClientSlot
from transports.protocol.client_subscription import ClientSubscription

__all__ = ["FeedConnection", "RemoteFeed", "RemoteSubscription"]


_TOLD: Final = (RemoteGap, RemoteSignal)
"""Buffered items that are signals, not elements."""


class FeedConnection(Protocol):
    """The part of a `RemoteLink` that the subscriptions on its connection use."""

    url: str
    inherited: LogForked | None

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop of the connection."""
        ...

    def entry(self, payload: Mapping[str, Any], slot: ClientSlot | None = None) -> ClientSubscription:
        """Makes the machine's entry of a subscription."""
        ...

    def enlist(self, subscription: "RemoteSubscription") -> None:
        """Subscribes at the server."""
        ...

    def demand(self, subscription: "RemoteSubscription") -> None:
        """Requests the demand of the subscription."""
        ...

    def ask_rows(self, subscription: "RemoteSubscription") -> None:
        """Sends requests for more rows."""
        ...

    def forget(self, subscription: "RemoteSubscription") -> None:
        """Cancels the subscription at the server."""
        ...


class RemoteFeed(IterablePublisher[RemoteChange]):
    """A publisher of the changes of a remote log (Reactive Streams 1.0.4), made by ``RemoteLog.changes``.

    ``async for`` accepts it too, and ``for`` on a thread other than that of the connection's event loop.

    Cold: each subscriber has its own subscription at the server. The feed requests from the server at most ``window`` events
    of the subscriber's demand, and more once half of them are used; so at most ``window`` events are in flight or buffered.
    """

    def __init__(self, log: FeedConnection, payload: dict[str, Any], *, window: int, on_gap: OnGap) -> None:
        self._log = log
        self._payload = payload
        self._window = window
        self._on_gap = on_gap

    def __repr__(self) -> str:
        return f"<RemoteFeed of {self._log!r}>"

    def subscribe(
        self,
        subscriber: Subscriber[RemoteChange],
        /,
        *,
        executor: Executor | asyncio.AbstractEventLoop | None = None,
    ) -> None:
        """Subscribes at the server; from any thread.

        Args:
            subscriber: Receives ``RemoteChange`` objects; a refusal arrives as ``on_error(RemoteError)``.
            executor: The executor of the signals; by default the event loop of the client.

        If the connection was not opened or its loop is closed, the subscriber gets ``on_error(ConnectionLost)``; in a child
        of ``fork`` that inherited it, ``on_error(LogForked)``.

        Raises:
            TypeError: If the subscriber is None (rule 1.9), or asks to jump gaps but has no way to receive them.
        """
        if subscriber is None:
            raise TypeError("the subscriber is None (Reactive Streams rule 1.9)")
        require_on_gap(self._on_gap, subscriber)
        try:
            loop = self._log.loop
            subscription = self._make()
        except PenstockError as error:
            Drain(subscriber, _Refused(error), executor=executor).start()
            return
        subscription.begin(subscriber, executor or loop)

    def _make(self) -> "RemoteSubscription":
        """Makes a subscription that has not begun."""
        return RemoteSubscription(self._log, self._log.entry(self._payload), self._window, self._on_gap)


class _Refused:
    """The feed of a subscription that is refused at once: ``on_subscribe``, then ``on_error`` (rule 1.9)."""

    def __init__(self, error: Exception) -> None:
        self._failed = Failed(error)

    def pull(self, _limit: int, /) -> tuple[()]:
        return ()

    def outcome(self) -> Outcome:
        return self._failed

    def release(self) -> None: ...


class RemoteSubscription:
    """Links one subscriber to a remote log.

    Attributes:
        entry: The machine's entry of the subscription.
        state: ``"LIVE"`` or ``"RESYNC"``, as the server last reported; None before.
        head: The cursor of the end of the log, as the server last reported.
        live: The newest version that may be delivered, as a checkpoint last reported; None before.
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
        self._buffer: deque[Any] = deque()  # changes or deliveries, gaps, and snapshot signals
        self._outstanding = 0  # requested from the server, and not in the buffer yet
        self._received = entry.cursor  # behind the buffered events
        self._delivered = self._received
        self._gap: RemoteGap | None = None  # not delivered yet
        self._signals = 0
        self._outcome: Outcome | None = None
        self._drain: Drain[RemoteChange]

    def begin(
        self, subscriber: Subscriber[RemoteChange], executor: Executor | asyncio.AbstractEventLoop
    ) -> None:
        """Passes the subscription to the subscriber, and subscribes at the server."""
        self._drain = Drain(subscriber, self, executor=executor)
        try:
            self._log.enlist(self)
        except RuntimeError:
            self.end(ConnectionLost(self._log.url, "its event loop is closed", retryable=False))
        self._drain.start(self)

    # Called by the subscriber.

    def request(self, n: int, /) -> None:
        """Requests ``n`` more changes (rule 3.8).

        Raises:
            LogForked: In a child of ``fork``, where they would never arrive.
        """
        if self._log.inherited is not None:
            raise self._log.inherited
        self._drain.request(n)

    def cancel(self) -> None:
        """Ends the subscription here and at the server (rule 3.12)."""
        if self._log.inherited is None:  # otherwise it belongs to the parent
            self._drain.cancel()

    def refresh(self, *criteria: Any, after: str | None = None, until: str | None = None) -> int:
        """Requests rows of the current state, as ``SnapshotSubscription.again`` does; the request survives lost connections.

        If the connection is lost during these rows, the next connection delivers all rows of the subscription that were
        outstanding. If the server refuses the request, the subscription ends with a `RemoteError`.

        Args:
            criteria: The criteria of the rows, in addition to those of the subscription; none for all its rows.
            after: The key behind which they begin, in the order of the source; None to begin with the first.
            until: The last key; None for no bound.

        Returns:
            The number of the request, from 1, which ``SnapshotBegin.asked`` repeats.

        Raises:
            InvalidCriteria: If a criterion is invalid.
            InvalidOption: If keys are given without exactly one entity type; or if the subscription was made without
                ``since="state"`` and without ``snapshot`` ``"initial"`` or ``"on_gap"``.
            LogForked: In a child of ``fork``.
        """
        if self._log.inherited is not None:
            raise self._log.inherited
        if not self.entry.takes_rows:
            right = "'initial' or 'on_gap', or since='state', where rows are asked for again"
            raise InvalidOption("snapshot", None, right)
        only = checked_refresh(*criteria, after=after, until=until)
        fields = {"criteria": only.to_json(), "after": after, "until": until}
        number = self.entry.ask_again({name: value for name, value in fields.items() if value})
        self._log.ask_rows(self)
        return number

    @property
    def cursor(self) -> str | None:
        """The cursor to resume at: everything before it was delivered or did not match. None before it is known."""
        return self._delivered

    @property
    def ended(self) -> bool:
        """Whether no signal will follow."""
        return self._drain.ended

    # Called by the connection, on the event loop of the client.

    def buffer(self, events: Sequence[Any], cursor: str) -> None:
        """Buffers events, a gap or a snapshot signal; the cursor lies behind them."""
        with self._lock:
            self._outstanding -= sum(not isinstance(event, _TOLD) for event in events)
            self._received = cursor
            self._buffer.extend(events)
        self._drain.signal()

    def confirm(self, item: SubscribedReply | JoinedReply | Item) -> None:
        """Records the server's confirmation, or a checkpoint."""
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
        """Handles the answer to an acknowledgement of a slot; see ``RemoteSlot``."""

    def called(self, n: int, result: bytes, error: RemoteError | None) -> None:
        """Handles the answer to a call of a group consumer; see ``RemoteMember``."""

    def end(self, error: Exception | None) -> None:
        """Ends the subscription behind its buffered events."""
        self._outcome = COMPLETED if error is None else Failed(error)
        self._drain.signal()

    # Called by the drain.

    def pull(self, limit: int, /) -> Sequence[RemoteChange]:
        """Takes buffered events, and requests more when half of the window is used."""
        demand = self._drain.demand
        with self._lock:
            buffer = self._buffer
            taken: list[RemoteChange] = []
            while buffer and len(taken) < limit:
                if not isinstance(first := buffer[0], _TOLD):
                    taken.append(first)
                elif taken:
                    break  # a signal waits until everything before it is delivered
                else:
                    self._queue_signal(first)
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

    def _queue_signal(self, signal: RemoteGap | RemoteSignal) -> None:
        """Queues a signal for the subscriber; under the lock, on the drain."""
        if isinstance(signal, RemoteGap):
            self._jump(signal)
            return
        self._delivered = signal.cursor
        self._signals += 1  # a key of its own, so that no signal replaces another
        self._drain.notify(("snapshot", self._signals), delivering(signal.signal))

    def _jump(self, gap: RemoteGap) -> None:
        """Queues a gap, which the subscriber gets before the next change; under the lock, on the drain."""
        if self._gap is not None:
            gap = replace(gap, begin=self._gap.begin, begin_cursor=self._gap.begin_cursor)
        self._gap = gap
        self._delivered = gap.end_cursor
        self._drain.notify("gap", self._deliver_gap)

    def _deliver_gap(self, subscriber: Any) -> None:
        gap, self._gap = self._gap, None
        if gap is not None:
            method = self._on_gap if callable(self._on_gap) else subscriber.on_gap
            method(gap)

    def outcome(self) -> Outcome | None:
        """Returns the end of the subscription once everything is delivered; None before."""
        with self._lock:
            while self._buffer and isinstance(first := self._buffer[0], _TOLD):
                self._queue_signal(first)
                self._buffer.popleft()
        return None if self._buffer else self._outcome

    def release(self) -> None:
        """Cancels the subscription at the server and drops the buffer."""
        self._log.forget(self)
        self._buffer.clear()
