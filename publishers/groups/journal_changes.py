"""What the journal of a group knows, and what is still to be told to it."""

from collections.abc import Iterable, Sequence

from publishers.groups.record import OpenRow
from publishers.groups.unit import GroupUnit
from publishers.model.position import Position

__all__ = ["JournalChanges", "row_of"]


class JournalChanges:
    """As many places as are not done, or were not when it was told last.

    Args:
        head: The head that the journal knows.
        opens: What it knows as not done.
    """

    def __init__(self, head: Position, opens: Sequence[OpenRow]) -> None:
        self._head = head
        self._stored = {row.position for row in opens}
        self._changed: set[Position] = set()  # whose row is missing or old
        self._gone: set[Position] = set()  # what it knows as not done, and is

    def change(self, position: Position) -> None:
        """Something is newly open, or its count has changed."""
        self._changed.add(position)

    def close(self, position: Position) -> None:
        """Something is done."""
        self._changed.discard(position)
        if position in self._stored:
            self._gone.add(position)

    def behind(self, head: Position) -> bool:
        """Whether the journal knows less."""
        return bool(self._changed or self._gone) or self._head != head

    def news(self, units: dict[Position, GroupUnit]) -> tuple[list[OpenRow], list[Position]]:
        """What is newly open or was delivered again, and what is done."""
        opened = [row_of(units[place]) for place in sorted(self._changed) if place in units]
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
        for place in closed:
            self._stored.discard(place)
            self._gone.discard(place)
        for row in opened:
            self._stored.add(row.position)
            unit = units.get(row.position)
            if unit is None:
                self._gone.add(row.position)
            elif row_of(unit) == row:
                self._changed.discard(row.position)


def row_of(unit: GroupUnit) -> OpenRow:
    """What the journal keeps of something that is not done."""
    return OpenRow(unit.position.version, unit.position.index, unit.count, unit.first_us)
