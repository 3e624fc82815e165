"""The interface of sinks: the batches that a sink receives, its context, its results, and the effect of a change on a target that keeps entities."""

import enum
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Final, NamedTuple, Protocol, Self

from flow.clock import Clock
from publishers.errors import HistoryPruned, PositionError
from publishers.model.change import Area, Change, Operation
from publishers.model.position import Position
from publishers.snapshots import SnapshotChange
from publishers.views.view import Images, View
from transports.sinks.errors import TargetOfOtherHistory

__all__ = [
    "EntityEffect",
    "EntitySpace",
    "ItemResult",
    "ItemVerdict",
    "Sink",
    "SinkBatch",
    "SinkContext",
    "SinkGap",
    "SinkLog",
    "Unfit",
    "effect_of",
]


class SinkLog(Protocol):
    """What sinks and their runners use of a log; see ``ChangeLog``."""

    @property
    def name(self) -> str:
        """The name of the log."""
        ...

    @property
    def log_id(self) -> Any:
        """The id of the log, a UUID."""
        ...

    @property
    def slots(self) -> Any:
        """The slots of the log."""
        ...

    @property
    def path(self) -> Path:
        """The directory of the log."""
        ...

    def changes(self, *criteria: Any, since: Any, view: View, snapshot: Any, source: Any) -> Any:
        """The changes of the log, preceded by rows of the state."""
        ...

    @property
    def oldest(self) -> Position:
        """The oldest position that is kept."""
        ...

    @property
    def head(self) -> Position:
        """The position after the newest visible version."""
        ...

    def token(self, position: Position) -> object:
        """A position together with the history that it belongs to."""
        ...

    def position_of(self, token: str) -> Position:
        """Parses the text of such a token."""
        ...

    def idempotency_key(self, change: Change) -> str:
        """A text that identifies the change, and no other change."""
        ...


