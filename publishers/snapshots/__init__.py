"""Snapshots: the rows of a state, and then every change after them.

A snapshot is read in pages. Each page names the version of its rows. The subscription delivers the changes of the log up to that
version, then the rows, then continues with the next page; after the last page it delivers the changes after its version. So each
delivered row or change is newer than the previous one of its key, and no change is missing.
"""

from publishers.snapshots.cursor import SnapshotCursor
from publishers.snapshots.signals import ChunkEnd, SnapshotBegin, SnapshotChange, SnapshotEnd
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
