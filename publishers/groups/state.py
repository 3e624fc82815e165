"""The states of a delivery, and what may happen to it in each: one table. And those of a whole group."""

from enum import Enum
from typing import Final

__all__ = ["DELIVERY_TABLE", "DONE", "DeliveryEvent", "DeliveryState", "GroupState"]


class DeliveryState(Enum):
    """What has become of a change that a group has read."""

    PARKED = "parked"
    """Read ahead, and not delivered yet."""
    PENDING = "pending"
    """Delivered to a consumer, and not acknowledged yet."""
    DUE = "due"
    """To be delivered again, now or after a delay."""
    DYING = "dying"
    """To be written to the dead letters."""
    ACKED = "acked"
    """Done."""
    DEAD = "dead"
    """In the dead letters, and done."""
    LOST = "lost"
    """Taken by retention before it was done."""

    __hash__ = (
        object.__hash__
    )  # each is one object; the one of Enum is written in Python, and is asked several times a change


DONE: Final = frozenset({DeliveryState.ACKED, DeliveryState.DEAD, DeliveryState.LOST})
"""The ends."""


class DeliveryEvent(Enum):
    """What happens to a change of a group."""

    DELIVER = "delivered"
    TAKE_BACK = "taken back: it timed out, or was refused, or came behind one of its key that was"
    CLAIM = "claimed by a consumer"
    ACK = "acknowledged"
    CONDEMN = "delivered too often, or given up"
    BURY = "written to the dead letters"
    LOSE = "taken by retention"

    __hash__ = object.__hash__  # likewise


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
"""The state that follows an event in a state; what is not here may not happen."""


class GroupState(Enum):
    """What a group is doing."""

    SERVING = "serving"
    """It gives changes."""
    PAUSED = "paused"
    """It gives nothing until it is resumed."""
    TRIPPED = "tripped"
    """More than half of its last deliveries failed: the same, so that not everything becomes a dead letter."""
    LOST = "lost"
    """Its history was above the cap, and is gone: it needs a reset."""
    FORKED = "forked"
    """Its place is not one of this history of the log: the same."""
    DROPPED = "dropped"
    """It is gone."""
