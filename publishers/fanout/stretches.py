"""Stretches of the WAL that several lagging subscriptions of one publisher share: read and matched once for all of them.

Subscriptions that were evicted together, or that start at one position, are near each other in the WAL. A turn at the
replayer reads at most to the end of a window of the WAL, so their positions become equal after their first turns. From then
on the first subscription at a position reads and matches. The others get the same batch, without I/O, on their own executors.
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
"""Most views for which a stretch keeps a batch."""
_CHANGE_BYTES: Final = 512
"""Memory of one ``Change`` object in a batch, in bytes, roughly; its body is not included."""


class _Stretch(NamedTuple):
    end: Position
    location: Location | None  # location of the frame behind it
    slices: tuple[Slice, ...]
    events: int
    nbytes: int
    frames: int
    read_at: int
    weight: int
    batches: dict[View, Batch]


class Stretches:
    """An LRU cache of stretches by predicate and position. Thread-safe.

    Args:
        max_bytes: Most bytes of all blocks in it and of the objects derived from them, roughly.

    Attributes:
        nbytes: Bytes in it now.
        shared: Number of times that a subscription got a batch without reading it again.
    """

    def __init__(self, max_bytes: int) -> None:
        self.nbytes: int = 0
        self.shared: int = 0
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[Predicate, Position], _Stretch] = OrderedDict()

    def take(
        self, predicate: Predicate, cursor: Cursor, view: View, upto: int, events: int, nbytes: int
    ) -> Batch | None:
        """Returns the next batch for a cursor and moves the cursor behind it; None if no kept stretch fits its bounds."""
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
        """Keeps the batch that a cursor has read from ``begin`` to its present position, in ``frames`` frames."""
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
