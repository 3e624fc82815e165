"""Holds: what somebody above the log still needs, and how much of the disk he may keep for it.

The log does not know who holds, or why: a slot, a sink, a snapshot in progress. A hold is a registration in memory; who
wants it back after a restart registers it again, from where its own durable state says.
"""

import logging
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from publishers.errors import HistoryPruned, InvalidOption, LogForked
from publishers.model.position import Position

__all__ = ["Extent", "Hold", "HoldState", "HoldStatistics", "Holds"]

_log = logging.getLogger("penstock.retention")


class HoldState(Enum):
    """What becomes of the history that is held, in PostgreSQL's words for its slots."""

    RESERVED = "reserved"
    """Ordinary retention keeps it anyway."""
    EXTENDED = "extended"
    """It is kept only because it is held."""
    UNRESERVED = "unreserved"
    """Above a cap: it goes at the next pass of retention, unless the hold moves before."""
    LOST = "lost"
    """It is gone, and nothing is held any more."""
    RELEASED = "released"
    """Given up by its owner."""


class Extent(NamedTuple):
    """How much of the log lies at and behind a position.

    Attributes:
        nbytes: From the beginning of its segment to the end of the log.
        age: Seconds since its segment was closed; None if it is the one being written.
        kept: Whether ordinary retention keeps that segment.
    """

    nbytes: int
    age: float | None
    kept: bool


@dataclass(frozen=True, slots=True)
class HoldStatistics:
    """One hold at this moment.

    Attributes:
        name: What it is called.
        position: The oldest position that it needs.
        state: What becomes of it.
        held_bytes: Bytes of the log from the segment of its position on; 0 once it holds nothing.
        bytes_left: Bytes that may be written until it is above ``keep_bytes``; None without that cap.
        seconds_left: Seconds until it is above ``keep_age``; None without that cap, or while its segment is being written.
    """

    name: str
    position: Position
    state: HoldState
    held_bytes: int
    bytes_left: int | None
    seconds_left: float | None


@dataclass(slots=True, eq=False, repr=False)
class Hold:
    """A floor for retention, made by `Holds.add`. Thread-safe.

    Within its caps nothing at or behind its position is deleted. Above one of them it is *lost*: the space is freed, the
    owner is told, and the hold never holds again.

    Attributes:
        name: What errors and statistics call it.
        keep_bytes: Most bytes of the log, from the segment of its position to the end, that may be kept for it.
        keep_age: Most seconds for which a closed segment may be kept for it.
        oldest: What was the oldest position when it was lost; None before.
    """

    _holds: "Holds"
    name: str
    position: Position
    keep_bytes: int | None
    keep_age: float | None
    sync: Callable[[], object] | None
    on_lost: "Callable[[Hold], object] | None"
    oldest: Position | None = None
    state: HoldState = HoldState.RESERVED

    def move(self, position: Position) -> None:
        """Needs nothing before ``position`` any more; or needs more again, if that is still there.

        Raises:
            HistoryPruned: If the hold was lost, or ``position`` lies before what is kept.
            InvalidOption: If the hold was released.
            LogForked: In a child of ``fork``.
        """
        self._holds.move(self, position)

    def release(self) -> None:
        """Holds nothing any more; again is harmless."""
        self._holds.release(self)

    def __repr__(self) -> str:
        return f"<Hold {self.name!r} {self.state.value} at {self.position}>"


