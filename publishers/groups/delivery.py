"""Deliveries and statistics of groups, as their users see them."""

from dataclasses import dataclass
from datetime import datetime

import msgspec

from publishers.fanout.state import SubscriptionLag
from publishers.groups.state import GroupState
from publishers.model.change import Change
from publishers.model.errors import brief
from publishers.model.position import Position

__all__ = [
    "ClaimedDeliveries",
    "DeadLetter",
    "GroupDelivery",
    "GroupStatistics",
    "GroupTotals",
    "PendingRow",
    "PendingSummary",
]


class GroupDelivery(msgspec.Struct, frozen=True, gc=False):
    """A change delivered to a consumer, to be acknowledged by its position.

    Attributes:
        position: Position of the change; with ``ack="transaction"``, of the start of the transaction.
        changes: The change; with ``ack="transaction"``, all matching changes of the transaction.
        count: How often it was delivered, this time included.
        generation: The generation of the consumer.
    """

    position: Position
    changes: tuple[Change, ...]
    count: int
    generation: int

    __repr__ = brief

    @property
    def change(self) -> Change:
        """The change, or the first one."""
        return self.changes[0]


@dataclass(frozen=True, slots=True)
class PendingRow:
    """A delivery that is not acknowledged.

    Attributes:
        position: Its position.
        consumer: The consumer that holds it.
        generation: The generation of that consumer.
        first_at: When it was first delivered.
        last_at: When it was last delivered.
        idle: Seconds since the last delivery.
        count: How often it was delivered.
    """

    position: Position
    consumer: str
    generation: int
    first_at: datetime
    last_at: datetime
    idle: float
    count: int


@dataclass(frozen=True, slots=True)
class PendingSummary:
    """All deliveries that are not acknowledged.

    Attributes:
        total: Number of deliveries.
        lowest: The first position; None if there is none.
        highest: The last position; None if there is none.
        consumers: Number of deliveries of each consumer, by name.
    """

    total: int
    lowest: Position | None
    highest: Position | None
    consumers: dict[str, int]


@dataclass(frozen=True, slots=True)
class ClaimedDeliveries:
    """The result of a claim.

    Attributes:
        deliveries: The deliveries moved to the consumer.
        next: The position at which the next claim may start; None at the end.
        lost: Requested positions that retention deleted before they were done.
    """

    deliveries: tuple[GroupDelivery, ...]
    next: Position | None
    lost: tuple[Position, ...]

    __repr__ = brief


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A unit that was delivered too often, or terminated.

    Attributes:
        position: Position of the change or the transaction.
        cursor: The position as the text of a token.
        consumer: The consumer of its last delivery; None if it was not delivered since the log was opened.
        count: How often it was delivered.
        first_error: The reason of its first failed delivery; empty if it is not known.
        last_error: The reason of its last failed delivery; empty if it is not known.
        died_at: When the letter was written.
        changes: The changes, as mappings with ``position``, ``operation``, ``entity_type``, ``key`` and the texts of their images,
            ``body`` and ``before``; empty if retention had deleted them or they are too large.
    """

    position: Position
    cursor: str
    consumer: str | None
    count: int
    first_error: str
    last_error: str
    died_at: datetime
    changes: tuple[dict[str, object], ...]

    __repr__ = brief


@dataclass(frozen=True, slots=True)
class GroupStatistics:
    """The statistics of one group.

    Attributes:
        name: Its name.
        state: Its state.
        floor: The position before which every change is done.
        head: The position up to which it has read.
        generation: The last generation assigned to a consumer.
        consumers: The names of the joined consumers, in order.
        pending: Deliveries that are not acknowledged.
        due: Deliveries that are due for redelivery, now or after a delay.
        parked: Changes read ahead.
        dying: Changes to write to the dead letters.
        acked: Changes acknowledged since the log was opened.
        redelivered: Deliveries since the log was opened that were not the first of their change.
        dead: Dead letters written since the group was created.
        lost: Changes read, and deleted by retention before they were done, since the group was created.
        lag: How far ``floor`` is behind the watermark, in versions, changes, bytes and seconds.
        unsynced: Whether a crash can lose progress that is not in the journal yet.
        last_error: The reason of the last failed delivery since the log was opened; None if there was none.
        next_in: Seconds until the next redelivery; None if none is due or delayed.
    """

    name: str
    state: GroupState
    floor: Position
    head: Position
    generation: int
    consumers: tuple[str, ...]
    pending: int
    due: int
    parked: int
    dying: int
    acked: int
    redelivered: int
    dead: int
    lost: int
    lag: SubscriptionLag
    unsynced: bool
    last_error: str | None = None
    next_in: float | None = None


@dataclass(frozen=True, slots=True)
class GroupTotals:
    """The statistics of all groups of a log.

    Attributes:
        count: Number of groups, at most the option ``slots``.
        stopped: Groups that deliver nothing until an operator acts: lost, forked, or paused by their breaker.
        listed: The statistics of single groups, by name.
    """

    count: int = 0
    stopped: int = 0
    listed: tuple[GroupStatistics, ...] = ()
