"""Lines: queues of units that wait for each other, from which any unit may be removed."""

from typing import Generic, TypeVar

__all__ = ["GroupLine", "LinePlace"]

T = TypeVar("T")


class LinePlace(Generic[T]):
    """One place in a line.

    Attributes:
        item: The unit at this place.
        line: The line.
        before: The place in front of it, if there is one.
        behind: The place behind it, if there is one.
    """

    __slots__ = ("before", "behind", "item", "line")

    def __init__(self, item: T, line: "GroupLine[T]") -> None:
        self.item: T = item
        self.line: GroupLine[T] = line
        self.before: LinePlace[T] | None = None
        self.behind: LinePlace[T] | None = None


class GroupLine(Generic[T]):
    """A doubly linked list: removing a place costs the same anywhere in it, and frees all of its memory.

    Attributes:
        head: The first place; None if the line is empty.
        tail: The last place.
    """

    __slots__ = ("head", "tail")

    def __init__(self) -> None:
        self.head: LinePlace[T] | None = None
        self.tail: LinePlace[T] | None = None

    @property
    def first(self) -> T | None:
        """The first item; None if the line is empty."""
        return None if self.head is None else self.head.item

    def append(self, item: T) -> LinePlace[T]:
        """Adds an item at the end; returns its place."""
        place, last = LinePlace(item, self), self.tail
        place.before = last
        if last is None:
            self.head = place
        else:
            last.behind = place
        self.tail = place
        return place

    def remove(self, place: LinePlace[T]) -> None:
        """Removes a place."""
        before, behind = place.before, place.behind
        if before is None:
            self.head = behind
        else:
            before.behind = behind
        if behind is None:
            self.tail = before
        else:
            behind.before = before
