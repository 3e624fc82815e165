"""What slots raise, beside what a log does (`publishers.errors`).

::

    PenstockError
    |-- HistoryPruned
    |   `-- SlotLost           its history was above its cap, and is gone           (name, oldest)
    `-- SlotError
        |-- NoSuchSlot         the log has no slot of that name                     (name, known)
        |-- SlotExists         the log has a slot of that name                      (name)
        |-- SlotBusy           a consumer has the slot open                         (name, owner)  retryable
        |-- Fenced             the opening does not count any more                  (name, generation, current)
        |-- SlotForked         its place is not of this history of the log          (name, place)
        |-- AckAhead           more is acknowledged than was delivered              (name, position, delivered)
        |-- SlotsUnwritten     the places of slots cannot be written now            (why)  retryable
        `-- SlotsCorrupted     the journal of the slots is damaged                  (path, why)
"""

from typing import TYPE_CHECKING, Final

from publishers.errors import HistoryPruned, NotThere, PenstockError, PositionError

if TYPE_CHECKING:
    from pathlib import Path

    from publishers.model.position import Position

__all__ = [
    "AckAhead",
    "Fenced",
    "NoSuchSlot",
    "SlotBusy",
    "SlotError",
    "SlotExists",
    "SlotForked",
    "SlotLost",
    "SlotsCorrupted",
    "SlotsUnwritten",
]

_BOOTSTRAP: Final = "bootstrap its consumer from a snapshot of the source, then reset the slot to the position of that snapshot"


class SlotLost(HistoryPruned):
    """The history that a slot still had to give was above its cap and is gone. Its consumer needs a bootstrap."""

    def __init__(self, name: str, oldest: "Position") -> None:
        PositionError.__init__(
            self,
            f"slot {name!r} is lost: its history was above its cap, and is no longer kept for it (the log begins at {oldest}); {_BOOTSTRAP}",
        )
        self.name = name
        self.oldest = oldest


class SlotError(PenstockError):
    """Something about a slot, or about all slots of a log."""


class NoSuchSlot(SlotError, NotThere):
    """The log has no slot of that name (any more)."""

    what, where = "slot", "log"


class SlotExists(SlotError):
    """The log has a slot of that name already."""

    def __init__(self, name: str) -> None:
        super().__init__(f"the log has a slot {name!r} already; choose another name, or drop it first")
        self.name = name


class SlotBusy(SlotError):
    """A slot has one consumer at a time, and another one has it open."""

    retryable = True

    def __init__(self, name: str, owner: str) -> None:
        super().__init__(
            f"slot {name!r} is open by {owner}; wait until it is closed, or take it over with take_over=True"
        )
        self.name = name
        self.owner = owner


class Fenced(SlotError):
    """The opening of a slot does not count any more: it was taken over or closed. Nothing has changed."""

    def __init__(self, name: str, generation: int, current: int) -> None:
        newer = "" if generation == current else f", the last one is {current}"
        super().__init__(f"generation {generation} of slot {name!r} is over{newer}; open the slot again")
        self.name = name
        self.generation = generation
        self.current = current


class SlotForked(SlotError):
    """The place of a slot is not one of this history of the log, or lies beyond its end: that is damage, or another copy."""

    def __init__(self, name: str, place: str) -> None:
        super().__init__(
            f"slot {name!r} stands at {place}, which is not in the history of this log; {_BOOTSTRAP}"
        )
        self.name = name
        self.place = place


class AckAhead(SlotError):
    """More is acknowledged than was delivered."""

    def __init__(self, name: str, position: "Position", delivered: "Position") -> None:
        super().__init__(
            f"{position} of slot {name!r} cannot be acknowledged: only changes before {delivered} were delivered"
        )
        self.name = name
        self.position = position
        self.delivered = delivered


class SlotsUnwritten(SlotError):
    """The disk has no room for the journal of the slots, or fails. What was acknowledged is kept in memory and tried again."""

    retryable = True

    def __init__(self, why: str) -> None:
        super().__init__(f"the positions of slots cannot be written ({why}); the write is retried")
        self.why = why


class SlotsCorrupted(SlotError):
    """The journal of the slots is damaged: what was acknowledged durably would be lost. The log itself is good."""

    def __init__(self, path: "Path", why: str) -> None:
        super().__init__(
            f"{path} is {why}; restore it from a copy, or move {path.parent} away and create the slots again"
        )
        self.path = path
        self.why = why
