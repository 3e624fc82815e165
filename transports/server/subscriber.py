"""The subscriber to which a log delivers for one entry of a connection."""

from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from flow.contracts import UNBOUNDED
from publishers.fanout.batch import Batch
from publishers.fanout.subscription import ChangeSubscription
from publishers.model.change import Change
from publishers.snapshots.subscription import SnapshotSubscription
from publishers.views.view import View
from transports.access.grant import Grant, narrow
from transports.codec.again import AgainRequest
from transports.errors import InvalidRequest, TooManySnapshots
from transports.limits import Limits
from transports.protocol.connection import WireEntry
from transports.server.outbound import Lane

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flow.contracts import Subscription

__all__ = ["WireSubscriber"]

_Entry = TypeVar("_Entry", bound=WireEntry)


class _Driver(Protocol):
    """Receives the signals, on the event loop."""

    def opened(self, subscriber: Any) -> None: ...
    def deliver(self, subscriber: Any, batch: Batch) -> None: ...
    def ended(self, subscriber: Any, error: Exception | None) -> None: ...


_Driving = TypeVar("_Driving", bound=_Driver)


class WireSubscriber(Generic[_Entry, _Driving]):
    """The subscriber behind one entry of a connection: receives batches and never makes ``Change`` objects of them.

    Attributes:
        entry: The entry of the session.
        lane: Its executor.
        batch_events: The most events in one batch.
        name: The name by which the client knows the log.
        grant: What the principal may do with the log, as of the time of subscribing.
        subscription: The subscription to changes; None until it begins.
        snapshot: The subscription that alternates rows and changes; None for a subscriber that never receives rows.
        stated: Whether rows are being delivered, or will be delivered first.
        credits: The demand of the client before the subscription began.
    """

    __slots__ = (
        "_driver",
        "batch_events",
        "credits",
        "entry",
        "grant",
        "lane",
        "name",
        "snapshot",
        "stated",
        "subscription",
    )

    def __init__(
        self,
        driver: _Driving,
        entry: _Entry,
        lane: Lane,
        *,
        batch_events: int,
        demand: int | None,
        name: str,
        grant: Grant,
        stated: bool,
    ) -> None:
        self._driver = driver
        self.entry: _Entry = entry
        self.lane: Lane = lane
        self.batch_events: int = batch_events
        self.name: str = name
        self.grant: Grant = grant
        self.subscription: ChangeSubscription | None = None
        self.snapshot: SnapshotSubscription | None = None
        self.stated: bool = stated
        self.credits: int = UNBOUNDED if demand is None else demand

    @property
    def slot(self) -> str | None:
        """The name of the slot that it opens; None without one."""
        return None

    @property
    def begun(self) -> bool:
        """Whether the subscription has begun."""
        return self.snapshot is not None or self.subscription is not None

    def request(self, n: int) -> None:
        """Adds the demand of the client."""
        serving = self.snapshot or self.subscription
        if serving is None:
            self.credits += n
        else:
            serving.request(n)

    def again(self, request: AgainRequest, view: View, limits: Limits) -> None:
        """Requests more rows.

        Args:
            request: The rows to deliver.
            view: The view in which the client sees them.
            limits: Limits of the connection.

        Raises:
            InvalidRequest: If the subscription was not made to receive rows.
            TooManySnapshots: If too many requests are waiting.
            Forbidden: If the grant does not allow the rows.
        """
        if self.snapshot is None:
            raise InvalidRequest(
                "id",
                self.entry.id,
                "that of a subscription with the state first, or with snapshot initial or on_gap",
            )
        if self.snapshot.waiting >= limits.snapshots:
            raise TooManySnapshots(limits.snapshots)
        for asked in request.asked:
            narrow(self.grant, view, asked)
        self.snapshot.refresh(request.criteria, after=request.after, until=request.until)

    def cancel(self) -> None:
        """Cancels the subscription."""
        serving = self.snapshot or self.subscription
        if serving is not None:
            serving.cancel()

    # Signals, on the lane.

    def on_following(self, subscription: "Subscription", /) -> None:
        """Reports that changes follow, behind rows or from the beginning."""
        if isinstance(subscription, ChangeSubscription):  # otherwise it is refused and an error follows
            self.subscription, self.stated = subscription, False

    def on_subscribe(self, subscription: "Subscription", /) -> None:
        """Starts the subscription, which is registered or about to be refused.

        Cancels it if the client has cancelled meanwhile.
        """
        if self.entry.ended:
            subscription.cancel()
            return
        if isinstance(subscription, ChangeSubscription):
            self.subscription = subscription
            self._driver.opened(self)
        elif isinstance(subscription, SnapshotSubscription):
            self.snapshot = subscription
            if self.subscription is not None or subscription.cursor is not None:
                self._driver.opened(self)
        if self.credits:
            subscription.request(self.credits)

    def on_next(self, change: Change, /) -> None:
        """Raises: this subscriber receives batches only."""
        raise TypeError(f"a connection takes batches, not {change!r}")

    def on_next_batch(self, batch: "Sequence[Change]", /) -> None:
        """Delivers a batch."""
        if isinstance(batch, Batch):
            self._driver.deliver(self, batch)
        else:
            self._rows(batch)
        self.lane.settle()

    def _rows(self, batch: "Sequence[Change]") -> None:
        """Delivers rows and the changes between them; overridden by subscribers that receive rows."""
        raise TypeError(f"a connection takes what a log delivers, not {type(batch).__name__}")

    def on_error(self, error: Exception, /) -> None:
        """Ends the entry with an error."""
        self._driver.ended(self, error)

    def on_complete(self) -> None:
        """Ends the entry: the subscription is complete."""
        self._driver.ended(self, None)
