"""Helpers for tests of programs that write to a log: they collect delivered changes in a list, without sleeping.

::

    def test_an_order_is_told(log):
        since = log.head
        place_order(log, "42")
        told = collect(log.changes(since=since, content=Content.BODY), 2)
        assert [change.key for change in told] == [None, "42"]

``collect`` is for tests that are functions, and `collect_async` for tests that are coroutines.
"""

import asyncio
import threading
from collections.abc import Sequence
from typing import Any, TypeVar

import flow
from flow.executors import require_loop, require_no_loop
from publishers.errors import InvalidOption
from publishers.model.errors import shown
from publishers.options import check_whole

__all__ = ["TooFew", "collect", "collect_async"]

T = TypeVar("T")


class TooFew(AssertionError):
    """Fewer elements arrived than a test expects.

    Attributes:
        came: The elements that arrived.
        expected: How many were expected.
        timeout: Seconds after which the wait ended.
    """

    def __init__(self, came: Sequence[object], expected: int, timeout: float) -> None:
        self.came = came
        self.expected = expected
        self.timeout = timeout
        super().__init__(
            f"{len(came)} of {expected} came within {timeout:g} s: {shown(list(came))}; "
            "what was committed before the subscription comes with since="
        )


def collect(feed: flow.Publisher[T], n: int, timeout: float = 10.0) -> list[T]:
    """Returns the first ``n`` elements of a publisher; the calling thread waits for them.

    The subscription is cancelled before this returns. In a coroutine or a notebook use `collect_async`, because this function
    would block the event loop.

    Args:
        feed: ``log.changes(...)``, or any other publisher.
        n: Number of elements to wait for, at least 1.
        timeout: Seconds to wait for all of them together, above 0.

    Returns:
        ``n`` elements; fewer only if the publisher completes before.

    Raises:
        TooFew: If the time is over.
        InvalidOption: If an argument is out of its bounds.
        RuntimeError: If an event loop runs on this thread.
        Exception: The error of the publisher.
    """
    _check(n, timeout)
    require_no_loop("collect", "await collect_async(feed, n)")
    came: list[T] = []
    late = threading.Event()
    with flow.iter_blocking(feed, prefetch=n, low_tide=0) as items:

        def end() -> None:
            late.set()
            items.close()

        timer = threading.Timer(timeout, end)
        timer.start()
        try:
            for item in items:
                came.append(item)
                if len(came) == n:
                    return came
        finally:
            timer.cancel()
            timer.join()
    if late.is_set():
        raise TooFew(came, n, timeout)
    return came


async def collect_async(feed: flow.Publisher[T], n: int, timeout: float = 10.0) -> list[T]:  # noqa: ASYNC109 - the limit of a test, which its error shows
    """`collect` on the running event loop; it also accepts feeds of a server's client."""
    _check(n, timeout)
    require_loop("collect_async")
    came: list[T] = []
    limit = asyncio.timeout(timeout)
    try:
        async with limit, flow.aiter(feed, prefetch=n, low_tide=0) as items:
            async for item in items:
                came.append(item)
                if len(came) == n:
                    break
    except TimeoutError:
        if limit.expired():
            raise TooFew(came, n, timeout) from None
        raise  # raised by the publisher, not by the limit
    return came


def _check(n: Any, timeout: Any) -> None:
    check_whole("n", n, "a whole number from 1", 1)
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not timeout > 0:
        raise InvalidOption("timeout", timeout, "seconds above 0")
