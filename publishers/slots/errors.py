"""Errors of slots, in addition to those of a log (`publishers.errors`).

::

    PenstockError
    |-- HistoryPruned
    |   `-- SlotLost           its history was above its cap, and was deleted       (name, oldest)
    `-- SlotError
        |-- NoSuchSlot         the log has no slot of that name                     (name, known)
        |-- SlotExists         the log has a slot of that name                      (name)
        |-- SlotBusy           a consumer has the slot open                         (name, owner)  retryable
        |-- Fenced             the opening was taken over or closed                 (name, generation, current)
        |-- SlotForked         its position is not in this history of the log       (name, place)
        |-- AckAhead           more was acknowledged than delivered                 (name, position, delivered)
        |-- SlotsUnwritten     the positions of slots cannot be written now         (why)  retryable
        `-- SlotsCorrupted     the journal of the slots is damaged                  (path, why)
"""

from typing import TYPE_CHECKING, ClassVar, Final

from publishers.errors import HistoryPruned, NotThere, PenstockError

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
    """The undelivered history of a slot was above its cap, and was deleted. Its consumer needs a bootstrap."""

    name: str
    says: ClassVar[str] = (
        "slot {name!r} is lost: its history was above its cap, and is no longer kept for it (the log begins at {oldest}); "
        f"{_BOOTSTRAP}"
    )


class SlotError(PenstockError):
    """An error of a slot, or of all slots of a log."""


class NoSuchSlot(SlotError, NotThere):
    """The log has no slot of that name."""

    what: ClassVar[str] = "slot"
    where: ClassVar[str] = "log"


class SlotExists(SlotError):
    """The log has a slot of that name already."""

    name: str
    says = "the log has a slot {name!r} already; choose another name, or drop it first"


class SlotBusy(SlotError):
    """Another consumer has the slot open."""

    retryable = True
    name: str
    owner: str
    says = "slot {name!r} is open by {owner}; wait until it is closed, or take it over with take_over=True"


class Fenced(SlotError):
    """The opening of a slot was taken over or closed. The call has changed nothing."""

    name: str
    generation: int
    current: int

    def _text(self) -> str:
        newer = "" if self.generation == self.current else f", the last one is {self.current}"
        return f"generation {self.generation} of slot {self.name!r} is over{newer}; open the slot again"


class SlotForked(SlotError):
    """The position of a slot is not in this history of the log: damage, or another copy of the directory."""

    name: str
    place: str
    says = f"slot {{name!r}} stands at {{place}}, which is not in the history of this log; {_BOOTSTRAP}"


class AckAhead(SlotError):
    """More was acknowledged than delivered."""

    name: str
    position: "Position"
    delivered: "Position"
    says = (
        "{position} of slot {name!r} cannot be acknowledged: only changes before {delivered} were delivered"
    )


class SlotsUnwritten(SlotError):
    """The disk is full or fails for the journal of the slots. Acknowledgements stay in memory, and the write is retried."""

    retryable = True
    why: str
    says = "the positions of slots cannot be written ({why}); the write is retried"


class SlotsCorrupted(SlotError):
    """The journal of the slots is damaged, and with it durable acknowledgements. The log itself is intact."""

    path: "Path"
    why: str
    says = "{path} is {why}; restore it from a copy, or move {path.parent} away and create the slots again"
