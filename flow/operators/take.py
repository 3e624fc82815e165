"""The operator `take`."""

import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

from flow.contracts import Publisher, Subscriber
from flow.demand import refusal
from flow.drain.feed import GONE
from flow.operators.link import Link, at_least, lift, present, present_all

__all__ = ["take"]

T = TypeVar("T")


def take(count: int) -> Callable[[Publisher[T]], Publisher[T]]:
    """Complete after ``count`` elements, and never request more than that of upstream.

    Args:
        count: At least 0; with 0 nothing is requested, and the end comes without any request.

    Raises:
        ValueError: If ``count`` is not an integer of at least 0.
    """
    at_least("count", count, 0)
    return lift(_Take, lambda: (count,))


class _Take(Link[T, T]):
    """Counts the elements that may still be requested, and those that may still arrive."""

    __slots__ = ("_left", "_lock", "_room")

    def __init__(self, below: Subscriber[T], count: int) -> None:
        super().__init__(below)
        self._lock = threading.Lock()
        self._room = count  # guarded by the lock: any thread may request
        self._left = count

    def _begin(self) -> None:
        if not self._left:
            self._finish()

    def on_next(self, item: T, /) -> None:
        present(item, "the element")
        if not self._left:
            return
        self._left -= 1
        if self._left:
            self._pass(item)
            return
        self._cancel_upstream()
        self._pass(item)
        self._end().on_complete()

    def _on_batch(self, items: Sequence[T], /) -> None:
        present_all(items)
        if len(items) < self._left:
            self._left -= len(items)
            self._pass_all(items)
        elif self._left:
            left, self._left = self._left, 0
            self._cancel_upstream()
            self._pass_all(items[:left])
            self._end().on_complete()

    def _cancel_upstream(self) -> None:
        """Called before the last element is passed on, so that upstream need not make another one."""
        upstream, self._upstream = self._upstream, GONE
        upstream.cancel()

    def request(self, n: int, /) -> None:
        if refusal(n) is None:
            with self._lock:
                n = min(n, self._room)
                self._room -= n
            if not n:
                return
        self._upstream.request(n)
