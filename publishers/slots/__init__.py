"""Slots: places in a log that its owner keeps for consumers that cannot keep them.

::

    slots/JOURNAL        what becomes of the slots: the first frame holds all of them, each further one what has changed since
    slots/JOURNAL.copy   the same; each write is synced in one of the two, by turns

A *slot* has criteria, a place and a *generation*, which rises with each opening and is durable before it is used. The consumer of
the newest generation may acknowledge; those before are fenced. What was acknowledged is written ``ack_sync`` later, and history
behind it is held until then.
"""

from publishers.slots.deduplicator import Deduplicator
from publishers.slots.slot import Slot
from publishers.slots.slots import Slots
from publishers.slots.state import SlotState
from publishers.slots.statistics import SlotStatistics, SlotTotals

__all__ = ["Deduplicator", "Slot", "SlotState", "SlotStatistics", "SlotTotals", "Slots"]
