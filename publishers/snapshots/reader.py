"""What comes next in a snapshot: rows, and the changes between them. It reads the disk."""

import secrets
from collections.abc import Callable
from functools import cached_property
from typing import Any, Final

from publishers.blocks.slices import Slice
from publishers.criteria.criteria import Criteria
from publishers.criteria.predicate import Predicate
from publishers.errors import HistoryPruned, SnapshotGone
from publishers.fanout.service import Service
from publishers.model.change import Change, time_of
from publishers.model.position import Position, PositionToken
from publishers.options import MIB
from publishers.snapshots.cursor import SnapshotCursor
from publishers.snapshots.pages import PageChanges, Pages, SnapshotPage
from publishers.snapshots.rows import RowReader, in_snapshot, read_row
from publishers.snapshots.signals import ChunkEnd, SnapshotBegin, SnapshotChange, SnapshotEnd, SnapshotSignal
from publishers.state.rows import StoredRow
from publishers.views.view import View
from publishers.wal.read.catalog import Location

__all__ = ["Entry", "SnapshotReader", "new_snapshot"]

Entry = SnapshotChange | SnapshotSignal

_ROWS: Final = 1_000
_ROW_BYTES: Final = MIB
_ROW_COST: Final = 800  # bytes of memory that a row takes beside its own
_FRAMES: Final = 64  # that are looked at in one turn, which others wait for


def new_snapshot(token: PositionToken) -> SnapshotCursor:
    """Where a snapshot begins for a subscriber that has everything before a position."""
    return SnapshotCursor(_new_id(), None, token)


def _new_id() -> str:
    return secrets.token_hex(8)


