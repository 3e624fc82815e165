"""What carries changes to a target, what it is given, and what it answers."""

import enum
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol, Self

from flow.clock import Clock
from publishers.model.change import Change
from publishers.model.position import Position
from publishers.snapshots import SnapshotChange
from publishers.views.view import Images, View

__all__ = ["ItemResult", "ItemVerdict", "Sink", "SinkBatch", "SinkContext", "SinkGap", "SinkLog"]


class SinkLog(Protocol):
    """What sinks and their runners use of a log; see ``ChangeLog``."""

    @property
    def name(self) -> str:
        """What it is called."""
        ...

    @property
    def log_id(self) -> Any:
        """Its id, a UUID."""
        ...

    @property
    def slots(self) -> Any:
        """Its slots."""
        ...

    @property
    def path(self) -> Path:
        """Its directory."""
        ...

    def changes(self, *wishes: Any, since: Any, view: View, snapshot: Any, source: Any) -> Any:
        """Its changes, with rows of a state before them."""
        ...

    @property
    def head(self) -> Position:
        """The position after the newest visible version."""
        ...

    def token(self, position: Position) -> object:
        """A position with the history that it belongs to."""
        ...

    def position_of(self, token: str) -> Position:
        """The position of the text of such a token."""
        ...

    def idempotency_key(self, change: Change) -> str:
        """The text that no other change has."""
        ...


@dataclass(frozen=True, slots=True)
class SinkContext:
    """What a sink is told when it is opened.

    Attributes:
        name: Of the sink.
        log_name: Of the log.
        log_id: Of the log, 32 hexadecimal digits.
        view: How the target sees changes.
        generation: Of the opening of the slot: it rises with each, so that a target can tell a sender that was replaced.
        clock: What time it is.
        token: The text of a position, which names the history that it belongs to: what a target stores.
        position_of: The position of such a text; it raises a ``PositionError`` for one of another log or history.
        change_id: The text that one change has in every attempt, and no other change of any log.
        in_flight: By how many threads ``write`` is called at once.
    """

    name: str
    log_name: str
    log_id: str
    view: View
    generation: int
    clock: Clock
    token: Callable[[Position], str]
    position_of: Callable[[str], Position]
    change_id: Callable[[Change], str]
    in_flight: int = 1

    @classmethod
    def of(cls, log: SinkLog, name: str, view: View, clock: Clock, in_flight: int = 1) -> Self:
        """The context of a sink of a log."""
        return cls(
            name,
            log.name,
            log.log_id.hex,
            view,
            0,
            clock,
            lambda position: str(log.token(position)),
            log.position_of,
            log.idempotency_key,
            in_flight,
        )


class SinkGap(NamedTuple):
    """Changes that are left out.

    Attributes:
        first: The place of the first, as the text of a token.
        next: The place behind the last, likewise.
    """

    first: str
    next: str


@dataclass(frozen=True, slots=True)
class SinkBatch:
    """Consecutive matching changes for a target.

    Attributes:
        changes: The changes in the order of the log, at least one.
        next: The position behind them: once they are confirmed, a restart goes on there.
        boundary: Whether the last transaction in it is finished.
        attempt: How often this very batch is tried, from 1.
        gap: Changes before it that the target will never get, as the sink was switched off; told until it is confirmed.
    """

    changes: tuple[Change, ...]
    next: Position
    boundary: bool = True
    attempt: int = 1
    gap: SinkGap | None = None

    @property
    def cursor(self) -> str | None:
        """The place behind the last change, if that is a row or was given between rows; else None, and ``next`` tells it."""
        last = self.changes[-1]
        return str(last.cursor) if isinstance(last, SnapshotChange) else None

    @property
    def first(self) -> Position:
        """Where the first change is."""
        return self.changes[0].position

    def __len__(self) -> int:
        return len(self.changes)

    def again(self) -> "SinkBatch":
        """The same for the next attempt."""
        return replace(self, attempt=self.attempt + 1)

    def halves(self) -> "tuple[SinkBatch, SinkBatch]":
        """Two batches of at least two changes; the second one ends where this ends."""
        middle = len(self.changes) // 2
        front, rest = self.changes[:middle], self.changes[middle:]
        return (
            SinkBatch(front, rest[0].position, boundary=front[-1].version != rest[0].version, gap=self.gap),
            SinkBatch(rest, self.next, self.boundary),
        )

    def only(self, places: Collection[int]) -> "SinkBatch":
        """The changes at some places, up to the same end, which were tried as often."""
        return replace(self, changes=tuple(one for place, one in enumerate(self.changes) if place in places))


class ItemVerdict(enum.Enum):
    """What a target says of one change of a batch; of those of which it says nothing it has taken them."""

    RETRY = "RETRY"
    """Not now: it is sent again."""
    REJECT = "REJECT"
    """Never: the change is poison for this target."""


class ItemResult(NamedTuple):
    """What became of one change of a batch that was not taken.

    Attributes:
        place: Which, from 0.
        verdict: Whether to try again.
        error: What the target said of it.
    """

    place: int
    verdict: ItemVerdict
    error: str


class Sink(Protocol):
    """Carries batches of changes to a target. One thread at a time calls it.

    ``write``, ``flush`` and ``open`` raise ``TargetUnavailable`` for what may work later (an ``OSError`` is taken for that too),
    ``TargetRefused`` for what will not, and ``TooLargeForTarget``. Any other exception is taken for ``TargetRefused``. Nothing that
    they raise may tell a secret.

    Attributes:
        stores_position: Whether ``open`` may return the position that the target stores with the data.
        idempotent: Whether a change that arrives twice has the effect of one.
        partial: Whether ``write`` may answer for single changes.
        ordered: Whether changes have to arrive in their order.
        images: Which images it needs; None for those that the user chooses.

    One whose ``write`` may be called by several threads says ``parallel = True``; see ``SinkOptions.in_flight``.
    One that has ``finish()`` is told by it when all rows are written, and ``snapshot="initial_only"`` wants nothing else.
    """

    stores_position: ClassVar[bool]
    idempotent: ClassVar[bool]
    partial: ClassVar[bool]
    ordered: ClassVar[bool]
    images: ClassVar[Images | None]

    def open(self, context: SinkContext) -> Position | None:
        """Connects; again after each ``close``.

        Returns:
            The position that the target stores, which wins over the slot's; None if it stores none.
        """
        ...

    def write(self, batch: SinkBatch) -> Sequence[ItemResult] | None:
        """Gives a batch to the target.

        Returns:
            What was not taken of it, change by change; None, or nothing, if all was taken.
        """
        ...

    def flush(self) -> None:
        """Returns when everything that was written is durable at the target. Called once a second, so that it is cheap if there is nothing."""
        ...

    def move(self, position: Position) -> None:
        """Replaces the position that the target stores, durably: nothing is to come before it, or an operator has moved the sink.

        Called where ``stores_position`` is true.
        """
        ...

    def close(self) -> None:
        """Lets go of everything. Idempotent; it does not flush."""
        ...

    def alive(self) -> bool:
        """Whether the target answers; asked before a batch is sent to one that has failed again and again."""
        ...
