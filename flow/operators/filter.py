"""The operator `filter`, and the common part of all operators that omit elements."""

from collections.abc import Callable, Sequence
from typing import ClassVar, TypeVar

from flow.contracts import Subscriber
from flow.misuse import require_functions
from flow.operators.link import Fitting, In, Link, lift, present, present_all

__all__ = ["Sieve", "filter"]

T = TypeVar("T")


def filter(keep: Callable[[In], object]) -> Fitting[In, In]:  # noqa: A001 - the name of the field
    """Omit each element for which ``keep(element)`` is false; one more is requested in its place.

    If ``keep`` raises, upstream is cancelled and the stream ends in ``on_error``.
    """
    require_functions(keep=keep)
    return lift(Sieve, lambda: (keep,))


class Sieve(Link[T, T]):
    """Passes on the elements that ``keep`` accepts, and requests one more for each other element."""

    __slots__ = ("_keep",)
    _ends: ClassVar[bool] = False
    """Whether the first omitted element ends the stream."""

    def __init__(self, below: Subscriber[T], keep: Callable[[T], object]) -> None:
        super().__init__(below)
        self._keep = keep

    def on_next(self, item: T, /) -> None:
        """Pass the element on, or omit it."""
        present(item, "the element")
        try:
            kept = bool(self._keep(item))
        except Exception as error:  # noqa: BLE001 - rule 1.4: signalled to the subscriber
            self._finish(error)
            return
        if kept:
            self._pass(item)
        else:
            self._leave_out(1)

    def _on_batch(self, items: Sequence[T], /) -> None:
        present_all(items)
        kept: list[T] = []
        failure: Exception | None = None
        try:
            for item in items:
                if self._keep(item):
                    kept.append(item)
                elif self._ends:
                    break
        except Exception as error:  # noqa: BLE001 - rule 1.4: signalled to the subscriber
            failure = error
        self._pass_all(items if len(kept) == len(items) else kept, failure)
        if failure is None and len(kept) < len(items):
            self._leave_out(len(items) - len(kept))

    def _leave_out(self, count: int) -> None:
        """Request more; upstream is inside a signal, so it only records the request (rule 3.3)."""
        self._upstream.request(count)
