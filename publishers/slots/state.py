"""The states of a slot, and what may happen to it in each: one table."""

from enum import Enum
from typing import Final

__all__ = ["SlotEvent", "SlotState", "state_after"]


class SlotState(Enum):
    """What a slot is doing. What becomes of the history that is held for it is another thing: `HoldState`."""

    FREE = "free"
    """No consumer has it open."""
    SERVED = "served"
    """One consumer has it open."""
    LOST = "lost"
    """Its history was above the cap, and is gone: the consumer needs a bootstrap, and the slot a reset."""
    FORKED = "forked"
    """Its place is not one of this history of the log: the same."""
    DROPPED = "dropped"
    """It is gone."""


class SlotEvent(Enum):
    """What happens to a slot."""

    OPEN = "opened by a consumer"
    TAKE_OVER = "opened by a consumer although another one has it"
    CLOSE = "closed by its consumer"
    SEEK = "moved by its consumer"
    RESET = "moved by an operator, whatever has become of it"
    LOSE = "above its cap"
    DROP = "dropped"


_FREE, _SERVED, _LOST = SlotState.FREE, SlotState.SERVED, SlotState.LOST
_FORKED, _DROPPED = SlotState.FORKED, SlotState.DROPPED

_TABLE: Final = {
    (_FREE, SlotEvent.OPEN): _SERVED,
    (_FREE, SlotEvent.TAKE_OVER): _SERVED,
    (_FREE, SlotEvent.RESET): _FREE,
    (_FREE, SlotEvent.LOSE): _LOST,
    (_FREE, SlotEvent.DROP): _DROPPED,
    (_SERVED, SlotEvent.TAKE_OVER): _SERVED,
    (_SERVED, SlotEvent.CLOSE): _FREE,
    (_SERVED, SlotEvent.SEEK): _SERVED,
    (_SERVED, SlotEvent.LOSE): _LOST,
    (_LOST, SlotEvent.RESET): _FREE,
    (_LOST, SlotEvent.DROP): _DROPPED,
    (_FORKED, SlotEvent.RESET): _FREE,
    (_FORKED, SlotEvent.DROP): _DROPPED,
}


def state_after(state: SlotState, event: SlotEvent) -> SlotState | None:
    """The state that follows; None if the event may not happen in that state."""
    return _TABLE.get((state, event))
