"""The ages of segments, measured by more than one reading of the wall clock.

A wall clock can be wrong for a moment: at a commit, at an opening, at a pass of retention. No single reading of it makes
history old, and none keeps it for ever:

* The age of a segment that was closed in this opening is measured by the monotonic clock.
* A segment that was closed before is at least as old as this opening. It counts as older only by a wall clock that has agreed with
  the monotonic clock for `AGREEMENT`; of several such readings, the one that gives the least age counts.
* The closing time of a segment is in the header of the next segment. It is ignored if it lies in the future, or before a valid
  time in an older segment; then the next valid time replaces it, since segments are closed in order.
"""

from collections.abc import Sequence
from typing import Final

from flow.clock import Clock
from publishers.wal.read.catalog import SegmentEntry

__all__ = ["AGREEMENT", "Ages"]

AGREEMENT: Final = 600.0
"""Seconds for which the wall clock must agree with the monotonic clock before it counts."""

_TOLERANCE: Final = 1e6
"""Microseconds by which the two may differ meanwhile; a clock that is slewed (at most 500 ppm) stays within."""


class Ages:
    """Measures the ages of segments. `observe` is for the housekeeping thread, the other methods are for any thread.

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
        """Unix microseconds by a trusted wall clock; None while there is none."""
        believed = self._believed
        return None if believed is None else int(self._clock.monotonic() * 1e6 + believed)

    def of(self, entries: Sequence[SegmentEntry]) -> list[float]:
        """The least seconds since each segment but the last was closed, oldest first, so the values never rise.

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