class Holds:
    """The holds of one log. Thread-safe.

    Args:
        oldest: Oldest version that is kept, asked at each registration.

    Attributes:
        inherited: What to raise in a child of ``fork``, where the lock may be held for ever; None elsewhere.
    """

    inherited: LogForked | None = None

    def __init__(self, oldest: Callable[[], int]) -> None:
        self._lock = threading.Lock()
        self._oldest = oldest
        self._going = 0
        self._holds: dict[str, Hold] = {}

    def __iter__(self) -> Iterator[Hold]:
        with self._lock:
            return iter(list(self._holds.values()))

    def add(
        self,
        name: str,
        position: Position,
        *,
        keep_bytes: int | None = None,
        keep_age: float | None = None,
        sync: Callable[[], object] | None = None,
        on_lost: Callable[[Hold], object] | None = None,
    ) -> Hold:
        """Registers a hold. Nothing from ``position`` on is deleted from now on, within the caps.

        Args:
            name: Tells it from every other hold of the log.
            position: The oldest position that is needed.
            keep_bytes: See `Hold`; None for no cap.
            keep_age: Likewise, in seconds.
            sync: Makes durable what the owner has told by `Hold.move`. Called before anything is deleted, so that no crash
                brings back an owner who asks for what is gone; while it raises, nothing is deleted.
            on_lost: Called once when the hold is lost, by the housekeeping thread.

        Raises:
            HistoryPruned: If ``position`` is no longer kept.
            InvalidOption: If there is a hold of this name.
        """
        hold = Hold(self, name, position, keep_bytes, keep_age, sync, on_lost)
        with self._lock:
            if name in self._holds:
                raise InvalidOption("name", name, "a name that no other hold of this log has")
            self._check(position)
            self._holds[name] = hold
        return hold

    def move(self, hold: Hold, position: Position) -> None:
        """See `Hold.move`."""
        if self.inherited is not None:
            raise self.inherited
        with self._lock:
            if hold.oldest is not None:
                raise HistoryPruned(hold.oldest)
            if self._holds.get(hold.name) is not hold:
                raise InvalidOption("hold", hold.name, "one that was not released")
            self._check(position)
            hold.position = position

    def release(self, hold: Hold) -> None:
        """See `Hold.release`."""
        if self.inherited is not None:
            return
        with self._lock:
            if self._holds.get(hold.name) is hold:
                del self._holds[hold.name]
                if hold.state is not HoldState.LOST:
                    hold.state = HoldState.RELEASED

    def settle(self, extent: Callable[[int], Extent], oldest: Callable[[int | None], int]) -> list[Hold]:
        """One pass: judges every hold, and decides how far retention goes.

        Args:
            extent: Tells of the segment of a version.
            oldest: Gives, for the least version that is still needed (or None), the oldest version that stays; what is
                before it counts as gone from now on.

        Returns:
            The holds that are lost by this pass.
        """
        with self._lock:
            lost = []
            floor: int | None = None
            for hold in self._holds.values():
                if hold.state is HoldState.LOST:
                    continue
                found = extent(hold.position.version)
                above = _above(hold, found)
                if above and hold.state is HoldState.UNRESERVED:
                    lost.append(hold)
                    continue
                hold.state = (
                    HoldState.RESERVED
                    if found.kept
                    else HoldState.UNRESERVED
                    if above
                    else HoldState.EXTENDED
                )
                version = hold.position.version
                floor = version if floor is None else min(floor, version)
            self._going = oldest(floor)
            for hold in lost:
                hold.state = HoldState.LOST
                hold.oldest = Position(self._going)
            return lost

    def synchronise(self) -> bool:
        """Lets every owner make durable where he is; answers whether all of them could."""
        for hold in self:
            if hold.sync is None or hold.state is HoldState.LOST:
                continue
            try:
                hold.sync()
            except Exception:  # noqa: BLE001 - whatever keeps the owner from it, what he may need must stay
                _log.exception("hold %r could not be made durable; nothing is deleted meanwhile", hold.name)
                return False
        return True

    def tell(self, lost: list[Hold]) -> None:
        """Tells owners that their holds are lost."""
        for hold in lost:
            _log.warning(
                "hold %r is lost at %s: its history was above its cap; the oldest kept position is %s",
                hold.name,
                hold.position,
                hold.oldest,
            )
            if hold.on_lost is not None:
                try:
                    hold.on_lost(hold)
                except Exception:  # noqa: BLE001 - it is lost all the same, and the others must be told
                    _log.exception("the owner of hold %r could not be told that it is lost", hold.name)

    def statistics(self, extent: Callable[[int], Extent]) -> tuple[HoldStatistics, ...]:
        """Every hold, judged now."""
        return tuple(_statistics(hold, extent) for hold in self)

    def _check(self, position: Position) -> None:
        oldest = max(self._oldest(), self._going)
        if position.version < oldest:
            raise HistoryPruned(Position(oldest))


def _above(hold: Hold, extent: Extent) -> bool:
    if extent.kept:
        return False
    large = hold.keep_bytes is not None and extent.nbytes > hold.keep_bytes
    old = hold.keep_age is not None and extent.age is not None and extent.age > hold.keep_age
    return large or old


def _statistics(hold: Hold, extent: Callable[[int], Extent]) -> HoldStatistics:
    if hold.state is HoldState.LOST:
        return HoldStatistics(hold.name, hold.position, hold.state, 0, None, None)
    found = extent(hold.position.version)
    state = hold.state
    if not _above(hold, found):
        state = HoldState.RESERVED if found.kept else HoldState.EXTENDED
    bytes_left = None if hold.keep_bytes is None else max(hold.keep_bytes - found.nbytes, 0)
    seconds_left = None
    if hold.keep_age is not None and found.age is not None:
        seconds_left = max(hold.keep_age - found.age, 0.0)
    return HoldStatistics(hold.name, hold.position, state, found.nbytes, bytes_left, seconds_left)
