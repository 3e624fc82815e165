"""Holds: positions that consumers of the log still need, with caps on the disk space that is kept for them.

The log does not know the kind of a hold's owner: a slot, a sink, a snapshot in progress. A hold is a registration in memory; after
a restart its owner registers it again, at the position in the owner's own durable state.
"""

import logging
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from publishers.errors import HistoryPruned, InvalidOption, LogForked
from publishers.model.position import Position
from publishers.wal.disk.filesystem import means_full

__all__ = ["Extent", "Hold", "HoldState", "HoldStatistics", "Holds"]

_log = logging.getLogger("penstock.retention")


class HoldState(Enum):
    """The state of the held history, in PostgreSQL's terms for its slots."""

    RESERVED = "reserved"
    """Ordinary retention keeps the history anyway."""
    EXTENDED = "extended"
    """Only the hold keeps the history."""
    UNRESERVED = "unreserved"
    """The hold is above a cap: the next pass of retention deletes the history, unless the hold moves first."""
    LOST = "lost"
    """The history was deleted, and the hold has no effect any more."""
    RELEASED = "released"
    """The owner has released the hold."""


class Extent(NamedTuple):
    """The part of the log from the segment of a position to the end.

    Attributes:
        nbytes: Bytes from the beginning of the segment to the end of the log.
        age: Seconds since the segment was closed; None if it is the active segment.
        kept: Whether ordinary retention keeps that segment.
    """

    nbytes: int
    age: float | None
    kept: bool


@dataclass(frozen=True, slots=True)
class HoldStatistics:
    """The statistics of one hold, as of now.

    Attributes:
        name: Its name.
        position: The oldest position that it needs.
        state: Its state.
        held_bytes: Bytes of the log from the segment of its position on; 0 once it is lost or released.
        bytes_left: Bytes that may be written until it is above ``keep_bytes``; None without that cap.
        seconds_left: Seconds until it is above ``keep_age``; None without that cap, or while its segment is active.
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

    Within its caps nothing at or behind its position is deleted. Above a cap it is *lost*: the segments are deleted, ``on_lost`` of
    its owner is called, and the hold has no effect any more.

    Attributes:
        name: Its name in errors and statistics.
        keep_bytes: Most bytes of the log, from the segment of its position to the end, that may be kept for it.
        keep_age: Most seconds for which a closed segment may be kept for it.
        oldest: The oldest kept position when it was lost; None before.
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
        """Moves the hold to ``position``, forward, or back to a position that is still kept.

        Raises:
            HistoryPruned: If the hold was lost, or ``position`` is no longer kept.
            InvalidOption: If the hold was released.
            LogForked: In a child of ``fork``.
        """
        self._holds.move(self, position)

    def release(self) -> None:
        """Releases the hold. Idempotent."""
        self._holds.release(self)

    def __repr__(self) -> str:
        return f"<Hold {self.name!r} {self.state.value} at {self.position}>"


class Holds:
    """The holds of one log. Thread-safe.

    Args:
        oldest: Returns the oldest kept version; called at each registration.

    Attributes:
        inherited: The error that calls raise in a child of ``fork``, where the lock may stay held; None elsewhere.
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
        """Registers a hold. From now on nothing at or behind ``position`` is deleted, within the caps.

        Args:
            name: Its name, unique among the holds of the log.
            position: The oldest position that is needed.
            keep_bytes: The cap in bytes, see `Hold`; None for no cap.
            keep_age: The cap in seconds, see `Hold`; None for no cap.
            sync: Makes the owner's last `Hold.move` durable in the owner's own state. Called before segments are deleted, so that
                the owner does not need deleted history after a crash; while it raises, nothing is deleted.
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
        """One pass: updates every hold, and decides which versions retention deletes.

        Args:
            extent: Returns the extent of a version's segment.
            oldest: Returns, for the least needed version (or None), the oldest version that stays; from now on, earlier versions
                count as deleted.

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
        """Calls ``sync`` of every owner; returns whether all calls succeeded."""
        for hold in self:
            if hold.sync is None or hold.state is HoldState.LOST:
                continue
            try:
                hold.sync()
            except Exception as error:  # noqa: BLE001 - after any error, history that the owner may need must stay
                what = "hold %r could not be made durable; nothing is deleted meanwhile: %s"
                _log.warning(what, hold.name, error, exc_info=None if means_full(error) else error)
                return False
        return True

    def notify(self, lost: list[Hold]) -> None:
        """Calls ``on_lost`` of the owners of lost holds."""
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
                except Exception:  # noqa: BLE001 - the hold is lost nevertheless, and the other owners must be notified
                    _log.exception("the owner of hold %r could not be notified that it is lost", hold.name)

    def statistics(
        self, extent: Callable[[int], Extent], name: str | None = None
    ) -> tuple[HoldStatistics, ...]:
        """The statistics of every hold, as of now; with ``name`` of the hold of this name, if there is one."""
        return tuple(_statistics(hold, extent) for hold in self if name is None or hold.name == name)

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
