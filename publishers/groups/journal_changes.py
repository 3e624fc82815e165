"""The differences between a group in memory and its journal."""

from collections.abc import Iterable

from publishers.groups.record import OpenRow
from publishers.groups.unit import GroupUnit
from publishers.model.position import Position

__all__ = ["JournalChanges", "row_of"]


class JournalChanges:
    """Collects what the next frame of the journal must hold.

    Its size is bounded by the units that are not done, or were not at the last write.

    Args:
        head: The head in the journal.

    Attributes:
        changed: Units whose row in the journal is missing or stale: newly open, or delivered again.
    """

    def __init__(self, head: Position) -> None:
        self._head = head
        self.changed: set[GroupUnit] = set()
        self._gone: set[Position] = set()  # positions that are open in the journal and done by now

    def close(self, unit: GroupUnit) -> None:
        """Notes that a unit is done."""
        self.changed.discard(unit)
        if unit.stored:
            self._gone.add(unit.position)

    def close_stored(self, position: Position) -> None:
        """Notes that a position in the journal is done although its change was not read again."""
        self._gone.add(position)

    def behind(self, head: Position) -> bool:
        """Whether the journal is stale for a group with this head."""
        return bool(self.changed or self._gone) or self._head != head

    def news(self) -> tuple[list[OpenRow], list[Position]]:
        """The rows to write (newly open or delivered again), and the positions that are done."""
        opened = [row_of(unit) for unit in sorted(self.changed, key=lambda one: one.position)]
        return opened, sorted(self._gone)

    def stored(
        self,
        head: Position,
        opened: Iterable[OpenRow],
        closed: Iterable[Position],
        units: dict[Position, GroupUnit],
    ) -> None:
        """Notes what was written. Units may have changed since ``news``; these stay in ``changed``."""
        self._head = head
        self._gone.difference_update(closed)
        for row in opened:
            unit = units.get(row.position)
            if unit is None:
                self._gone.add(row.position)
                continue
            unit.stored = True
            if row_of(unit) == row:
                self.changed.discard(unit)


def row_of(unit: GroupUnit) -> OpenRow:
    """The row of a unit in the journal."""
    return OpenRow(unit.position.version, unit.position.index, unit.count, unit.first_us)
