"""Operators that only look on."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from flow import hooks
from flow.contracts import Subscriber
from flow.drain.feed import GONE
from flow.misuse import require_functions
from flow.operators.link import Batchwise, Fitting, In, Link, lift, present, present_all

__all__ = ["tap"]

T = TypeVar("T")


def tap(
    on_next: Callable[[In], object] | None = None,
    on_error: Callable[[Exception], object] | None = None,
    on_complete: Callable[[], object] | None = None,
    *,
    on_request: Callable[[int], object] | None = None,
    on_cancel: Callable[[], object] | None = None,
) -> Fitting[In, In]:
    """Call functions for what passes, before it passes on.

    What they return is ignored. If ``on_next`` or ``on_complete`` raises, the stream ends in that error; if
    ``on_error`` does, in an ``ExceptionGroup`` of both. Those for the way up are called on the subscriber's thread.

    Args:
        on_next: Called with each element.
        on_error: Called with the error of upstream, not with what these functions raise.
        on_complete: Called at the end.
        on_request: Called with what is requested, as it is. What it raises goes to `flow.hooks.on_dropped_error`,
            since no request may raise (rule 3.16).
        on_cancel: Called when the subscriber cancels, and not again. What it raises goes there too (rule 3.15).
    """
    require_functions(
        on_next=on_next,
        on_error=on_error,
        on_complete=on_complete,
        on_request=on_request,
        on_cancel=on_cancel,
        optional=True,
    )
    return lift(
        lambda below: _Tapping(below, on_next, on_error, on_complete, on_request, on_cancel),
        lambda below: _BatchTapping(below, on_next, on_error, on_complete, on_request, on_cancel),
    )


class _Tapping(Link[T, T]):
    __slots__ = ("_on_cancel", "_on_complete", "_on_error", "_on_next", "_on_request")

    def __init__(
        self,
        below: Subscriber[T],
        on_next: Callable[[T], object] | None,
        on_error: Callable[[Exception], object] | None,
        on_complete: Callable[[], object] | None,
        on_request: Callable[[int], object] | None,
        on_cancel: Callable[[], object] | None,
    ) -> None:
        super().__init__(below)
        self._on_next = on_next
        self._on_error = on_error
        self._on_complete = on_complete
        self._on_request = on_request
        self._on_cancel = on_cancel

    def on_next(self, item: T, /) -> None:
        present(item, "the element")
        if self._on_next is not None and self._upstream is not GONE:
            try:
                self._on_next(item)
            except Exception as error:  # noqa: BLE001 - rule 1.4: told to the subscriber
                self._fail(error)
                return
        self._pass(item)

    def on_error(self, error: Exception, /) -> None:
        present(error, "the error")
        if self._on_error is not None and self._upstream is not GONE:
            try:
                self._on_error(error)
            except Exception as failure:  # noqa: BLE001 - rule 1.4: told to the subscriber
                error = ExceptionGroup("a stream failed, and so did who was told of it", [error, failure])
        self._end().on_error(error)

    def on_complete(self) -> None:
        if self._on_complete is not None and self._upstream is not GONE:
            try:
                self._on_complete()
            except Exception as error:  # noqa: BLE001 - rule 1.4: told to the subscriber
                self._end().on_error(error)
                return
        self._end().on_complete()

    def request(self, n: int, /) -> None:
        if self._on_request is not None and self._upstream is not GONE:
            try:
                self._on_request(n)
            except Exception as error:  # noqa: BLE001 - rule 3.16
                hooks.report(error, self._on_request)
        super().request(n)

    def cancel(self) -> None:
        if self._on_cancel is not None and self._upstream is not GONE:
            try:
                self._on_cancel()
            except Exception as error:  # noqa: BLE001 - rule 3.15
                hooks.report(error, self._on_cancel)
        super().cancel()


class _BatchTapping(Batchwise[T, T], _Tapping[T]):
    __slots__ = ()

    def on_next_batch(self, items: Sequence[T], /) -> None:
        present_all(items)
        look, count = self._on_next, 0
        if look is not None and self._upstream is not GONE:
            try:
                for item in items:
                    look(item)
                    count += 1
            except Exception as error:  # noqa: BLE001 - rule 1.4: told to the subscriber
                self._pass_all(items[:count])
                self._fail(error)
                return
        self._pass_all(items)
