"""How a subscription changes its place other than by reading on: it seeks, and it goes over what is missing.

The cursor belongs to the holder of the subscription's drain, or to the replayer while that is at work; everything here is
done by whom it belongs to, except `Moving.seek`, which only leaves a note.
"""

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any

from flow.drain import Drain
from publishers.batch import Batch
from publishers.change import Change
from publishers.cursor import Cursor
from publishers.errors import HistoryPruned, PositionAhead
from publishers.gap import Gap, OnGap
from publishers.position import Position, check_position
from publishers.service import Service

__all__ = ["Checkpoint", "Moving", "State"]


class State(Enum):
    """From where a subscription reads."""

    LIVE = "LIVE"
    RESYNC = "RESYNC"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """How far a subscription is.

    Attributes:
        position: Everything before it was delivered, or did not match: the place to resume.
        head: The position after the watermark.
        state: LIVE or RESYNC.
    """

    position: Position
    head: Position
    state: State


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
        """
        check_position("position", position)
        if position > (head := self._service.head):
            raise PositionAhead(head)
        if position < (oldest := self._service.oldest):
            raise HistoryPruned(oldest)
        with self._seeking:
            self._sought = position
            self._drain.discard()
        self._run(self._drain.signal)

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

    def _jump(self, oldest: Position) -> None:
        """Goes over what is missing, and tells."""
        begin = self._cursor.next if self._gap is None else self._gap.begin
        self._gap = Gap(begin, oldest)
        self._place(oldest)
        self._run(partial(self._drain.tell, "gap", self._deliver_gap))

    def _deliver_gap(self, subscriber: Any) -> None:
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
