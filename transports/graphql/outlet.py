"""Where a log delivers for one GraphQL subscription."""

from typing import TYPE_CHECKING, Protocol

from flow.contracts import UNBOUNDED
from publishers.batch import Batch
from publishers.change import Change
from publishers.subscription import ChangeSubscription
from transports.graphql.execution import Operation
from transports.graphql.session import Entry

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flow.contracts import Subscription

__all__ = ["Desk", "Outlet"]


class Desk(Protocol):
    """The connection, as its outlets see it; everything on the event loop."""

    def deliver(self, outlet: "Outlet", batch: Batch) -> None:
        """Some events."""
        ...

    def ended(self, outlet: "Outlet", error: Exception | None) -> None:
        """The last signal: an error, or the end."""
        ...


class Outlet:
    """The subscriber behind one subscription of a connection.

    The protocol has no message for demand, so it requests everything unless the client has given credits; what holds
    deliveries back is the strand, which runs them only while the socket and the fence let something through.

    Attributes:
        entry: The entry of the session.
        operation: What is executed for each event.
        subscription: Its subscription, once there is one.
        credits: What to request at first.
    """

    __slots__ = ("_desk", "credits", "entry", "operation", "subscription")

    def __init__(self, desk: Desk, entry: Entry, operation: Operation) -> None:
        self._desk = desk
        self.entry = entry
        self.operation = operation
        self.subscription: ChangeSubscription | None = None
        self.credits = UNBOUNDED if entry.credits is None else entry.credits

    def request(self, n: int) -> None:
        """Passes the client's demand on."""
        if self.subscription is None:
            self.credits += n
        else:
            self.subscription.request(n)

    def cancel(self) -> None:
        """Ends the subscription."""
        if self.subscription is not None:
            self.subscription.cancel()

    # Signals, on the lane.

    def on_subscribe(self, subscription: "Subscription", /) -> None:
        """The subscription is registered, or is about to be refused; the client may have left meanwhile."""
        if self.entry.ended:
            subscription.cancel()
            return
        if isinstance(subscription, ChangeSubscription):
            self.subscription = subscription
        if self.credits:
            subscription.request(self.credits)

    def on_next(self, change: Change, /) -> None:
        """Never called: this subscriber takes batches."""
        raise TypeError(f"an outlet takes batches, not {change!r}")

    def on_next_batch(self, batch: "Sequence[Change]", /) -> None:
        """Some events."""
        if not isinstance(batch, Batch):
            raise TypeError(f"an outlet takes what a log delivers, not {type(batch).__name__}")
        self._desk.deliver(self, batch)

    def on_error(self, error: Exception, /) -> None:
        """The subscription failed."""
        self._desk.ended(self, error)

    def on_complete(self) -> None:
        """The subscription came to its end."""
        self._desk.ended(self, None)
