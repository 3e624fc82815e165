"""All errors that ``flow`` itself raises or signals, in one tree.

::

    FlowError
    |-- IllegalRequestError    a request that is not a positive integer (rule 3.9)   (requested)  also a ValueError
    |-- Rejected               an executor is full; the same submit may succeed later             retryable
    |-- Forked                 it was subscribed to before a fork, by the parent     (pid)
    `-- Lagged                 the subscriber was overtaken and lost elements        (missed)
        `-- Overflowed         more elements came than may wait; the stream ended    (missed, capacity)
"""

from typing import ClassVar

__all__ = ["FlowError", "Forked", "IllegalRequestError", "Lagged", "Overflowed", "Rejected"]


class FlowError(Exception):
    """Root of the errors of this package.

    Attributes:
        retryable: Whether the same call may succeed later although the caller changes nothing.
    """

    retryable: ClassVar[bool] = False


class IllegalRequestError(FlowError, ValueError):
    """A subscriber requested something that is not a positive integer (Reactive Streams §3.9).

    It is signalled by ``on_error``; ``request`` itself never raises.

    Attributes:
        requested: The argument of ``request``.
    """

    def __init__(self, requested: object) -> None:
        self.requested = requested
        kind = type(requested)
        shown = kind.__name__
        # The representation of other types, and of huge integers, may be long, or raise.
        if kind in (bool, int, float) and isinstance(requested, int | float) and abs(requested) < 2**64:
            shown = f"{requested!r} ({shown})"
        super().__init__(
            f"rule 3.9: non-positive subscription request: {shown}; an integer of at least 1 is expected"
        )


class Rejected(FlowError):
    """An executor is saturated: it rejects the callable now, and may accept it later.

    If ``submit`` raises this (or ``queue.Full``), it is retried until the executor accepts; any other exception is final.
    """

    retryable: ClassVar[bool] = True


class Forked(FlowError):
    """A subscription made before a fork is used in the child, where no signal will ever come.

    Attributes:
        pid: The process that subscribed.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        super().__init__(
            f"subscribed to in process {pid}, of which this is a fork; subscribe again in this one"
        )


class Lagged(FlowError):
    """The subscriber was too slow: the source evicted elements that it had not received yet.

    Attributes:
        missed: Number of lost elements.
    """

    def __init__(self, missed: int) -> None:
        self.missed = missed
        super().__init__(
            f"the subscriber was overtaken and missed {missed} element{'' if missed == 1 else 's'}"
        )


class Overflowed(Lagged):
    """A source was faster than the demand, and more elements came than may wait.

    Attributes:
        missed: Number of discarded elements: those that waited, and the one for which there was no room.
        capacity: Most elements that may wait.
    """

    def __init__(self, missed: int, capacity: int) -> None:
        super().__init__(missed)
        self.capacity = capacity
        text = (
            f"the source is faster than the demand: {capacity} elements waited and one more came; request more,"
            " raise capacity=, or choose with overflow= which elements go"
        )
        self.args: tuple[object, ...] = (text,)
