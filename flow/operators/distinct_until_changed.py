"""The operator `distinct_until_changed`."""

from collections.abc import Callable
from typing import Any, Final

from flow.misuse import require_functions
from flow.operators.filter import Sieve
from flow.operators.link import Fitting, In, lift

__all__ = ["distinct_until_changed"]

_NOTHING: Final = object()


def distinct_until_changed(key: Callable[[In], object] | None = None) -> Fitting[In, In]:
    """Omit each element that is equal to the one before it.

    Args:
        key: Returns the value to compare instead of the element. If it raises, or the comparison does, the stream ends
            in ``on_error``.
    """
    require_functions(key=key, optional=True)
    return lift(Sieve, lambda: (_changes(key),))


def _changes(key: Callable[[Any], object] | None) -> Callable[[Any], bool]:
    last: Any = _NOTHING

    def changed(item: Any) -> bool:
        nonlocal last
        found = item if key is None else key(item)
        differs = last is _NOTHING or bool(found != last)
        last = found
        return differs

    return changed
