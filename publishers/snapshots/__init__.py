"""Snapshots: rows of a state, and then every change after them, exactly.

A snapshot is read by pages. Each page has the version as of which its rows are; the changes of the log up to that version are
given first, then the rows, then the next page. After the last page, changes go on behind the version of that page. So each
row and each change is newer than what was given of its key before, and nothing is missing, however long it takes.
"""

from publishers.snapshots.change import SnapshotChange
from publishers.snapshots.cursor import SnapshotCursor
from publishers.snapshots.signals import ChunkEnd, SnapshotBegin, SnapshotEnd
from publishers.snapshots.source import PageRequest, PageSource, SnapshotMode, SnapshotSource
from publishers.snapshots.sql import SqlSource

__all__ = [
    "ChunkEnd",
    "PageRequest",
    "PageSource",
    "SnapshotBegin",
    "SnapshotChange",
    "SnapshotCursor",
    "SnapshotEnd",
    "SnapshotMode",
    "SnapshotSource",
    "SqlSource",
]
