"""The subscriber inside the driver: it receives every change, and holds Spark back when it falls behind."""

from collections.abc import Sequence
from typing import Final

from penstock_cdc import Change, ChangeLog, Content
from penstock_cdc.flow import Subscription
from penstock_cdc.types import Batch, ChangeSubscription, State
from penstock_flights.plan import Wanted
from penstock_flights.reception import Reception

__all__ = ["Resident"]

_WINDOW: Final = 8192


class Resident:
    """Subscribes in process, through ``flow``; a ``BatchSubscriber``.

    Attributes:
        reception: Counts the changes that it receives.
        error: The error that ended its subscription before the end of the demo; None if there was none.
    """

    def __init__(self, log: ChangeLog, wanted: Wanted, reception: Reception, *, max_lag: int) -> None:
        self.reception = reception
        self.error: Exception | None = None
        self._log = log
        self._wanted = wanted
        self._max_lag = max_lag
        self._subscription: ChangeSubscription | None = None

    def start(self) -> None:
        """Subscribes at its stored position, or at the beginning of the log."""
        feed = self._log.changes(
            self._wanted.criterion,
            since=self.reception.place.cursor or self._log.oldest,
            content=Content.BODY,
        )
        feed.subscribe(self, max_lag=self._max_lag, name=self._wanted.name)

    def stop(self) -> None:
        """Cancels the subscription and stores the position; a batch that is being delivered may still move it."""
        if self._subscription is not None:
            self._subscription.cancel()

    @property
    def demand(self) -> int:
        """Changes requested and not yet received."""
        return 0 if self._subscription is None else self._subscription.demand

    # Signals, on the pool of the log.

    def on_subscribe(self, subscription: Subscription, /) -> None:
        """Requests the first changes."""
        if isinstance(subscription, ChangeSubscription):
            self._subscription = subscription
            self.reception.observe(subscription.state.value)
        subscription.request(_WINDOW)

    def on_next(self, change: Change, /) -> None:
        """Never called: this subscriber takes batches."""
        raise TypeError(f"a resident takes batches, not {change!r}")

    def on_next_batch(self, changes: Sequence[Change], /) -> None:
        """Adds a batch, and requests as many changes again."""
        if not isinstance(changes, Batch) or self._subscription is None:
            raise TypeError(f"a resident takes what a log delivers, not {type(changes).__name__}")
        try:
            self.reception.take(changes, str(self._log.token(changes.end)))
        except OSError as error:  # the position cannot be stored
            self.error = error
            self._subscription.cancel()
        else:
            self._subscription.request(len(changes))

    def on_state(self, state: State, /) -> None:
        """Counts a transition between LIVE and RESYNC."""
        self.reception.observe(state.value)

    def on_error(self, error: Exception, /) -> None:
        """Stores the error."""
        self.error = error

    def on_complete(self) -> None:
        """Does nothing: the log was closed after every change was delivered."""
