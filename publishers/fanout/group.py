"""Delivery groups: subscriptions of one publisher on one executor, served together.

Subscriptions that keep up stand at one place of the ring when the next chunks are linked. A round takes these chunks once;
under the same lock it borrows the flags of the subscriptions' drains and moves their cursors. Then it delivers the same batch
to each subscriber. Subscriptions that cannot take part (they lack demand, are busy, want smaller batches, end at a version)
are woken and pull by their own drains. The group holds the drain flag of each subscription that it serves, so all rules of
delivery hold as if the subscription were served alone.
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

_TOGETHER: Final = 1024  # most subscriptions served at a time where no event loop waits for its turn
_WOKEN: Final = 16  # wake-ups that count as one delivery in a turn


class DeliveryGroup:
    """The cursors of one ring whose signals run on one executor.

    Args:
        ring: The ring of the cursors.
        executor: ``flow.INLINE`` or the executor of an event loop; None for every other executor, whose subscriptions are
            woken one by one.
        watermark: The log's watermark.
        counters: Count the delivered changes.
        run_aside: Runs a callable that may reach a subscriber's code.

    Attributes:
        executor: See above.
        members: Number of subscriptions; changed under the registry's lock only.
        sleeps: Whether waking the group costs an event loop a turn. Such a group is woken only if it has a cursor at the new
            chunks.
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
        self.sleeps: bool = self._loop is not None
        self._lock = threading.Lock()
        self._place: int | None = None
        self._scheduled = False

    @staticmethod
    def key(executor: Executor) -> Executor | None:
        """The key that the subscriptions of one group share: the event loop's executor, ``INLINE``, or None."""
        trunk: Executor = getattr(executor, "trunk", executor)
        return trunk if trunk is INLINE or isinstance(trunk, LoopExecutor) else None

    @property
    def lost(self) -> bool:
        """Whether its event loop has closed. Callbacks scheduled there never run, and a wake-up ends the members."""
        return self._loop is not None and self._loop.closed

    def note(self, place: int) -> None:
        """Notes that chunks from ``place`` on were linked; the caller calls ``wake`` once they are visible."""
        with self._lock:
            if self._place is None or place < self._place:
                self._place = place

    def wake(self) -> None:
        """Serves the cursors from the noted place on: on this thread, on the event loop, or by waking each of them."""
        if self._loop is not None:
            try:
                if self._claim():
                    self._schedule(self._loop, self._round)
            except BaseException:
                # An interrupt came after the claim, so no other thread would schedule the round. A second round is harmless.
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
            # The loop is closed. Each subscription finds that out when it is woken, demand or not, at any place of the ring.
            for cursor in self._ring.standing(self, 0):
                cursor.owner.wake()

    def _wake_all(self) -> None:
        """Wakes the cursors from the noted place on; runs no code of subscribers."""
        place = None
        try:
            with self._lock:
                place, self._place = self._place, None
            if place is not None:
                _wake_each(self._ring.standing(self, place))
        except BaseException:
            # An exception such as KeyboardInterrupt must not leave a cursor asleep. Waking one twice is harmless.
            if place is not None:
                self.note(place)
            self._wake_all()
            raise

    def _round(self, group_round: Round | None = None) -> None:
        """Serves the cursors from the noted place on; on an event loop, at most one turn's worth, and the rest in later turns."""
        place = None if group_round is None else group_round.waiting[-1][0]
        spent = 0
        try:
            while True:
                if group_round is None:
                    with self._lock:
                        self._scheduled = False
                        place, self._place = self._place, None
                    if place is None:
                        return
                    group_round = Round(place, _TOGETHER if self._loop is None else TURN)
                spent += self._serve(group_round)
                if group_round.waiting:
                    place = group_round.waiting[-1][0]
                    group_round.clear()
                else:
                    group_round = None
                if self._loop is not None and (spent >= TURN or group_round is None):
                    self._loop.spend(spent)
                    if group_round is not None:
                        self._schedule(self._loop, partial(self._round, group_round))
                    elif self._place is not None:  # noted meanwhile; served in a later turn
                        self.wake()
                    return
        except BaseException:
            # After an exception such as KeyboardInterrupt the next round finds every cursor that was not served, even if this
            # round had not begun.
            self._scheduled = False
            if place is not None:
                self.note(place)
            self.wake()
            raise

    def _serve(self, group_round: Round) -> int:
        """Serves the cursors that can take part and wakes the others; returns how much of a turn that used up."""
        try:
            with SHIELD:
                closed = self._loop is not None and self._loop.closed
                self._ring.take(self, group_round, -1 if closed else self._watermark.visible)
            self._deliver(group_round)
        except BaseException:
            self._deliver(group_round)  # after an interrupt: serves the rest
            raise
        return group_round.drain_count + len(group_round.left) // _WOKEN

    def _deliver(self, group_round: Round) -> None:
        """Delivers the taken changes to members not served yet and wakes the cursors left over; a second call is harmless."""
        bench, ahead = group_round.bench, group_round.ahead
        if bench is not None and ahead is not None:
            try:
                view, batches, *_ = bench.kind
                batch = ahead.batch(view)
                Drain.deliver(group_round.lent, batch if batches else batch.changes, ahead.next)
            except Exception as error:  # noqa: BLE001 - as in a pull: changes that cannot be rendered end these subscriptions only
                for drain in group_round.lent:
                    drain.fail(error)
            finally:
                bench.served(group_round)
            # A commit may have published the next chunk before the bench came to its place, and so not have noted this group.
            if group_round.again or (
                group_round.follows is not None and group_round.follows <= self._watermark.visible
            ):
                self.note(ahead.end)
            self._counters.count(ahead.slices, group_round.drain_count)
        if group_round.left:
            _wake_each(group_round.left)


def _wake_each(cursors: Iterable[RingCursor]) -> None:
    for cursor in cursors:
        if cursor.bench is not None:
            cursor.recall()
        if cursor.owner.wants:
            cursor.owner.wake()
