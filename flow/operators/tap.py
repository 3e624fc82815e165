"""The operator `tap`."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from flow import hooks
from flow.contracts import Subscriber
from flow.drain.feed import GONE
from flow.misuse import require_functions
from flow.operators.link import Fitting, In, Link, lift, present, present_all

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
    """Call functions for the signals that pass, before each is passed on.

    Their results are ignored. If ``on_next`` or ``on_complete`` raises, the stream ends with that error; if
    ``on_error`` does, with an ``ExceptionGroup`` of both errors. ``on_request`` and ``on_cancel`` are called on the
    subscriber's thread.

    Args:
        on_next: Called with each element.
        on_error: Called with the error of upstream, but not with errors of these functions.
        on_complete: Called at the end.
        on_request: Called with the argument of each request, unchecked. Its errors go to `flow.hooks.on_dropped_error`,
            since no request may raise (rule 3.16).
        on_cancel: Called when the subscriber cancels for the first time. Its errors go there too (rule 3.15).
    """
    require_functions(
        on_next=on_next,
        on_error=on_error,
        on_complete=on_complete,
        on_request=on_request,
        on_cancel=on_cancel,
        optional=True,
    )
    return lift(_Tap, lambda: (on_next, on_error, on_complete, on_request, on_cancel))


class _Tap(Link[T, T]):
    __slots__ = ("_on_cancel", "_on_complete", "_on_error", "_on_next", "_on_request")

    def __init__(self, below: Subscriber[T], *functions: Callable[..., object] | None) -> None:
        super().__init__(below)
        self._on_next, self._on_error, self._on_complete, self._on_request, self._on_cancel = functions

    def on_next(self, item: T, /) -> None:
        present(item, "the element")
        if self._on_next is not None and self._upstream is not GONE:
            try:
                self._on_next(item)
            except Exception as error:  # noqa: BLE001 - rule 1.4: signalled to the subscriber
                self._finish(error)
                return
        self._pass(item)

    def _on_batch(self, items: Sequence[T], /) -> None:
        present_all(items)
        look, seen = self._on_next, 0
        failure: Exception | None = None
        if look is not None and self._upstream is not GONE:
            try:
                for item in items:
                    look(item)
                    seen += 1
            except Exception as error:  # noqa: BLE001 - rule 1.4: signalled to the subscriber
                failure = error
        self._pass_all(items if failure is None else items[:seen], failure)

    def on_error(self, error: Exception, /) -> None:
        present(error, "the error")
        failure = self._call(self._on_error, error)
        if failure is not None:
            error = ExceptionGroup("a stream failed, and then its on_error callback failed", [error, failure])
        self._end().on_error(error)

    def on_complete(self) -> None:
        failure = self._call(self._on_complete)
        if failure is None:
            self._end().on_complete()
        else:
            self._end().on_error(failure)

    def request(self, n: int, /) -> None:
        failure = self._call(self._on_request, n)
        if failure is not None:  # rule 3.16
            hooks.report(failure, self._on_request)
        super().request(n)

    def cancel(self) -> None:
        failure = self._call(self._on_cancel)
        if failure is not None:  # rule 3.15
            hooks.report(failure, self._on_cancel)
        super().cancel()

    def _call(self, function: Callable[..., object] | None, *arguments: object) -> Exception | None:
        """Call a function, if there is one and the stream has not ended; return its error, if it raised one."""
        if function is not None and self._upstream is not GONE:
            try:
                function(*arguments)
            except Exception as error:  # noqa: BLE001 - signalled to the subscriber, or reported
                return error
        return None
