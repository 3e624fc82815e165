"""How a subscription changes its place other than by reading on: it seeks, it is paused, and it goes over what is missing.

The cursor belongs to the holder of the subscription's drain, or to the replayer while that is at work; everything here is
done by whom it belongs to, except `Moving.seek`, `Moving.pause` and `Moving.resume`, which only leave a note.
"""

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any

from flow.drain import Drain
from publishers.errors import HistoryPruned, PositionAhead
from publishers.fanout.batch import Batch
from publishers.fanout.cursor import Cursor
from publishers.fanout.gap import Gap, OnGap
from publishers.fanout.service import Service
from publishers.model.change import Change
from publishers.model.position import Position, check_position

__all__ = ["Moving"]


class Moving(ABC):
    """A subscription that can be moved."""

    _service: Service
    _cursor: Cursor
    _drain: Drain[Change]
    _filled: Batch | None
    _parked_at: int | None
    _settled: Position

    def __init__(self, on_gap: OnGap) -> None:
        self._on_gap = on_gap
        self._gap: Gap | None = None  # not told yet
        self._sought: Position | None = None
        self._paused = False
        self._seeking = threading.Lock()

    def seek(self, position: Position) -> None:
        """Goes on elsewhere, forward or back: what follows is what a fresh subscription there would get.

        It takes effect between two signals: what is queued is dropped, its demand stays. A subscriber with a method
        ``on_seek(position)`` is told before the first change of the new place; one that seeks in ``on_next`` gets nothing
        in between. Of several seeks that were not served yet, the last counts.

        Raises:
            InvalidOption: If ``position`` is none.
            PositionAhead: If it lies beyond the end of the log.
            HistoryPruned: If it is no longer kept.
            LogForked: In a child of ``fork``.
        """
        if self._service.inherited is not None:
            raise self._service.inherited
        check_position("position", position)
        if position > (head := self._service.head):
            raise PositionAhead(head)
        if position < (oldest := self._service.oldest):
            raise HistoryPruned(oldest)
        with self._seeking:
            self._sought = position
            self._drain.discard()
        self._run(self._drain.signal)

    @property
    def paused(self) -> bool:
        """Whether an operator has paused it."""
        return self._paused

    def pause(self) -> bool:
        """Gives nothing until ``resume``, as if there were no demand: the demand stays, and so does the place.

        What was pulled for it already, at most one batch, still comes. It pins nothing and makes no writer wait meanwhile,
        and ends as one without demand does: with the log, or with ``HistoryPruned``.

        Returns:
            Whether it was not paused before.
        """
        with self._seeking:
            changed, self._paused = not self._paused, True
        self._service.admission.nudge()
        return changed

    def resume(self) -> bool:
        """Goes on where it was paused; answers whether it was."""
        with self._seeking:
            changed, self._paused = self._paused, False
        if changed:
            self._run(self._drain.signal)
        return changed

    def begin(self, oldest: Position, *, silently: bool) -> None:
        """Compares its place with the oldest one, before it is started; ``silently`` if the oldest is what was asked for."""
        if self._settled < oldest:
            if silently:
                self._place(oldest)
                self._settle(oldest)
            elif self._on_gap == "fail":
                self.fail(HistoryPruned(oldest))
            elif not self._cursor.live:
                self._jump(oldest)
                self._settle(oldest)

    def _arrive(self) -> bool:
        """Goes where somebody has sought to; by the drain's holder, while the cursor is his."""
        if self._sought is None:
            return False
        with self._seeking:
            position, self._sought = self._sought, None
            self._drain.resume()
        self._place(position)
        self._filled = None
        self._settle(position)
        self._cursor.enter()
        self._tell_state()
        self._drain.tell("seek", partial(_told, "on_seek", position))
        return True

    def _rest(self) -> None:
        """Lets go of what was read and not given yet, while it is paused; by the drain's holder, while the cursor is his."""
        filled, self._filled = self._filled, None
        if filled is not None:
            first = filled.slices[0]
            self._place(Position(first.block.version, first.indices[0]))
            self._cursor.enter()
            self._tell_state()
        self._settle(self._cursor.next)  # all that was pulled before has been delivered by now

    def _jump(self, oldest: Position) -> None:
        """Goes over what is missing, and tells."""
        with self._seeking:  # the drain may be telling the last one just now
            begin = self._cursor.next if self._gap is None else self._gap.begin
            self._gap = Gap(begin, oldest)
        self._place(oldest)
        # Noted at once, whoever signals: it comes before all that is read from now on.
        self._drain.tell("gap", self._deliver_gap, wake=False)
        self._run(self._drain.signal)

    def _deliver_gap(self, subscriber: Any) -> None:
        with self._seeking:
            gap, self._gap = self._gap, None
        if gap is not None:
            if callable(self._on_gap):
                self._on_gap(gap)
            else:
                subscriber.on_gap(gap)

    def _place(self, position: Position) -> None:
        cursor = self._cursor
        cursor.leave()
        cursor.next = position
        cursor.taken = None
        cursor.location = None
        self._parked_at = None

    @abstractmethod
    def fail(self, error: Exception) -> None:
        """Ends the subscription with an error, demand or not."""

    @abstractmethod
    def _run(self, signal: Callable[[], None]) -> None:
        """Signals the drain."""

    @abstractmethod
    def _settle(self, position: Position) -> None:
        """Notes that everything before a position was delivered."""

    @abstractmethod
    def _tell_state(self) -> None:
        """Tells the subscriber of its state, if that is another one."""


def _told(method: str, value: object, subscriber: Any) -> None:
    tell = getattr(subscriber, method, None)
    if tell is not None:
        tell(value)
