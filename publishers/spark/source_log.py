"""A log on this machine as Spark's processes read it: from its files, without a thread, a lock or a subscriber."""

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

from pyspark.sql.datasource import InputPartition

from publishers.blocks.block import Block
from publishers.errors import HistoryPruned, InvalidOption, PositionAhead
from publishers.log.lineage import Lineage
from publishers.model.position import Position, PositionToken, Start
from publishers.schemas.registry import Schemas
from publishers.wal import Follower, RealFileSystem
from publishers.wal.format.frame import LAST
from publishers.wal.keep.hard_links import held_directory
from publishers.wal.read.catalog import Catalog
from publishers.wal.read.reader import Reader

__all__ = ["LogRange", "SourceLog", "TokenPrefixes"]


class TokenPrefixes(tuple[tuple[int, str], ...]):
    """The token prefixes of a range: pairs of a version and the prefix from that version on, in ascending order."""

    __slots__ = ()

    def of(self, version: int, index: int) -> str:
        """Returns the prefix of a position's token; it names the epoch that wrote the change just before the position."""
        wrote = version if index else version - 1
        return self[max(bisect_right(self, wrote, key=lambda pair: pair[0]) - 1, 0)][1]


@dataclass(frozen=True)
class LogRange(InputPartition):
    """The range of the log that one task reads.

    Attributes:
        start: Token of the first position.
        end: Token of the position after the last one.
        opening: Id of the log, and number and random bits of its writer's epoch, when the planner validated both tokens.
        prefixes: The token prefixes of the range.
    """

    start: PositionToken
    end: PositionToken
    opening: tuple[UUID, tuple[int, int]]
    prefixes: TokenPrefixes


