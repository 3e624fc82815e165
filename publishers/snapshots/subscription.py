"""One subscriber's subscription to a snapshot and to the changes after it."""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from flow.contracts import UNBOUNDED, Subscriber, Subscription
from flow.demand import add, subtract
from flow.drain import COMPLETED, Drain, Failed, Outcome
from flow.executors import INLINE, AnyExecutor, executor_of
from publishers.errors import LogClosed, LogError
from publishers.fanout.service import Service
from publishers.model.change import Change
from publishers.model.position import Position
from publishers.snapshots.change import SnapshotChange
from publishers.snapshots.cursor import SnapshotCursor
from publishers.snapshots.reader import Entry, SnapshotReader
from publishers.snapshots.signals import telling
from publishers.snapshots.source import SnapshotSource
from publishers.wal import Hold

__all__ = ["SnapshotSubscription", "Succession"]

Succession = Callable[[Position, Any], None]
"""Subscribes to the changes from a position on; takes the position and the subscriber."""


class SnapshotSubscription:
    """Gives rows and the changes between them, and then hands over to an ordinary subscription to the changes that follow.

    Rows are read by the replayer's threads, one page at a time, when there is demand; the page is all that it keeps.

    Attributes:
        name: What errors call it.
        detached: Whether it is served behind all others.
    """

    detached = False

    def __init__(
        self,
        service: Service,
        reader: SnapshotReader,
        source: SnapshotSource,
        subscriber: Subscriber[Change],
        hold: Hold | None,
        then: Succession | None,
        *,
        executor: AnyExecutor | None,
        batch_events: int,
        batch_bytes: int,
        name: str,
    ) -> None:
        self.name = name
        self._service = service
        self._reader = reader
        self._source = source
        self._hold = hold
        self._then = then
        self._bounds = (batch_events, batch_bytes)
        self._executor = executor_of(executor)
        self._lock = threading.Lock()
        self._requested = 0
        self._given = 0
        self._told = 0
        self._cancelled = self._closed = False
        self._reading = False
        self._entries: deque[Entry] = deque()
        self._next: Any = None  # the subscription to what follows
        self._drain: Drain[Change] = Drain(
            _First(self, subscriber), self, executor=self._executor, turn=batch_events
        )

    # What a subscriber may do.

    def request(self, n: int, /) -> None:
        """Asks for ``n`` more rows and changes (Reactive Streams §3.8)."""
        with self._lock:
            if type(n) is int and n > 0:
                self._requested = add(self._requested, n)
            following = self._next
        (self._drain if following is None else following).request(n)

    def cancel(self) -> None:
        """Ends the subscription without a further signal (Reactive Streams §3.12)."""
        with self._lock:
            self._cancelled = True
            following = self._next
        self._drain.cancel()
        if following is not None:
            following.cancel()

    @property
    def following(self) -> Any:
        """The subscription to what follows the snapshot, a ``ChangeSubscription``; None before."""
        return self._next

    @property
    def cursor(self) -> SnapshotCursor | None:
        """The place behind what was read for it, at most one batch ahead of what it was given; None after the snapshot."""
        return None if self._next is not None else self._reader.cursor

    @property
    def ended(self) -> bool:
        """Whether no signal will follow."""
        following = self._next
        return bool(self._drain.ended if following is None else following.ended) or self._cancelled

    # What the log does with it.

    def start(self) -> None:
        """Gives the subscriber its subscription, after which signals may follow."""
        self._service.guests.add(self)
        self._drain.start(self)

    def wake(self) -> None:
        """The log was closed."""
        self._run(self._drain.signal)

    def close(self) -> None:
        """Ends the subscription as if the log were closed."""
        self._closed = True
        following = self._next
        if following is None:
            self._run(self._drain.signal)
        else:
            following.close()

    # What its drain pulls from.

    def pull(self, limit: int, /) -> Sequence[Change]:
        """Takes what was read; never does I/O."""
        if self._reading or self._ending:
            return ()
        self._tell_all(wake=False)
        entries = self._entries
        taken: list[Change] = []
        while entries and len(taken) < limit and isinstance(first := entries[0], SnapshotChange):
            taken.append(first)
            entries.popleft()
        self._given += len(taken)
        if not taken and not entries and not self._reader.done:
            self._reading = True
            self._service.replayer.enlist(self)
        return taken

    def outcome(self) -> Outcome | None:
        """Whether all rows were given, or the log was closed."""
        if self._reading:
            return None
        if self._ending:
            return Failed(self._service.reason or LogClosed())
        self._tell_all(wake=True)
        return COMPLETED if self._reader.done and not self._entries else None

    def release(self) -> None:
        """Lets go of the page, and, unless something follows, of the hold."""
        self._service.guests.discard(self)
        self._entries = deque()
        if not self._reader.done or self._then is None:
            self._let_go()

    def _tell_all(self, *, wake: bool) -> None:
        entries = self._entries
        while entries and not isinstance(signal := entries[0], SnapshotChange):
            entries.popleft()
            self._told += 1  # under a key of its own, as none may replace another
            self._drain.tell(("snapshot", self._told), telling(signal), wake=wake)

    @property
    def _ending(self) -> bool:
        return self._service.closed or self._closed

    # What the replayer does with it.

    def replay(self) -> bool:
        """Reads what comes next into the queue; answers whether to go on at once."""
        events, nbytes = self._bounds
        room = min(self._drain.demand, events)
        if self._drain.ended:
            return False
        if room and not self._ending:
            try:
                entries = self._reader.read(room, nbytes)
                if self._hold is not None:
                    self._hold.move(self._reader.position)
            except Exception as error:  # noqa: BLE001 - whatever it is, the subscriber must hear of it
                if isinstance(error, OSError):
                    error = LogError(f"the snapshot could not be read: {error}")
                self._run(partial(self._drain.fail, self._service.explain(error)))
                return False
            if entries is None:
                self._source.listen(self._reader.needed, self._come)
                return False
            if not entries:
                return True
            self._entries.extend(entries)
        self.replay_stopped()
        return False

    def replay_stopped(self) -> None:
        """It goes on with what there is; likewise when the log was closed while it waited for its turn."""
        self._reading = False
        self._run(self._drain.signal)

    def _come(self) -> None:
        """The source has what it waited for, or has ended."""
        self._service.replayer.enlist(self)

    def _run(self, signal: Callable[[], None]) -> None:
        if self._executor is INLINE:
            self._service.run_aside(signal)
        else:
            signal()

    # The end of the rows.

    def hand_over(self, subscriber: Any) -> None:
        """Subscribes to what follows; on the executor, instead of the end."""
        try:
            if self._then is None:
                subscriber.on_complete()
            else:
                self._then(self._reader.position, _Second(self, subscriber))
        finally:
            self._let_go()

    def go_on(self, following: Subscription) -> None:
        """What follows was subscribed to: it gets the demand that is left."""
        with self._lock:
            self._next = following
            left = UNBOUNDED if self._requested >= UNBOUNDED else subtract(self._requested, self._given)
            cancelled = self._cancelled
        if cancelled:
            following.cancel()
        elif left:
            following.request(left)

    def _let_go(self) -> None:
        hold, self._hold = self._hold, None
        if hold is not None:
            hold.release()


class _First:
    """Between the drain of the rows and the subscriber, who is told everything but the end."""

    def __init__(self, owner: SnapshotSubscription, subscriber: Any) -> None:
        self._owner = owner
        self._subscriber = subscriber

    def __getattr__(self, name: str) -> Any:
        return getattr(self._subscriber, name)

    def on_subscribe(self, subscription: Subscription, /) -> None:
        self._subscriber.on_subscribe(subscription)

    def on_next(self, change: Change, /) -> None:
        self._subscriber.on_next(change)

    def on_error(self, error: Exception, /) -> None:
        self._subscriber.on_error(error)

    def on_complete(self) -> None:
        self._owner.hand_over(self._subscriber)


class _Second(_First):
    """Between what follows and the subscriber, who has a subscription already."""

    def on_subscribe(self, subscription: Subscription, /) -> None:
        if callable(tell := getattr(self._subscriber, "on_following", None)):
            tell(subscription)
        self._owner.go_on(subscription)

    def on_complete(self) -> None:
        self._subscriber.on_complete()
