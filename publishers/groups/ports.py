"""What groups need of the log that they share out, and of the dead letters beside it."""

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
    """What was read at once; see ``History``."""

    @property
    def changes(self) -> tuple[Change, ...]:
        """The changes, in order."""
        ...

    @property
    def next(self) -> Position:
        """Where to go on."""
        ...

    @property
    def nbytes(self) -> int:
        """About how much memory the changes take."""
        ...


class GroupLog(PlaceLog, Protocol):
    """The log, as its groups use it."""

    @property
    def clock(self) -> Clock:
        """What time it is."""
        ...

    def page(self, predicate: Predicate, since: Position, limit: int, nbytes: int, view: View) -> GroupPage:
        """Reads up to the watermark."""
        ...

    def aside(self, task: Callable[[], None]) -> None:
        """Runs a task that may wait for the disk, and may reach a subscriber, on a thread of the log.

        Raises:
            RuntimeError: If the log was closed.
        """
        ...

    def listen(
        self, criteria: Criteria, since: Position, notify: Callable[[], object]
    ) -> Callable[[], object]:
        """Has something called when there is a change from a position on, or never will be; answers with what ends that."""
        ...


class DeadLog(Protocol):
    """A change log of dead letters."""

    def put(self, key: str, letter: dict[str, Any]) -> None:
        """Adds a letter, durably; one of the same key is replaced."""
        ...

    def letters(self) -> dict[str, Any]:
        """Those that are there, by their keys, as they came."""
        ...

    def remove(self, keys: list[str]) -> None:
        """Takes letters away, durably."""
        ...

    def close(self) -> None:
        """Closes it."""
        ...
