"""A group consumer on the client, over all connections: its generation, the count of deliveries, and its calls.

Unanswered calls are repeated on the next connection in the same order, which is safe because they are idempotent. Only a
claim is not repeated, because its effect is unknown.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Final
from uuid import uuid4

from transports.codec.replies import GroupReply, JoinedReply
from transports.errors import RemoteError
from transports.protocol.client_subscription import ClientSubscription
from transports.protocol.connection import Effect

__all__ = ["Called", "ClientConsumer"]

_LOST: Final = (
    "the connection was lost before this was answered, and nobody knows what was claimed; claim again"
)


class ClientConsumer(ClientSubscription):
    """One joining of a group.

    Attributes:
        generation: The generation of the joining, as the server last reported; None before.
    """

    __slots__ = ("_calls", "_last", "_open", "_received", "_sent", "_window", "generation")

    kind: ClassVar[str] = "join"

    def __init__(self, name: str, payload: Mapping[str, Any]) -> None:
        super().__init__(name, {**payload, "opening": uuid4().hex})
        self.generation: int | None = None
        self._window = 1
        self._received = 0  # deliveries of this generation
        self._open = False  # whether the server knows the consumer on this connection
        self._calls: dict[int, dict[str, Any]] = {}  # unanswered calls
        self._sent = 0  # number of the newest call that was sent on this connection
        self._last = 0

    def payload(self) -> dict[str, Any]:
        """Returns the payload for joining, the first time or again."""
        self._open = False
        payload = {**self._payload, "credits": self.credits()}
        if self.generation is not None:
            payload |= {"generation": self.generation, "received": self._received}
        return payload

    def joined(self, reply: JoinedReply, window: int) -> list[Effect]:
        """Handles the server's confirmation that the consumer has joined or resumed.

        Args:
            reply: The reply of the server.
            window: The most calls that may be unanswered.

        Returns:
            Errors for the claims that were lost with a connection.
        """
        if self.generation != reply.group.generation:
            self.generation, self._received = reply.group.generation, 0
        self._window, self._open = window, True
        lost = [n for n, call in self._calls.items() if n <= self._sent and call["do"] == "claim"]
        self._sent = 0
        error = RemoteError("CONNECTION_LOST", _LOST, retryable=True, data={})
        for n in lost:
            del self._calls[n]
        return [Called(self, n, b"", error) for n in lost]

    def take(self, count: int) -> None:
        """Counts deliveries that have arrived; raises as `ClientSubscription.take` does."""
        super().take(count)
        self._received += count

    def call(self, do: str, payload: Mapping[str, Any]) -> int:
        """Records a call and returns its number."""
        self._last += 1
        self._calls[self._last] = {
            "type": "group",
            "id": self.id,
            "n": self._last,
            "do": do,
            "payload": payload,
        }
        return self._last

    def unsent(self) -> list[dict[str, Any]]:
        """Returns the calls that may be sent now; they count as sent."""
        if not self._open:
            return []
        found = [self._calls[n] for n in list(self._calls)[: self._window] if n > self._sent]
        if found:
            self._sent = found[-1]["n"]
        return found

    def answered(self, reply: GroupReply) -> list[Effect]:
        """Handles the answer to a call."""
        if self._calls.pop(reply.n, None) is None:
            return []
        return [
            Called(
                self,
                reply.n,
                bytes(reply.result),
                None if reply.error is None else RemoteError.from_payload(reply.error),
            )
        ]


class Called(Effect, frozen=True):
    """Report the answer to a call: JSON, or an error."""

    entry: ClientConsumer
    n: int
    result: bytes
    error: RemoteError | None
