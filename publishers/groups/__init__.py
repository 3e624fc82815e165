"""Consumer groups: many consumers share the changes of a log. Each change goes to one consumer, which acknowledges it.

::

    groups/NAME/JOURNAL        the progress of the group: the first frame holds the whole group, each further one the differences
    groups/NAME/JOURNAL.copy   a copy of the journal; each write is synced in one of the two, by turns
    groups/NAME.dead           the change log of its dead letters, if it has any

`machine` decides which consumer receives which delivery. It uses no threads, no files and no log; the other modules add these.
"""

from publishers.groups.dead_letters import DeadLetters
from publishers.groups.delivery import (
    ClaimedDeliveries,
    DeadLetter,
    GroupDelivery,
    GroupStatistics,
    GroupTotals,
    PendingRow,
    PendingSummary,
)
from publishers.groups.groups import ConsumerGroup, ConsumerGroups
from publishers.groups.member import GroupMember
from publishers.groups.settings import GroupSettings
from publishers.groups.state import GroupState
from publishers.groups.subscription import DeliveryFeed
from publishers.groups.worker import GroupWorker

__all__ = [
    "ClaimedDeliveries",
    "ConsumerGroup",
    "ConsumerGroups",
    "DeadLetter",
    "DeadLetters",
    "DeliveryFeed",
    "GroupDelivery",
    "GroupMember",
    "GroupSettings",
    "GroupState",
    "GroupStatistics",
    "GroupTotals",
    "GroupWorker",
    "PendingRow",
    "PendingSummary",
]
