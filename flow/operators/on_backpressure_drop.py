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
    """Request everything of upstream, and let go of each element that nobody has asked for when it comes.

    Args:
        on_drop: Called with each of them, on upstream's thread; if it raises, the stream ends with that.
        meter: Counts what comes and what goes, for all subscribers.
    """
    require_meter(meter)
    require_functions(on_drop=on_drop, optional=True)
    return lift(Unasked, lambda: (meter, on_drop))


class Unasked(Link[T, T]):
    """Requests everything, passes on what was asked for, and gives anything else to ``on_drop``.

    If that raises, the stream ends with it.
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
        """Pass the element on, or let it go."""
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
            except Exception as error:  # noqa: BLE001 - what drops unheard must not go on
                self._finish(error)

    def request(self, n: int, /) -> None:
        """Note what is asked for; nothing more is requested upstream."""
        if refusal(n) is None:
            with self._lock:
                self._demand = add(self._demand, n)
        else:
            self._upstream.request(n)
