"""How old segments are, by more than one reading of the wall clock.

A wall clock can be wrong for a moment: at a commit, at an opening, at a pass of retention. No single reading of it makes
history old, and none keeps it for ever:

* What was closed in this opening is as old as the monotonic clock says.
* What was closed before is at least as old as this opening. It is older than that only by a wall clock that has gone on beside
  the monotonic one for `AGREEMENT`; of several such the one by which the least time has passed counts.
* The time at which a segment was closed stands in the header of the next one. It does not count if it lies in the future, or
  before one that stands in an older segment and counts; then the next one that counts takes its place, since segments are
  closed in order.
"""

from collections.abc import Sequence
from typing import Final

from flow.clock import Clock
from publishers.wal.read.catalog import SegmentEntry

__all__ = ["AGREEMENT", "Ages"]

AGREEMENT: Final = 600.0
"""Seconds for which the wall clock must go on beside the monotonic one before it counts."""

_TOLERANCE: Final = 1e6
"""Microseconds by which the two may differ meanwhile; a clock that is slewed (at most 500 ppm) stays within."""


class Ages:
    """Judges the age of segments. `observe` is for the housekeeping thread, the rest for any.

    Args:
        clock: Read now, for the beginning of this opening.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._opened = self._since = clock.monotonic()
        self._ahead = clock.now_us() - self._opened * 1e6
        self._believed: float | None = None

    def observe(self) -> None:
        """Compares the two clocks."""
        monotonic = self._clock.monotonic()
        ahead = self._clock.now_us() - monotonic * 1e6
        if abs(ahead - self._ahead) > _TOLERANCE:
            self._ahead, self._since = ahead, monotonic
        elif monotonic - self._since >= AGREEMENT:
            self._believed = ahead if self._believed is None else min(ahead, self._believed)

    @property
    def now(self) -> int | None:
        """Unix microseconds by a wall clock that counts; None while there is none."""
        believed = self._believed
        return None if believed is None else int(self._clock.monotonic() * 1e6 + believed)

    def of(self, entries: Sequence[SegmentEntry]) -> list[float]:
        """The seconds for which each segment but the last has been closed at least; they never rise.

        Args:
            entries: All segments, oldest first.
        """
        monotonic, now = self._clock.monotonic(), self.now
        counting: list[SegmentEntry] = []
        for entry in entries:
            passed = entry.began is None and now is not None and entry.created_at <= now
            if passed and (not counting or entry.created_at >= counting[-1].created_at):
                counting.append(entry)
        ages: list[float] = []
        age = 0.0
        for entry in reversed(entries[1:]):
            began = entry.began
            age = max(age, monotonic - (self._opened if began is None else began))
            if now is not None and counting and counting[-1] is entry:
                age = max(age, (now - counting.pop().created_at) / 1e6)
            ages.append(age)
        return ages[::-1]
