"""How many changes each version of the log holds, so that a position can be told as a number of changes.

Spark usually makes a version of each prepared file. But if it is killed after its source has noted the next file and
before its query has, the next micro-batch has two of them; so versions are counted, not calculated.
"""

from bisect import bisect_right

from flow.contracts import UNBOUNDED, Subscription
from publishers.criteria.criteria import Criterion
from publishers.log.changelog import ChangeLog
from publishers.model.change import Area, Change
from publishers.model.position import Position

__all__ = ["Ledger"]


class Ledger:
    """Follows the TRANSACTION events of a log from its beginning; reading it is safe on any thread.

    Attributes:
        error: What ended it; None while all is well.
    """

    def __init__(self) -> None:
        self.error: Exception | None = None
        self._versions = [0]
        self._totals = [0]
        self._subscription: Subscription | None = None

    def start(self, log: ChangeLog) -> None:
        """Begins to follow a log."""
        events = log.changes(Criterion(areas={Area.INFRASTRUCTURE}), since=log.oldest)
        events.subscribe(self, name="ledger")

    def stop(self) -> None:
        """Follows it no longer."""
        if self._subscription is not None:
            self._subscription.cancel()

    @property
    def changes(self) -> int:
        """How many changes the versions hold that are known."""
        return self._totals[-1]

    @property
    def version(self) -> int:
        """The newest version that is known."""
        return self._versions[-1]

    def before(self, position: Position) -> int:
        """How many changes lie before a position; of versions that are not known yet, none."""
        place = bisect_right(self._versions, position.version - 1) - 1
        inside = max(0, position.index - 1) if position.version <= self.version else 0
        return self._totals[max(0, place)] + inside

    # Signals, on the pool of the log.

    def on_subscribe(self, subscription: Subscription, /) -> None:
        """Asks for everything: two numbers a version are no burden."""
        self._subscription = subscription
        subscription.request(UNBOUNDED)

    def on_next(self, event: Change, /) -> None:
        """Notes a version; the event itself is one of its changes, and not a flight."""
        # The total first: whoever finds the version then finds its total.
        self._totals.append(self._totals[-1] + event.count - 1)
        self._versions.append(event.version)

    def on_error(self, error: Exception, /) -> None:
        """Notes why it ended."""
        self.error = error

    def on_complete(self) -> None:
        """The log was closed."""
