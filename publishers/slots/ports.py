"""What slots need of the log whose places they keep."""

from collections.abc import Callable
from typing import Any, Protocol

from flow.contracts import Subscription
from publishers.criteria.criteria import Criteria
from publishers.fanout.state import Checkpoint, SubscriptionLag
from publishers.model.position import Position
from publishers.views.view import View
from publishers.wal import Hold, HoldStatistics

__all__ = ["Feeding", "PlaceLog", "SlotSubscription"]


class SlotSubscription(Subscription, Protocol):
    """The subscription of a slot's consumer; see ``ChangeSubscription``."""

    @property
    def ended(self) -> bool:
        """Whether no signal will follow."""
        ...

    def checkpoint(self) -> Checkpoint:
        """How far it is."""
        ...

    def seek(self, position: Position) -> None:
        """Goes on elsewhere."""
        ...

    def pause(self) -> bool:
        """Gives nothing until it is resumed."""
        ...

    def resume(self) -> bool:
        """Goes on."""
        ...

    def fail(self, error: Exception) -> None:
        """Ends it with an error."""
        ...


class Feeding(Protocol):
    """What a consumer subscribes to; see ``ChangeFeed``."""

    @property
    def subscribe(self) -> Callable[..., None]:
        """Gives a subscriber its subscription."""
        ...


class PlaceLog(Protocol):
    """The log, as its slots use it."""

    def check(self) -> None:
        """Raises ``LogClosed`` or ``LogForked`` if nothing can be done with it."""
        ...

    def find(self, since: Any) -> Position:
        """The position of whatever names a place, as ``changes(since=...)`` takes it."""
        ...

    def token(self, position: Position) -> str:
        """The text of a position with the history that it belongs to."""
        ...

    def judge(self, token: str) -> Position:
        """The position of such a text; raises a ``PositionError`` if it is not good any more."""
        ...

    def behind(self, position: Position) -> SubscriptionLag:
        """How far a position is behind the watermark."""
        ...

    def feed(self, criteria: Criteria, since: Position, view: View, check: Callable[[], None]) -> Feeding:
        """What to subscribe to; ``check`` may refuse a subscriber."""
        ...

    def hold(
        self,
        name: str,
        position: Position,
        *,
        keep_bytes: int | None,
        keep_age: float | None,
        on_lost: Callable[[Hold], object],
    ) -> Hold:
        """Keeps history; see ``ChangeLog.hold``."""
        ...

    def holds(self) -> tuple[HoldStatistics, ...]:
        """Every hold of the log, judged now."""
        ...

    def vouch(self, version: int) -> None:
        """Makes HEAD cover a version whose place is about to be stored."""
        ...

    def monotonic(self) -> float:
        """Seconds of a clock that is never put back."""
        ...

    def poke(self) -> None:
        """Asks the housekeeping for a step now."""
        ...
