"""Where a log delivers for one GraphQL subscription."""

from typing import Protocol

from publishers.fanout.batch import Batch
from publishers.fanout.gap import Gap
from transports.graphql.execution import Operation
from transports.protocol.graphql_ws import OperationEntry
from transports.server.driver import WireSubscriber

__all__ = ["Desk", "OperationSubscriber"]


class Desk(Protocol):
    """The connection, as its subscribers see it; everything on the event loop."""

    def deliver(self, subscriber: "OperationSubscriber", batch: Batch) -> None:
        """Some events."""
        ...

    def ended(self, subscriber: "OperationSubscriber", error: Exception | None) -> None:
        """The last signal: an error, or the end."""
        ...


class OperationSubscriber(WireSubscriber[OperationEntry]):
    """The subscriber behind one subscription of a connection.

    The protocol has no message for demand, so it requests everything unless the client has given credits; what holds
    deliveries back is the strand, which runs them only while the socket and the fence let something through.

    Attributes:
        operation: What is executed for each event.
        gap: History that is missing, until an event has told of it.
    """

    __slots__ = ("_desk", "gap", "operation")

    def __init__(self, desk: Desk, call: OperationEntry, operation: Operation) -> None:
        super().__init__(call, call.credits)
        self._desk = desk
        self.operation = operation
        self.gap: Gap | None = None

    def tell_gap(self, payloads: list[bytes]) -> list[bytes]:
        """The payloads, of which the first one tells of the gap before it."""
        gap = self.gap
        if gap is None or not payloads:
            return payloads
        self.gap = None
        token = self.operation.source.log.token
        told = b',"extensions":{"gap":{"begin":"%s","end":"%s"}}}'
        first = payloads[0][:-1] + told % (str(token(gap.begin)).encode(), str(token(gap.end)).encode())
        return [first, *payloads[1:]]

    def _deliver(self, batch: Batch) -> None:
        self._desk.deliver(self, batch)

    def _ended(self, error: Exception | None) -> None:
        self._desk.ended(self, error)

    # A signal beside those of Reactive Streams, on the lane.

    def on_gap(self, gap: Gap, /) -> None:
        """History is missing; if an earlier gap was not told yet, the two are one."""
        self.gap = Gap(gap.begin if self.gap is None else self.gap.begin, gap.end)
