"""Hot multicast to subscribers that each choose what happens when they lag."""

import asyncio
import threading
from collections.abc import Iterable, Sequence
from typing import Generic, TypeVar

from flow.broadcast.cursor import Cursor
from flow.broadcast.delivery import conclude, deliver
from flow.broadcast.policy import Lag, OfferResult, Start
from flow.broadcast.ring import Ring
from flow.broadcast.seat import Seat
from flow.broadcast.statistics import BroadcastStatistics, CursorStatistics
from flow.clock import SYSTEM_CLOCK, Clock
from flow.contracts import Subscriber
from flow.drain import COMPLETED, Failed, Outcome
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
        self._on_left = self._left  # made once for all
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
        cursor = Cursor(ring, self._lag if lag is None else Lag(lag), self._clock, self._on_left)
        drain = Seat(subscriber, cursor, self._executor if executor is None else executor)
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
        if item is None:
            raise _no_element()
        ring = self._ring
        company = ring.company
        with ring.lock:
            swift = company.pass_on(1)
            if swift:
                self._submitted += 1
        if swift:
            company.serve((item,))
            # Whatever others write meanwhile, this element waits for nobody then.
            return 0 if company.place == ring.end and not ring.loose else self._greatest_lag()
        return self._submit((item,), timeout)

    def submit_many(self, items: Iterable[T], timeout: float | None = None) -> int:
        """Give elements to everybody, as many at a time as there is room for: each takes those as one batch.

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
        ring = self._ring
        if 0 < len(left) <= ring.capacity:
            with ring.lock:
                swift = ring.company.pass_on(len(left))
                if swift:
                    self._submitted += len(left)
            if swift:
                ring.company.serve(left)
                return self._greatest_lag()
        return self._submit(left, timeout)

    async def asubmit(self, item: T) -> int:
        """`submit` for a coroutine: suspends instead of waiting. Cancelled while it does, the element was not taken.

        Raises:
            BroadcastClosed: If the broadcast has ended, or ends meanwhile.
            TypeError: If the element is ``None``.
        """
        if item is None:
            raise _no_element()
        ring = self._ring
        loop = asyncio.get_running_loop()
        while True:
            with ring.lock:
                written = self._write(item)
                loose, owned = ring.loose, written and ring.company.claim()
                patience = None if written else self._patience(None)
                sleeper: asyncio.Future[None] = loop.create_future()
                if not written:
                    self._sleepers.add(sleeper)
            if written:
                deliver(ring, loose, owned=owned)
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
        if item is None:
            raise _no_element()
        ring = self._ring
        with ring.lock:
            if ring.outcome is not None:
                return OfferResult.CLOSED
            if not ring.cursors and not ring.replay:
                return OfferResult.NO_SUBSCRIBERS
            if not self._write(item):
                self._refused += 1
                return OfferResult.FULL
            loose, owned = ring.loose, ring.company.claim()
        deliver(ring, loose, owned=owned)
        return OfferResult.OK

    def close(self) -> None:
        """End: everybody gets what waits for it, then ``on_complete``. Later calls have no effect."""
        self._end(COMPLETED)

    def fail(self, error: Exception) -> None:
        """End with ``on_error`` for everybody, which overtakes what waits. Later calls have no effect.

        Raises:
            TypeError: If it is not an ``Exception``.
        """
        if not isinstance(error, Exception):
            raise TypeError(f"error: {error!r}; an instance of Exception is expected")
        self._end(Failed(error), error)

    def statistics(self) -> BroadcastStatistics:
        """Tell the numbers of this moment."""
        ring = self._ring
        with ring.lock:
            cursors = ring.cursors
            now = self._clock.monotonic()
            subscribers = [
                (each.lag, each.waiting, each.taken, each.lost, each.blocked_until(now)) for each in cursors
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

    def _write_in_time(self, items: Sequence[T], deadline: float | None) -> int:
        """Write the first of some elements, and those after it for which there is room; how many."""
        while not self._write(items[0]):
            patience = self._patience(deadline)
            if patience is not None and patience <= 0:
                raise TimeoutError("a subscriber that may not lose elements is a whole ring behind")
            self._room.wait(patience)
        count = 1
        for item in items[1 : self._ring.capacity]:
            if self._ring.full:
                break
            self._write(item)
            count += 1
        return count

    def _overtake_stalled(self) -> bool:
        """Note who is in the way, since when; end the gating of those who were for too long."""
        now = self._clock.monotonic()
        for cursor in self._ring.cursors:
            if not cursor.gating:
                continue
            since = cursor.note_gating(now)
            if self._stall_timeout is not None and now - since >= self._stall_timeout:
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

    def _submit(self, left: tuple[T, ...], timeout: float | None) -> int:
        ring, deadline = self._ring, self._deadline(timeout)
        while left:
            with ring.lock:
                left = left[self._write_in_time(left, deadline) :]
                loose, owned = ring.loose, ring.company.claim()
            deliver(ring, loose, owned=owned)
        return self._greatest_lag()

    def _deadline(self, timeout: float | None) -> float | None:
        return None if timeout is None else self._clock.monotonic() + timeout

    def _make_room(self) -> None:
        with self._ring.lock:
            self._room.notify_all()
            for sleeper in self._sleepers:
                try:
                    sleeper.get_loop().call_soon_threadsafe(_rouse, sleeper)
                except RuntimeError:
                    continue  # its loop is closed, and nobody sleeps there any more

    def _end(self, outcome: Outcome, error: Exception | None = None, *, if_deserted: bool = False) -> None:
        ring = self._ring
        with ring.lock:
            if ring.outcome is not None or (if_deserted and ring.cursors):
                return
            ring.outcome = outcome
            cursors = ring.cursors
            leaving = ring.company.dissolve()
        self._make_room()
        conclude(leaving, cursors, error)

    def _left(self) -> None:
        if self._auto_cancel:
            self._end(COMPLETED, if_deserted=True)

    def _greatest_lag(self) -> int:
        with self._ring.lock:
            return self._ring.greatest_lag


def _no_element() -> TypeError:
    return TypeError("rule 2.13: None is not an element; leave it out, or say nothing by a value of your own")


def _rouse(sleeper: "asyncio.Future[None]") -> None:
    if not sleeper.done():
        sleeper.set_result(None)
