"""Counts the changes of each version of the log, to convert a position to a number of changes.

Spark usually makes one version of each prepared file. But if it is killed after its source has noted the next file and before
its query has, the next micro-batch holds two files; so the changes are counted, not calculated.
"""

from bisect import bisect_right

from penstock_cdc import Area, Change, ChangeLog, Criterion, Position
from penstock_cdc.flow import UNBOUNDED, Subscription

__all__ = ["Ledger"]


class Ledger:
    """Follows the TRANSACTION events of a log from its beginning; any thread may read the counts.

    Attributes:
        error: The error that ended the subscription; None if there was none.
    """

    def __init__(self) -> None:
        self.error: Exception | None = None
        self._versions = [0]
        self._totals = [0]
        self._subscription: Subscription | None = None

    def start(self, log: ChangeLog) -> None:
        """Subscribes to a log."""
        events = log.changes(Criterion(areas={Area.INFRASTRUCTURE}), since=log.oldest)
        events.subscribe(self, name="ledger")

    def stop(self) -> None:
        """Cancels the subscription."""
        if self._subscription is not None:
            self._subscription.cancel()

    @property
    def changes(self) -> int:
        """The number of changes of the versions received so far."""
        return self._totals[-1]

    @property
    def version(self) -> int:
        """The newest version received."""
        return self._versions[-1]

    def before(self, position: Position) -> int:
        """The number of changes before a position; versions not received yet count as empty."""
        place = bisect_right(self._versions, position.version - 1) - 1
        inside = max(0, position.index - 1) if position.version <= self.version else 0
        return self._totals[max(0, place)] + inside

    # Signals, on the pool of the log.

    def on_subscribe(self, subscription: Subscription, /) -> None:
        """Requests without bound: the ledger keeps two numbers a version."""
        self._subscription = subscription
        subscription.request(UNBOUNDED)

    def on_next(self, event: Change, /) -> None:
        """Adds a version. The event itself counts among its changes, but is no flight."""
        # The total first: a thread that reads the new version also finds its total.
        self._totals.append(self._totals[-1] + event.count - 1)
        self._versions.append(event.version)

    def on_error(self, error: Exception, /) -> None:
        """Stores the error."""
        self.error = error

    def on_complete(self) -> None:
        """Does nothing: the log was closed."""
