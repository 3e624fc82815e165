"""The operator `merge`."""

from typing import Any, TypeVar

from flow.contracts import Publisher
from flow.operators.flat_map import flat_map
from flow.operators.link import Operator, require_publishers
from flow.sources import from_iterable

__all__ = ["merge"]

T = TypeVar("T")


def merge(*others: Publisher[T], prefetch: int = 32, delay_error: bool = False) -> Operator[T, T]:
    """Publish the elements of the publisher and the others, as they come, until all have ended.

    All are subscribed to at once. They are served in turn: none is served twice while another has elements.

    Args:
        others: Any number of publishers.
        prefetch: Most elements of each that are requested and not delivered; more are requested when 75 % of them
            are.
        delay_error: Whether an error waits until all publishers have ended; several errors make an ``ExceptionGroup``.

    Raises:
        ValueError: If ``prefetch`` is not a positive integer.
    """
    flatten: Operator[Any, Any] = flat_map(_as_it_is, 1 + len(others), prefetch, delay_error=delay_error)
    require_publishers(others)
    return lambda source: flatten(from_iterable((source, *others)))


def _as_it_is(publisher: Publisher[T]) -> Publisher[T]:
    return publisher
