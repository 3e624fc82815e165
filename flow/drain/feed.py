"""What a drain pulls from, and how a stream ends."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

from flow.contracts import Subscription

__all__ = ["COMPLETED", "GONE", "Completed", "Failed", "Feed", "Outcome"]

T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Completed:
    """The stream ended as it should: ``on_complete``."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The stream ended with an error: ``on_error``."""

    error: Exception


Outcome = Completed | Failed
COMPLETED: Final = Completed()


class Feed(Protocol[T_co]):
    """What a drain pulls from.

    All three are called by the holder of the drain's flag, never two at once; none blocks.
    """

    def pull(self, limit: int, /) -> Sequence[T_co]:
        """Give at most ``limit`` >= 1 elements that are available now; maybe none.

        An exception is told to the subscriber and ends the subscription.
        """
        ...

    def outcome(self) -> Outcome | None:
        """Say whether the stream has ended; ``None`` while it is open or something is left to pull.

        Asked when there is no demand or when `pull` gave nothing: the end is told without demand (rules 2.9, 2.10).
        """
        ...

    def release(self) -> None:
        """Drop every reference; called exactly once, however the subscription ended."""
        ...


class Gone:
    """Stands in for subscriber and feed once they were dropped."""

    def pull(self, limit: int, /) -> tuple[()]:
        return ()

    def outcome(self) -> None:
        return None

    def release(self) -> None: ...

    def on_subscribe(self, subscription: Subscription, /) -> None: ...

    def on_next(self, item: object, /) -> None: ...

    def on_error(self, error: Exception, /) -> None: ...

    def on_complete(self) -> None: ...

    def request(self, n: int, /) -> None: ...

    def cancel(self) -> None: ...


GONE: Final = Gone()
