"""What channels tell of themselves."""

from dataclasses import dataclass

from flow.overflow import Overflow

__all__ = ["ChannelStatistics", "ListenerStatistics"]


@dataclass(frozen=True, slots=True)
class ListenerStatistics:
    """One subscription.

    Attributes:
        id: What tells it from every other subscription of the same channels.
        name: What it is called.
        channels: The names that it listens to, sorted.
        patterns: Likewise its patterns.
        overflow: What happens to one message more than may wait.
        capacity: Most messages that wait.
        waiting: Messages that wait now.
        greatest: Most that ever waited.
        demand: Messages requested and not delivered.
        received: Messages that concerned it.
        dropped: Those of them that it lost.
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
    """All of it.

    Attributes:
        published: Messages that were published.
        unheard: Those of them that nobody took.
        passed_on: How often a subscription took a message.
        dropped: How often one lost a message, those that are gone included.
        evaluations: How often a pattern was asked about a name: it follows the patterns that a name leads to.
        closed: Whether nothing is passed on any more.
        listeners: In the order in which they came.
    """

    published: int
    unheard: int
    passed_on: int
    dropped: int
    evaluations: int
    closed: bool
    listeners: tuple[ListenerStatistics, ...]
