"""Numbers of a broadcast, at one moment."""

from dataclasses import dataclass

from flow.broadcast.policy import Lag

__all__ = ["BroadcastStatistics", "CursorStatistics"]


@dataclass(frozen=True, slots=True)
class CursorStatistics:
    """One subscriber.

    Attributes:
        policy: What happens when it is a whole ring behind.
        lag: Elements that wait for it; at most the capacity.
        demand: Elements that it requested and did not get yet.
        delivered: Elements that were taken for delivery.
        dropped: Elements that it lost.
        blocked_seconds: For how long it was in the way of a writer.
    """

    policy: Lag
    lag: int
    demand: int
    delivered: int
    dropped: int
    blocked_seconds: float


@dataclass(frozen=True, slots=True)
class BroadcastStatistics:
    """All of it.

    Attributes:
        capacity: Most elements in the ring.
        buffered: Elements in the ring, or for a DROP_LATEST subscriber: those that wait, or are replayed.
        submitted: Elements that were taken.
        refused: Offers that were answered with FULL.
        stalled: Subscribers that gated for longer than the stall timeout.
        closed: Whether nothing is taken any more.
        subscribers: In the order in which they came.
    """

    capacity: int
    buffered: int
    submitted: int
    refused: int
    stalled: int
    closed: bool
    subscribers: tuple[CursorStatistics, ...]
