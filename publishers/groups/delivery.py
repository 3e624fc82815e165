"""What consumers of a group are given, and what they are told."""

from dataclasses import dataclass
from datetime import datetime

import msgspec

from publishers.fanout.state import SubscriptionLag
from publishers.groups.state import GroupState
from publishers.model.change import Change
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
    """A change that a consumer was given, to be acknowledged by its position.

    Attributes:
        position: Of the change; with ``ack="transaction"`` of the beginning of the transaction.
        changes: The change; with ``ack="transaction"`` all of the transaction that match.
        count: How often it was delivered, this time included.
        generation: Of the consumer.
    """

    position: Position
    changes: tuple[Change, ...]
    count: int
    generation: int

    @property
    def change(self) -> Change:
        """The change, or the first one."""
        return self.changes[0]


@dataclass(frozen=True, slots=True)
class PendingRow:
    """A delivery that is not acknowledged.

    Attributes:
        position: Of it.
        consumer: Which has it.
        generation: Of that consumer.
        first_at: When it was first delivered.
        last_at: When it was last delivered.
        idle: Seconds since then.
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
        total: How many.
        lowest: The first of them.
        highest: The last of them.
        consumers: How many each consumer has, by their names.
    """

    total: int
    lowest: Position | None
    highest: Position | None
    consumers: dict[str, int]


@dataclass(frozen=True, slots=True)
class ClaimedDeliveries:
    """What a claim has moved.

    Attributes:
        deliveries: What the consumer has now.
        next: Where the next claim may begin; None at the end.
        lost: Positions that were asked for and that retention has taken before they were done.
    """

    deliveries: tuple[GroupDelivery, ...]
    next: Position | None
    lost: tuple[Position, ...]


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """What was delivered too often, or given up.

    Attributes:
        position: Of the change or the transaction.
        cursor: The same as the text of a token.
        consumer: Which had it last; None if none in this life of the owner had.
        count: How often it was delivered.
        first_error: Why the first of its deliveries failed, as far as it is known.
        last_error: Why the last one did.
        died_at: When it was given up.
        changes: The changes, as mappings with ``position``, ``operation``, ``entity_type``, ``key`` and the texts of their images,
            ``body`` and ``before``; empty if retention had taken them.
    """

    position: Position
    cursor: str
    consumer: str | None
    count: int
    first_error: str
    last_error: str
    died_at: datetime
    changes: tuple[dict[str, object], ...]


@dataclass(frozen=True, slots=True)
class GroupStatistics:
    """One group at this moment.

    Attributes:
        name: What it is called.
        state: Whether it gives changes.
        floor: Everything before it is done.
        head: Everything before it was read.
        generation: The last one that was given to a consumer.
        consumers: Those that have joined, by their names.
        pending: How many deliveries are not acknowledged.
        due: How many are to be delivered again.
        parked: How many changes were read ahead.
        dying: How many are to be written to the dead letters.
        acked: How many were acknowledged, since the log was opened.
        redelivered: How many deliveries were not the first of a change, since then.
        dead: How many dead letters it ever made.
        lost: How many changes that it had read retention ever took before they were done.
        lag: How far ``floor`` is behind the watermark, in versions, changes, bytes and seconds.
        unsynced: Whether a crash can take something that was acknowledged.
        last_error: Why a delivery failed last, since the log was opened; None if none has.
        next_in: Seconds until something that was refused or has timed out is given again; None if there is no such thing.
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
    """All groups of a log at this moment.

    Attributes:
        count: How many there are, at most the option ``slots``.
        stopped: How many of them give nothing until an operator does something: they are lost, forked, or paused by their breaker.
        listed: Those that are told one by one, by their names.
    """

    count: int = 0
    stopped: int = 0
    listed: tuple[GroupStatistics, ...] = ()
