"""The operator `scan`."""

from collections.abc import Callable
from typing import Any, overload

from flow.misuse import require_functions
from flow.operators.link import Fitting, In, Out, lift
from flow.operators.map import Mapping

__all__ = ["scan"]


@overload
def scan(f: Callable[[In, In], In]) -> Fitting[In, In]: ...


@overload
def scan(f: Callable[[Out, In], Out], seed: Out) -> Fitting[In, Out]: ...


def scan(f: Callable[[Any, Any], Any], seed: Any = None) -> Fitting[Any, Any]:
    """Replace each element by the value accumulated up to it: ``f(accumulated, element)``.

    Args:
        f: If it raises, or returns ``None``, the stream fails as in `map`.
        seed: The accumulated value before the first element; it is not published. Without it, the first element
            passes unchanged. Subscribers share it, so ``f`` should return a new value instead of changing it.
    """
    require_functions(f=f)
    return lift(Mapping, lambda: (_accumulating(f, seed),))


def _accumulating(f: Callable[[Any, Any], Any], accumulated: Any) -> Callable[[Any], Any]:
    def step(item: Any) -> Any:
        nonlocal accumulated
        accumulated = item if accumulated is None else f(accumulated, item)
        return accumulated

    return step
