"""An open slot on the client, over all connections: its generation and its acknowledgements.

Acknowledgements are cumulative: the newest one covers all earlier ones. At most one durable acknowledgement is in flight.
Acknowledgements that a lost connection may not have delivered are sent again on the next one.
"""

from typing import Any

from transports.codec.replies import AckedReply
from transports.codec.slots import SlotReply

__all__ = ["ClientSlot"]


class ClientSlot:
    """One opening of a slot.

    Attributes:
        name: The name of the slot.
        generation: The generation of the opening, as the server last reported; None before.
        cursor: The next change that is not acknowledged, as the server last reported; None before.
        paused: Whether an operator had paused the slot when it was opened.
        last: The number of the newest acknowledgement.

    Args:
        name: The name of the slot.
        opening: The id of this opening.
        take_over: Whether to take the slot over from its current consumer.
        owner: The owner that other consumers see while the slot is open; None for the name of the principal.
    """

    def __init__(self, name: str, *, opening: str, take_over: bool, owner: str | None) -> None:
        self.name = name
        self.generation: int | None = None
        self.cursor: str | None = None
        self.paused: bool = False
        self.last: int = 0
        self._fields = {"name": name, "opening": opening, "owner": owner, "takeOver": take_over or None}
        self._place: str | None = None  # cursor of the newest acknowledgement
        self._sent = 0  # the newest acknowledgement that was sent on this connection
        self._durable = 0  # the newest durable acknowledgement
        self._stored = 0  # everything up to this one was answered
        self._storing = False  # whether a durable acknowledgement is in flight
        self._open = False  # whether the server has opened the slot on this connection; it drops earlier acknowledgements

    def payload(self) -> dict[str, Any]:
        """Returns the ``slot`` field of ``subscribe``."""
        fields: dict[str, Any] = {name: value for name, value in self._fields.items() if value is not None}
        if self.generation is not None:
            fields.pop("takeOver", None)
            fields["generation"] = self.generation
        return fields

    def opened(self, reply: SlotReply) -> None:
        """Records that the server has opened the slot or resumed the opening."""
        self._open = True
        self.generation, self.cursor, self.paused = reply.generation, reply.cursor, reply.paused

    @property
    def unsent(self) -> bool:
        """Whether an acknowledgement was not sent on this connection."""
        return self._sent != self.last

    def acknowledge(self, cursor: str | None, *, durable: bool) -> int:
        """Records an acknowledgement and returns its number. A cursor of None repeats the newest one."""
        self._place = cursor or self._place
        self.last += 1
        if durable:
            self._durable = self.last
        return self.last

    def message(self, subscription: str) -> dict[str, Any] | None:
        """Returns the next ``ack`` message; None if nothing is to be sent."""
        wanted = self._durable > self._stored and not self._storing
        if self._place is None or not self._open or not (self.unsent or wanted):
            return None
        self._sent = self.last
        message: dict[str, Any] = {"type": "ack", "id": subscription, "cursor": self._place}
        if wanted:
            self._storing = True
            message |= {"n": self.last, "durable": True}
        return message

    def answered(self, reply: AckedReply) -> int:
        """Handles an answer and returns the number of the acknowledgement."""
        self.cursor = reply.cursor
        if reply.n is not None:
            self._storing = False
            self._stored = max(self._stored, reply.n)
        return reply.n or 0

    def lost(self) -> None:
        """Resets the sending state: the connection is gone, or the server has ended a subscription that will be retried."""
        self._sent, self._storing, self._open = min(self._sent, self._stored), False, False
