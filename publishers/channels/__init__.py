"""Messages that are delivered and not stored: channels by name, and subscriptions by name and by pattern."""

from publishers.channels.channels import ChannelFeed, Channels
from publishers.channels.errors import ChannelsClosed
from publishers.channels.message import Message
from publishers.channels.statistics import ChannelStatistics, ListenerStatistics

__all__ = [
    "ChannelFeed",
    "ChannelStatistics",
    "Channels",
    "ChannelsClosed",
    "ListenerStatistics",
    "Message",
]
