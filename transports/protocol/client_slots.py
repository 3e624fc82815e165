"""What a client knows of a slot that it has open, over all connections: which opening it is, and what is acknowledged of it.

Acknowledgements are cumulative, so the last one stands for all before it, and at most one that is to be durable is under way. What
was sent on a connection that was lost is sent again on the next one.
"""

from typing import Any

from transports.codec.replies import AckedReply
from transports.codec.slots import SlotReply

__all__ = ["ClientSlot"]


class ClientSlot:
    """One opening of a slot.

    Attributes:
        name: Of the slot.
        generation: Of the opening, as the server last told; None before that.
        cursor: The next change that is not acknowledged, as the server last told; None before that.
        paused: Whether an operator has paused it, as the server told when it was opened.
        last: The number of the newest acknowledgement.

    Args:
        name: Of the slot.
        opening: What this opening is called.
        take_over: Whether to take it from the consumer that has it.
        owner: What another consumer is told that has it; None for the name of the principal.
    """

    def __init__(self, name: str, *, opening: str, take_over: bool, owner: str | None) -> None:
        self.name = name
        self.generation: int | None = None
        self.cursor: str | None = None
        self.paused = False
        self.last = 0
        self._wish = {"name": name, "opening": opening, "owner": owner, "takeOver": take_over or None}
        self._place: str | None = None  # the newest that was acknowledged
        self._sent = 0  # the newest acknowledgement that was sent on this connection
        self._durable = 0  # the newest that is to be durable
        self._stored = 0  # everything up to this was answered
        self._storing = False  # whether one that is to be durable is under way
        self._open = (
            False  # whether the server has opened it on this connection: what it hears before, it drops
        )

    def wish(self) -> dict[str, Any]:
        """What to say of it in ``subscribe``."""
        told: dict[str, Any] = {name: value for name, value in self._wish.items() if value is not None}
        if self.generation is not None:
            told.pop("takeOver", None)
            told["generation"] = self.generation
        return told

    def opened(self, reply: SlotReply) -> None:
        """The server has opened it, or goes on with it."""
        self._open = True
        self.generation, self.cursor, self.paused = reply.generation, reply.cursor, reply.paused

    @property
    def unsent(self) -> bool:
        """Whether something was acknowledged that was not sent on this connection."""
        return self._sent != self.last

    def acknowledge(self, cursor: str | None, *, durable: bool) -> int:
        """Notes an acknowledgement, None for the newest once more; answers its number."""
        self._place = cursor or self._place
        self.last += 1
        if durable:
            self._durable = self.last
        return self.last

    def message(self, subscription: str) -> dict[str, Any] | None:
        """What is to be sent of what was acknowledged; None for nothing."""
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
        """An answer has come; tells the number of the acknowledgement."""
        self.cursor = reply.cursor
        if reply.n is not None:
            self._storing = False
            self._stored = max(self._stored, reply.n)
        return reply.n or 0

    def lost(self) -> None:
        """The connection is gone, or the server has ended the subscription and will be asked again."""
        self._sent, self._storing, self._open = min(self._sent, self._stored), False, False
