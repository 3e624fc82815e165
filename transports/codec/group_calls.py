"""Executes the calls of remote group consumers; reads and writes the disk, and waits for it, on the calling thread."""

from typing import TYPE_CHECKING

from publishers.errors import HistoryPruned
from publishers.groups import ClaimedDeliveries, ConsumerGroup, GroupMember, PendingRow
from publishers.model.position import Position, PositionToken
from transports.codec.groups import (
    AckCall,
    ClaimCall,
    InProgressCall,
    NackCall,
    PendingCall,
    SpokenCall,
    TermCall,
)

if TYPE_CHECKING:
    from publishers.log.changelog import ChangeLog

__all__ = ["claim_for", "pending_of", "speak_for"]


def speak_for(log: "ChangeLog", member: GroupMember, call: SpokenCall) -> int:
    """Executes a consumer's call about deliveries. Returns the number of deliveries that it affected; nothing is durable yet.

    Raises:
        PositionError: If a cursor does not belong to this history of the log.
        ConsumerFenced: As the methods of ``GroupMember``.
    """
    places = [_place(log, one) for one in call.places]
    match call:
        case AckCall():
            return member.ack_upto(places[0]) if call.upto else member.ack(*places)
        case NackCall():
            return member.nack(places, call.delay, count=call.count, error=call.error)
        case InProgressCall():
            return member.in_progress(places)
        case TermCall():
            return member.term(places, call.reason)


def claim_for(log: "ChangeLog", member: GroupMember, call: ClaimCall) -> ClaimedDeliveries:
    """Claims deliveries of other consumers for a consumer.

    Raises:
        PositionError, ConsumerFenced: As `speak_for`.
    """
    return member.claim(
        call.min_idle,
        None if call.places is None else [_place(log, one) for one in call.places],
        start=None if call.start is None else _place(log, call.start),
        limit=call.limit,
        only_ids=call.only_ids,
    )


def pending_of(log: "ChangeLog", group: ConsumerGroup, call: PendingCall) -> tuple[int, list[PendingRow]]:
    """Returns the number of unacknowledged deliveries of a group, and the requested rows.

    Raises:
        PositionError: As `speak_for`.
    """
    start = None if call.start is None else _place(log, call.start)
    rows = group.pending_rows(start, consumer=call.consumer, min_idle=call.min_idle, limit=call.limit)
    return group.pending().total, rows


def _place(log: "ChangeLog", text: str) -> Position:
    """Returns the position of a delivery.

    Raises:
        PositionError: If the cursor does not belong to this history of the log.
    """
    try:
        return log.position_of(text)
    except HistoryPruned:  # the delivery is lost if it was not done; a claim reports it
        return PositionToken.parse(text).position
