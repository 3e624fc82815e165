"""What the fan-out knows of a subscription, which stands on all of it."""

from typing import Protocol

from publishers.fanout.bench import RingCursor
from publishers.fanout.state import Checkpoint, MaxLag, SubscriptionLag
from publishers.model.position import Position

__all__ = ["Subscribed", "Wakeable"]


class Wakeable(Protocol):
    """What looks for something to deliver when it is woken."""

    def wake(self) -> None:
        """There may be something to deliver. User code may run here, so hold no gate."""
        ...


class Subscribed(Protocol):
    """A subscription, as those see it that keep, wake, count and operate it; see `ChangeSubscription`.

    Attributes:
        id: What tells it from every other subscription of this process.
        name: What errors and statistics call it.
        max_lag: Changes, or time, that it may lag before writers that ask for admission wait; None if it does not gate.
    """

    id: int
    name: str
    max_lag: MaxLag | None

    @property
    def delivered(self) -> int:
        """Changes that it was given."""
        ...

    @property
    def position(self) -> Position:
        """Everything before it was delivered, or did not match."""
        ...

    @property
    def cursor(self) -> RingCursor:
        """Its place in the ring."""
        ...

    @property
    def until(self) -> int | None:
        """The last version to deliver, or None."""
        ...

    @property
    def demand(self) -> int:
        """Changes requested and not yet delivered."""
        ...

    @property
    def queued(self) -> int:
        """Changes that were read for it and not given to it yet."""
        ...

    @property
    def reads(self) -> int:
        """Frames of the WAL that it was given."""
        ...

    @property
    def behind(self) -> SubscriptionLag:
        """How far it is behind the watermark in every measure."""
        ...

    @property
    def paused(self) -> bool:
        """Whether an operator has paused it."""
        ...

    @property
    def detached(self) -> bool:
        """Whether its publisher is detached."""
        ...

    @property
    def ended(self) -> bool:
        """Whether no signal will follow."""
        ...

    def checkpoint(self) -> Checkpoint:
        """How far it is; moves over versions in which nothing matched."""
        ...

    def wake(self) -> None:
        """There may be something to deliver, or to end, or the ring has moved on without its cursor."""
        ...

    def prune(self, oldest: Position) -> None:
        """Ends it if history was dropped that it still had to read."""
        ...

    def fail(self, error: Exception) -> None:
        """Ends it with an error, demand or not."""
        ...

    def cancel(self) -> None:
        """Ends it without a further signal."""
        ...

    def seek(self, position: Position) -> None:
        """Goes on elsewhere."""
        ...

    def pause(self) -> bool:
        """Gives nothing until ``resume``; answers whether it was not paused before."""
        ...

    def resume(self) -> bool:
        """Goes on where it was paused; answers whether it was."""
        ...
