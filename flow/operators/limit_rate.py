"""The operator `limit_rate`."""

from collections.abc import Callable
from typing import TypeVar

from flow.contracts import Publisher
from flow.executors import INLINE
from flow.operators.link import at_least
from flow.operators.publish_on import publish_on

__all__ = ["limit_rate"]

T = TypeVar("T")


def limit_rate(high: int, low: int | None = None) -> Callable[[Publisher[T]], Publisher[T]]:
    """Request ``high`` elements at first, and ``low`` more whenever as many were delivered, whatever the demand is.

    So a subscriber that asks for everything still has at most ``high`` under way, and one that asks one by one does
    not send a request upstream for each. What is ahead of its demand waits here; errors overtake it.

    Args:
        high: At least 1.
        low: ``None`` is 75 % of ``high``, 0 requests only when all were delivered.

    Raises:
        ValueError: If a number is out of its bounds.
    """
    at_least("high", high)
    return publish_on(INLINE, prefetch=high, low_tide=low)
