"""The four protocols of Reactive Streams 1.0.4, in Python.

They are protocols: any object with the methods conforms, without a base class. "Demand" is what was requested and not
yet delivered. "Return normally" means: raise nothing. ``None`` is never an element.
"""

from collections.abc import Sequence
from typing import Final, Protocol, TypeVar, runtime_checkable

__all__ = ["UNBOUNDED", "BatchSubscriber", "Processor", "Publisher", "Subscriber", "Subscription"]

UNBOUNDED: Final = 2**63 - 1
"""Demand from which on elements are no longer counted (rule 3.17)."""

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
T_contra = TypeVar("T_contra", contravariant=True)


@runtime_checkable
class Subscription(Protocol):
    """The link between one subscriber and one publisher; for that subscriber only (rule 3.1).

    Both methods may be called from any thread, also from inside a signal. They neither block nor raise (rules 3.4,
    3.5, 3.15, 3.16). After the end of the subscription they have no effect (rules 3.6, 3.7).
    """

    def request(self, n: int, /) -> None:
        """Add ``n`` to the demand (rule 3.8); from `UNBOUNDED` on, elements are no longer counted (rule 3.17).

        An argument that is not a positive integer ends the subscription with ``on_error(IllegalRequestError)`` (rule 3.9).
        """
        ...

    def cancel(self) -> None:
        """End the subscription: signals stop, at the latest after the one in progress (rules 1.8, 3.12).

        Idempotent (rule 3.7). The publisher drops every reference to the subscriber (rule 3.13).
        """
        ...


@runtime_checkable
class Subscriber(Protocol[T_contra]):
    """The receiver of signals.

    Signals are serial: they never overlap, and each happens before the next (rule 1.3), though not always on one thread.
    All four methods return normally. A subscriber that raises is cancelled, reported to `flow.hooks.on_dropped_error`, and
    receives no further signal (rule 2.13).
    """

    def on_subscribe(self, subscription: Subscription, /) -> None:
        """Receive the subscription, first and once; nothing follows until it is requested (rules 1.9, 2.1, 2.12).

        A subscriber that already has a subscription cancels the new one (rule 2.5).
        """
        ...

    def on_next(self, item: T_contra, /) -> None:
        """Receive one element; there are at most as many as were requested (rule 1.1)."""
        ...

    def on_error(self, error: Exception, /) -> None:
        """Receive the failure of the stream: the last signal, possibly without any demand (rules 1.4, 1.7, 2.10)."""
        ...

    def on_complete(self) -> None:
        """Receive the end of the stream: the last signal, possibly without any demand (rules 1.5, 1.7, 2.9)."""
        ...


@runtime_checkable
class BatchSubscriber(Subscriber[T_contra], Protocol[T_contra]):
    """A subscriber that receives the result of one pull in one call; its ``on_next`` is not called.

    Demand is still counted in elements: a batch never holds more than was requested.
    """

    def on_next_batch(self, items: Sequence[T_contra], /) -> None:
        """Receive one or more elements, in order."""
        ...


@runtime_checkable
class Publisher(Protocol[T_co]):
    """A source of a possibly unbounded number of elements; each subscriber receives them at the pace of its demand."""

    def subscribe(self, subscriber: Subscriber[T_co], /) -> None:
        """Begin a subscription: ``on_subscribe`` is the first signal (rule 1.9).

        A refusal is signalled too: ``on_subscribe``, then ``on_error``.

        Raises:
            TypeError: If the subscriber is ``None``; nothing else is raised.
        """
        ...


@runtime_checkable
class Processor(Subscriber[T_contra], Publisher[T_co], Protocol[T_contra, T_co]):
    """A stage that is both subscriber and publisher, and obeys both contracts (rule 4.1)."""
