"""Groups: many consumers that share the changes of a log, each change with one of them, with acknowledgements.

::

    groups/NAME/JOURNAL        what is done: the first frame holds all of it, each further one what has changed since
    groups/NAME/JOURNAL.copy   the same, written and synced after it
    groups/NAME.dead           the change log of its dead letters, if it has any

`machine` decides what is delivered to which consumer, without threads, files and log; the others are around it.
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
from publishers.groups.group import ConsumerGroup
from publishers.groups.groups import ConsumerGroups
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
