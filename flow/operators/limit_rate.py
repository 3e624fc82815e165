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

    So with unbounded demand at most ``high`` elements are in flight, and a subscriber that requests one by one does
    not cause a request upstream for each. Elements ahead of the demand are queued here; errors overtake them.

    Args:
        high: At least 1.
        low: ``None`` is 75 % of ``high``, 0 requests only when all were delivered.

    Raises:
        ValueError: If a number is out of its bounds.
    """
    at_least("high", high)
    return publish_on(INLINE, prefetch=high, low_tide=low)