class SnapshotReader:
    """One subscriber's way through a snapshot. By one thread at a time.

    Args:
        service: The log's frames and watermark.
        pages: Where rows come from.
        criteria: Which rows and changes are wanted.
        view: How they are seen.
        token: Of a position, the text that clients keep.
        begin: Where to go on; None for a new snapshot, to a subscriber that has nothing.
        only: Of which rows are wanted; None for all that fulfil the criteria.
        asked: What ``SnapshotBegin`` is to tell.

    Attributes:
        id: The id of the snapshot.
        position: The next change to give.
        done: Whether all rows were given.
        page_bytes: The memory of the page that is being given.
        entry_bytes: The memory of what the last ``read`` returned.
    """

    def __init__(
        self,
        service: Service,
        pages: Pages,
        criteria: Criteria,
        view: View,
        token: Callable[[Position], PositionToken],
        begin: SnapshotCursor | None,
        only: Criteria | None = None,
        asked: int | None = None,
    ) -> None:
        self._frames = service.frames
        self.pages = pages
        self._wanted = criteria, only
        self._asked = asked
        self._view = view
        self._token = token
        self._begun = False
        self._fresh = begin is None
        self.id: str = _new_id() if begin is None else begin.snapshot
        # A new snapshot has everything that was visible when it was asked for.
        self.position: Position = service.head if begin is None else begin.token.position
        self._last = None if begin is None else begin.last
        self._page: SnapshotPage | None = None
        self._given = 0  # rows of the page that were looked at
        self.page_bytes: int = 0
        self.entry_bytes: int = 0
        self._before: tuple[Any, ...] = ()
        self._found: list[tuple[StoredRow, Change]] = []
        self._location: Location | None = None
        self.done: bool = False

    # Compiled on the thread that reads: it takes time of their size, and a reader may be made on an event loop.

    @cached_property
    def _predicate(self) -> Predicate:
        return Predicate(self._wanted[0])

    @cached_property
    def _rows(self) -> RowReader:
        criteria, only = self._wanted
        return RowReader(criteria, self._view, only)

    @cached_property
    def _meanwhile(self) -> PageChanges:
        return PageChanges(self._rows.plain)

    @property
    def cursor(self) -> SnapshotCursor:
        """The place behind what was given."""
        return SnapshotCursor(self.id, self._last, self._token(self.position))

    def read(self, room: int, nbytes: int, *, sparing: bool = False) -> list[Entry] | None:
        """What comes next, with at most ``room`` changes; None if the next page is not there yet, for which ``pages`` listens.

        It may be empty although more follows.

        Args:
            room: Most changes.
            nbytes: Bytes after which no more are added.
            sparing: Whether to read no more rows than that.

        Raises:
            SnapshotGone: If the changes that come next are no longer kept.
            Exception: What the source raises.
        """
        self._before = self._last, self.position, self._begun, self._fresh
        self.entry_bytes = 0
        if self._page is None:
            bounds = (min(room, _ROWS), min(nbytes, _ROW_BYTES)) if sparing else (_ROWS, _ROW_BYTES)
            page = self.pages.read(self._last, self._rows.types, self.position, bounds, self._rows.reach)
            if page is None:
                return None
            self._page = page
            self.page_bytes = sum(row.size + _ROW_COST for row in page.rows)
            self._meanwhile.begin(page)
            if self._fresh:  # there is nothing yet that changes could follow
                self.position, self._fresh = Position(page.low + 1), False
        entries: list[Entry] = []
        if not self._begun:
            self._begun = True
            entries.append(SnapshotBegin(self.id, self.position, self._asked))
        if self.position.version <= self._page.version:
            entries += self._changes(self._page.version, room, nbytes)
        else:
            entries += self._of_page(self._page, room, nbytes)
        self.entry_bytes = sum(
            _ROW_COST + len(one.body_bytes or b"") for one in entries if isinstance(one, SnapshotChange)
        )
        return entries

    def give_up(self, *, entries: bool) -> None:
        """Forgets the page, and if no entry of the last ``read`` was given, these too; both are read again."""
        if entries:
            self._last, self.position, self._begun, self._fresh = self._before
            self.done = False
            self.entry_bytes = 0
        self._page, self._given, self._found, self._location = None, 0, [], None
        self.page_bytes = 0

    def _changes(self, upto: int, room: int, nbytes: int) -> list[Entry]:
        """Changes up to a version."""
        entries: list[Entry] = []
        try:
            location = self._location or self._frames.locate(*self.position)
            for _ in range(_FRAMES):
                found = self._frames.read(location)
                assert found is not None  # a page is of a visible version
                block, after = found
                self._meanwhile.add(block)
                piece = Slice(block, self._predicate.select(block))
                if self.position.index and self.position.version == block.version:
                    piece = piece.since(self.position.index)
                taken = piece.first(room, nbytes, least=0 if entries else 1) if piece.indices else piece
                for change in block.changes(taken.indices, self._view) if taken.indices else ():
                    self.position = change.after
                    entries.append(in_snapshot(change, self.cursor))
                if len(taken.indices) < len(piece.indices):
                    self._location = location
                    return entries
                self.position, self._location = block.end, after
                location = after
                room -= len(taken.indices)
                nbytes -= taken.nbytes
                if block.end.version > upto or room <= 0 or nbytes <= 0:
                    break
        except HistoryPruned as error:
            if error.oldest > self.position:
                raise SnapshotGone(error.oldest, self.id) from error
            self._location = (
                None  # only what had been looked up is gone: the end of a segment that was read whole
            )
            return entries or self._changes(upto, room, nbytes)
        return entries

    def _of_page(self, page: SnapshotPage, room: int, nbytes: int) -> list[Entry]:
        """Rows of the page."""
        if not self._given:
            self._found = self._rows.wanted(self._meanwhile.rows, self.position)
        entries: list[Entry] = []
        name, token = self.id, self._token(self.position)
        committed_at, timestamp = 0, time_of(0)
        for row, shown in self._found[self._given : self._given + room]:
            self._last = place = row.place
            if row.committed_at != committed_at:
                committed_at = row.committed_at
                timestamp = time_of(committed_at)
            entries.append(read_row(row, shown, SnapshotCursor(name, place, token), timestamp))
            nbytes -= len(shown.body_bytes or b"")
            if nbytes <= 0:
                break
        self._given += len(entries)
        if self._given < len(self._found):
            return entries
        if page.rows:
            self._last = page.rows[-1].place
        self._page, self._given, self._found = None, 0, []
        self.page_bytes = 0
        self.done = not page.more
        entries.append(ChunkEnd(self.cursor))
        if self.done:
            entries.append(SnapshotEnd(self.id, self.position))
        return entries
