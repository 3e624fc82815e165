"""Where a log delivers for one remote subscriber."""

from typing import TYPE_CHECKING, Protocol

from publishers.fanout.batch import Batch
from publishers.fanout.gap import Gap
from publishers.fanout.state import State
from transports.codec.events import EventEncoder
from transports.codec.messages import Wish
from transports.protocol.server import SubscriptionEntry
from transports.server.driver import WireSubscriber
from transports.server.outbound import Lane

if TYPE_CHECKING:
    from publishers.log.changelog import ChangeLog

__all__ = ["ChangeSubscriber", "Desk"]


class Desk(Protocol):
    """The connection, as its subscribers see it; everything on the event loop."""

    def opened(self, subscriber: "ChangeSubscriber") -> None:
        """The subscription is registered."""
        ...

    def deliver(self, subscriber: "ChangeSubscriber", batch: Batch) -> None:
        """Some events, within the demand."""
        ...

    def moved(self, subscriber: "ChangeSubscriber", *, resync: bool) -> None:
        """The subscription has come to read from the WAL, or does so no longer."""
        ...

    def gap(self, subscriber: "ChangeSubscriber", gap: Gap) -> None:
        """History is missing where the subscription would have read on."""
        ...

    def ended(self, subscriber: "ChangeSubscriber", error: Exception | None) -> None:
        """The last signal: an error, or the end."""
        ...


class ChangeSubscriber(WireSubscriber[SubscriptionEntry]):
    """The subscriber behind one subscription of the connection.

    Attributes:
        wish: What was subscribed to.
        name: What the client knows its log by.
        log: The log it is about.
        encoder: Encodes the events of that log.
        lane: Its executor.
    """

    __slots__ = ("_desk", "encoder", "lane", "log", "name", "wish")

    def __init__(
        self,
        desk: Desk,
        entry: SubscriptionEntry,
        wish: Wish,
        *,
        name: str,
        log: "ChangeLog",
        encoder: EventEncoder,
        lane: Lane,
    ) -> None:
        super().__init__(entry, wish.credits)
        self._desk = desk
        self.wish = wish
        self.name = name
        self.log = log
        self.encoder = encoder
        self.lane = lane

    def cursor(self) -> str:
        """Where the client would resume."""
        return "" if self.subscription is None else self.encoder.cursor(self.subscription.position)

    def _opened(self) -> None:
        self._desk.opened(self)
        self.lane.eager = False

    def _deliver(self, batch: Batch) -> None:
        self.lane.eager = len(batch) >= self.wish.batch_events
        self._desk.deliver(self, batch)

    def _ended(self, error: Exception | None) -> None:
        self._desk.ended(self, error)

    # Signals beside those of Reactive Streams, on the lane.

    def on_gap(self, gap: Gap, /) -> None:
        """History is missing."""
        self._desk.gap(self, gap)

    def on_state(self, state: State, /) -> None:
        """The state of the subscription."""
        self._desk.moved(self, resync=state is State.RESYNC)
