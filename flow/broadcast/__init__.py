"""Hot multicast: one ring, a cursor and a lag policy for each subscriber."""

from flow.broadcast.broadcast import Broadcast, BroadcastClosed
from flow.broadcast.policy import Lag, OfferResult, Start
from flow.broadcast.statistics import BroadcastStatistics, CursorStatistics

__all__ = [
    "Broadcast",
    "BroadcastClosed",
    "BroadcastStatistics",
    "CursorStatistics",
    "Lag",
    "OfferResult",
    "Start",
]
