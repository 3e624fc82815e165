"""Bounded reading of past changes, a page at a time, in either direction.

Forward, changes come in the order of the log. Reversed, versions come from the newest to the oldest; in each the
TRANSACTION event is still first, and then the changes follow from the last to the first.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from publishers.blocks.block import Block
from publishers.criteria.predicate import Predicate
from publishers.errors import HistoryPruned, PositionAhead
from publishers.fanout.service import Service
from publishers.model.change import Change
from publishers.model.errors import brief
from publishers.model.position import Position
from publishers.views.view import View

__all__ = ["History", "PageBounds", "read_back", "read_history"]

_LAST: Final = 2**32
_CHANGE: Final = 1024  # bytes that a change costs beside its key and images, as an object and in an answer
_RUN: Final = (
    32  # changes that are made together, or about as many bytes as below; a page may end within them
)
_RUN_BYTES: Final = 256 * 1024


@dataclass(frozen=True, slots=True)
class History:
    """A page of changes; iterating over it yields them.

    Attributes:
        changes: The changes, in order.
        since: The position where the page begins, resolved.
        next: The position where the next page begins: the next matching change. Without one it is the position after the
            watermark, or in a reversed history the one before the oldest.
        more: Whether ``next`` is a matching change; the reading has continued up to it.
        reverse: Whether the page was read from the newest change to the oldest.
        nbytes: Approximate memory of the changes in the view.
    """

    changes: tuple[Change, ...]
    since: Position
    next: Position
    more: bool = False
    reverse: bool = False
    nbytes: int = 0

    def __iter__(self) -> Iterator[Change]:
        return iter(self.changes)

    def __len__(self) -> int:
        return len(self.changes)

    __repr__ = brief


@dataclass(frozen=True, slots=True)
class PageBounds:
    """Bounds of a page.

    Attributes:
        limit: Most changes.
        nbytes: Bytes after which the page ends, or None.
        check: Called before each frame; its exceptions end the reading.
    """

    limit: int
    nbytes: int | None
    check: Callable[[], None]


def read_history(
    service: Service, predicate: Predicate, since: Position, bounds: PageBounds, view: View
) -> History:
    """Reads a page of matching changes from ``since`` up to the watermark; blocks on the disk.

    A page never splits a record, which is a change of an entity and the field-level changes that belong to it. A record that
    exceeds the bounds makes a page of its own.

    Raises:
        HistoryPruned: If ``since`` is no longer kept.
        PositionAhead: If it lies beyond the end: a reader that continued there would skip the changes in between.
        WalCorrupted: If the log is damaged there.
    """
    upto = service.watermark.visible
    if since > (head := Position(upto + 1)):
        raise PositionAhead(head)
    found = _forward(service, predicate, since, upto, bounds, view)
    changes, nbytes, coming = _page(found, bounds, reverse=False)
    return History(tuple(changes), since, coming or head, more=coming is not None, nbytes=nbytes)


def read_back(
    service: Service, predicate: Predicate, since: Position, bounds: PageBounds, view: View
) -> History:
    """Reads a page of matching changes from ``since`` back to the oldest; blocks on the disk.

    Args:
        service: The log's watermark and frames.
        predicate: Selects the changes.
        since: The first change to return. A position beyond the watermark means the newest.
        bounds: Bounds of the page, which never splits a record, as in `read_history`.
        view: How the changes are rendered.

    Raises:
        HistoryPruned: If ``since`` is no longer kept.
        WalCorrupted: If the log is damaged there.
    """
    oldest, visible = service.oldest, service.watermark.visible
    if since.version > visible:
        since = Position(visible)
    if 0 < since.version < oldest.version <= visible:
        raise HistoryPruned(oldest)
    found = _back(service, predicate, since, bounds.check, view)
    changes, nbytes, coming = _page(found, bounds, reverse=True)
    end = Position(max(service.oldest.version - 1, 0))
    more = coming is not None
    return History(tuple(changes), since, coming or end, more=more, reverse=True, nbytes=nbytes)


def _page(
    found: Iterator[Change], bounds: PageBounds, *, reverse: bool
) -> tuple[list[Change], int, Position | None]:
    """Returns the changes of a page, their bytes, and the position of the first change of the next page."""
    changes: list[Change] = []
    record = 0  # index of the last record of the page
    nbytes = before = 0  # of the page; of the page without its last record
    for change in found:
        size = _weight(change)
        full = len(changes) >= bounds.limit
        # Checked before a change is added, so that the page stays within the bound.
        if bounds.nbytes is not None:
            full = full or (bool(changes) and nbytes + size > bounds.nbytes)
        part = changes[-1] if reverse and changes else change
        if not changes or part.field is None or not _of_one_entity(changes[-1], change):
            if full:
                return changes, nbytes, change.position
            record, before = len(changes), nbytes
        elif full and record:
            return changes[:record], before, changes[record].position
        changes.append(change)
        nbytes += size
    return changes, nbytes, None


def _weight(change: Change) -> int:
    """Approximate memory in bytes of a change in its view."""
    images = len(change.body_bytes or b"") + len(change.before_bytes or b"") + len(change.meta_bytes or b"")
    return _CHANGE + len(change.key or "") + images


def _of_one_entity(one: Change, other: Change) -> bool:
    return one.version == other.version and (one.entity_type, one.key) == (other.entity_type, other.key)


def _forward(
    service: Service, predicate: Predicate, since: Position, upto: int, bounds: PageBounds, view: View
) -> Iterator[Change]:
    """Yields every matching change from ``since`` on."""
    if since.version > upto:
        return
    frames, most = service.frames, min(bounds.limit + 1, _RUN)
    found = frames.read(frames.locate(*since))
    while found is not None and found[0].version <= upto:
        block, after = found
        bounds.check()
        indices = predicate.select(block)
        if block.version <= since.version:
            first = since.index if block.version == since.version else _LAST
            indices = indices[bisect_left(indices, first) :]
        run = max(min(most, _RUN_BYTES * block.count // (block.weight + 1)), 1)
        for start in range(0, len(indices), run):
            yield from block.changes(indices[start : start + run], view)
        found = frames.read(after)


def _back(
    service: Service, predicate: Predicate, since: Position, check: Callable[[], None], view: View
) -> Iterator[Change]:
    """Yields every matching change from ``since`` back, in reversed order."""
    frames = service.frames
    version, index = since
    last = index or _LAST  # the TRANSACTION event, index 0, precedes every other index
    for frame in frames.backward(version, last) if version else ():
        check()
        block = Block.of(frame.header, *frame.decoded)
        if block.ends and (block.version < version or not index):
            try:
                found = (block, None) if block.leads else frames.read(frames.locate(block.version, 0))
            except HistoryPruned:
                return
            if found is not None and 0 in predicate.select(found[0]):
                yield found[0].change(0, view)
        for one in reversed(predicate.select(block)):
            if one and (block.version < version or one <= last):
                yield block.change(one, view)
