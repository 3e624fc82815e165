"""Tables of states: which state an event leads to, under which conditions, and what is done then.

The enums of a table say what its states, events, conditions and actions are, so that a diagram can be made from it.
"""

from collections.abc import Callable, Iterable
from enum import Enum
from typing import Generic, NamedTuple, TypeVar

__all__ = ["TransitionRow", "TransitionTable"]

S = TypeVar("S", bound=Enum)
E = TypeVar("E", bound=Enum)
G = TypeVar("G", bound=Enum)
A = TypeVar("A", bound=Enum)


class TransitionRow(NamedTuple, Generic[S, E, G, A]):
    """One row of a table.

    Attributes:
        state: The state before.
        event: The event.
        when: Conditions that must all hold. If several rows fit an event, the first one counts.
        to: The state after.
        then: The actions, in this order.
    """

    state: S
    event: E
    when: tuple[G, ...]
    to: S
    then: tuple[A, ...] = ()


class TransitionTable(Generic[S, E, G, A]):
    """The rows of all states. An event without a row changes nothing: the state stays, and no action runs.

    Args:
        rows: The rows.

    Attributes:
        rows: The rows, in their order.
    """

    def __init__(self, rows: Iterable[TransitionRow[S, E, G, A]]) -> None:
        self.rows: tuple[TransitionRow[S, E, G, A], ...] = tuple(rows)
        self._found: dict[tuple[S, E], list[TransitionRow[S, E, G, A]]] = {}
        for row in self.rows:
            self._found.setdefault((row.state, row.event), []).append(row)

    def of(self, state: S, event: E) -> list[TransitionRow[S, E, G, A]]:
        """The rows of a state and an event."""
        return self._found.get((state, event), [])

    def row(self, state: S, event: E, holds: Callable[[G], bool]) -> TransitionRow[S, E, G, A] | None:
        """The first row of a state and an event whose conditions hold; None if there is none."""
        for row in self._found.get((state, event), ()):
            if not row.when or all(map(holds, row.when)):
                return row
        return None
