"""The consumers of groups on one connection, as a machine: what they want, what they are given, and how much is unanswered.

A call is answered in the order in which it came, so one of a consumer may stand on what those before it did.
"""

import math
from typing import TYPE_CHECKING

from transports.codec.groups import ConsumerCall, JoinWish, MemberReply, call_of
from transports.codec.messages import Call, encode
from transports.errors import TooManyCalls
from transports.problems import Problem
from transports.protocol.connection import Effect, Send, WireEntry
from transports.protocol.states import EntryStage

if TYPE_CHECKING:
    from transports.limits import Limits

__all__ = ["CallGroup", "ConsumerEntry", "DemandDeliveries", "JoinGroup"]


class ConsumerEntry(WireEntry):
    """A consumer of a group, on one connection.

    Attributes:
        unanswered: How many of its calls are not answered yet.
    """

    __slots__ = ("unanswered",)

    def __init__(self, name: str) -> None:
        super().__init__(name, b'{"type":"deliveries","id":%s,"items":' % encode({"": name})[4:-1])
        self.unanswered = 0

    def due(self, _limits: "Limits") -> float:
        """Never: it has no checkpoints."""
        return math.inf

    def call(self, message: Call, limits: "Limits") -> Effect:
        """What a call leads to.

        Raises:
            TooManyCalls: If it is one too many.
            InvalidRequest: If it has a value that it does not take.
        """
        if self.unanswered >= limits.group_calls:
            raise TooManyCalls(limits.group_calls)
        call = call_of(message.do, message.payload, limits)
        self.unanswered += 1
        return CallGroup(self, message.n, call)

    def joined(self, log: str, reply: MemberReply) -> list[Effect]:
        """The consumer has joined."""
        if self.stage is not EntryStage.REQUESTED:
            return []
        self.stage = EntryStage.ACTIVE
        return [Send(encode({"type": "joined", "id": self.id, "log": log, "group": reply}))]

    def delivered(self, deliveries: bytes) -> list[Effect]:
        """Some deliveries, as a JSON list."""
        return [] if self.ended else [Send(self.head + deliveries + b"}")]

    def answered(self, n: int, result: object) -> list[Effect]:
        """A call was done; ``result`` is what it answers with, or the problem."""
        self.unanswered -= 1
        return [] if self.ended else [self.answer(n, result)]

    def answer(self, n: int, result: object) -> Effect:
        """The answer to a call."""
        key = "error" if isinstance(result, Problem) else "result"
        told = result.payload() if isinstance(result, Problem) else result
        return Send(encode({"type": "group", "id": self.id, "n": n, key: told}))


class JoinGroup(Effect, frozen=True):
    """Have a consumer join, and call ``joined`` or ``ServerSession.failed``."""

    entry: ConsumerEntry
    wish: JoinWish


class DemandDeliveries(Effect, frozen=True):
    """Give a consumer so many more deliveries."""

    entry: ConsumerEntry
    n: int


class CallGroup(Effect, frozen=True):
    """Do what a consumer asks for, and call ``answered``."""

    entry: ConsumerEntry
    n: int
    call: ConsumerCall
