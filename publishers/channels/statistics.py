"""Statistics of channels."""

from dataclasses import dataclass

from flow.overflow import Overflow

__all__ = ["ChannelStatistics", "ListenerStatistics"]


@dataclass(frozen=True, slots=True)
class ListenerStatistics:
    """Statistics of one subscription.

    Attributes:
        id: Its id, unique among the subscriptions of the same channels.
        name: Its name.
        channels: The names it subscribes to, sorted.
        patterns: The patterns it subscribes to, sorted.
        overflow: What happens to a message beyond the capacity.
        capacity: Most messages that wait.
        waiting: Messages that wait now.
        greatest: Most messages that ever waited.
        demand: Messages requested and not delivered.
        received: Messages that matched it.
        dropped: Messages of these that it lost.
    """

    id: int
    name: str
    channels: tuple[str, ...]
    patterns: tuple[str, ...]
    overflow: Overflow
    capacity: int
    waiting: int
    greatest: int
    demand: int
    received: int
    dropped: int


@dataclass(frozen=True, slots=True)
class ChannelStatistics:
    """Statistics of all channels.

    Attributes:
        published: Published messages.
        unheard: Published messages that no subscription accepted.
        passed_on: Messages accepted by subscriptions, counted once for each.
        dropped: Messages lost by subscriptions, counted once for each; ended subscriptions included.
        evaluations: How often a pattern was evaluated on a name; this depends only on the patterns that a name leads to.
        closed: Whether the channels were closed.
        listeners: The subscriptions, in the order in which they were added.
    """

    published: int
    unheard: int
    passed_on: int
    dropped: int
    evaluations: int
    closed: bool
    listeners: tuple[ListenerStatistics, ...]
