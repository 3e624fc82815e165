"""The operator `on_backpressure_latest`."""

from collections.abc import Callable

from flow.operators.link import Fitting, In
from flow.operators.on_backpressure_buffer import on_backpressure_buffer
from flow.overflow import Meter, Overflow

__all__ = ["on_backpressure_latest"]


def on_backpressure_latest(
    on_drop: Callable[[In], object] | None = None, *, meter: Meter | None = None
) -> Fitting[In, In]:
    """Request everything of upstream, and keep the newest of the elements that arrive without demand."""
    return on_backpressure_buffer(1, Overflow.LATEST, on_drop, meter=meter)
