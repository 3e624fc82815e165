"""The operator `on_backpressure_error`."""

from collections.abc import Callable
from typing import NoReturn, TypeVar

from flow.contracts import Publisher
from flow.errors import Overflowed
from flow.operators.link import lift
from flow.operators.on_backpressure_drop import Unasked
from flow.overflow import Meter, require_meter

__all__ = ["on_backpressure_error"]

T = TypeVar("T")


def on_backpressure_error(*, meter: Meter | None = None) -> Callable[[Publisher[T]], Publisher[T]]:
    """Request everything of upstream, and end with `Overflowed` at the first element that arrives without demand."""
    require_meter(meter)
    return lift(Unasked, lambda: (meter, _overflow))


def _overflow(_: object) -> NoReturn:
    raise Overflowed(1, 0)
