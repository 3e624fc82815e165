"""Statistics of a broadcast, as of one moment."""

from dataclasses import dataclass

from flow.broadcast.policy import Lag

__all__ = ["BroadcastStatistics", "CursorStatistics"]


@dataclass(frozen=True, slots=True)
class CursorStatistics:
    """The statistics of one subscription.

    Attributes:
        policy: Its lag policy.
        lag: Elements that wait for it; at most the capacity.
        demand: Elements requested and not yet delivered.
        delivered: Elements that it has taken for delivery.
        dropped: Elements that it lost.
        blocked_seconds: Seconds for which it held up a writer, in total.
    """

    policy: Lag
    lag: int
    demand: int
    delivered: int
    dropped: int
    blocked_seconds: float


@dataclass(frozen=True, slots=True)
class BroadcastStatistics:
    """The statistics of a broadcast.

    Attributes:
        capacity: Most elements in the ring.
        buffered: Elements in the ring, or in the queue of a DROP_LATEST subscription if one is longer.
        submitted: Elements that were accepted.
        refused: Offers that returned FULL.
        stalled: Subscriptions that held up a writer for longer than the stall timeout.
        closed: Whether the broadcast has ended.
        subscribers: The subscriptions, in the order in which they began.
    """

    capacity: int
    buffered: int
    submitted: int
    refused: int
    stalled: int
    closed: bool
    subscribers: tuple[CursorStatistics, ...]
