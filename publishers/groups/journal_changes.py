"""What the journal of a group knows, and what is still to be told to it."""

from collections.abc import Iterable

from publishers.groups.record import OpenRow
from publishers.groups.unit import GroupUnit
from publishers.model.position import Position

__all__ = ["JournalChanges", "row_of"]


class JournalChanges:
    """As many places as are not done, or were not when it was told last.

    Args:
        head: The head that the journal knows.

    Attributes:
        changed: What is newly open, or has another count: whose row is missing or old.
    """

    def __init__(self, head: Position) -> None:
        self._head = head
        self.changed: set[GroupUnit] = set()
        self._gone: set[Position] = set()  # what it knows as not done, and is

    def close(self, unit: GroupUnit) -> None:
        """Something is done."""
        self.changed.discard(unit)
        if unit.stored:
            self._gone.add(unit.position)

    def close_stored(self, position: Position) -> None:
        """Something is done that the journal knows, and that was not read again."""
        self._gone.add(position)

    def behind(self, head: Position) -> bool:
        """Whether the journal knows less."""
        return bool(self.changed or self._gone) or self._head != head

    def news(self) -> tuple[list[OpenRow], list[Position]]:
        """What is newly open or was delivered again, and what is done."""
        opened = [row_of(unit) for unit in sorted(self.changed, key=lambda one: one.position)]
        return opened, sorted(self._gone)

    def stored(
        self,
        head: Position,
        opened: Iterable[OpenRow],
        closed: Iterable[Position],
        units: dict[Position, GroupUnit],
    ) -> None:
        """It knows that much now; meanwhile more may have happened."""
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
    """What the journal keeps of something that is not done."""
    return OpenRow(unit.position.version, unit.position.index, unit.count, unit.first_us)
