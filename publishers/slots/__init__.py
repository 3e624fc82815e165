"""Slots: positions that the owner of a log stores for consumers.

::

    slots/JOURNAL        the slots: the first frame holds all of them, each further one the differences
    slots/JOURNAL.copy   a copy of the journal; each write is synced in one of the two files, in turns

A *slot* has criteria, a position and a *generation*, which rises with each opening and is durable before it is used. Only the
consumer of the newest generation may acknowledge; earlier ones are fenced. An acknowledged position is stored ``ack_sync`` later,
and retention keeps the history behind the stored position.
"""

from publishers.slots.deduplicator import Deduplicator
from publishers.slots.slot import Slot
from publishers.slots.slots import Slots
from publishers.slots.state import SlotState, SlotStatistics, SlotTotals

__all__ = ["Deduplicator", "Slot", "SlotState", "SlotStatistics", "SlotTotals", "Slots"]
