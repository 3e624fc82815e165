"""Where a log delivers for one remote subscriber."""

from typing import TYPE_CHECKING, Protocol

from publishers.batch import Batch
from publishers.change import Change
from publishers.subscription import ChangeSubscription, State
from transports.codec.events import EventEncoder
from transports.codec.messages import Wish
from transports.session import Entry, Stage
from transports.websocket.strand import Lane

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flow.contracts import Subscription
    from publishers.changelog import ChangeLog

__all__ = ["Desk", "Outlet"]


class Desk(Protocol):
    """The connection, as its outlets see it; everything on the event loop."""

    def opened(self, outlet: "Outlet") -> None:
        """The subscription is registered."""
        ...

    def deliver(self, outlet: "Outlet", batch: Batch) -> None:
        """Some events, within the demand."""
        ...

    def moved(self, outlet: "Outlet", *, resync: bool) -> None:
        """The subscription has come to read from the WAL, or does so no longer."""
        ...

    def ended(self, outlet: "Outlet", error: Exception | None) -> None:
        """The last signal: an error, or the end."""
        ...


class Outlet:
    """The subscriber behind one entry of the connection: takes batches, and never makes objects of them.

    Attributes:
        entry: The entry of the session.
        wish: What was subscribed to.
        log: The log it is about.
        encoder: Encodes the events of that log.
        lane: Its executor.
        subscription: Its subscription, once there is one.
        credits: What the client requested before there was a subscription.
    """

    __slots__ = ("_desk", "credits", "encoder", "entry", "lane", "log", "subscription", "wish")

    def __init__(
        self, desk: Desk, entry: Entry, wish: Wish, *, log: "ChangeLog", encoder: EventEncoder, lane: Lane
    ) -> None:
        self._desk = desk
        self.entry = entry
        self.wish = wish
        self.log = log
        self.encoder = encoder
        self.lane = lane
        self.subscription: ChangeSubscription | None = None
        self.credits = wish.credits

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

    def cursor(self) -> str:
        """Where the client would resume."""
        return "" if self.subscription is None else self.encoder.cursor(self.subscription.position)

    # Signals, on the lane.

    def on_subscribe(self, subscription: "Subscription", /) -> None:
        """The subscription is registered, or is about to be refused; the client may have left meanwhile."""
        if self.entry.stage is Stage.ENDED:
            subscription.cancel()
        elif isinstance(subscription, ChangeSubscription):
            self.subscription = subscription
            self._desk.opened(self)
            self.lane.eager = False
            if self.credits:
                subscription.request(self.credits)

    def on_next(self, change: Change, /) -> None:
        """Never called: this subscriber takes batches."""
        raise TypeError(f"an outlet takes batches, not {change!r}")

    def on_next_batch(self, batch: "Sequence[Change]", /) -> None:
        """One frame."""
        if not isinstance(batch, Batch):
            raise TypeError(f"an outlet takes what a log delivers, not {type(batch).__name__}")
        self.lane.eager = len(batch) >= self.wish.batch_events
        self._desk.deliver(self, batch)

    def on_state(self, state: State, /) -> None:
        """The state of the subscription."""
        self._desk.moved(self, resync=state is State.RESYNC)

    def on_error(self, error: Exception, /) -> None:
        """The subscription failed."""
        self._desk.ended(self, error)

    def on_complete(self) -> None:
        """The subscription came to its end."""
        self._desk.ended(self, None)
