"""The states of a delivery, with one table of the events in each, and the states of a group."""

from collections.abc import Callable
from enum import Enum
from typing import ClassVar, Final

__all__ = ["DELIVERY_TABLE", "DONE", "DeliveryEvent", "DeliveryState", "GroupState"]


class DeliveryState(Enum):
    """The state of a change that a group has read."""

    PARKED = "parked"
    """Read ahead and not delivered yet."""
    PENDING = "pending"
    """Delivered to a consumer and not acknowledged yet."""
    DUE = "due"
    """To be delivered again, now or after a delay."""
    DYING = "dying"
    """To be written to the dead letters."""
    ACKED = "acked"
    """Acknowledged, and done."""
    DEAD = "dead"
    """Written to the dead letters, and done."""
    LOST = "lost"
    """Deleted by retention before it was done."""

    # Members are singletons; Enum's own __hash__ is a Python function, called several times a change.
    __hash__: ClassVar[Callable[[object], int]] = object.__hash__


DONE: Final = frozenset({DeliveryState.ACKED, DeliveryState.DEAD, DeliveryState.LOST})
"""The final states."""


class DeliveryEvent(Enum):
    """An event of a change in a group."""

    DELIVER = "delivered"
    TAKE_BACK = "taken back: it timed out or was refused, or an earlier one of its key was"
    CLAIM = "claimed by a consumer"
    ACK = "acknowledged"
    CONDEMN = "delivered too often, or given up"
    BURY = "written to the dead letters"
    LOSE = "deleted by retention"

    __hash__: ClassVar[Callable[[object], int]] = object.__hash__  # as in DeliveryState


_PARKED, _PENDING, _DUE = DeliveryState.PARKED, DeliveryState.PENDING, DeliveryState.DUE
_DYING, _ACKED, _DEAD = DeliveryState.DYING, DeliveryState.ACKED, DeliveryState.DEAD
_LOST = DeliveryState.LOST

DELIVERY_TABLE: Final = {
    (_PARKED, DeliveryEvent.DELIVER): _PENDING,
    (_PARKED, DeliveryEvent.LOSE): _LOST,
    (_PENDING, DeliveryEvent.TAKE_BACK): _DUE,
    (_PENDING, DeliveryEvent.CLAIM): _PENDING,
    (_PENDING, DeliveryEvent.ACK): _ACKED,
    (_PENDING, DeliveryEvent.CONDEMN): _DYING,
    (_PENDING, DeliveryEvent.LOSE): _LOST,
    (_DUE, DeliveryEvent.DELIVER): _PENDING,
    (_DUE, DeliveryEvent.ACK): _ACKED,
    (_DUE, DeliveryEvent.CONDEMN): _DYING,
    (_DUE, DeliveryEvent.LOSE): _LOST,
    (_DYING, DeliveryEvent.BURY): _DEAD,
    (_DYING, DeliveryEvent.LOSE): _LOST,
}
"""The next state, by state and event; a pair that is missing must not occur."""


class GroupState(Enum):
    """The state of a group."""

    SERVING = "serving"
    """It delivers changes."""
    PAUSED = "paused"
    """It delivers nothing until it is resumed."""
    TRIPPED = "tripped"
    """Its breaker paused it, because more than half of its last deliveries failed; it delivers nothing until it is resumed."""
    LOST = "lost"
    """Its history exceeded the cap and was deleted; it needs a reset."""
    FORKED = "forked"
    """Its position is not in this history of the log; it needs a reset."""
    DROPPED = "dropped"
    """It was dropped."""
