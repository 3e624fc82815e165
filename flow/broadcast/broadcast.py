"""Hot multicast to subscribers that each choose a lag policy."""

import asyncio
import math
import threading
from collections.abc import Iterable
from typing import Generic, TypeVar

from flow.broadcast.hub import Hub
from flow.broadcast.policy import BroadcastStart, Lag, OfferResult
from flow.broadcast.subscription import BroadcastStatistics
from flow.clock import SYSTEM_CLOCK, Clock
from flow.contracts import Subscriber
from flow.drain import COMPLETED, Failed
from flow.errors import FlowError
from flow.executors import AnyExecutor, executor_of, require_loop, require_no_loop
from flow.operators.link import at_least

__all__ = ["Broadcast", "BroadcastClosed"]

T = TypeVar("T")


class BroadcastClosed(FlowError):
    """An element was submitted to a broadcast that has ended."""

    def __init__(self) -> None:
        super().__init__(
            "the broadcast has ended and takes no more elements; offer() answers CLOSED instead of raising this"
        )


class Broadcast(Generic[T]):
    """Delivers every element to every subscriber, through one ring. Hot: a late subscriber does not see earlier elements.

    A BLOCK subscriber that is a whole ring behind holds up the writer, and so all subscribers. Subscribers of the other
    policies never hold up the writer. A subscriber that lost elements gets ``on_lagged(missed)`` if it has that method:
    serially, before its next element or its completion, without spending demand.

    Any thread may write. All signals run on the executor of the subscription; with `flow.INLINE`, on the thread that writes or
    requests. An element leaves the ring when all subscriptions have taken it. A DROP_LATEST subscription keeps its waiting
    elements in a queue of its own, bounded by the capacity. A drain takes at most 256 elements, and never more than the
    capacity, ahead of their delivery.

    Args:
        capacity: Most elements in the ring, and most elements that wait for one subscriber; at least 1.
        replay: The number of newest elements kept for subscribers that begin with `BroadcastStart.REPLAY`; at most the capacity.
        lag: The policy of subscribers that name none.
        executor: Runs the signals of subscribers that name none.
        auto_cancel: Whether to end when the last subscriber leaves (rule 3.14).
        stall_timeout: Seconds for which a BLOCK subscriber may hold up the writer; then its policy becomes ERROR.
            ``None`` is without limit. It is checked when an element is written.
        clock: Measures the stall timeout.

    Raises:
        ValueError: If a number is out of its bounds.
        TypeError: If the executor is no executor.
    """

    def __init__(
        self,
        capacity: int = 256,
        *,
        replay: int = 0,
        lag: Lag = Lag.BLOCK,
        executor: AnyExecutor | None = None,
        auto_cancel: bool = False,
        stall_timeout: float | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        at_least("capacity", capacity)
        if isinstance(replay, bool) or not isinstance(replay, int) or not 0 <= replay <= capacity:
            raise ValueError(
                f"replay: {replay!r}; an integer from 0 to the capacity ({capacity}) is expected"
            )
        if stall_timeout is not None and not stall_timeout > 0:
            raise ValueError(
                f"stall_timeout: {stall_timeout!r}; a positive number of seconds or None is expected"
            )
        self._executor = executor_of(executor)
        self._auto_cancel = auto_cancel
        self._stall_timeout = math.inf if stall_timeout is None else stall_timeout
        self._clock = clock
        self._hub: Hub[T] = Hub(capacity, replay, lag, clock, make_room=self._make_room, left=self._left)
        self._room = threading.Condition(self._hub.lock)
        self._suspended: set[asyncio.Future[None]] = set()
        self._refused = 0
        self._stalled = 0

    def subscribe(
        self,
        subscriber: Subscriber[T],
        /,
        *,
        lag: Lag | None = None,
        from_: BroadcastStart = BroadcastStart.LATEST,
        executor: AnyExecutor | None = None,
    ) -> None:
        """Begin a subscription. If the broadcast has ended, the subscriber gets ``on_subscribe``, then the end.

        Args:
            subscriber: May have ``on_lagged(missed)``.
            lag: Its policy; that of the broadcast if ``None``.
            from_: Where in the ring to begin.
            executor: Runs its signals; that of the broadcast if ``None``.

        Raises:
            TypeError: If the subscriber is ``None``, or the executor is no executor.
        """
        self._hub.subscribe(
            subscriber, lag, BroadcastStart(from_), self._executor if executor is None else executor
        )

    def submit(self, item: T, timeout: float | None = None) -> int:
        """Deliver an element to all subscribers; wait while a BLOCK subscriber is a whole ring behind.

        Inside a signal of a BLOCK subscriber use `offer`: this method would wait for its own caller.

        Args:
            item: The element; not ``None``.
            timeout: Most seconds to wait; ``None`` is without limit.

        Returns:
            The number of elements that wait for the slowest subscriber.

        Raises:
            BroadcastClosed: If the broadcast has ended, or ends meanwhile.
            TimeoutError: If there was no room in time; the element was not accepted.
            RuntimeError: If it would wait without limit on the thread of an event loop, where there is `asubmit`.
            TypeError: If the element is ``None``.
        """
        if item is None:
            raise _no_element()
        hub, items = self._hub, (item,)
        with hub.lock:
            passed = hub.pass_on(1)
        if not passed:
            return self._submit(items, timeout)
        hub.serve(items)
        # If this holds, this element waits for no subscriber, whatever other threads write meanwhile.
        return 0 if hub.place == hub.ring.end and not hub.unsynced else self._greatest_lag()

    def submit_many(self, items: Iterable[T], timeout: float | None = None) -> int:
        """Deliver elements to all subscribers, in batches as large as there is room for.

        A LATEST subscriber gets the last element of each batch. Otherwise each element is handled as by `submit`.

        Args:
            items: The elements, none ``None``; all are checked before the first is written.
            timeout: Most seconds to wait, for all elements together; ``None`` is without limit.

        Returns:
            The number of elements that wait for the slowest subscriber.

        Raises:
            BroadcastClosed: If the broadcast has ended, or ends meanwhile.
            TimeoutError: If there was no room in time; earlier elements were accepted.
            RuntimeError: As `submit`; earlier elements were accepted.
            TypeError: If an element is ``None``.
        """
        left = tuple(items)
        if any(item is None for item in left):
            raise _no_element()
        hub = self._hub
        with hub.lock:
            passed = len(left) <= hub.ring.capacity and hub.pass_on(len(left))
        if not passed:
            return self._submit(left, timeout)
        hub.serve(left)
        return self._greatest_lag()

    async def asubmit(self, item: T) -> int:
        """`submit` for a coroutine: suspends instead of blocking. If it is cancelled, the element was not accepted.

        Raises:
            BroadcastClosed: If the broadcast has ended, or ends meanwhile.
            TypeError: If the element is ``None``.
        """
        if item is None:
            raise _no_element()
        hub, items = self._hub, None
        while True:
            with hub.lock:
                if self._find_room():
                    items = hub.put((item,))
                    break
                timeout = self._timeout(math.inf)
                resumed = require_loop("asubmit").create_future()
                self._suspended.add(resumed)
            try:
                await asyncio.wait((resumed,), timeout=timeout)
            finally:
                with hub.lock:
                    self._suspended.discard(resumed)
        hub.deliver(items)
        return self._greatest_lag()

    def offer(self, item: T) -> OfferResult:
        """Deliver an element to all subscribers if there is room now; never waits.

        Raises:
            TypeError: If the element is ``None``.
        """
        if item is None:
            raise _no_element()
        hub = self._hub
        with hub.lock:
            if hub.outcome is not None:
                return OfferResult.CLOSED
            if not hub.subscriptions and not hub.replay:
                return OfferResult.NO_SUBSCRIBERS
            if not self._find_room():
                self._refused += 1
                return OfferResult.FULL
            items = hub.put((item,))
        hub.deliver(items)
        return OfferResult.OK

    def close(self) -> None:
        """End the broadcast: each subscriber gets its waiting elements, then ``on_complete``. Later calls have no effect."""
        self._hub.end(COMPLETED)

    def fail(self, error: Exception) -> None:
        """End the broadcast with ``on_error``, which overtakes waiting elements. Later calls have no effect.

        Raises:
            TypeError: If the error is no ``Exception``.
        """
        if not isinstance(error, Exception):
            raise TypeError(f"error: {error!r}; an instance of Exception is expected")
        self._hub.end(Failed(error))

    def statistics(self) -> BroadcastStatistics:
        """Return the statistics as of now."""
        hub = self._hub
        now = self._clock.monotonic()
        with hub.lock:
            queued = (len(each.queue) for each in hub.subscriptions if each.queue is not None)
            return BroadcastStatistics(
                hub.ring.capacity,
                max(hub.ring.end - hub.ring.start, *queued, 0),
                hub.ring.end,
                self._refused,
                self._stalled,
                hub.outcome is not None,
                tuple(each.statistics(now) for each in hub.subscriptions),
            )

    # Under the hub's lock.

    def _find_room(self) -> int:
        """The number of elements that can be written. If 0, note which subscriptions gate, and end the gating of stalled ones."""
        hub = self._hub
        if hub.outcome is not None:
            raise BroadcastClosed
        if room := hub.room:
            return room
        now, gate = self._clock.monotonic(), hub.gate
        for each in hub.subscriptions:
            if each.lag is not Lag.BLOCK or each.at != gate:
                continue
            if each.gating_since is None:
                each.gating_since = now
                hub.gated |= each.synced
            if now - each.gating_since >= self._stall_timeout:
                each.stall()
                self._stalled += 1
        hub.group.look_at_policies()
        return hub.room

    def _timeout(self, deadline: float) -> float | None:
        """Seconds until the deadline or the next stall timeout; ``None`` is without limit."""
        since = (each.gating_since for each in self._hub.subscriptions if each.gating_since is not None)
        seconds = min(deadline, min(since, default=math.inf) + self._stall_timeout) - self._clock.monotonic()
        return None if seconds == math.inf else seconds

    # Without the lock.

    def _submit(self, left: tuple[T, ...], timeout: float | None) -> int:
        hub = self._hub
        deadline = math.inf if timeout is None else self._clock.monotonic() + timeout
        while left:
            with hub.lock:
                while not (room := self._find_room()):
                    seconds = self._timeout(deadline)
                    if seconds is not None and seconds <= 0:
                        raise TimeoutError("a subscriber that may not lose elements is a whole ring behind")
                    if seconds is None:  # on the thread of a loop, perhaps for what only that loop delivers
                        require_no_loop("submit, which has to wait,", "await broadcast.asubmit(item)")
                    self._room.wait(seconds)
                items = hub.put(left[:room])
                left = left[room:]
            hub.deliver(items)
        return self._greatest_lag()

    def _greatest_lag(self) -> int:
        hub = self._hub
        if hub.place == hub.ring.end and not hub.unsynced:
            return 0
        with hub.lock:
            return max((each.waiting for each in (*hub.unsynced, *hub.group.members[:1])), default=0)

    def _make_room(self) -> None:
        with self._hub.lock:
            self._room.notify_all()
            for resumed in self._suspended:
                try:
                    resumed.get_loop().call_soon_threadsafe(_resume, resumed)
                except RuntimeError:
                    continue  # its loop is closed, so its coroutine waits no more

    def _left(self) -> None:
        if self._auto_cancel:
            self._hub.end(COMPLETED, if_deserted=True)


def _no_element() -> TypeError:
    return TypeError("rule 2.13: None is not an element; leave it out, or say nothing by a value of your own")


def _resume(suspended: "asyncio.Future[None]") -> None:
    if not suspended.done():
        suspended.set_result(None)
