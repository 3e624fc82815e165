"""The interfaces through which the fan-out uses a subscription, which itself stands on the whole fan-out."""

from typing import Protocol

from publishers.fanout.bench import RingCursor
from publishers.fanout.state import Checkpoint, MaxLag, SubscriptionLag
from publishers.model.position import Position

__all__ = ["Subscribed", "Wakeable"]


class Wakeable(Protocol):
    """An object that looks for changes to deliver when it is woken: a subscription, a group of them, or a follower."""

    def wake(self) -> None:
        """Looks for changes to deliver. User code may run here, so the caller holds no gate."""
        ...


class Subscribed(Protocol):
    """A subscription as registry, lists, statistics and operators use it; see `ChangeSubscription`.

    Attributes:
        id: A number that is unique in this process.
        name: Its name in errors and statistics.
        max_lag: Changes, or time, that it may lag before writers that ask for admission wait; None if it does not gate.
    """

    id: int
    name: str
    max_lag: MaxLag | None

    @property
    def delivered(self) -> int:
        """Changes that its subscriber has received."""
        ...

    @property
    def position(self) -> Position:
        """Everything before it was delivered, or did not match."""
        ...

    @property
    def cursor(self) -> RingCursor:
        """Its cursor in the ring."""
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
        """Changes that were read for it and not delivered yet."""
        ...

    @property
    def reads(self) -> int:
        """Frames of the WAL that were read for it, from disk or from memory."""
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
        """Its progress; first moves its position over versions in which nothing matched."""
        ...

    def wake(self) -> None:
        """Looks whether there are changes to deliver, whether it has ended, and whether the ring evicted its cursor."""
        ...

    def prune(self, oldest: Position) -> None:
        """Ends it if retention dropped history that it still has to read."""
        ...

    def fail(self, error: Exception) -> None:
        """Ends it with an error, demand or not."""
        ...

    def cancel(self) -> None:
        """Ends it without a further signal."""
        ...

    def seek(self, position: Position) -> None:
        """Continues at another position."""
        ...

    def pause(self) -> bool:
        """Stops delivery until ``resume``; returns whether it was not paused before."""
        ...

    def resume(self) -> bool:
        """Resumes delivery where it was paused; returns whether it was paused."""
        ...
