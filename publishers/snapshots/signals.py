"""The signals of a snapshot beside rows and changes."""

from dataclasses import dataclass
from functools import partial
from typing import Any

from publishers.model.position import Position
from publishers.snapshots.cursor import SnapshotCursor

__all__ = ["ChunkEnd", "SnapshotBegin", "SnapshotEnd", "SnapshotSignal", "delivering"]


@dataclass(frozen=True, slots=True)
class SnapshotBegin:
    """A snapshot begins, or goes on behind a cursor.

    Attributes:
        snapshot: The id of the snapshot.
        position: The first change that is not in the first rows.
        asked: What ``again`` has answered, if it was asked for by that; else None.
    """

    snapshot: str
    position: Position
    asked: int | None = None


@dataclass(frozen=True, slots=True)
class ChunkEnd:
    """The rows of a page were given.

    Attributes:
        cursor: The place behind them; of a remote snapshot, its text.
    """

    cursor: SnapshotCursor | str


@dataclass(frozen=True, slots=True)
class SnapshotEnd:
    """All rows were given, and everything that follows is a change.

    Attributes:
        snapshot: The id of the snapshot.
        position: The first of these changes; from here on, positions are kept.
    """

    snapshot: str
    position: Position


SnapshotSignal = SnapshotBegin | ChunkEnd | SnapshotEnd


def delivering(signal: SnapshotSignal) -> Any:
    """A call that passes a signal to a subscriber, if it has a method ``on_snapshot``."""
    return partial(_deliver_to, signal)


def _deliver_to(signal: SnapshotSignal, subscriber: Any) -> None:
    if callable(handler := getattr(subscriber, "on_snapshot", None)):
        handler(signal)
