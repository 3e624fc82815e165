"""Everything that ``flow`` itself raises or signals, in one tree.

::

    FlowError
    |-- IllegalRequestError    a request that is not a positive integer (rule 3.9)   (requested)  also a ValueError
    |-- Rejected               an executor is full; the same submit may succeed later             retryable
    |-- Forked                 it belongs to the process of which this one is a fork   (pid)
    `-- Lagged                 the subscriber was overtaken and lost elements        (missed)
        `-- Overflowed         more elements came than may wait, and it ended        (missed, capacity)
"""

from typing import ClassVar

__all__ = ["FlowError", "Forked", "IllegalRequestError", "Lagged", "Overflowed", "Rejected"]


class FlowError(Exception):
    """Root of the errors of this package.

    Attributes:
        retryable: Whether the same call may succeed later without anything being changed by the caller.
    """

    retryable: ClassVar[bool] = False


class IllegalRequestError(FlowError, ValueError):
    """A subscriber requested something that is not a positive integer (Reactive Streams §3.9).

    It is told through ``on_error``; ``request`` itself never raises.

    Attributes:
        requested: What was passed to ``request``.
    """

    def __init__(self, requested: object) -> None:
        self.requested = requested
        kind = type(requested)
        shown = kind.__name__
        # Of other types, and of huge integers, a representation may be long, or raise.
        if kind in (bool, int, float) and isinstance(requested, int | float) and abs(requested) < 2**64:
            shown = f"{requested!r} ({shown})"
        super().__init__(
            f"rule 3.9: non-positive subscription request: {shown}; an integer of at least 1 is expected"
        )


class Rejected(FlowError):
    """An executor is saturated: it takes nothing now, and may take the same callable later.

    An executor that raises this (or ``queue.Full``) from ``submit`` is tried again until it accepts; any other
    exception counts as final.
    """

    retryable: ClassVar[bool] = True


class Forked(FlowError):
    """What was subscribed to in one process is used in a fork of that, where no signal will ever come.

    Attributes:
        pid: The process that subscribed.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        super().__init__(
            f"subscribed to in process {pid}, of which this is a fork; subscribe again in this one"
        )


class Lagged(FlowError):
    """The subscriber was slower than the source keeps elements for it, and was overtaken.

    Attributes:
        missed: How many elements it lost.
    """

    def __init__(self, missed: int) -> None:
        self.missed = missed
        super().__init__(
            f"the subscriber was overtaken and missed {missed} element{'' if missed == 1 else 's'}"
        )


class Overflowed(Lagged):
    """A source was faster than the demand, and more elements came than may wait.

    Attributes:
        missed: Elements that were discarded: those that waited, and the one for which there was no room.
        capacity: How many may wait.
    """

    def __init__(self, missed: int, capacity: int) -> None:
        super().__init__(missed)
        self.capacity = capacity
        text = (
            f"the source is faster than the demand: {capacity} elements waited and one more came; request more,"
            " raise capacity=, or choose with overflow= which elements go"
        )
        self.args = (text,)
