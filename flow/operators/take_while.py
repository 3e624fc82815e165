"""The operator `take_while`."""

from collections.abc import Callable
from typing import ClassVar, TypeVar

from flow.misuse import require_functions
from flow.operators.filter import Sieve
from flow.operators.link import Fitting, In, lift

__all__ = ["take_while"]

T = TypeVar("T")


def take_while(keep: Callable[[In], object]) -> Fitting[In, In]:
    """Complete before the first element for which ``keep(element)`` is false.

    If ``keep`` raises, upstream is cancelled and the stream ends in ``on_error``.
    """
    require_functions(keep=keep)
    return lift(_TakeWhile, lambda: (keep,))


class _TakeWhile(Sieve[T]):
    """Ends at the first element that ``keep`` does not accept."""

    __slots__ = ()
    _ends: ClassVar[bool] = True

    def _leave_out(self, count: int) -> None:
        self._finish()
