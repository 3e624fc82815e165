"""The operator `skip`."""

from collections.abc import Callable
from typing import TypeVar

from flow.contracts import Publisher
from flow.operators.filter import Sieve
from flow.operators.link import at_least, lift

__all__ = ["skip"]

T = TypeVar("T")


def skip(count: int) -> Callable[[Publisher[T]], Publisher[T]]:
    """Omit the first ``count`` elements; one more is requested in place of each.

    Args:
        count: At least 0.

    Raises:
        ValueError: If ``count`` is not an integer of at least 0.
    """
    at_least("count", count, 0)
    return lift(Sieve, lambda: (_after(count),))


def _after(left: int) -> Callable[[object], bool]:
    def keep(_: object) -> bool:
        nonlocal left
        if not left:
            return True
        left -= 1
        return False

    return keep
