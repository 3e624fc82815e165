"""One slot as its log keeps it in memory."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from publishers.criteria.criteria import Criteria
from publishers.errors import PenstockError
from publishers.model.position import Position
from publishers.slots.errors import NoSuchSlot, SlotBusy, SlotForked, SlotLost
from publishers.slots.record import SlotRecord
from publishers.slots.state import SlotEvent, SlotState, state_after
from publishers.wal import Hold, HoldState

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["SlotEntry"]


@dataclass(slots=True, eq=False)
class SlotEntry:
    """What is known of a slot; changed under the locks of `Slots` only.

    Attributes:
        record: What the journal holds of it.
        criteria: Which changes.
        place: The next change that its consumer has not acknowledged.
        state: What it is doing.
        hold: What keeps its history; None if it has none.
        oldest: Where its history began when it was found lost.
        owner: Who has it open.
        consumer: The opening that is not fenced; None if it is closed.
    """

    record: SlotRecord
    criteria: Criteria
    place: Position
    state: SlotState = SlotState.FREE
    hold: Hold | None = None
    oldest: Position | None = None
    owner: str | None = None
    consumer: object | None = None

    @property
    def name(self) -> str:
        """What consumers call it."""
        return self.record.name

    def look(self) -> None:
        """Notes that it is lost, if its hold is: retention says so there first."""
        hold = self.hold
        if hold is not None and hold.state is HoldState.LOST:
            after = state_after(self.state, SlotEvent.LOSE)
            if after is not None:
                self.state, self.oldest = after, hold.oldest

    def check(self, event: SlotEvent, names: "Iterable[str]" = ()) -> SlotState:
        """The state that an event leads to.

        Raises:
            SlotBusy, SlotLost, SlotForked, NoSuchSlot: If it may not happen now; ``names`` are those of the other slots.
        """
        self.look()
        after = state_after(self.state, event)
        if after is None:
            raise self.refusal(names)
        return after

    def refusal(self, names: "Iterable[str]" = ()) -> PenstockError:
        """Why it cannot be had in its state."""
        if self.state is SlotState.LOST:
            return SlotLost(self.name, self.oldest or self.place)
        if self.state is SlotState.FORKED:
            return SlotForked(self.name, self.record.place)
        if self.state is SlotState.SERVED:
            return SlotBusy(self.name, self.owner or "its consumer")
        return NoSuchSlot(self.name, names)
