"""The steps of housekeeping that make later commits fast: zeros ahead, a spare segment, indexes, a recent HEAD."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from flow.clock import Clock
from publishers.errors import LogUnreadable
from publishers.options import LogOptions
from publishers.wal.append.evidence import Evidence
from publishers.wal.append.writer import Writer
from publishers.wal.disk.filesystem import FileSystem, means_full
from publishers.wal.disk.reserve import Reserve
from publishers.wal.files.segment import write_index
from publishers.wal.read.catalog import Catalog

__all__ = ["Maintenance"]

_LOG: Final = logging.getLogger(__name__)
_AHEAD: Final = 1.0
"""Seconds above which a last commit ahead of the clock is worth a warning: no burst of commits gets so far by itself."""


@dataclass(slots=True)
class Maintenance:
    """Each step answers whether it has done something, so that another one may find more to do.

    Attributes:
        writer: Of the log.
        evidence: What HEAD tells of it.
        catalog: Its segments.
        options: Bounds and times.
        filesystem: Where the files are.
        directory: Of the log.
        clock: Measures the time between two writes of HEAD.
        reserve: Filled before anything else gets room.
        space_low: Whether a step of the last round found no room on the disk.
        closed: Whether the log is closed, so that nothing is done any more.
    """

    writer: Writer
    evidence: Evidence
    catalog: Catalog
    options: LogOptions
    filesystem: FileSystem
    directory: Path
    clock: Clock
    reserve: Reserve
    space_low: bool = False
    closed: bool = False
    _ahead: bool = False
    _head_at: float = field(init=False)

    def __post_init__(self) -> None:
        self._head_at = self.clock.monotonic()

    @property
    def steps(self) -> tuple[Callable[[], bool], ...]:
        """Every step, each of which may raise `OSError`."""
        return (
            self.reserve.fill,
            self._fill,
            self._make_spare,
            self._write_index,
            self._refresh_head,
            self._watch_clock,
        )

    def take(self, *steps: Callable[[], bool]) -> bool:
        """Takes steps, these or others, one after the other; answers whether one of them has done something.

        Never raises for the disk: where there is no room the step is for the next round, any other error fails the log.
        """
        health = self.writer.health
        done = full = False
        for step in steps:
            if self.closed or health.why is not None:
                break
            try:
                done = step() or done
            except (OSError, LogUnreadable) as error:
                if isinstance(error, OSError) and means_full(error):
                    full = True
                else:
                    health.fail(error)
        self.space_low = full
        return done

    def _fill(self) -> bool:
        """Writes zeros when less than half a step of them is left."""
        active = self.writer.active
        step = self.options.fill_step
        if active.filled - active.offset >= step // 2:
            return False
        return active.fill(min(active.offset + step, self.options.segment_bytes))

    def _make_spare(self) -> bool:
        """Makes the spare segment once the active segment is half full."""
        writer = self.writer
        if not writer.spares.wanted or 2 * writer.active.offset < self.options.segment_bytes:
            return False
        writer.spares.make()
        return True

    def _write_index(self) -> bool:
        closed = self.writer.closed
        if not closed:
            return False
        active, trailer = closed[0]
        if active.number >= self.catalog.entries[0].number:
            data = active.index.pack(self.catalog.log_id, active.number, trailer)
            write_index(self.filesystem, self.directory, active.number, data)
        closed.popleft()
        return True

    def _refresh_head(self) -> bool:
        """Writes HEAD, ``head_sync`` after the last time that it, or one of its slots, was found to be behind."""
        state = self.evidence.state
        _, segment, offset = self.writer.evidence()
        if (segment, offset) <= (state.segment, state.offset) and self.evidence.even:
            return False
        if self.clock.monotonic() - self._head_at < self.options.head_sync:
            return False
        self.evidence.write()
        self._head_at = self.clock.monotonic()
        return True

    def _watch_clock(self) -> bool:
        """Warns once while commits are stamped with the future, because the clock was ahead for a moment."""
        ahead = self.writer.ahead
        if ahead > _AHEAD and not self._ahead:
            _LOG.warning(
                "the last commit is %.0f s ahead of the clock, which has been put back since; until it has caught up, each "
                "commit is stamped a microsecond after the one before",
                ahead,
            )
        self._ahead = ahead > _AHEAD or (self._ahead and ahead > 0)
        return False
