"""The schemas of an opened log: from the file beside it, and where that tells too little, from its changes."""

from collections.abc import Callable, Iterator
from pathlib import Path

from publishers.blocks.block import Block
from publishers.model.change import Area, Change
from publishers.model.position import Position
from publishers.schemas.registry import Schemas
from publishers.views.view import Content, View
from publishers.wal import FileSystem, Follower, Reader, Wal

__all__ = ["schemas_of", "schemas_told"]


def schemas_of(
    files: Wal | Follower, filesystem: FileSystem, directory: Path, failed: Callable[[], bool]
) -> Schemas:
    """The schemas of a log: all that were told for the commits of its owner, for all others those that are shown.

    Args:
        files: Of the log.
        filesystem: Where they are.
        directory: Of the log.
        failed: Whether it has failed.
    """

    def replay(since: Position, shown: bool) -> Iterator[Change]:
        return schemas_told(files.whole if isinstance(files, Wal) and not shown else files.reader, since)

    if isinstance(files, Wal):
        return Schemas(
            filesystem,
            directory,
            replay,
            lambda: files.appended,
            visible=lambda: files.visible,
            oldest=lambda: files.reader.oldest,
            insist=files.insist,
            failed=failed,
        )
    return Schemas(
        filesystem,
        directory,
        replay,
        None,
        visible=lambda: files.shown,
        oldest=lambda: files.reader.oldest,
    )


def schemas_told(reader: Reader, since: Position) -> Iterator[Change]:
    """The changes that told schemas, from a position on, as far as a reader reads.

    Raises:
        HistoryPruned: If retention takes what is being read.
        WalCorrupted: If the log is damaged there.
    """
    view = View(content=Content.BODY)
    location = reader.locate(max(since.version, reader.oldest))
    while (frame := reader.read(location)) is not None:
        block = Block.of(frame.header, frame.columns, frame.annotations)
        for index in block.indices:
            if block.area(index) is Area.SCHEMA and (change := block.change(index, view)).position >= since:
                yield change
        location = frame.next
