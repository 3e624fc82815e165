"""The operator `publish_on`."""

from collections.abc import Callable
from typing import Any, TypeVar

from flow.contracts import Publisher
from flow.demand import Tide
from flow.executors import AnyExecutor, executor_of
from flow.operators.stage import StageQueue, staged

__all__ = ["publish_on"]

T = TypeVar("T")


def publish_on(
    executor: AnyExecutor,
    *,
    prefetch: int = 256,
    low_tide: int | None = None,
    delay_error: bool = False,
) -> Callable[[Publisher[T]], Publisher[T]]:
    """Run all signals on an executor, or on an event loop, with upstream running ahead.

    Args:
        executor: Signals are serial on any executor; its thread is released after at most 256 elements.
        prefetch: First request, and the most elements that are ahead of the subscriber.
        low_tide: How many must be delivered before as many more are requested; ``None`` is 75 % of ``prefetch``, 0
            requests only when all were.
        delay_error: Whether an error of upstream waits until the buffered elements are delivered.

    Raises:
        ValueError: If a number is out of its bounds.
        TypeError: If the executor is invalid.
    """
    Tide(prefetch, low_tide)  # checks the arguments now, not at the first subscriber
    return staged(
        lambda source: StageQueue[Any, Any](source, Tide(prefetch, low_tide), delay_error=delay_error),
        executor_of(executor),
    )
