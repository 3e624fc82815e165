"""Where a subscription reads, how far it is, and how far behind."""

from dataclasses import dataclass
from enum import Enum

from publishers.model.position import Position

__all__ = ["Checkpoint", "Lag", "State"]


class State(Enum):
    """From where a subscription reads, or that it does not."""

    LIVE = "LIVE"
    """From the ring."""

    RESYNC = "RESYNC"
    """From the WAL, because the ring has moved on without it."""

    PAUSED = "PAUSED"
    """An operator has paused it. Statistics say so; its subscriber and its checkpoints know of the other two only."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """How far a subscription is.

    Attributes:
        position: Everything before it was delivered, or did not match: the place to resume.
        head: The position after the watermark.
        state: LIVE or RESYNC.
    """

    position: Position
    head: Position
    state: State


@dataclass(frozen=True, slots=True)
class Lag:
    """How far a subscription is behind the watermark. What is not known, or no longer remembered, is None.

    Attributes:
        versions: Versions that it has not finished.
        changes: Changes of the log in them.
        nbytes: Their stored bytes.
        seconds: How long ago the oldest of them was committed; for one that reads on from far behind, the last one read.
    """

    versions: int
    changes: int | None
    nbytes: int | None
    seconds: float | None
