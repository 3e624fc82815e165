"""Hot multicast in memory: one ring, with a cursor and a lag policy for each subscriber.

* `Broadcast` is offered elements by the program, and delivers them to its current subscribers.
* `publish`, `replay` and `share` make a `Connectable`: many subscribers share one subscription to a source.
* `Lag` decides what happens to a subscriber that is slower than the ring.
"""

from flow.broadcast.broadcast import Broadcast, BroadcastClosed
from flow.broadcast.connectable import Connectable, Disconnected, publish, replay, share
from flow.broadcast.policy import BroadcastStart, Lag, OfferResult
from flow.broadcast.subscription import BroadcastStatistics, CursorStatistics

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
