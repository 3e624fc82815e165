"""Publishers over which a loop may be written."""

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

    A loop is `flow.iter_blocking`, or `flow.aiter`, with the prefetch that these have by default: at most 32 elements are
    requested ahead of it. However it is left, its subscription is cancelled: a ``for`` loop's at once, an ``async for``
    loop's by the event loop as soon as that has its turn. Where the iterator outlives the loop, or the end is not to wait
    for that turn, a context closes it::

        with contextlib.closing(iter(publisher)) as items:
            ...

        async with contextlib.aclosing(aiter(publisher)) as items:
            ...

    A ``for`` loop blocks its thread; where an event loop runs in that thread it raises ``RuntimeError``: signals run on the
    loop, which it would block for ever. Use ``async for`` there.
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
