"""Gathers the changes of a transaction that is delivered as one unit."""

from typing import Final

from publishers.groups.unit import EVERYTHING, GroupLane
from publishers.model.position import Position

__all__ = ["MOST_LANES", "GatheredTransaction", "LanedPlace"]

MOST_LANES: Final = 256
"""Most keys of one transaction that are distinguished. A transaction with more keys is a barrier for all changes."""

LanedPlace = tuple[Position, tuple[GroupLane, ...]]
"""The position of a transaction, and its lanes."""


class GatheredTransaction:
    """The transaction that is being read.

    Attributes:
        version: Its version; None if there is none.
    """

    def __init__(self) -> None:
        self.version: int | None = None
        self._lanes: set[GroupLane] = set()

    def add(self, position: Position, lane: GroupLane | None) -> list[LanedPlace]:
        """Adds a change; returns the transaction before it if the change begins another one."""
        found = [] if self.version in (None, position.version) else self.finish()
        self.version = position.version
        if lane is not None and len(self._lanes) <= MOST_LANES:
            self._lanes.add(lane)
        return found

    def finish(self) -> list[LanedPlace]:
        """Ends the transaction and returns it; an empty list if there is none."""
        version, lanes = self.version, self._lanes
        self.forget()
        if version is None:
            return []
        return [(Position(version), tuple(lanes) if len(lanes) <= MOST_LANES else (EVERYTHING,))]

    def forget(self) -> None:
        """Drops the transaction."""
        self.version, self._lanes = None, set()
