"""Subscriptions and questions of a connection, as the machine on the server's side knows them, and what it wants done for them."""

import math

from transports.codec.again import AgainWish
from transports.codec.events import next_head
from transports.codec.group_orders import GroupOrder
from transports.codec.messages import SubscribeWish
from transports.codec.schemas import SchemaQuestion
from transports.codec.slot_orders import SlotOrder
from transports.limits import Limits
from transports.protocol.connection import Effect, WireEntry
from transports.protocol.states import EntryStage

__all__ = ["AckSlot", "AskRows", "LookUp", "Open", "SchemaEntry", "SubscriptionEntry"]


class SubscriptionEntry(WireEntry):
    """One subscription of a connection.

    Attributes:
        heartbeat: Seconds without a ``next`` until a checkpoint; infinite for never.
        resync: Whether it reads from the log because it lags.
        unsettled: Whether the last ``next`` left a transaction open.
        told: When its cursor was last told, by a ``next`` or a checkpoint.
        checked: When it was last told by a checkpoint.
        changed: Whether its state changed since.
        storing: Whether an acknowledgement is being made durable, of what its slot gave.
    """

    __slots__ = ("changed", "checked", "heartbeat", "resync", "storing", "told", "unsettled")

    def __init__(self, subscription: str, heartbeat: float, now: float) -> None:
        super().__init__(subscription, next_head(subscription))
        self.heartbeat = heartbeat or math.inf
        self.resync = False
        self.unsettled = False
        self.changed = self.storing = False
        self.told = self.checked = now

    def due(self, limits: Limits) -> float:
        """When its next checkpoint is due."""
        if self.stage is not EntryStage.ACTIVE:
            return math.inf
        if self.changed:
            return -math.inf
        soon = limits.resync_checkpoint
        if self.resync:  # however many changes come, head and state are told too
            return min(self.told + self.heartbeat, self.checked + soon)
        return self.told + (min(self.heartbeat, soon) if self.unsettled else self.heartbeat)


class Open(Effect, frozen=True):
    """Subscribe, and call ``subscribed`` or ``failed``."""

    entry: SubscriptionEntry
    wish: SubscribeWish


class AckSlot(Effect, frozen=True):
    """Take an acknowledgement of what the slot of a subscription gave, and call ``acked`` if it is to be answered."""

    entry: SubscriptionEntry
    cursor: str
    n: int | None
    durable: bool


class AskRows(Effect, frozen=True):
    """Ask for rows of a subscription once more."""

    entry: SubscriptionEntry
    wish: AgainWish


class SchemaEntry(WireEntry):
    """A schema that is being looked up, or what is being done with a slot or a group."""

    __slots__ = ()

    def due(self, _limits: Limits) -> float:
        """Never: it has no checkpoints."""
        return math.inf


class LookUp(Effect, frozen=True):
    """Look a schema up, or do something with a slot or a group, and call ``answered`` or ``failed``."""

    entry: SchemaEntry
    question: SchemaQuestion | SlotOrder | GroupOrder
