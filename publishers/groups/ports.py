"""The interfaces that groups need: of their log, and of the log of their dead letters."""

from collections.abc import Callable
from typing import Any, Protocol

from flow.clock import Clock
from publishers.criteria.criteria import Criteria
from publishers.criteria.predicate import Predicate
from publishers.model.change import Change
from publishers.model.position import Position
from publishers.slots.ports import PlaceLog
from publishers.views.view import View

__all__ = ["DeadLog", "GroupLog", "GroupPage"]


class GroupPage(Protocol):
    """The result of one read; see ``History``."""

    @property
    def changes(self) -> tuple[Change, ...]:
        """The changes, in order."""
        ...

    @property
    def next(self) -> Position:
        """The position to continue at."""
        ...

    @property
    def nbytes(self) -> int:
        """Bytes of memory of the changes, roughly."""
        ...


class GroupLog(PlaceLog, Protocol):
    """The log, as its groups use it."""

    @property
    def clock(self) -> Clock:
        """The clock of the log."""
        ...

    def page(self, predicate: Predicate, since: Position, limit: int, nbytes: int, view: View) -> GroupPage:
        """Reads matching changes from ``since`` up to the watermark, at most ``limit`` changes and ``nbytes`` bytes."""
        ...

    def aside(self, task: Callable[[], None]) -> None:
        """Runs a task that may wait for the disk or call a subscriber, on a thread of the log.

        Raises:
            RuntimeError: If the log was closed.
        """
        ...

    def listen(
        self, criteria: Criteria, since: Position, notify: Callable[[], object]
    ) -> Callable[[], object]:
        """Calls ``notify`` when a matching change is visible from a position on, or when there never will be one.

        Returns:
            A function that ends this.
        """
        ...


class DeadLog(Protocol):
    """A change log of dead letters."""

    def put(self, key: str, letter: dict[str, Any]) -> None:
        """Adds a letter durably; replaces a letter of the same key."""
        ...

    def letters(self) -> dict[str, Any]:
        """The letters by key, in the order of their arrival."""
        ...

    def remove(self, keys: list[str]) -> None:
        """Removes letters durably."""
        ...

    def close(self) -> None:
        """Closes the log."""
        ...
