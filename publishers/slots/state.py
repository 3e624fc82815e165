"""The states of a slot, and what may happen to it in each, in one table; and its statistics."""

from dataclasses import dataclass
from enum import Enum
from typing import Final

from publishers.fanout.state import SubscriptionLag
from publishers.model.position import Position
from publishers.wal import HoldState

__all__ = ["SlotEvent", "SlotState", "SlotStatistics", "SlotTotals", "state_after"]


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


@dataclass(frozen=True, slots=True)
class SlotStatistics:
    """One slot at this moment.

    Attributes:
        name: What it is called.
        state: Whether a consumer has it open, and whether it is good.
        position: The next change that its consumer has not acknowledged.
        generation: Of the last opening; 0 if there was none.
        owner: The consumer that has it open, by the name that it gave; None if it is not open.
        paused: Whether nothing is given until it is resumed.
        lag: How far ``position`` is behind the watermark, in versions, changes, bytes and seconds. Changes and bytes are None while
            ``position`` lies before the opening of the log, or further back than the log remembers.
        unsynced: Whether something was acknowledged that a crash can take yet.
        history: What becomes of the history that is held for it; None if nothing is.
        held_bytes: Bytes of the log from the segment of its place on.
        bytes_left: Bytes that may be written until it is above its cap in bytes; None without that.
        seconds_left: Seconds until it is above its cap in seconds; None without that, or while its segment is being written.
    """

    name: str
    state: SlotState
    position: Position
    generation: int
    owner: str | None
    paused: bool
    lag: SubscriptionLag
    unsynced: bool
    history: HoldState | None
    held_bytes: int
    bytes_left: int | None
    seconds_left: float | None


@dataclass(frozen=True, slots=True)
class SlotTotals:
    """All slots of a log at this moment.

    Attributes:
        count: How many there are, at most the option ``slots``.
        lost: How many of them need a reset: they are lost, or forked.
        journal_bytes: Bytes of their journal, of which there are two.
        listed: The slots, sorted by name, as many as were asked for.
    """

    count: int = 0
    lost: int = 0
    journal_bytes: int = 0
    listed: tuple[SlotStatistics, ...] = ()