@dataclass(frozen=True, slots=True)
class SinkContext:
    """What a sink receives when it is opened.

    Attributes:
        name: The name of the sink.
        log_name: The name of the log.
        log_id: The id of the log, 32 hexadecimal digits.
        view: The view of the target.
        generation: The generation of the slot's opening. It rises with each opening, so that a target can reject a replaced sender.
        clock: The clock of the runner.
        token: Formats a position as the text that a target stores; the text names the history that the position belongs to.
        position_of: Parses such a text; raises ``PositionError`` for one of another log or history.
        change_id: The id of a change: the same in every attempt, and different from that of any change of any log.
        in_flight: How many threads call ``write`` concurrently.
        interrupted: Whether an order waits, such as that to stop: a call that may take longer than its timeout ends with
            ``TargetUnavailable`` then.
        kept: Returns what the sink has given to ``keep``, also before a restart; None before the first time.
        keep: Keeps a value, of what JSON has, beside the log; durable when it returns.
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
    interrupted: Callable[[], bool] = lambda: False
    kept: Callable[[], Any] = lambda: None
    keep: Callable[[Any], None] = lambda _: None

    @classmethod
    def of(
        cls,
        log: SinkLog,
        name: str,
        view: View,
        clock: Clock,
        in_flight: int = 1,
        interrupted: Callable[[], bool] = lambda: False,
    ) -> Self:
        """Returns the context of a sink of a log."""
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
            interrupted,
        )

    def place_of(self, text: str, where: str, content: str) -> Position:
        """Returns the position that a target stores, as the text of a token.

        Args:
            text: The text.
            where: What stores it, for the error.
            content: What an operator empties if the target has changes that the log lacks.

        Raises:
            HistoryPruned: If the changes behind it are no longer kept.
            TargetOfOtherHistory: If the log does not have the changes before it.
        """
        try:
            return self.position_of(text)
        except HistoryPruned:
            raise
        except PositionError as error:
            raise TargetOfOtherHistory(str(error), self.name, where, content) from None


class EntitySpace(NamedTuple):
    """Where a target keeps the entities of one type.

    Attributes:
        what: What it is, for errors: ``table`` or the like.
        begin: Its name; or, with ``end``, the beginning of the names of its entities.
        end: The end of the names of its entities; None for a space with one name.
    """

    what: str
    begin: str
    end: str | None = None

    def meets(self, other: "EntitySpace") -> bool:
        """Whether an entity of one space can have the name of one of the other space."""
        if self.end is None or other.end is None:
            return self == other
        return (self.begin.startswith(other.begin) or other.begin.startswith(self.begin)) and (
            self.end.endswith(other.end) or other.end.endswith(self.end)
        )

    @property
    def everything(self) -> bool:
        """Whether every name is in it."""
        return not self.begin and self.end == ""

    def __str__(self) -> str:
        return f"{self.what} {self.begin}" + ("" if self.end is None else f"*{self.end}")


class SinkGap(NamedTuple):
    """A range of changes that the target does not get.

    Attributes:
        first: The position of the first change, as the text of a token.
        next: The position behind the last change, as the text of a token.
    """

    first: str
    next: str


@dataclass(frozen=True, slots=True)
class SinkBatch:
    """Consecutive matching changes for a target.

    Attributes:
        changes: The changes in the order of the log, at least one.
        next: The position behind them, from which a restart continues once they are confirmed.
        boundary: Whether the last transaction ends with this batch.
        attempt: The number of this attempt, from 1.
        gap: Changes before the batch that the target never gets, because the sink was switched off; present until it is confirmed.
    """

    changes: tuple[Change, ...]
    next: Position
    boundary: bool = True
    attempt: int = 1
    gap: SinkGap | None = None

    @property
    def cursor(self) -> str | None:
        """The cursor of the last change, if that is a row or was delivered between rows; else None, and ``next`` holds the position."""
        last = self.changes[-1]
        return str(last.cursor) if isinstance(last, SnapshotChange) else None

    @property
    def first(self) -> Position:
        """The position of the first change."""
        return self.changes[0].position

    def __len__(self) -> int:
        return len(self.changes)

    def refused_at(self, place: int, error: str) -> "list[ItemResult]":
        """Returns the results of a batch that was written up to a change that the target refuses: the rest was not tried."""
        rest = range(place + 1, len(self.changes))
        refused = ItemResult(place, ItemVerdict.REJECT, error)
        return [
            refused,
            *(ItemResult(one, ItemVerdict.BEHIND, "behind one that was refused") for one in rest),
        ]

    def again(self) -> "SinkBatch":
        """Returns the batch for the next attempt."""
        return replace(self, attempt=self.attempt + 1)

    def halves(self) -> "tuple[SinkBatch, SinkBatch]":
        """Splits a batch of at least two changes; the second half ends where the batch ends."""
        middle = len(self.changes) // 2
        front, rest = self.changes[:middle], self.changes[middle:]
        return (
            SinkBatch(front, rest[0].position, boundary=front[-1].version != rest[0].version, gap=self.gap),
            SinkBatch(rest, self.next, self.boundary),
        )

    def only(self, places: Collection[int]) -> "SinkBatch":
        """Returns the changes at ``places``, with the same end and attempt."""
        return replace(self, changes=tuple(one for place, one in enumerate(self.changes) if place in places))


class ItemVerdict(enum.Enum):
    """The verdict of a target on one change that it did not accept; a change without a verdict is accepted."""

    RETRY = "RETRY"
    """Transient: the change is sent again."""
    BEHIND = "BEHIND"
    """Not tried, because it is behind a refused change: the change is sent once that is left out."""
    REJECT = "REJECT"
    """Permanent: the target will never accept the change."""


class ItemResult(NamedTuple):
    """The result of one change of a batch that the target did not accept.

    Attributes:
        place: The index of the change in the batch, from 0.
        verdict: Whether to retry.
        error: The error that the target reported.
    """

    place: int
    verdict: ItemVerdict
    error: str


class Sink(Protocol):
    """Carries batches of changes to a target. One thread at a time calls it.

    ``write``, ``flush`` and ``open`` raise ``TargetUnavailable`` or ``OSError`` for a transient error, ``TargetRefused`` for a
    permanent one, and ``TooLargeForTarget``. Any other exception counts as ``TargetRefused``. The text of an error must not contain
    a secret.

    Attributes:
        stores_position: Whether ``open`` may return a position that the target stores with the data.
        idempotent: Whether a change that arrives twice has the effect of one.
        partial: Whether ``write`` may return results for single changes.
        ordered: Whether changes must arrive in order.
        images: The images that the sink needs; None for those that the user chooses.

    A sink whose ``write`` several threads may call has ``parallel = True``; see ``SinkOptions.in_flight``.
    A sink whose target keeps the newest state of each entity has ``keeps_entities = True``: it also gets a REMOVE for each entity that
    leaves the criteria, and removals and TRUNCATE although they have no values.
    A sink that keeps entities under names has ``space(entity_type)``: the `EntitySpace` of an entity type, or None if it keeps none of
    that type. A change whose entity type would be in the space of another one is refused.
    A sink whose target stores a position behind all that it may have, although not all before it must be there, has
    ``marks_history = True``: the slot's position is used then, unless that of the target has gone back behind it.
    A sink may have ``finish()``, which is called when all rows of ``snapshot="initial_only"`` are written.
    """

    stores_position: ClassVar[bool]
    idempotent: ClassVar[bool]
    partial: ClassVar[bool]
    ordered: ClassVar[bool]
    images: ClassVar[Images | None]

    def open(self, context: SinkContext) -> Position | None:
        """Connects; called again after each ``close``.

        Returns:
            The position that the target stores, which overrides the slot's; None if it stores none.
        """
        ...

    def write(self, batch: SinkBatch) -> Sequence[ItemResult] | None:
        """Writes a batch to the target.

        Returns:
            The changes that were not accepted; None or empty if all were.
        """
        ...

    def flush(self) -> None:
        """Returns when everything written is durable at the target. Called once a second, so it must be cheap when nothing was written."""
        ...

    def move(self, position: Position) -> None:
        """Durably replaces the position that the target stores, because no change comes before it or an operator has moved the sink.

        Called only if ``stores_position`` is true.
        """
        ...

    def close(self) -> None:
        """Releases all resources. Idempotent; it does not flush."""
        ...

    def alive(self) -> bool:
        """Returns whether the target answers; called before a batch is sent while the circuit is open."""
        ...


class EntityEffect(enum.Enum):
    """The effect on an entity, or on all entities of a type."""

    PUT = "PUT"
    """The entity gets the body as its state."""
    DELETE = "DELETE"
    """The entity is removed."""
    CLEAR = "CLEAR"
    """All entities of the type are removed."""
    NONE = "NONE"
    """None: the change concerns no entity, or repeats a part of another change."""


_EFFECTS: Final = {
    Operation.UPSERT: EntityEffect.PUT,
    Operation.READ: EntityEffect.PUT,
    Operation.REMOVE: EntityEffect.DELETE,
    Operation.EXPIRE: EntityEffect.DELETE,
    Operation.TRUNCATE: EntityEffect.CLEAR,
}


class Unfit(ValueError):
    """A change that the target can never hold."""


def effect_of(change: Change) -> EntityEffect:
    """Returns the effect of a change."""
    if change.area is not Area.DATA or change.field is not None:
        return EntityEffect.NONE
    return _EFFECTS.get(change.operation, EntityEffect.NONE)
