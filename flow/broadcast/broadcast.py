"""Hot multicast to subscribers that each choose what happens when they lag."""

import asyncio
import threading
from typing import Generic, TypeVar

from flow.broadcast.cursor import Cursor, wake
from flow.broadcast.policy import Lag, OfferResult, Start
from flow.broadcast.ring import Ring
from flow.broadcast.statistics import BroadcastStatistics, CursorStatistics
from flow.clock import SYSTEM_CLOCK, Clock
from flow.contracts import Subscriber
from flow.drain import COMPLETED, Drain, Failed, Outcome
from flow.errors import FlowError
from flow.executors import Executor, executor_of

__all__ = ["Broadcast", "BroadcastClosed"]

T = TypeVar("T")


class BroadcastClosed(FlowError):
    """An element was submitted to a broadcast that has ended."""

    def __init__(self) -> None:
        super().__init__(
            "the broadcast has ended and takes no more elements; offer() answers CLOSED instead of raising this"
        )


class Broadcast(Generic[T]):
    """Gives every element to every subscriber, through one ring and a cursor for each. Hot: who comes late, begins late.

    A BLOCK subscriber that is a whole ring behind holds up the writer, and with it everybody: a choice to be made
    knowingly. The other policies never hold up anything. A loss is told by the subscriber's optional
    ``on_lagged(missed)``, serially, before its next element or its completion, without spending demand.

    Any thread may write. All signals run on the executor of the subscription; on `flow.INLINE`, on whoever writes or
    requests. Elements leave the ring when all have passed them; a DROP_LATEST subscriber that was a whole ring behind
    keeps what waits for it itself, at most as many elements as the ring. A drain takes at most 256 elements, and never more than
    the ring holds, ahead of their delivery.

    Args:
        capacity: Most elements in the ring, and the most that wait for one subscriber; at least 1.
        replay: How many of the newest are kept for subscribers that begin with `Start.REPLAY`; at most the capacity.
        lag: The policy of those who name none.
        executor: Where signals run for those who name none.
        auto_cancel: Whether to end when the last subscriber leaves (rule 3.14).
        stall_timeout: Seconds for which a BLOCK subscriber may hold up the writer; then its policy becomes ERROR.
            ``None`` is for ever. It is judged by those who write.
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
        executor: Executor | asyncio.AbstractEventLoop | None = None,
        auto_cancel: bool = False,
        stall_timeout: float | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        if isinstance(capacity, bool) or not isinstance(capacity, int) or capacity < 1:
            raise ValueError(f"capacity: {capacity!r}; an integer of at least 1 is expected")
        if isinstance(replay, bool) or not isinstance(replay, int) or not 0 <= replay <= capacity:
            raise ValueError(
                f"replay: {replay!r}; an integer from 0 to the capacity ({capacity}) is expected"
            )
        if stall_timeout is not None and not stall_timeout > 0:
            raise ValueError(
                f"stall_timeout: {stall_timeout!r}; a positive number of seconds or None is expected"
            )
        self._lag = Lag(lag)
        self._executor = executor_of(executor)
        self._auto_cancel = auto_cancel
        self._stall_timeout = stall_timeout
        self._clock = clock
        self._ring: Ring[T] = Ring(capacity, replay, self._make_room)
        self._room = threading.Condition(self._ring.lock)
        self._sleepers: set[asyncio.Future[None]] = set()
        self._submitted = 0
        self._refused = 0
        self._stalled = 0

    def subscribe(
        self,
        subscriber: Subscriber[T],
        /,
        *,
        lag: Lag | None = None,
        from_: Start = Start.LATEST,
        executor: Executor | asyncio.AbstractEventLoop | None = None,
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
        ring = self._ring
        cursor = Cursor(ring, self._lag if lag is None else Lag(lag), self._clock, self._left)
        drain = Drain(subscriber, cursor, executor=self._executor if executor is None else executor)
        with ring.lock:
            cursor.enter(drain, ring.begin(Start(from_)))
        drain.start()

    def submit(self, item: T, timeout: float | None = None) -> int:
        """Give an element to everybody; wait while a BLOCK subscriber is a whole ring behind.

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
        _present(item)
        deadline = None if timeout is None else self._clock.monotonic() + timeout
        with self._ring.lock:
            while not self._write(item):
                patience = self._patience(deadline)
                if patience is not None and patience <= 0:
                    raise TimeoutError("a subscriber that may not lose elements is a whole ring behind")
                self._room.wait(patience)
            cursors = self._ring.cursors
        wake(cursors)
        return self._greatest_lag()

    async def asubmit(self, item: T) -> int:
        """`submit` for a coroutine: suspends instead of waiting. Cancelled while it does, the element was not taken.

        Raises:
            BroadcastClosed: If the broadcast has ended, or ends meanwhile.
            TypeError: If the element is ``None``.
        """
        _present(item)
        loop = asyncio.get_running_loop()
        while True:
            with self._ring.lock:
                cursors = self._ring.cursors
                written = self._write(item)
                patience = None if written else self._patience(None)
                sleeper: asyncio.Future[None] = loop.create_future()
                if not written:
                    self._sleepers.add(sleeper)
            if written:
                wake(cursors)
                return self._greatest_lag()
            try:
                await asyncio.wait((sleeper,), timeout=patience)
            finally:
                with self._ring.lock:
                    self._sleepers.discard(sleeper)

    def offer(self, item: T) -> OfferResult:
        """Give an element to everybody if that needs no waiting.

        Raises:
            TypeError: If the element is ``None``.
        """
        _present(item)
        ring = self._ring
        with ring.lock:
            if ring.outcome is not None:
                return OfferResult.CLOSED
            cursors = ring.cursors
            if not cursors and not ring.replay:
                return OfferResult.NO_SUBSCRIBERS
            if not self._write(item):
                self._refused += 1
                return OfferResult.FULL
        wake(cursors)
        return OfferResult.OK

    def close(self) -> None:
        """End: everybody gets what waits for it, then ``on_complete``. Later calls have no effect."""
        wake(self._end(COMPLETED))

    def fail(self, error: Exception) -> None:
        """End with ``on_error`` for everybody, which overtakes what waits. Later calls have no effect.

        Raises:
            TypeError: If it is not an ``Exception``.
        """
        if not isinstance(error, Exception):
            raise TypeError(f"error: {error!r}; an instance of Exception is expected")
        wake(self._end(Failed(error)), error)

    def statistics(self) -> BroadcastStatistics:
        """Tell the numbers of this moment."""
        ring = self._ring
        with ring.lock:
            cursors = ring.cursors
            now = self._clock.monotonic()
            subscribers = [
                (each.lag, each.waiting, each.delivered, each.lost, each.blocked_until(now))
                for each in cursors
            ]
            buffered, closed = ring.end - ring.start, ring.outcome is not None
            submitted, refused, stalled = self._submitted, self._refused, self._stalled
        demands = [each.demand for each in cursors]
        return BroadcastStatistics(
            ring.capacity,
            buffered,
            submitted,
            refused,
            stalled,
            closed,
            tuple(
                CursorStatistics(policy, lag, demand, delivered, dropped, blocked)
                for (policy, lag, delivered, dropped, blocked), demand in zip(
                    subscribers, demands, strict=True
                )
            ),
        )

    # Under the ring's lock.

    def _write(self, item: T) -> bool:
        ring = self._ring
        if ring.outcome is not None:
            raise BroadcastClosed
        if ring.full and not self._overtake_stalled():
            return False
        ring.append(item)
        self._submitted += 1
        return True

    def _overtake_stalled(self) -> bool:
        """Note who is in the way, since when; end the gating of those who were for too long."""
        now = self._clock.monotonic()
        for cursor in self._ring.cursors:
            if not cursor.gating:
                continue
            if cursor.gating_since is None:
                cursor.gating_since = now
            if self._stall_timeout is not None and now - cursor.gating_since >= self._stall_timeout:
                cursor.stall()
                self._stalled += 1
        return not self._ring.full

    def _patience(self, deadline: float | None) -> float | None:
        """Seconds until something has to be decided, if there is no room before."""
        ends = [] if deadline is None else [deadline]
        if self._stall_timeout is not None:
            ends += [
                each.gating_since + self._stall_timeout
                for each in self._ring.cursors
                if each.gating and each.gating_since is not None
            ]
        return min(ends) - self._clock.monotonic() if ends else None

    # Without it.

    def _make_room(self) -> None:
        with self._ring.lock:
            self._room.notify_all()
            for sleeper in self._sleepers:
                try:
                    sleeper.get_loop().call_soon_threadsafe(_rouse, sleeper)
                except RuntimeError:
                    continue  # its loop is closed, and nobody sleeps there any more

    def _end(self, outcome: Outcome, *, if_deserted: bool = False) -> tuple[Cursor[T], ...]:
        with self._ring.lock:
            if self._ring.outcome is not None or (if_deserted and self._ring.cursors):
                return ()
            self._ring.outcome = outcome
            cursors = self._ring.cursors
        self._make_room()
        return cursors

    def _left(self) -> None:
        if self._auto_cancel:
            self._end(COMPLETED, if_deserted=True)

    def _greatest_lag(self) -> int:
        with self._ring.lock:
            return max((each.waiting for each in self._ring.cursors), default=0)


def _present(item: object) -> None:
    if item is None:
        raise TypeError(
            "rule 2.13: None is not an element; leave it out, or say nothing by a value of your own"
        )


def _rouse(sleeper: "asyncio.Future[None]") -> None:
    if not sleeper.done():
        sleeper.set_result(None)
