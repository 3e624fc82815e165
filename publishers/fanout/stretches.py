"""What several laggards of one publisher read from the WAL, read once for all of them.

Those that an eviction has overtaken, or that begin at one place, stand near each other. Each turn at the replayer reads up
to the end of a window of the WAL at most, so their places become the same after their first turns. From then on the first
that comes reads, and matches; the others get the same batch, without I/O and where they run.
"""

import threading
from collections import OrderedDict
from typing import Final, NamedTuple

from publishers.blocks.slices import Slice
from publishers.criteria.predicate import Predicate
from publishers.fanout.batch import Batch
from publishers.fanout.cursor import Cursor
from publishers.model.position import Position
from publishers.views.view import View
from publishers.wal import Location

__all__ = ["Stretches"]

_VIEWS: Final = 4
"""Views for which a stretch keeps a batch."""
_CHANGE_BYTES: Final = 512
"""What a change weighs that was made for a batch, roughly, whatever its body."""


class _Stretch(NamedTuple):
    end: Position
    location: Location | None  # where the WAL goes on
    slices: tuple[Slice, ...]
    events: int
    nbytes: int
    frames: int
    read_at: int
    weight: int
    batches: dict[View, Batch]


class Stretches:
    """Keeps what was read last, by publisher and place; the least recently read go first. Thread-safe.

    Args:
        max_bytes: Most bytes of all blocks in it, with what is made of them, roughly.

    Attributes:
        nbytes: How many there are now.
        shared: Batches that were given to one more subscription without being read again.
    """

    def __init__(self, max_bytes: int) -> None:
        self.nbytes = 0
        self.shared = 0
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[Predicate, Position], _Stretch] = OrderedDict()

    def take(
        self, predicate: Predicate, cursor: Cursor, view: View, upto: int, events: int, nbytes: int
    ) -> Batch | None:
        """What comes next for a cursor, which is moved behind it; None if nothing that fits its bounds is kept."""
        key = (predicate, cursor.next)
        with self._lock:
            found = self._kept.get(key)
            if found is None or found.events > events or found.nbytes > nbytes or found.end > (upto + 1, 0):
                return None
            self._kept.move_to_end(key)
            self.shared += 1
            batch = found.batches.get(view)
            if batch is None:
                if len(found.batches) >= _VIEWS:
                    found.batches.clear()
                batch = found.batches[view] = Batch(found.slices, found.end, view)
        cursor.next, cursor.location, cursor.read_at = found.end, found.location, found.read_at
        cursor.reads += found.frames
        return batch

    def keep(self, predicate: Predicate, begin: Position, frames: int, cursor: Cursor, batch: Batch) -> None:
        """Keeps what a cursor has read from ``begin`` to where it is now, in so many frames."""
        events = nbytes = weight = 0
        for part in batch.slices:
            events += len(part)
            nbytes += part.nbytes
            weight += part.block.nbytes
        weight += _CHANGE_BYTES * events
        if weight > self._max_bytes:
            return
        place, made = (cursor.next, cursor.location), {batch.view: batch}
        stretch = _Stretch(*place, batch.slices, events, nbytes, frames, cursor.read_at, weight, made)
        with self._lock:
            before = self._kept.pop((predicate, begin), None)
            self._kept[predicate, begin] = stretch
            self.nbytes += weight - (0 if before is None else before.weight)
            while self.nbytes > self._max_bytes:
                self.nbytes -= self._kept.popitem(last=False)[1].weight

    def clear(self) -> None:
        """Drops everything."""
        with self._lock:
            self._kept.clear()
            self.nbytes = 0
