"""What a subscriber gets before a snapshot has ended: rows, and changes between them."""

from publishers.model.change import Change
from publishers.model.position import Position
from publishers.snapshots.cursor import SnapshotCursor

__all__ = ["SnapshotChange"]


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
