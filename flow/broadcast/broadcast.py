"""Hot multicast to subscribers that each choose what happens when they lag."""

import asyncio
import math
import threading
from collections.abc import Iterable
from typing import Generic, TypeVar

from flow.broadcast.hub import Hub
from flow.broadcast.policy import BroadcastStart, Lag, OfferResult
from flow.broadcast.statistics import BroadcastStatistics
from flow.clock import SYSTEM_CLOCK, Clock
from flow.contracts import Subscriber
from flow.drain import COMPLETED, Failed
from flow.errors import FlowError
from flow.executors import AnyExecutor, executor_of
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
    """Gives every element to every subscriber, through one ring. Hot: a subscriber that comes late begins late.

    A BLOCK subscriber that is a whole ring behind holds up the writer, and so all others: a choice to be made
    knowingly. The other policies never hold up anything. A loss is told by the subscriber's optional
    ``on_lagged(missed)``, serially, before its next element or its completion, without spending demand.

    Any thread may write. All signals run on the executor of the subscription; on `flow.INLINE`, on the thread that writes or
    requests. Elements leave the ring when all have passed them; a DROP_LATEST subscriber keeps what waits for it itself,
    at most as many elements as the ring. A drain takes at most 256 elements, and never more than
    the ring holds, ahead of their delivery.

    Args:
        capacity: Most elements in the ring, and the most that wait for one subscriber; at least 1.
        replay: How many of the newest are kept for subscribers that begin with `BroadcastStart.REPLAY`; at most the capacity.
        lag: The policy of subscribers that name none.
        executor: Where signals run for subscribers that name none.
        auto_cancel: Whether to end when the last subscriber leaves (rule 3.14).
        stall_timeout: Seconds for which a BLOCK subscriber may hold up the writer; then its policy becomes ERROR.
            ``None`` is for ever. It is judged when an element is written.
        clock: Measures that.

    Raises:
        ValueError: If a number is out of its bounds.
        TypeError: If the executor is none.
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
        """Begin a subscription; to a broadcast that has ended, it is ``on_subscribe`` and the end.

        Args:
            subscriber: May have ``on_lagged(missed)``.
            lag: Its policy, if not that of the broadcast.
            from_: With which element to begin.
            executor: Where its signals run, if not where those of the broadcast do.

        Raises:
            TypeError: If the subscriber is ``None``, or the executor is none.
        """
        self._hub.subscribe(
            subscriber, lag, BroadcastStart(from_), self._executor if executor is None else executor
        )

    def submit(self, item: T, timeout: float | None = None) -> int:
        """Give an element to all subscribers; wait while a BLOCK subscriber is a whole ring behind.

        From inside a signal of such a subscriber, use `offer`: here it would wait for itself.

        Args:
            item: Not ``None``.
            timeout: Seconds to wait at most; ``None`` is for ever.

        Returns:
            How many elements wait for the slowest subscriber.

        Raises:
            BroadcastClosed: If the broadcast has ended, or ends meanwhile.
            TimeoutError: If there was no room in time; the element was not taken.
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
        # Whatever other threads write meanwhile, this element waits for no subscriber then.
        return 0 if hub.place == hub.ring.end and not hub.unsynced else self._greatest_lag()

    def submit_many(self, items: Iterable[T], timeout: float | None = None) -> int:
        """Give elements to all subscribers, as many at a time as there is room for: each takes those as one batch.

        A LATEST subscriber gets the last of those that are written at a time. Otherwise as `submit`, for each of them.

        Args:
            items: None of them ``None``; looked through before the first is written.
            timeout: Seconds to wait at most, for all of them; ``None`` is for ever.

        Returns:
            How many elements wait for the slowest subscriber.

        Raises:
            BroadcastClosed: If the broadcast has ended, or ends meanwhile.
            TimeoutError: If there was no room in time; those before were taken.
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
        """`submit` for a coroutine: suspends instead of waiting. Cancelled while it does, the element was not taken.

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
                resumed = asyncio.get_running_loop().create_future()
                self._suspended.add(resumed)
            try:
                await asyncio.wait((resumed,), timeout=timeout)
            finally:
                with hub.lock:
                    self._suspended.discard(resumed)
        hub.deliver(items)
        return self._greatest_lag()

    def offer(self, item: T) -> OfferResult:
        """Give an element to all subscribers if that needs no waiting.

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
        """End: each subscriber gets what waits for it, then ``on_complete``. Later calls have no effect."""
        self._hub.end(COMPLETED)

    def fail(self, error: Exception) -> None:
        """End with ``on_error`` for all subscribers, which overtakes what waits. Later calls have no effect.

        Raises:
            TypeError: If it is not an ``Exception``.
        """
        if not isinstance(error, Exception):
            raise TypeError(f"error: {error!r}; an instance of Exception is expected")
        self._hub.end(Failed(error))

    def statistics(self) -> BroadcastStatistics:
        """Tell the numbers of this moment."""
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
        """How many elements can be written; if none, note the subscriptions in the way, and end the gating of stalled ones."""
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
        """Seconds until something has to be decided, if there is no room before; ``None`` is for ever."""
        since = (each.gating_since for each in self._hub.subscriptions if each.gating_since is not None)
        seconds = min(deadline, min(since, default=math.inf) + self._stall_timeout) - self._clock.monotonic()
        return None if seconds == math.inf else seconds

    # Without it.

    def _submit(self, left: tuple[T, ...], timeout: float | None) -> int:
        hub = self._hub
        deadline = math.inf if timeout is None else self._clock.monotonic() + timeout
        while left:
            with hub.lock:
                while not (room := self._find_room()):
                    seconds = self._timeout(deadline)
                    if seconds is not None and seconds <= 0:
                        raise TimeoutError("a subscriber that may not lose elements is a whole ring behind")
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
                    continue  # its loop is closed, and nothing waits there any more

    def _left(self) -> None:
        if self._auto_cancel:
            self._hub.end(COMPLETED, if_deserted=True)


def _no_element() -> TypeError:
    return TypeError("rule 2.13: None is not an element; leave it out, or say nothing by a value of your own")


def _resume(suspended: "asyncio.Future[None]") -> None:
    if not suspended.done():
        suspended.set_result(None)
