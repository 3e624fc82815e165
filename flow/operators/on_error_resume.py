"""The operator `on_error_resume`."""

from collections.abc import Callable
from typing import TypeVar

from flow.contracts import Publisher, Subscriber
from flow.misuse import require_functions
from flow.operators.link import Operator
from flow.operators.switch import Switch, switched

__all__ = ["on_error_resume"]

T = TypeVar("T")


def on_error_resume(fallback: Callable[[Exception], Publisher[T]]) -> Operator[T, T]:
    """Continue with ``fallback(error)`` when the publisher fails; it receives the remaining demand.

    Args:
        fallback: Called at most once: an error of the returned publisher is passed on. If it raises, the stream ends
            with that error.
    """
    require_functions(fallback=fallback)
    return switched(lambda _, below: _Resume(below, fallback))


class _Resume(Switch[T]):
    __slots__ = ("_fallback",)

    def __init__(self, below: Subscriber[T], fallback: Callable[[Exception], Publisher[T]]) -> None:
        super().__init__(below)
        self._fallback: Callable[[Exception], Publisher[T]] | None = fallback

    def _follow(self, error: Exception | None) -> None:
        fallback, self._fallback = self._fallback, None
        if error is None or fallback is None:
            self.finish(error)
        else:
            self.switch(fallback(error))
