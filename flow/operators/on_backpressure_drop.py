"""The operator `on_backpressure_drop`."""

import threading
from collections.abc import Callable
from typing import TypeVar

from flow.contracts import UNBOUNDED, Subscriber
from flow.demand import add, refusal, subtract
from flow.drain.feed import GONE
from flow.misuse import require_functions
from flow.operators.link import Fitting, In, Link, lift, present
from flow.overflow import Meter, require_meter

__all__ = ["Unasked", "on_backpressure_drop"]

T = TypeVar("T")


def on_backpressure_drop(
    on_drop: Callable[[In], object] | None = None, *, meter: Meter | None = None
) -> Fitting[In, In]:
    """Request everything of upstream, and drop each element that arrives without demand.

    Args:
        on_drop: Called with each dropped element, on upstream's thread; if it raises, the stream ends with that error.
        meter: Counts arriving and dropped elements, for all subscribers.
    """
    require_meter(meter)
    require_functions(on_drop=on_drop, optional=True)
    return lift(Unasked, lambda: (meter, on_drop))


class Unasked(Link[T, T]):
    """Requests everything, passes on requested elements, and calls ``on_drop`` with all others.

    If ``on_drop`` raises, the stream ends with that error.
    """

    __slots__ = ("_demand", "_lock", "_meter", "_on_drop")

    def __init__(
        self, below: Subscriber[T], meter: Meter | None, on_drop: Callable[[T], object] | None
    ) -> None:
        super().__init__(below)
        self._meter = meter
        self._lock = threading.Lock()
        self._demand = 0
        self._on_drop = on_drop

    def _begin(self) -> None:
        self._upstream.request(UNBOUNDED)

    def on_next(self, item: T, /) -> None:
        """Pass the element on, or drop it."""
        present(item, "the element")
        with self._lock:
            asked = self._demand > 0
            if asked:
                self._demand = subtract(self._demand, 1)
        if self._meter is not None and self._upstream is not GONE:
            self._meter.count(received=1, dropped=int(not asked))
        if asked:
            self._pass(item)
        elif self._on_drop is not None and self._upstream is not GONE:
            try:
                self._on_drop(item)
            except Exception as error:  # noqa: BLE001 - a callback that fails must not go unnoticed
                self._finish(error)

    def request(self, n: int, /) -> None:
        """Record the demand; upstream has unbounded demand already."""
        if refusal(n) is None:
            with self._lock:
                self._demand = add(self._demand, n)
        else:
            self._upstream.request(n)
