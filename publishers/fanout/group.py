"""Subscriptions that are served together: same publisher, same executor.

Those that have kept up stand at one place of the ring when the next chunks are linked. A round takes these once, and under the
same lock it borrows the flags of their drains and moves their cursors; then it hands each subscriber the same batch. Those
that cannot take part (they lack demand, are busy, want smaller batches, end at a version) are left to their own drains,
which are woken. Each subscriber's own drain flag is held while it is served, so all rules of delivery hold as they do without
company.
"""

import threading
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from flow.drain import Drain
from flow.executors import INLINE, Executor, LoopExecutor
from flow.interrupts import SHIELD
from publishers.background import HERE
from publishers.fanout.bench import TURN, RingCursor, Round
from publishers.fanout.counters import DeliveryCounters
from publishers.fanout.ring import Ring
from publishers.fanout.watermark import Watermark

__all__ = ["DeliveryGroup"]

_TOGETHER: Final = 1024  # are served at a time where nobody waits for a turn
_WOKEN: Final = 16  # as many are woken for the price of one that is served


class DeliveryGroup:
    """The cursors of one ring whose signals run on one executor.

    Args:
        ring: Where the cursors stand.
        executor: ``flow.INLINE``, or that of an event loop; None for all others, which are woken one by one.
        watermark: What may be delivered.
        counters: Count what is delivered.
        run_aside: Runs what may reach a subscriber's code.

    Attributes:
        executor: The same.
        members: How many there are; changed under the registry's lock only.
        sleeps: Whether to wake it costs an event loop a turn, so that it should concern somebody there.
    """

    def __init__(
        self,
        ring: Ring,
        executor: Executor | None,
        *,
        watermark: Watermark,
        counters: DeliveryCounters,
        run_aside: Callable[[Callable[[], None]], None],
    ) -> None:
        self.executor = executor
        self.members = 0
        self._ring = ring
        self._watermark = watermark
        self._counters = counters
        self._run_aside = run_aside
        self._loop = executor if isinstance(executor, LoopExecutor) else None
        self.sleeps = self._loop is not None
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
            if HERE.background:
                self._run_aside(self._round)
            else:
                self._round()
        else:
            self._wake_all()

    def _claim(self) -> bool:
        with self._lock:
            scheduled, self._scheduled = self._scheduled, True
        return not scheduled or self.lost

    def _schedule(self, loop: LoopExecutor, run: Callable[[], None]) -> None:
        try:
            loop.submit(run)
        except RuntimeError:
            # The loop is closed, which each of them finds out for itself, demand or not, wherever it was left.
            for cursor in self._ring.standing(self, 0):
                cursor.owner.wake()

    def _wake_all(self) -> None:
        """Wakes those who wait for what was noted; reaches nobody's code."""
        place = None
        try:
            with self._lock:
                place, self._place = self._place, None
            if place is not None:
                _wake_each(self._ring.standing(self, place))
        except BaseException:
            # KeyboardInterrupt, say: whoever was not woken sleeps over what is visible; to be woken twice is harmless.
            if place is not None:
                self.note(place)
            self._wake_all()
            raise

    def _round(self, some: Round | None = None) -> None:
        """Serves everybody who waits; on an event loop, some now and the rest in a later turn."""
        place = None if some is None else some.waiting[-1][0]
        spent = 0
        try:
            while True:
                if some is None:
                    with self._lock:
                        self._scheduled = False
                        place, self._place = self._place, None
                    if place is None:
                        return
                    some = Round(place, _TOGETHER if self._loop is None else TURN)
                spent += self._serve(some)
                if some.waiting:
                    place = some.waiting[-1][0]
                    some.clear()
                else:
                    some = None
                if self._loop is not None and (spent >= TURN or some is None):
                    self._loop.spend(spent)
                    if some is not None:
                        self._schedule(self._loop, partial(self._round, some))
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

    def _serve(self, some: Round) -> int:
        """Serves those that can take part, and wakes the others; answers what that was of a turn."""
        try:
            with SHIELD:
                closed = self._loop is not None and self._loop.closed
                self._ring.take(self, some, -1 if closed else self._watermark.visible)
            self._deliver(some)
        except BaseException:
            self._deliver(some)  # interrupted: those who were not served yet
            raise
        return some.took + len(some.left) // _WOKEN

    def _deliver(self, some: Round) -> None:
        """Delivers what was taken to those that were not given it yet, and wakes the others; again is harmless."""
        bench, ahead = some.bench, some.ahead
        if bench is not None and ahead is not None:
            try:
                view, batches, *_ = bench.kind
                batch = ahead.batch(view)
                Drain.deliver(some.lent, batch if batches else batch.changes, ahead.next)
            except Exception as error:  # noqa: BLE001 - as in a pull: what cannot be shown ends these only
                for drain in some.lent:
                    drain.fail(error)
            finally:
                bench.served(some)
            # Who published that while they were on their way did not find them there.
            if some.again or (some.follows is not None and some.follows <= self._watermark.visible):
                self.note(ahead.end)
            self._counters.count(ahead.slices, some.took)
        if some.left:
            _wake_each(some.left)


def _wake_each(cursors: Iterable[RingCursor]) -> None:
    for cursor in cursors:
        if cursor.bench is not None:
            cursor.recall()
        if cursor.owner.wants:
            cursor.owner.wake()
