"""Publishers that ``for`` and ``async for`` accept."""

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator
from typing import Generic, TypeVar

from flow.bridges.asyncio import aiter as iterate
from flow.bridges.blocking import BlockingItems, iter_blocking
from flow.contracts import Subscriber
from flow.executors import running_loop

__all__ = ["IterablePublisher"]

T = TypeVar("T")


class IterablePublisher(ABC, Generic[T]):
    """The base of publishers that can be iterated over; each loop is a subscription of its own.

    ::

        for item in publisher:
            ...

        async for item in publisher:
            ...

    A loop uses `flow.iter_blocking` or `flow.aiter` with their default prefetch: at most 32 elements are
    requested ahead of it. However the loop is left, its subscription is cancelled: that of a ``for`` loop at once, that of an
    ``async for`` loop at the next turn of the event loop. If the iterator outlives the loop, or the end must not wait
    for that turn, close it with a context::

        with contextlib.closing(iter(publisher)) as items:
            ...

        async with contextlib.aclosing(aiter(publisher)) as items:
            ...

    A ``for`` loop blocks its thread. In a thread with a running event loop it raises ``RuntimeError``, because it would block
    that loop for ever, on which the signals run. Use ``async for`` there.
    """

    __slots__ = ()

    @abstractmethod
    def subscribe(self, subscriber: Subscriber[T], /) -> None:
        """Begin a subscription; see `flow.Publisher`."""

    def __iter__(self) -> BlockingItems[T]:
        if running_loop() is None:
            return iter(iter_blocking(self))
        raise RuntimeError("a for loop would block the event loop that runs here; use async for")

    async def __aiter__(self) -> AsyncGenerator[T, None]:
        async with iterate(self) as items:
            async for item in items:
                yield item
