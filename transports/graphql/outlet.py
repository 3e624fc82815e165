"""Where a log delivers for one GraphQL subscription."""

from typing import Protocol

from publishers.batch import Batch
from transports.graphql.execution import Operation
from transports.graphql.session import Call
from transports.websocket.binding import Outlet

__all__ = ["Desk", "OperationOutlet"]


class Desk(Protocol):
    """The connection, as its outlets see it; everything on the event loop."""

    def deliver(self, outlet: "OperationOutlet", batch: Batch) -> None:
        """Some events."""
        ...

    def ended(self, outlet: "OperationOutlet", error: Exception | None) -> None:
        """The last signal: an error, or the end."""
        ...


class OperationOutlet(Outlet[Call]):
    """The subscriber behind one subscription of a connection.

    The protocol has no message for demand, so it requests everything unless the client has given credits; what holds
    deliveries back is the strand, which runs them only while the socket and the fence let something through.

    Attributes:
        operation: What is executed for each event.
    """

    __slots__ = ("_desk", "operation")

    def __init__(self, desk: Desk, call: Call, operation: Operation) -> None:
        super().__init__(call, call.credits)
        self._desk = desk
        self.operation = operation

    def _deliver(self, batch: Batch) -> None:
        self._desk.deliver(self, batch)

    def _ended(self, error: Exception | None) -> None:
        self._desk.ended(self, error)
