"""The source of a drain, and the outcomes of a stream."""

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
    """The source of a drain.

    The holder of the drain's flag calls these methods, never two at once. None may block.
    """

    def pull(self, limit: int, /) -> Sequence[T_co]:
        """Return at most ``limit`` >= 1 elements that are available now; maybe none.

        An exception ends the subscription with ``on_error``.
        """
        ...

    def outcome(self) -> Outcome | None:
        """Return how the stream has ended; ``None`` while it is open or elements are left to pull.

        Called when there is no demand or `pull` returned nothing: the end is signalled without demand (rules 2.9, 2.10).
        """
        ...

    def release(self) -> None:
        """Drop every reference; called exactly once, however the subscription ended."""
        ...


class Gone:
    """Replaces subscriber and feed after the end."""

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