class SourceLog:
    """The log of a source, for a planner or a task. The caller must close it.

    Args:
        path: Directory of the log.
        consumer: Name of a consumer whose hard links to read through; retention does not delete these. None for the log itself.
        planning: Whether this process acts as the consumer; only one process at a time can.

    Raises:
        LogError: If there is no such log, or it cannot be read.
        InvalidOption: If the owner of the log makes no links for the consumer.
        ConsumerBusy: If another process acts as the consumer.
    """

    def __init__(self, path: Path, consumer: str | None = None, *, planning: bool = False) -> None:
        self._files = Follower.open(path, consumer=consumer if planning else None)
        directory = path if consumer is None else held_directory(path, consumer)
        self._catalog = Catalog(RealFileSystem(), directory, self._files.log_id)
        self._reader = Reader(self._catalog, lambda: self._files.extent[1], refresh=True)
        self._lineage = Lineage(self._files)
        self.refresh()

    def close(self) -> None:
        """Closes the files."""
        self._catalog.close()
        self._files.close()

    def refresh(self) -> None:
        """Reads the current end of the log.

        Raises:
            LogGone, LogReplaced: If the log was deleted, or replaced by another one.
            WalCorrupted: If the log is damaged at its end.
        """
        self._files.refresh()
        self._catalog.newest = self._files.extent[1].segment
        self._catalog.refresh()

    def release(self, position: Position) -> None:
        """Removes the consumer's links to segments that end before a position."""
        self._files.release(position.version)

    @property
    def oldest(self) -> Position:
        """The oldest retained position."""
        return Position(self._reader.oldest)

    @property
    def head(self) -> Position:
        """The position after the newest visible version."""
        return Position(self._files.visible + 1)

    def token(self, position: Position) -> PositionToken:
        """Returns the token of a position, which includes its epoch."""
        return self._lineage.token(position)

    def schema(self, entity_type: str, version: int | None = None) -> Any:
        """Returns a schema of an entity type, or the newest, parsed; None if the log has none."""
        found = Schemas(self._files, RealFileSystem()).find(entity_type, version)
        return None if found is None else found.body

    def judge(self, token: PositionToken) -> Position:
        """Validates a token and returns its position.

        Raises:
            PositionError: If the position cannot be read from.
        """
        return self._lineage.judge(token, self.oldest, self.head)

    def find(self, place: str) -> Position:
        """Returns the position of ``"earliest"``, ``"latest"``, a version or a token.

        Raises:
            InvalidOption: If the version is 0.
            PositionError: If the position cannot be read from.
        """
        if place in (Start.EARLIEST, Start.LATEST):
            return self.oldest if place == Start.EARLIEST else self.head
        if not (place.isascii() and place.isdigit()):
            return self.judge(PositionToken.parse(place))
        position = Position(int(place))
        if not position.version:
            raise InvalidOption("since", place, "a version, the first of which is 1")
        if position < self.oldest:
            raise HistoryPruned(self.oldest)
        if position > self.head:
            raise PositionAhead(self.head)
        return position

    def within(self, start: Position, end: Position, most_bytes: int) -> Position:
        """Returns the end of the last transaction within ``most_bytes`` of ``start``, but at least of the first transaction."""
        fit, used = start, 0
        for position, size in self._marks(start, end):
            if size > most_bytes:
                break
            if not position.index:
                fit, used = position, size
        location = self._reader.locate(*fit)
        while fit < end and (frame := self._reader.read(location)) is not None:
            used += frame.header.extent
            if used > most_bytes and fit > start:
                break
            if frame.header.flags & LAST:
                fit = Position(frame.header.version + 1)
            location = frame.next
        return fit

    def ranges(self, start: Position, end: Position, nbytes: int) -> list[LogRange]:
        """Splits the log between two positions into ranges of whole frames, each of about ``nbytes`` bytes.

        Raises:
            HistoryPruned: If retention has deleted a part of it.
            WalCorrupted: If a frame on the way is damaged.
        """
        cuts: list[tuple[Position, Position]] = []
        begin, begun = start, 0
        for position, size in self._marks(start, end) if start < end else ():
            if size - begun >= nbytes or position == end:
                cuts.append((begin, position))
                begin, begun = position, size
        opening, prefixes = (self._files.log_id, self._files.opening), self._prefixes(start, end)
        return [LogRange(self.token(low), self.token(high), opening, prefixes) for low, high in cuts]

    def blocks(self, found: LogRange) -> Iterator[Block]:
        """Yields the frames of a range as blocks.

        Raises:
            PositionError: If the log's history has changed since the range was planned, or retention has deleted the range.
            LogGone, LogReplaced: If the log was deleted or replaced while it was read.
            WalCorrupted: If a frame is damaged.
        """
        start, end = found.start.position, found.end.position
        if (self._files.log_id, self._files.opening) != found.opening:
            self.judge(found.start)
            self.judge(found.end)
        if end > self.head:
            raise PositionAhead(self.head)
        location = self._reader.locate(*start)
        while (frame := self._reader.read(location)) is not None:
            block = Block.of(frame.header, *frame.decoded)
            if (block.version, block.indices.start) >= end:
                break
            yield block
            location = frame.next
        self._files.check()

    def _prefixes(self, start: Position, end: Position) -> TokenPrefixes:
        later = [Position(epoch.first_version, 1) for epoch in self._files.epochs]
        places = [start, *(place for place in later if start < place < end)]
        tokens = [(place.version if place.index else 0, str(self.token(place))) for place in places]
        return TokenPrefixes((version, text.rsplit(":", 2)[0]) for version, text in tokens)

    def _marks(self, start: Position, end: Position) -> Iterator[tuple[Position, int]]:
        """Yields starts of frames between two positions, about every 64 KiB, then ``end``; each with its bytes from ``start``."""
        # Locating the end also fills the index of the last segment, which has no index file yet.
        first, last = self._reader.locate(*start), self._reader.locate(*end)
        base, expected = -first.offset, first.segment
        for entry in self._catalog.entries:
            if not first.segment <= entry.number <= last.segment:
                continue
            if entry.number != expected:
                raise HistoryPruned(Position(entry.first_version))
            for offset, (version, index, _) in self._catalog.index(entry.number).entries().items():
                position = Position(version, index if index > 1 else 0)
                if start < position < end:
                    yield position, base + offset
            if entry.number < last.segment:
                base += self._catalog.size(entry.number)
            expected += 1
        yield end, base + last.offset
