"""The errors of groups, beside those of a log (`publishers.errors`).

::

    PenstockError
    |-- HistoryPruned
    |   `-- GroupLost            retention deleted changes that were not done           (name, oldest)
    |-- SlotError
    |   `-- Fenced
    |       `-- ConsumerFenced   a consumer lost its name or its delivery to another    (consumer, generation, current)
    `-- GroupError
        |-- NoSuchGroup          the log has no group of that name                      (name, known)
        |-- GroupExists          the log has a group of that name                       (name)
        |-- GroupPaused          the group delivers nothing until it is resumed         (name, why)  retryable
        |-- GroupForked          its position is not in this history of the log         (name, place)
        |-- GroupUnwritten       acknowledgements cannot be written now                 (name, why)  retryable
        `-- GroupCorrupted       its journal is damaged                                 (name, path, why)
"""

from typing import TYPE_CHECKING, ClassVar

from publishers.errors import HistoryPruned, NotThere, PenstockError
from publishers.slots.errors import Fenced

if TYPE_CHECKING:
    from pathlib import Path


__all__ = [
    "ConsumerFenced",
    "GroupCorrupted",
    "GroupError",
    "GroupExists",
    "GroupForked",
    "GroupLost",
    "GroupPaused",
    "GroupUnwritten",
    "NoSuchGroup",
]


class GroupLost(HistoryPruned):
    """Retention deleted changes that a group had not done. Its consumers need a bootstrap, and the group a reset."""

    name: str
    says = (
        "group {name!r} is lost: its history was above its cap, and is no longer kept for it (the log begins at {oldest}); "
        "bootstrap its consumers from a snapshot of the source, then reset the group to the position of that snapshot"
    )


class ConsumerFenced(Fenced):
    """A consumer was removed, another one joined under its name, or its delivery went to another one. Nothing has changed."""

    consumer: str
    why: str

    def _text(self) -> str:
        return f"consumer {self.consumer!r} of group {self.name!r}, generation {self.generation}, is refused: {self.why}"


class GroupError(PenstockError):
    """An error of a group, or of all groups of a log."""


class NoSuchGroup(GroupError, NotThere):
    """The log has no group of that name, or no longer."""

    what: ClassVar[str] = "group"
    where: ClassVar[str] = "log"


class GroupExists(GroupError):
    """The log has a group of that name already."""

    name: str
    says = "the log has a group {name!r} already; choose another name, or drop it first"


class GroupPaused(GroupError):
    """A group delivers nothing until it is resumed."""

    retryable = True
    name: str
    why: str
    says = "group {name!r} delivers nothing: {why}; resume it"


class GroupForked(GroupError):
    """The position of a group is not in this history of the log, or lies beyond its end: the log is damaged or another copy."""

    name: str
    place: str
    says = (
        "group {name!r} stands at {place}, which is not in the history of this log; bootstrap its consumers from a "
        "snapshot of the source, then reset the group to the position of that snapshot"
    )


class GroupUnwritten(GroupError):
    """The disk has no room for the journal of a group, or fails. Acknowledgements stay in memory, and the write is retried."""

    retryable = True
    name: str
    why: str
    says = "the progress of group {name!r} cannot be written ({why}); the write is retried"


class GroupCorrupted(GroupError):
    """The journal of a group is damaged, and durable acknowledgements would be lost. The log itself is intact."""

    name: str
    path: "Path"
    why: str
    says = (
        "group {name!r} cannot be used: {path} is {why}; restore it from a copy, or move {path.parent} away and "
        "create the group again"
    )
