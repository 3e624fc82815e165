"""What consumers of groups ask for from afar, done: writes the disk and waits for it, on the calling thread."""

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
    """Does what a consumer says of deliveries; answers of how many that was true. Nothing is durable for that yet.

    Raises:
        PositionError: If a place is none of this history of the log.
        ConsumerFenced: As the methods of ``GroupMember``.
    """
    places = sorted({_place(log, one) for one in call.places}, reverse=True)
    match call:
        case AckCall():
            return member.ack_upto(places[0]) if call.upto else member.ack(*places)
        case NackCall():  # the last of a key first: it goes back with those before it
            return sum(member.nack(one, call.delay, count=call.count, error=call.error) for one in places)
        case InProgressCall():
            return sum(map(member.in_progress, places))
        case TermCall():
            return sum(member.term(one, call.reason) for one in reversed(places))


def claim_for(log: "ChangeLog", member: GroupMember, call: ClaimCall) -> ClaimedDeliveries:
    """Takes over for a consumer what others have.

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
    """How many deliveries of a group are not acknowledged, and those that were asked for.

    Raises:
        PositionError: As `speak_for`.
    """
    start = None if call.start is None else _place(log, call.start)
    rows = group.pending_rows(start, consumer=call.consumer, min_idle=call.min_idle, limit=call.limit)
    return group.pending().total, rows


def _place(log: "ChangeLog", text: str) -> Position:
    """Where a delivery lies.

    Raises:
        PositionError: If it is not one of this history of the log.
    """
    try:
        return log.position_of(text)
    except HistoryPruned:  # what was not done of that is lost, which a claim tells
        return PositionToken.parse(text).position
