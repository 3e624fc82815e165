"""Hot multicast: one ring, a cursor and a lag policy for each subscriber; and connectables on top of it."""

from flow.broadcast.broadcast import Broadcast, BroadcastClosed
from flow.broadcast.connectable import Connectable, publish, replay, share
from flow.broadcast.connection import Disconnected
from flow.broadcast.policy import BroadcastStart, Lag, OfferResult
from flow.broadcast.statistics import BroadcastStatistics, CursorStatistics

__all__ = [
    "Broadcast",
    "BroadcastClosed",
    "BroadcastStart",
    "BroadcastStatistics",
    "Connectable",
    "CursorStatistics",
    "Disconnected",
    "Lag",
    "OfferResult",
    "publish",
    "replay",
    "share",
]
