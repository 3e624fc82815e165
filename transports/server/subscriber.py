"""Where a log delivers for one entry of a connection."""

from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from flow.contracts import UNBOUNDED
from publishers.fanout.batch import Batch
from publishers.fanout.subscription import ChangeSubscription
from publishers.model.change import Change
from publishers.snapshots.subscription import SnapshotSubscription
from publishers.views.view import View
from transports.access.grant import Grant, narrow
from transports.codec.again import AgainWish
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
    """What takes the signals, on the event loop."""

    def opened(self, subscriber: Any) -> None: ...
    def deliver(self, subscriber: Any, batch: Batch) -> None: ...
    def ended(self, subscriber: Any, error: Exception | None) -> None: ...


_Driving = TypeVar("_Driving", bound=_Driver)


class WireSubscriber(Generic[_Entry, _Driving]):
    """The subscriber behind one entry of a connection: takes batches, and never makes objects of them.

    Attributes:
        entry: The entry of the session.
        lane: Its executor.
        batch_events: Most events in one batch.
        name: What the client knows the log by.
        grant: What its principal may do with the log, as it was told when it subscribed.
        subscription: Its subscription to changes, once there is one.
        snapshot: That to rows and changes in turns; None if it is given no rows, ever.
        stated: Whether it is being given rows, or will be first of all.
        credits: What the client requested before there was a subscription.
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
        self.entry = entry
        self.lane = lane
        self.batch_events = batch_events
        self.name = name
        self.grant = grant
        self.subscription: ChangeSubscription | None = None
        self.snapshot: SnapshotSubscription | None = None
        self.stated = stated
        self.credits = UNBOUNDED if demand is None else demand

    @property
    def slot(self) -> str | None:
        """The slot that it opens; None for none."""
        return None

    @property
    def begun(self) -> bool:
        """Whether it is subscribed to something."""
        return self.snapshot is not None or self.subscription is not None

    def request(self, n: int) -> None:
        """Passes the client's demand on."""
        serving = self.snapshot or self.subscription
        if serving is None:
            self.credits += n
        else:
            serving.request(n)

    def again(self, wish: AgainWish, view: View, limits: Limits, untold: int = 0) -> None:
        """Asks for rows once more.

        Args:
            wish: Which ones.
            view: How it sees them.
            limits: Of the connection.
            untold: Of how many that were asked for before the client was told nothing yet.

        Raises:
            InvalidRequest: If it was not subscribed so that it can be given rows.
            TooManySnapshots: If it has asked so often for what has not begun.
            Forbidden: If it asks about what it may not see.
        """
        if self.snapshot is None:
            raise InvalidRequest(
                "id",
                self.entry.id,
                "that of a subscription with the state first, or with snapshot initial or on_gap",
            )
        if self.snapshot.waiting + untold >= limits.snapshots:
            raise TooManySnapshots(limits.snapshots)
        for asked in wish.asked:
            narrow(self.grant, view, asked)
        self.snapshot.again(wish.criteria, after=wish.after, until=wish.until)

    def cancel(self) -> None:
        """Ends the subscription."""
        serving = self.snapshot or self.subscription
        if serving is not None:
            serving.cancel()

    # Signals, on the lane.

    def on_following(self, subscription: "Subscription", /) -> None:
        """Changes follow, behind rows or at first."""
        if isinstance(subscription, ChangeSubscription):  # else it is refused, and an error follows
            self.subscription, self.stated = subscription, False

    def on_subscribe(self, subscription: "Subscription", /) -> None:
        """The subscription is registered, or is about to be refused; the client may have left meanwhile."""
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
        """Never called: this subscriber takes batches."""
        raise TypeError(f"a connection takes batches, not {change!r}")

    def on_next_batch(self, batch: "Sequence[Change]", /) -> None:
        """Some events."""
        if isinstance(batch, Batch):
            self._driver.deliver(self, batch)
        else:
            self._rows(batch)
        self.lane.settle()

    def _rows(self, batch: "Sequence[Change]") -> None:
        """Rows, or changes between them; for those that ask for some."""
        raise TypeError(f"a connection takes what a log delivers, not {type(batch).__name__}")

    def on_error(self, error: Exception, /) -> None:
        """The subscription failed."""
        self._driver.ended(self, error)

    def on_complete(self) -> None:
        """The subscription came to its end."""
        self._driver.ended(self, None)
