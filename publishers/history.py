"""One-shot reading of what is past: a bounded list, pulled, in either direction.

Forward, changes come as they lie in the log. Reversed, versions come from the newest to the oldest; in each the
TRANSACTION event is still first, and then the changes follow from the last to the first.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from publishers.blocks.block import Block
from publishers.change import Change
from publishers.criteria.matching import Predicate
from publishers.errors import HistoryPruned, PositionAhead
from publishers.fanout.service import Service
from publishers.position import Position
from publishers.views.view import View

__all__ = ["History", "read_back", "read_history"]

_LAST: Final = 2**32

_Found = Iterator[tuple[Block, int]]


@dataclass(frozen=True, slots=True)
class History:
    """A page of changes.

    Attributes:
        changes: The changes, in order.
        since: Where the page begins, resolved.
        next: Where to go on: the next change that matches. Where there is none it is the position after the watermark, and
            of a reversed history the one before the oldest.
        more: Whether ``next`` is a change that matches; found out by going on to it.
        reverse: Whether the page was read from the newest change to the oldest.
    """

    changes: tuple[Change, ...]
    since: Position
    next: Position
    more: bool = False
    reverse: bool = False


def read_history(service: Service, predicate: Predicate, since: Position, limit: int, view: View) -> History:
    """Reads at most ``limit`` matching changes from ``since`` up to the watermark; blocks on the disk.

    A page never splits a record, that is a change of an entity with the field-level changes that belong to it; one that
    is larger than a page makes a page of its own.

    Raises:
        HistoryPruned: If ``since`` is no longer kept.
        PositionAhead: If it lies beyond the end: a reader who went on there would leave out what is in between.
        WalCorrupted: If the log is damaged there.
    """
    upto = service.watermark.visible
    if since > (head := Position(upto + 1)):
        raise PositionAhead(head)
    changes, coming = _page(_forward(service, predicate, since, upto), limit, view, reverse=False)
    return History(tuple(changes), since, coming or head, more=coming is not None)


def read_back(
    service: Service, predicate: Predicate, since: Position | None, limit: int, view: View
) -> History:
    """Reads at most ``limit`` matching changes from ``since`` back to the oldest; blocks on the disk.

    Args:
        service: The log's watermark and frames.
        predicate: What matches.
        since: The first change to return; None for the newest. A place beyond the watermark is the newest.
        limit: Most changes to return; a page never splits a record, as forward.
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
    changes, coming = _page(_back(service, predicate, since), limit, view, reverse=True)
    end = Position(max(service.oldest.version - 1, 0))
    return History(tuple(changes), since, coming or end, more=coming is not None, reverse=True)


def _page(found: _Found, limit: int, view: View, *, reverse: bool) -> tuple[list[Change], Position | None]:
    """The changes of a page, and the one with which the next page begins."""
    changes: list[Change] = []
    record = 0  # where the last record in the page begins
    for block, index in found:
        change = block.change(index, view)
        if not changes or not _together(changes[-1], change, reverse=reverse):
            if len(changes) >= limit:
                return changes, change.position
            record = len(changes)
        elif len(changes) >= limit and record:
            return changes[:record], changes[record].position
        changes.append(change)
    return changes, None


def _together(one: Change, other: Change, *, reverse: bool) -> bool:
    """Whether a change and the one that follows it are of one record: an entity and its fields."""
    part = one if reverse else other
    return (
        part.field is not None
        and one.version == other.version
        and (one.entity_type, one.key) == (other.entity_type, other.key)
    )


def _forward(service: Service, predicate: Predicate, since: Position, upto: int) -> _Found:
    """Every change that matches, from ``since`` on."""
    if since.version > upto:
        return
    frames = service.frames
    found = frames.read(frames.locate(*since))
    while found is not None and found[0].version <= upto:
        block, after = found
        for index in predicate.select(block):
            if (block.version, index) >= since:
                yield block, index
        found = frames.read(after)


def _back(service: Service, predicate: Predicate, since: Position) -> _Found:
    """Every change that matches, in reversed order, from ``since`` on."""
    frames = service.frames
    version, index = since
    last = index or _LAST  # index 0 comes first, and all others after it
    for frame in frames.backward(version, last) if version else ():
        block = Block.of(frame.header, frame.columns, frame.annotations)
        if block.ends and (block.version < version or not index):
            try:
                found = (block, None) if block.leads else frames.read(frames.locate(block.version, 0))
            except HistoryPruned:
                return
            if found is not None and 0 in predicate.select(found[0]):
                yield found[0], 0
        for one in reversed(predicate.select(block)):
            if one and (block.version < version or one <= last):
                yield block, one
