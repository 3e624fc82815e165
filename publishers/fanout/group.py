"""Subscriptions that are served together: same publisher, same executor.

Those who have kept up stand at one place of the ring when the next chunks are linked. A round takes these once, moves
all cursors under one lock, and hands each subscriber the same batch. Whoever cannot take part (it lacks demand, is
busy, wants smaller batches, ends at a version) is left to its own drain, which is woken. Each subscriber's own drain
flag is held while it is served, so all rules of delivery hold as they do without company.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final

from flow.executors import INLINE, Executor, LoopExecutor
from publishers.fanout.batch import Batch
from publishers.fanout.chunk import Ahead
from publishers.fanout.counters import DeliveryCounters
from publishers.fanout.ring import Ring, RingCursor
from publishers.fanout.watermark import Watermark
from publishers.options import LogOptions
from publishers.views.view import View

__all__ = ["DeliveryGroup"]

_TURN: Final = 64  # subscribers served before an event loop gets its turn
_WOKEN: Final = 16  # as many are woken for the price of one that is served

Waiting = deque[tuple[int, list[RingCursor]]]
"""Cursors, by the place where they stand."""


class DeliveryGroup:
    """The cursors of one ring whose signals run on one executor.

    Args:
        ring: Where the cursors stand.
        executor: ``flow.INLINE``, or that of an event loop; None for all others, which are woken one by one.
        watermark: What may be delivered.
        options: ``batch_events`` and ``batch_bytes``.
        counters: Count what is delivered.
        run_aside: Runs what may reach a subscriber's code.

    Attributes:
        executor: The same.
        members: How many there are; changed under the registry's lock only.
    """

    def __init__(
        self,
        ring: Ring,
        executor: Executor | None,
        *,
        watermark: Watermark,
        options: LogOptions,
        counters: DeliveryCounters,
        run_aside: Callable[[Callable[[], None]], None],
    ) -> None:
        self.executor = executor
        self.members = 0
        self._ring = ring
        self._watermark = watermark
        self._options = options
        self._counters = counters
        self._run_aside = run_aside
        self._loop = executor if isinstance(executor, LoopExecutor) else None
        self._lock = threading.Lock()
        self._place: int | None = None
        self._scheduled = False

    @staticmethod
    def key(executor: Executor) -> Executor | None:
        """What the subscriptions of one group have in common."""
        trunk: Executor = getattr(executor, "trunk", executor)
        return trunk if trunk is INLINE or isinstance(trunk, LoopExecutor) else None

    @property
    def lost(self) -> bool:
        """Whether its loop has closed: what was scheduled there never runs, and its members are to learn of it."""
        return self._loop is not None and self._loop.closed

    def note(self, place: int) -> None:
        """Chunks from ``place`` on were linked, and may be visible; ``wake`` follows when they are."""
        with self._lock:
            if self._place is None or place < self._place:
                self._place = place

    def wake(self) -> None:
        """Serves those who wait for what was noted: here, or on their event loop."""
        if self._loop is not None:
            try:
                if self._claim():
                    self._schedule(self._loop, self._round)
            except BaseException:
                # An interrupt came when a round was claimed, and nobody else would see to it; one too many is harmless.
                self._schedule(self._loop, self._round)
                raise
        elif self.executor is INLINE:
            self._run_aside(self._round)
        else:
            self._round()  # reaches nobody's code: it wakes one by one

    def _claim(self) -> bool:
        with self._lock:
            scheduled, self._scheduled = self._scheduled, True
        return not scheduled or self.lost

    def _schedule(self, loop: LoopExecutor, run: Callable[[], None]) -> None:
        try:
            loop.submit(run)
        except RuntimeError:
            # The loop is closed, which each of them finds out for itself, demand or not, wherever it was left.
            for _, cursors in self._ring.standing(self, 0):
                for cursor in cursors:
                    cursor.owner.wake()

    def _round(self, waiting: Waiting | None = None) -> None:
        """Serves everybody who waits; on an event loop, some now and the rest in a later turn."""
        place = waiting[0][0] if waiting else None
        spent = 0
        try:
            while True:
                if not waiting:
                    with self._lock:
                        self._scheduled = False
                        place, self._place = self._place, None
                    if place is None:
                        return
                    waiting = deque(self._ring.standing(self, place))
                    continue
                place, cursors = waiting[0]
                some = cursors[-_TURN:]
                del cursors[-_TURN:]
                if not cursors:
                    waiting.popleft()
                spent += self._serve(place, some)
                if self._loop is not None and (spent >= _TURN or not waiting):
                    self._loop.spend(spent)
                    if waiting:
                        self._schedule(self._loop, partial(self._round, waiting))
                    elif self._place is not None:  # it came meanwhile, and is for a later turn
                        self.wake()
                    return
        except BaseException:
            # KeyboardInterrupt, say: whoever was not served is found by the next round, also if this one had not begun.
            self._scheduled = False
            if place is not None:
                self.note(place)
            self.wake()
            raise

    def _serve(self, place: int, cursors: Sequence[RingCursor]) -> int:
        """Serves those that can take part, and wakes the others; answers what that was of a turn."""
        ahead = None
        loop = self._loop
        if self.executor is not None and (loop is None or not loop.closed):
            options, upto = self._options, self._watermark.visible
            ahead = self._ring.ahead(place, upto, options.batch_events, options.batch_bytes)
        if ahead is None:
            _wake_each(cursors)
            return len(cursors) // _WOKEN
        lent: deque[Any] = deque()
        ready: list[RingCursor] = []
        left: list[RingCursor] = []
        try:
            for cursor in cursors:
                lent.append(cursor.owner)  # first, so that no interrupt leaves a flag behind
                if cursor.owner.lend(ahead):
                    ready.append(cursor)
                else:
                    left.append(cursor)
                    lent.pop()
            took, follows = self._ring.advance(self, ready, ahead)
            _give_back(lent, ahead, {})
        except BaseException:
            # KeyboardInterrupt, say: nobody may wait for its flag, or sleep over what is visible.
            interrupted = tuple(lent)
            _give_back(lent, ahead, {})
            for one in interrupted:
                one.wake()
            raise
        self._counters.count(ahead.slices, took)
        if left:
            _wake_each(left)
        # Who published that while they were on their way did not find them there.
        if follows is not None and follows <= self._watermark.visible:
            self.note(ahead.end)
        return took + len(left) // _WOKEN


def _wake_each(cursors: Iterable[RingCursor]) -> None:
    for cursor in cursors:
        if cursor.owner.wants:
            cursor.owner.wake()


def _give_back(lent: deque[Any], ahead: Ahead, batches: dict[View, Batch]) -> None:
    """Hands everybody what was taken for all, made once for each view."""
    try:
        while lent:
            one = lent[0]
            batch = batches.get(one.view)
            if batch is None:
                batch = batches[one.view] = Batch(ahead.slices, ahead.next, one.view)
            one.give_back(ahead, batch)
            lent.popleft()
    finally:
        if lent:
            # KeyboardInterrupt, say; nobody may wait for its flag, and to give one back twice is harmless.
            _give_back(lent, ahead, batches)
