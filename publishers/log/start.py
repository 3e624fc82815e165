"""Start positions: resolves every way to name a position in a log."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final
from uuid import UUID

from publishers.blocks.block import Block
from publishers.commits.group_commit import Commit
from publishers.errors import HistoryPruned, InvalidOption, PositionAhead, SnapshotGone
from publishers.fanout.service import Service
from publishers.log.lineage import Lineage
from publishers.model.change import time_of
from publishers.model.position import Position, PositionToken, Start, check_position
from publishers.snapshots.cursor import SnapshotCursor
from publishers.views.view import Content, View
from publishers.wal.format.frame import FIRST

__all__ = ["Places", "Since"]

Since = Position | PositionToken | Commit | Start | UUID | datetime | int | str | None
"""A way to name a position in a log.

``Position``
    The first change to deliver.
text, ``PositionToken``
    A position that a client kept.
``Start.EARLIEST``, ``"earliest"``
    The oldest position that is kept at the time of resolving.
``Start.LATEST``, ``"latest"``, None
    The version after the newest visible one at the time of resolving.
int
    The beginning of a version.
``Commit``
    The beginning of the committed transaction.
``UUID``
    The beginning of the transaction with this id, which is searched from the newest back.
``datetime``
    The first version committed at this time or later; it must have a time zone.
"""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_WHOLE: Final = View(Content.BODY)
_MICROSECOND: Final = timedelta(microseconds=1)


class Places:
    """Finds positions by name, by time and by transaction; may read the disk on the calling thread.

    Args:
        service: The log's watermark and frames.
        lineage: Judges the tokens that clients kept.

    Attributes:
        lineage: The same.
    """

    def __init__(self, service: Service, lineage: Lineage) -> None:
        self._service = service
        self.lineage = lineage

    def find(
        self, since: Since, *, pruned: bool = False, check: Callable[[], None] = lambda: None
    ) -> Position | Start:
        """Returns a position, or a name that is resolved at each subscribe.

        Args:
            since: Names the position.
            pruned: Whether to return a position that is no longer kept, instead of raising.
            check: Called before each record that is examined; its exceptions end the search.

        Raises:
            InvalidOption: If ``since`` names no position.
            PositionError: If a token belongs to another log, or is no longer valid.
        """
        if since is None or since == Start.LATEST:
            return Start.LATEST
        if since == Start.EARLIEST:
            return Start.EARLIEST
        if isinstance(since, Position):
            check_position("since", since)
            return since
        if isinstance(since, Commit):
            return Position(since.version)
        if isinstance(since, datetime):
            return self.at(since)
        if isinstance(since, UUID):
            return self.transaction(since, check)
        if isinstance(since, int) and not isinstance(since, bool):
            if since < 1:
                raise InvalidOption(
                    "since", since, "a version, the first of which is 1, or 'earliest' for all that is kept"
                )
            return Position(since)
        if isinstance(since, (str, PositionToken)):
            return self.kept(since, pruned=pruned)
        raise InvalidOption("since", since, "a position, its text, a version, a time or a transaction")

    def kept(self, token: str | PositionToken, *, pruned: bool = False, ahead: bool = False) -> Position:
        """Returns the position of a token that a client kept.

        Args:
            token: The token.
            pruned: As for `find`.
            ahead: Whether to return a position that the owner has made visible and this opening has not read yet, instead of
                raising.

        Raises:
            PositionError: If the token belongs to another log, or is no longer valid.
        """
        found = token if isinstance(token, PositionToken) else PositionToken.parse(token)
        with self._service.noting():
            head = max(self._service.head, self.lineage.shown) if ahead else self._service.head
            return self.lineage.judge(found, self._service.oldest, head, pruned=pruned)

    def in_snapshot(self, cursor: SnapshotCursor) -> Position:
        """Returns the position in the cursor of a snapshot.

        Raises:
            PositionError: If the cursor belongs to another log, or is no longer valid.
            SnapshotGone: If the changes that follow it are no longer kept.
        """
        try:
            return self.kept(cursor.token)
        except HistoryPruned as error:
            raise SnapshotGone(error.oldest, cursor.snapshot) from error

    def at(self, moment: datetime) -> Position:
        """Returns the first position that was committed at or after a moment; the head if there is none yet.

        Raises:
            InvalidOption: If ``moment`` is not a time, or has no time zone.
        """
        if not isinstance(moment, datetime):
            raise InvalidOption("moment", moment, "a time with a time zone, such as datetime.now(UTC)")
        if moment.tzinfo is None or moment.utcoffset() is None:
            raise InvalidOption("since", moment, "a time with a time zone, such as datetime.now(UTC)")
        version = self._service.frames.at((moment - _EPOCH) // _MICROSECOND)
        return min(Position(version), self._service.head)

    def time(self, place: Position | int) -> datetime:
        """Returns the commit time of a version.

        Raises:
            PositionAhead: If it is not visible yet.
            HistoryPruned: If it is no longer kept.
        """
        version = place.version if isinstance(place, Position) else place
        if isinstance(version, bool) or not isinstance(version, int):
            raise InvalidOption("place", place, "a position or a version")
        head = self._service.head
        if version >= head.version:
            raise PositionAhead(head)
        return time_of(self.committed_at(version))

    def committed_at(self, version: int) -> int:
        """Returns the commit time of a visible version, in microseconds since the Unix epoch.

        Raises:
            HistoryPruned: If it is no longer kept.
        """
        frames = self._service.frames
        found = frames.read(frames.locate(version, 0))
        assert found is not None  # every visible version that is not pruned exists
        return found[0].committed_at

    def transaction(self, transaction_id: UUID, check: Callable[[], None] = lambda: None) -> Position:
        """Returns the beginning of a transaction, searched from the newest version back; ``check`` as for `find`.

        Raises:
            InvalidOption: If no transaction that is kept has this id.
        """
        wanted = str(transaction_id).encode()
        for frame in self._service.frames.backward(self._service.head.version - 1, 2**32):
            check()
            if frame.header.flags & FIRST and wanted in frame.annotations:
                block = Block.of(frame.header, *frame.decoded)
                body = block.change(0, _WHOLE).body
                if isinstance(body, dict) and body.get("id") == str(transaction_id):
                    return Position(block.version)
        raise InvalidOption("since", transaction_id, "the id of a transaction that is kept")
