"""The list of everything that is broken by intent."""

from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeVar

from tests.tck.broken.honest import HonestPublisher, HonestSubscription

__all__ = [
    "PROCESSORS",
    "PUBLISHERS",
    "SUBSCRIBERS",
    "Broken",
    "breaks",
    "breaks_processor",
    "breaks_subscriber",
]

Made = TypeVar("Made", bound=type[Any])


class Broken(NamedTuple):
    """One way to break the rules.

    Attributes:
        name: What it is called.
        make: Makes one; a publisher from a number of elements and an error or None, a subscriber from a probe or None, a
            processor from the size of its buffer.
        caught_by: Beginnings of the names of tests, without ``test_``; of each at least one test fails.
    """

    name: str
    make: Callable[..., Any]
    caught_by: tuple[str, ...]


PUBLISHERS: Final[dict[str, Broken]] = {}
SUBSCRIBERS: Final[dict[str, Broken]] = {}
PROCESSORS: Final[dict[str, Broken]] = {}


def breaks(*caught_by: str) -> Callable[[Made], Made]:
    """List a publisher, or the publisher with this subscription."""

    def listed(made: Made) -> Made:
        make: Callable[..., Any] = made
        if issubclass(made, HonestSubscription):

            def make(count: int, error: Exception | None = None) -> HonestPublisher:
                publisher = HonestPublisher(count, error)
                publisher.subscription = made
                return publisher

        PUBLISHERS[made.__name__] = Broken(made.__name__, make, caught_by)
        return made

    return listed


def breaks_subscriber(*caught_by: str) -> Callable[[Made], Made]:
    """List a subscriber."""

    def listed(made: Made) -> Made:
        SUBSCRIBERS[made.__name__] = Broken(made.__name__, made, caught_by)
        return made

    return listed


def breaks_processor(*caught_by: str) -> Callable[[Made], Made]:
    """List a processor."""

    def listed(made: Made) -> Made:
        PROCESSORS[made.__name__] = Broken(made.__name__, made, caught_by)
        return made

    return listed
