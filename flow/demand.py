"""Arithmetic of demand: validation, saturation, and when to request more."""

from typing import Final

from flow.contracts import UNBOUNDED
from flow.errors import IllegalRequestError

__all__ = ["Tide", "add", "refusal", "subtract"]

_DEFAULT_LOW_TIDE_SHIFT: Final = 2


def refusal(n: object) -> IllegalRequestError | None:
    """Return the error for a request of ``n``, or ``None`` if it is legal: an integer of at least 1 (rule 3.9).

    Booleans are integers to Python, but a request of ``True`` is a mistake.
    """
    if isinstance(n, int) and not isinstance(n, bool) and n > 0:
        return None
    return IllegalRequestError(n)


def add(demand: int, n: int) -> int:
    """Return the demand after a request of ``n``, at most `UNBOUNDED` (rules 3.8, 3.17)."""
    total = demand + n
    return min(UNBOUNDED, total)


def subtract(demand: int, n: int) -> int:
    """Return the demand after ``n`` deliveries; unbounded demand stays unbounded (rule 3.17)."""
    return demand if demand >= UNBOUNDED else demand - n


class Tide:
    """Decides when a consumer with a buffer requests more: ``prefetch`` at first, then ``refill`` after as many were consumed.

    So at most ``prefetch`` elements are ever in flight or buffered. Not thread-safe: for the consumer's thread only.

    Attributes:
        prefetch: First request, and the bound of the buffer.
        refill: Size of each further request, made after as many were consumed; 0 if the demand is unbounded.
    """

    __slots__ = ("_consumed", "prefetch", "refill")

    def __init__(self, prefetch: int, low_tide: int | None = None) -> None:
        """Check both numbers.

        Args:
            prefetch: At least 1; `UNBOUNDED` requests once and never again.
            low_tide: How many must be consumed before as many are requested; ``None`` is 75 % of ``prefetch``, 0 requests
                only when all were consumed.

        Raises:
            ValueError: If a number is out of its bounds.
        """
        if isinstance(prefetch, bool) or not isinstance(prefetch, int) or prefetch < 1:
            raise ValueError(f"prefetch: {prefetch!r}; an integer of at least 1 is expected")
        if low_tide is None:
            low_tide = prefetch - (prefetch >> _DEFAULT_LOW_TIDE_SHIFT)
        if isinstance(low_tide, bool) or not isinstance(low_tide, int) or not 0 <= low_tide <= prefetch:
            raise ValueError(
                f"low_tide: {low_tide!r}; an integer from 0 to prefetch ({prefetch}) is expected"
            )
        self.prefetch: int = min(prefetch, UNBOUNDED)
        self.refill: int = 0 if prefetch >= UNBOUNDED else low_tide or prefetch
        self._consumed = 0

    def consume(self, n: int = 1) -> int:
        """Count ``n`` consumed elements and return how many to request now, usually 0."""
        self._consumed += n
        if self._consumed < self.refill or not self.refill:
            return 0
        due = self._consumed - self._consumed % self.refill
        self._consumed -= due
        return due
