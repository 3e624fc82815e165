"""Messages that are delivered to the current subscriptions of a channel, and not stored.

* `Channels` publishes `Message` objects, and subscribes to channels by name or by pattern.
* Each subscription has a bounded backlog; messages beyond it are dropped and counted.
"""

from publishers.channels.channels import ChannelFeed, Channels
from publishers.channels.errors import ChannelsClosed
from publishers.channels.listener import ChannelStatistics, ListenerStatistics, Message

__all__ = [
    "ChannelFeed",
    "ChannelStatistics",
    "Channels",
    "ChannelsClosed",
    "ListenerStatistics",
    "Message",
]
