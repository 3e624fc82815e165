"""One-shot reading of what is past: a bounded list, pulled."""

from dataclasses import dataclass

from publishers.block import Slice
from publishers.change import Change, View
from publishers.cursor import Cursor
from publishers.matching import Predicate
from publishers.position import Position
from publishers.ring import Ring
from publishers.service import Service

__all__ = ["History", "read_history"]


@dataclass(frozen=True, slots=True)
class History:
    """A page of changes.

    Attributes:
        changes: The changes, in order.
        since: Where the page begins, resolved.
        next: Where to go on; equal to the position after the watermark when everything was read.
    """

    changes: tuple[Change, ...]
    since: Position
    next: Position


def read_history(service: Service, predicate: Predicate, since: Position, limit: int, view: View) -> History:
    """Reads at most ``limit`` matching changes from ``since`` up to the watermark; blocks on the disk.

    Raises:
        HistoryPruned: If ``since`` is no longer kept.
        WalCorrupted: If the log is damaged there.
    """
    cursor = Cursor(
        since,
        ring=Ring(since, max_events=1, max_bytes=1),
        predicate=predicate,
        watermark=service.watermark,
        until=None,
        owner=None,
    )
    upto = cursor.upto
    taken: list[Slice] = []
    left = limit
    location = service.frames.locate(*since) if since.version <= upto else None
    while left > 0 and location is not None and cursor.next.version <= upto:
        found = service.frames.read(location)
        if found is None or found[0].version > upto:
            cursor.next = Position(upto + 1, 0)
            break
        block, after = found
        for piece in cursor.take(block, left, 2**62):
            taken.append(piece)
            left -= len(piece)
        if cursor.next >= block.end:
            location = after
    changes = tuple(part.block.change(index, view) for part in taken for index in part.indices)
    return History(changes, since, cursor.next)
