"""A drain that lends its flag to the company that serves many at once."""

import asyncio
import contextvars
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from flow.contracts import BatchSubscriber, Subscriber
from flow.drain import Drain
from flow.executors import Executor

if TYPE_CHECKING:
    from flow.broadcast.cursor import Cursor

__all__ = ["Seat"]

T = TypeVar("T")

_NONE: Final[dict[Hashable, Callable[[Any], object]]] = {}
"""Shared by all who are told nothing; it stays empty."""


class Seat(Drain[T]):
    """The drain of a cursor: what halts it while its flag is lent asks for the flag.

    Whoever was lent the flag may look at what is here; else only the holder of the flag does.
    """

    __slots__ = ()

    def __init__(
        self,
        subscriber: Subscriber[T],
        cursor: "Cursor[T]",
        executor: Executor | asyncio.AbstractEventLoop | None,
    ) -> None:
        super().__init__(subscriber, cursor, executor=executor)
        self._tells = _NONE  # most are never told anything but elements

    def tell(self, key: Hashable, fn: Callable[[Any], object], *, wake: bool = True) -> None:
        """Signal something beside the stream."""
        with self._lock:
            if self._tells is _NONE:
                self._tells = {}
        super().tell(key, fn, wake=wake)

    def stand_by(self) -> bool:
        """Lend the flag to the company, if an element could be delivered here and now."""
        return self._inline and self.lend(1, self)

    def give_up(self) -> None:
        """Have the flag back, and run what was noted meanwhile."""
        self.give_back(self, ())

    def cancel(self) -> None:
        """End without a signal."""
        super().cancel()
        self._attend()

    def fail(self, error: Exception) -> None:
        """End with an error, which overtakes what waits."""
        super().fail(error)
        self._attend()

    def _attend(self) -> None:
        # Halted earlier, it had not been lent; and whoever gives it up later sees that it is halted.
        if self._lent is not None:
            cast("Cursor[T]", self._feed).attend()

    @property
    def halted(self) -> bool:
        """Whether no element may follow."""
        return self._halted

    @property
    def batches(self) -> bool:
        """Whether the subscriber takes batches."""
        return self._batches

    @property
    def call(self) -> Callable[[Any], object]:
        """What takes an element, or a batch."""
        if self._batches:
            return cast("BatchSubscriber[T]", self._subscriber).on_next_batch
        return self._subscriber.on_next

    @property
    def context(self) -> contextvars.Context:
        """That in which the subscription began."""
        assert self._context is not None
        return self._context

    def spend(self, count: int) -> None:
        """Count what was delivered; the flag is given up next."""
        self._taken = count

    def fault(self, error: Exception | None) -> None:
        """End it because the subscriber raised; ``None`` is an interrupt, or a cancellation."""
        if error is None:
            self.cancel()
        else:
            self._drop(error, self._subscriber)
