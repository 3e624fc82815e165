"""The inputs and results of operations on slots."""

from typing import TYPE_CHECKING

import strawberry

from publishers.slots.slot import Slot
from transports.codec.fields import convert
from transports.codec.slots import SlotRequest, acknowledged, flush
from transports.graphql.types import Cursor, Long, described

if TYPE_CHECKING:
    from publishers.log.changelog import ChangeLog

__all__ = ["AcknowledgedSlot", "SlotInput"]


@strawberry.input(name="SlotInput", description="The slot that is opened.")
class SlotInput:
    """A slot in a document or in variables."""

    name: str = described("Its name.")
    opening: str = described(
        "The client's id of this opening, such as a random id. A client that sends it again resumes the opening, also after a "
        "lost connection, and acknowledges with it."
    )
    take_over: bool = described("Whether to take it from the consumer that has it.", default=False)
    owner: str | None = described(
        "Name of the owner, shown to other consumers; the name of the principal if left out.", default=None
    )

    def request(self) -> SlotRequest:
        """Returns the request, validated.

        Raises:
            InvalidRequest, InvalidOption: If the value of a field is invalid.
        """
        given = {"name": self.name, "opening": self.opening, "takeOver": self.take_over, "owner": self.owner}
        return convert(SlotRequest, given)


@strawberry.type(name="SlotPlace", description="The position of a slot.")
class AcknowledgedSlot:
    """The result of an acknowledgement."""

    name: str = described("Of the slot.")
    generation: Long = described("Of the opening.")
    cursor: Cursor = described("The next change that is not acknowledged.")

    @classmethod
    def acknowledge(cls, log: "ChangeLog", slot: Slot, cursor: str, *, durable: bool) -> "AcknowledgedSlot":
        """Acknowledges everything before a cursor; waits for the disk if ``durable``.

        Raises:
            PositionError: If the cursor does not belong to the log.
            SlotError: As ``Slot.ack``.
        """
        slot.ack(acknowledged(log, cursor))
        if durable:
            flush(slot)
        return cls(
            name=slot.name, generation=Long(slot.generation), cursor=Cursor(str(log.token(slot.position)))
        )
