"""A slot in memory."""

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
    """A slot in memory; changed only under the locks of `SlotBook`.

    Attributes:
        record: Its record in the journal.
        criteria: Selects its changes.
        place: The position of the first change that was not acknowledged.
        state: Its state.
        hold: Its hold on history; None if it has none.
        oldest: The oldest kept position when it was lost.
        owner: Names the consumer that has it open.
        consumer: The opening that is not fenced; None if the slot is closed.
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
        """Its name."""
        return self.record.name

    def look(self) -> None:
        """Updates the state if retention has lost the hold."""
        hold = self.hold
        if hold is not None and hold.state is HoldState.LOST:
            after = state_after(self.state, SlotEvent.LOSE)
            if after is not None:
                self.state, self.oldest = after, hold.oldest

    def check(self, event: SlotEvent, names: "Iterable[str]" = ()) -> SlotState:
        """The state that an event leads to.

        Raises:
            SlotBusy, SlotLost, SlotForked, NoSuchSlot: If the state does not allow it; ``names`` are those of the other slots.
        """
        self.look()
        after = state_after(self.state, event)
        if after is None:
            raise self.refusal(names)
        return after

    def refusal(self, names: "Iterable[str]" = ()) -> PenstockError:
        """The error for its state."""
        if self.state is SlotState.LOST:
            return SlotLost(self.oldest or self.place, self.name)
        if self.state is SlotState.FORKED:
            return SlotForked(self.name, self.record.place)
        if self.state is SlotState.SERVED:
            return SlotBusy(self.name, self.owner or "its consumer")
        return NoSuchSlot(self.name, names)
