"""Transactions that are read change by change, and delivered as one."""

from typing import Final

from publishers.groups.unit import EVERYTHING, GroupLane
from publishers.model.position import Position

__all__ = ["MOST_LANES", "GatheredTransaction", "LanedPlace"]

MOST_LANES: Final = 256
"""Keys of one transaction that are told apart; one with more waits for everything, and everything for it."""

LanedPlace = tuple[Position, tuple[GroupLane, ...]]
"""Where something is that is delivered as one, and for whose earlier ones it waits."""


class GatheredTransaction:
    """The transaction that is being read.

    Attributes:
        version: Its version; None if there is none.
    """

    def __init__(self) -> None:
        self.version: int | None = None
        self._lanes: set[GroupLane] = set()

    def add(self, position: Position, lane: GroupLane | None) -> list[LanedPlace]:
        """Takes a change; answers with the transaction before it, if there was one."""
        found = [] if self.version in (None, position.version) else self.finish()
        self.version = position.version
        if lane is not None and len(self._lanes) <= MOST_LANES:
            self._lanes.add(lane)
        return found

    def finish(self) -> list[LanedPlace]:
        """The transaction, which is whole; none if there is none."""
        version, lanes = self.version, self._lanes
        self.forget()
        if version is None:
            return []
        return [(Position(version), tuple(lanes) if len(lanes) <= MOST_LANES else (EVERYTHING,))]

    def forget(self) -> None:
        """There is none any more."""
        self.version, self._lanes = None, set()
