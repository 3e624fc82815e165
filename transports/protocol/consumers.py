"""The group consumers of one connection as a machine: their joining, deliveries and unanswered calls.

Calls are answered in order of arrival, so a call may rely on the effects of earlier ones of the same consumer.
"""

import math
from typing import TYPE_CHECKING, Any, Final

from transports.codec.groups import JoinRequest, MemberReply
from transports.codec.messages import Call, encode
from transports.errors import TooManyCalls
from transports.operations.calls import ConsumerCall, read_call
from transports.problems import Problem
from transports.protocol.connection import Effect, Send, WireEntry
from transports.protocol.states import EntryStage

if TYPE_CHECKING:
    pass

__all__ = ["GROUP_CALLS", "CallGroup", "ConsumerEntry", "DemandDeliveries", "JoinGroup"]

GROUP_CALLS: Final = 256
"""Most unanswered calls of a group consumer, such as acknowledgements; a further one is refused. A client knows it from ``connection_ack``."""


class ConsumerEntry(WireEntry):
    """A group consumer on one connection.

    Attributes:
        unanswered: The number of its unanswered calls.
    """

    __slots__ = ("unanswered",)

    def __init__(self, name: str) -> None:
        super().__init__(name, b'{"type":"deliveries","id":%s,"items":' % encode({"": name})[4:-1])
        self.unanswered: int = 0

    def due(self) -> float:
        """Returns infinity: a consumer has no checkpoints."""
        return math.inf

    def call(self, message: Call) -> Effect:
        """Returns the effect of a call.

        Raises:
            TooManyCalls: If too many calls are unanswered.
            InvalidRequest: If a value of the call is invalid.
        """
        if self.unanswered >= GROUP_CALLS:
            raise TooManyCalls(GROUP_CALLS)
        call = read_call(message.do, message.payload)
        self.unanswered += 1
        return CallGroup(self, message.n, call)

    def joined(self, log: str, reply: MemberReply) -> list[Effect]:
        """Confirms that the consumer has joined."""
        if self.stage is not EntryStage.REQUESTED:
            return []
        self.stage = EntryStage.ACTIVE
        return [Send(encode({"type": "joined", "id": self.id, "log": log, "group": reply}))]

    def delivered(self, deliveries: bytes) -> list[Effect]:
        """Sends deliveries, given as a JSON list."""
        return [] if self.ended else [Send(self.head + deliveries + b"}")]

    def answered(self, n: int, result: object) -> list[Effect]:
        """Answers a call; ``result`` is its result or the problem."""
        self.unanswered -= 1
        return [] if self.ended else [self.answer(n, result)]

    def answer(self, n: int, result: object) -> Effect:
        """Returns the answer to a call."""
        key = "error" if isinstance(result, Problem) else "result"
        payload = result.payload() if isinstance(result, Problem) else result
        return Send(encode({"type": "group", "id": self.id, "n": n, key: payload}))


class JoinGroup(Effect, frozen=True):
    """Join a consumer to its group, and call ``joined`` or ``ServerSession.failed``."""

    entry: ConsumerEntry
    request: JoinRequest


class DemandDeliveries(Effect, frozen=True):
    """Request ``n`` more deliveries for a consumer."""

    entry: ConsumerEntry
    n: int


class CallGroup(Effect, frozen=True):
    """Execute a call of a consumer, and call ``answered``."""

    entry: ConsumerEntry
    n: int
    call: ConsumerCall[Any, Any]
