"""What a subscriber gets before a snapshot has ended: rows, changes between them, and signals."""

from dataclasses import dataclass
from functools import partial
from typing import Any

from publishers.model.change import Change
from publishers.model.position import Position
from publishers.snapshots.cursor import SnapshotCursor

__all__ = ["ChunkEnd", "SnapshotBegin", "SnapshotChange", "SnapshotEnd", "SnapshotSignal", "delivering"]


class SnapshotChange(Change, frozen=True, gc=True, eq=False, kw_only=True):
    """A row (operation READ, or REMOVE outside the filter of a sink), or a change that is given between rows; equal to the change that it is made of.

    A row has the version of the first change that is not in it, index 0 and count 0: it is no change of a transaction.

    Attributes:
        cursor: The place behind it: its text is to be kept instead of a position until the snapshot has ended.
    """

    cursor: SnapshotCursor

    @property
    def after(self) -> Position:
        """The position of the next change. Of a row, those rows that follow it are not before that: keep ``cursor``."""
        return super().after if self.count else self.position


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
