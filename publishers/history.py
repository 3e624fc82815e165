"""One-shot reading of what is past: a bounded list, pulled, in either direction.

Forward, changes come as they lie in the log. Reversed, versions come from the newest to the oldest; in each the
TRANSACTION event is still first, and then the changes follow from the last to the first.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from publishers.block import Block, Slice
from publishers.change import Change, View
from publishers.cursor import Cursor
from publishers.errors import HistoryPruned
from publishers.matching import Predicate
from publishers.position import Position
from publishers.ring import Ring
from publishers.service import Service

__all__ = ["History", "read_back", "read_history"]

_BEYOND = 2**32


@dataclass(frozen=True, slots=True)
class History:
    """A page of changes.

    Attributes:
        changes: The changes, in order.
        since: Where the page begins, resolved.
        next: Where to go on: the next change that matches. Where there is none it is the position after the watermark, and
            of a reversed history the one before the oldest.
        more: Whether ``next`` is a change that matches; looked up by going on to it.
        reverse: Whether the page was read from the newest change to the oldest.
    """

    changes: tuple[Change, ...]
    since: Position
    next: Position
    more: bool = False
    reverse: bool = False


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
    while location is not None and cursor.next.version <= upto:
        found = service.frames.read(location)
        if found is None or found[0].version > upto:
            cursor.next = Position(upto + 1, 0)
            break
        block, after = found
        if left == 0:
            ahead = predicate.select(block) if block.end > cursor.next else ()
            coming = next((index for index in ahead if (block.version, index) >= cursor.next), None)
            if coming is not None:
                return _page(taken, since, Position(block.version, coming), view, more=True)
            cursor.next = max(cursor.next, block.end)
        else:
            for piece in cursor.take(block, left, 2**62):
                taken.append(piece)
                left -= len(piece)
        if cursor.next >= block.end:
            location = after
    return _page(taken, since, cursor.next, view, more=False)


def _page(taken: list[Slice], since: Position, after: Position, view: View, *, more: bool) -> History:
    changes = tuple(part.block.change(index, view) for part in taken for index in part.indices)
    return History(changes, since, after, more)


def read_back(
    service: Service, predicate: Predicate, since: Position | None, limit: int, view: View
) -> History:
    """Reads at most ``limit`` matching changes from ``since`` back to the oldest; blocks on the disk.

    Args:
        service: The log's watermark and frames.
        predicate: What matches.
        since: The first change to return; None for the newest. A place beyond the watermark is the newest.
        limit: Most changes to return.
        view: How changes are seen.

    Raises:
        HistoryPruned: If ``since`` is no longer kept.
        WalCorrupted: If the log is damaged there.
    """
    oldest, visible = service.oldest, service.watermark.visible
    if since is None or since.version > visible:
        since = Position(visible)
    if 0 < since.version < oldest.version <= visible:
        raise HistoryPruned(oldest)
    changes: list[Change] = []
    for block, index in _back(service, predicate, since):
        if len(changes) == limit:
            return History(tuple(changes), since, Position(block.version, index), more=True, reverse=True)
        changes.append(block.change(index, view))
    end = Position(max(service.oldest.version - 1, 0))
    return History(tuple(changes), since, end, more=False, reverse=True)


def _back(service: Service, predicate: Predicate, since: Position) -> Iterator[tuple[Block, int]]:
    """Every change that matches, in reversed order, from ``since`` on."""
    frames = service.frames
    version, index = since
    last = index or _BEYOND  # index 0 comes first, and all others after it
    for frame in frames.backward(version, last) if version else ():
        block = Block.of(frame.header, frame.columns, frame.annotations)
        begins = block.ends and (block.version < version or not index)
        if begins:
            try:
                found = frames.read(frames.locate(block.version, 0)) if not block.leads else (block, None)
            except HistoryPruned:
                return
            if found is not None and 0 in predicate.select(found[0]):
                yield found[0], 0
        for one in reversed(predicate.select(block)):
            if one and (block.version < version or one <= last):
                yield block, one
