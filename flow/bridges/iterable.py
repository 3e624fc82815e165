"""Publishers that ``for`` and ``async for`` accept."""

from abc import ABC, abstractmethod
from typing import Generic, TypeVar

from flow.bridges.asyncio import AsyncItems
from flow.bridges.asyncio import aiter as iterate
from flow.bridges.blocking import BlockingItems, iter_blocking
from flow.contracts import Subscriber
from flow.executors import require_no_loop

__all__ = ["IterablePublisher"]

T_co = TypeVar("T_co", covariant=True)


class IterablePublisher(ABC, Generic[T_co]):
    """The base of publishers that can be iterated over; each loop is a subscription of its own.

    ::

        for item in publisher:
            ...

        async for item in publisher:
            ...

    A loop uses `flow.iter_blocking` or `flow.aiter` with their default prefetch: at most 32 elements are
    requested ahead of it. However the loop is left, its subscription is cancelled at once. If the iterator outlives the loop,
    close it with a context::

        with contextlib.closing(iter(publisher)) as items:
            ...

        async with contextlib.aclosing(aiter(publisher)) as items:
            ...

    A ``for`` loop blocks its thread. In a thread with a running event loop it raises ``RuntimeError``, because it would block
    that loop for ever, on which the signals run. Use ``async for`` there.
    """

    __slots__ = ()

    @abstractmethod
    def subscribe(self, subscriber: Subscriber[T_co], /) -> None:
        """Begin a subscription; see `flow.Publisher`."""

    def __iter__(self) -> BlockingItems[T_co]:
        require_no_loop("a for loop", "async for item in publisher")
        return iter(iter_blocking(self))

    def __aiter__(self) -> AsyncItems[T_co]:
        return iterate(self)
