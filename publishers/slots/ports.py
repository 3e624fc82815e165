"""The interfaces through which slots use their log."""

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
        """Whether it has ended."""
        ...

    def checkpoint(self) -> Checkpoint:
        """Its progress."""
        ...

    def seek(self, position: Position) -> None:
        """Moves it to a position."""
        ...

    def pause(self) -> bool:
        """Stops deliveries until it is resumed."""
        ...

    def resume(self) -> bool:
        """Resumes deliveries."""
        ...

    def fail(self, error: Exception) -> None:
        """Ends it with an error."""
        ...


class Feeding(Protocol):
    """The publisher for a consumer; see ``ChangeFeed``."""

    @property
    def subscribe(self) -> Callable[..., None]:
        """Subscribes a subscriber."""
        ...


class PlaceLog(Protocol):
    """The log, as its slots use it."""

    def check(self) -> None:
        """Raises ``LogClosed`` or ``LogForked``."""
        ...

    def find(self, since: Any) -> Position:
        """Resolves a start position, as ``changes(since=...)`` does."""
        ...

    def token(self, position: Position) -> str:
        """The token of a position."""
        ...

    def judge(self, token: str) -> Position:
        """The position of a token; raises a ``PositionError`` if it cannot be read from."""
        ...

    def behind(self, position: Position) -> SubscriptionLag:
        """The lag of a position behind the watermark."""
        ...

    def feed(self, criteria: Criteria, since: Position, view: View, check: Callable[[], None]) -> Feeding:
        """A publisher of changes; ``check`` may refuse a subscriber."""
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
        """Holds history; see ``ChangeLog.hold``."""
        ...

    def holds(self, name: str | None = None) -> tuple[HoldStatistics, ...]:
        """The statistics of every hold of the log, as of now; with ``name`` of the hold of this name, if there is one."""
        ...

    def vouch(self, version: int) -> None:
        """Makes HEAD cover a version before a position behind it is stored."""
        ...

    def monotonic(self) -> float:
        """Seconds of a monotonic clock."""
        ...

    def poke(self) -> None:
        """Requests a step of housekeeping now."""
        ...

    def rouse(self) -> None:
        """Requests steps of housekeeping from an idle log: there is something to do in a while."""
        ...
