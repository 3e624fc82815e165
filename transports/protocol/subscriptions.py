"""The subscriptions and questions of a connection in the server's machine, and their effects."""

import math
from typing import Any, Final

from transports.codec.again import AgainRequest
from transports.codec.events import next_head
from transports.codec.messages import SubscribeRequest
from transports.operations.operation import LogOperation
from transports.protocol.connection import Effect, WireEntry
from transports.protocol.states import EntryStage

__all__ = ["RESYNC_CHECKPOINT", "AckSlot", "AskRows", "Open", "Operate", "OrderEntry", "SubscriptionEntry"]

RESYNC_CHECKPOINT: Final = 1.0
"""Seconds between checkpoints of a subscription in RESYNC, and after a ``next`` within a transaction: a client that is behind is shown that it moves."""


class SubscriptionEntry(WireEntry):
    """One subscription of a connection.

    Attributes:
        heartbeat: Seconds without a ``next`` until a checkpoint; infinite for never.
        resync: Whether it reads from the WAL because it lags.
        unsettled: Whether the last ``next`` left a transaction open.
        reported: The time at which a ``next`` or a checkpoint last sent its cursor.
        checked: The time of its last checkpoint.
        changed: Whether its state has changed since the last checkpoint.
        storing: Whether a durable acknowledgement of its slot is in progress.
    """

    __slots__ = ("changed", "checked", "heartbeat", "reported", "resync", "storing", "unsettled")

    def __init__(self, subscription: str, heartbeat: float, now: float) -> None:
        super().__init__(subscription, next_head(subscription))
        self.heartbeat: float = heartbeat or math.inf
        self.resync: bool = False
        self.unsettled: bool = False
        self.changed: bool = False
        self.storing: bool = False
        self.reported: float = now
        self.checked: float = now

    def due(self) -> float:
        """Returns the time at which its next checkpoint is due."""
        if self.stage is not EntryStage.ACTIVE:
            return math.inf
        if self.changed:
            return -math.inf
        soon = RESYNC_CHECKPOINT
        if self.resync:  # however many changes are sent, the client also needs the head and the state
            return min(self.reported + self.heartbeat, self.checked + soon)
        return self.reported + (min(self.heartbeat, soon) if self.unsettled else self.heartbeat)


class Open(Effect, frozen=True):
    """Subscribe, and call ``subscribed`` or ``failed``."""

    entry: SubscriptionEntry
    request: SubscribeRequest


class AckSlot(Effect, frozen=True):
    """Acknowledge changes of a slot, and call ``acked`` if an answer is due."""

    entry: SubscriptionEntry
    cursor: str
    n: int | None
    durable: bool


class AskRows(Effect, frozen=True):
    """Request more rows of a subscription."""

    entry: SubscriptionEntry
    request: AgainRequest


class OrderEntry(WireEntry):
    """An operation in progress, which has one answer."""

    __slots__ = ()

    def due(self) -> float:
        """Returns infinity: an operation has no checkpoints."""
        return math.inf


class Operate(Effect, frozen=True):
    """Carry an operation out, and call ``answered`` or ``failed``."""

    entry: OrderEntry
    operation: LogOperation[Any]
