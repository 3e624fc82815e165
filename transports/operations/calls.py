"""Calls of a group consumer: about its deliveries, and about those of others."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final, Generic, TypeVar

import msgspec

from publishers.errors import HistoryPruned
from publishers.groups import ClaimedDeliveries, ConsumerGroup, GroupMember, PendingRow
from publishers.model.position import Position, PositionToken
from transports.codec.fields import Text, convert
from transports.codec.groups import IdleMs
from transports.errors import InvalidRequest
from transports.limits import BATCH_EVENTS

if TYPE_CHECKING:
    from publishers.log.changelog import ChangeLog

__all__ = [
    "CALLS",
    "AckCall",
    "AckUptoCall",
    "ClaimCall",
    "ConsumerCall",
    "InProgressCall",
    "NackCall",
    "PendingCall",
    "SpokenCall",
    "TermCall",
    "read_call",
]

_J = TypeVar("_J", GroupMember, ConsumerGroup)
_A = TypeVar("_A")
_LISTED: Final = 100
_PLACES: Final = "a list of places, as they came with deliveries"
_Places = Annotated[tuple[str, ...], msgspec.Meta(min_length=1, description=_PLACES)]
_Reason = Annotated[str, msgspec.Meta(min_length=1, max_length=1_000)]


class ConsumerCall(
    msgspec.Struct,
    Generic[_J, _A],
    frozen=True,
    kw_only=True,
    rename="camel",
    omit_defaults=True,
    tag_field="do",
):
    """A call of a group consumer; the type arguments are what it concerns, its member or its group, and its result."""

    @abstractmethod
    def run(self, log: "ChangeLog", joined: _J, /) -> _A:
        """Carries it out; reads and writes the disk, and waits for it, on the calling thread.

        Raises:
            PositionError: If a cursor does not belong to this history of the log.
            ConsumerFenced: As the methods of ``GroupMember``.
        """
        ...


class SpokenCall(ConsumerCall[GroupMember, int], frozen=True, kw_only=True):
    """A call about deliveries; its result is the number of those that it affected, and nothing is durable yet.

    Attributes:
        at: The cursors of the deliveries.
    """

    at: _Places

    def run(self, log: "ChangeLog", joined: GroupMember, /) -> int:
        """Carries it out."""
        return self.speak(joined, [_place(log, one) for one in self.at])

    @abstractmethod
    def speak(self, member: GroupMember, places: list[Position], /) -> int:
        """Carries it out for the deliveries at these positions."""
        ...


class AckCall(SpokenCall, frozen=True, kw_only=True, tag="ack"):
    """Acknowledges deliveries.

    Attributes:
        durable: Whether the answer waits until the acknowledgement survives a crash.
    """

    durable: bool = False

    def speak(self, member: GroupMember, places: list[Position], /) -> int:
        """Acknowledges them."""
        return member.ack(*places)


class AckUptoCall(AckCall, frozen=True, kw_only=True, tag="ack_upto"):
    """Acknowledges all of the consumer's deliveries up to one."""

    at: Annotated[
        tuple[str, ...], msgspec.Meta(min_length=1, max_length=1, description="a list of one place")
    ]

    def speak(self, member: GroupMember, places: list[Position], /) -> int:
        """Acknowledges them."""
        return member.ack_upto(places[0])


class NackCall(SpokenCall, frozen=True, kw_only=True, tag="nack"):
    """Returns deliveries to the group.

    Attributes:
        delay_ms: Milliseconds until they are due again; None for the next value of ``backoff``.
        count: Whether the attempt counts.
        error: The reason.
    """

    delay_ms: IdleMs | None = None
    count: bool = True
    error: _Reason = "refused"

    def speak(self, member: GroupMember, places: list[Position], /) -> int:
        """Returns them."""
        delay = None if self.delay_ms is None else self.delay_ms / 1000
        return member.nack(places, delay, count=self.count, error=self.error)


class InProgressCall(SpokenCall, frozen=True, kw_only=True, tag="in_progress"):
    """Says that the deliveries need more time."""

    def speak(self, member: GroupMember, places: list[Position], /) -> int:
        """Restarts their ``ack_wait``."""
        return member.in_progress(places)


class TermCall(SpokenCall, frozen=True, kw_only=True, tag="term"):
    """Gives up on deliveries.

    Attributes:
        reason: The reason, for the dead letters.
    """

    reason: _Reason

    def speak(self, member: GroupMember, places: list[Position], /) -> int:
        """Gives them up."""
        return member.term(places, self.reason)


class _Listing(ConsumerCall[_J, _A], frozen=True, kw_only=True):
    """A call about what is pending, in log order.

    Attributes:
        min_idle_ms: Only deliveries made at least this many milliseconds ago.
        start: The cursor to begin at; None for the first.
        limit: The most of them; None for 100.
    """

    min_idle_ms: IdleMs = 0
    start: str | None = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=BATCH_EVENTS)] | None = None

    def begin(self, log: "ChangeLog") -> Position | None:
        """The position of ``start``."""
        return None if self.start is None else _place(log, self.start)


class PendingCall(
    _Listing[ConsumerGroup, tuple[int, list[PendingRow]]], frozen=True, kw_only=True, tag="pending"
):
    """Lists the unacknowledged deliveries of the group; its result is their number, and those that were asked for.

    Attributes:
        consumer: The consumer whose deliveries to list; None for all.
    """

    consumer: Text | None = None

    def run(self, log: "ChangeLog", joined: ConsumerGroup, /) -> tuple[int, list[PendingRow]]:
        """Lists them."""
        rows = joined.pending_rows(
            self.begin(log),
            consumer=self.consumer,
            min_idle=self.min_idle_ms / 1000,
            limit=self.limit or _LISTED,
        )
        return joined.pending().total, rows


class ClaimCall(_Listing[GroupMember, ClaimedDeliveries], frozen=True, kw_only=True, tag="claim"):
    """Takes over deliveries of other consumers.

    Attributes:
        at: The cursors of the deliveries; None for all from ``start`` on.
        only_ids: Whether to list the deliveries without claiming them.
    """

    at: _Places | None = None
    only_ids: bool = False

    def run(self, log: "ChangeLog", joined: GroupMember, /) -> ClaimedDeliveries:
        """Takes them over."""
        return joined.claim(
            self.min_idle_ms / 1000,
            None if self.at is None else [_place(log, one) for one in self.at],
            start=self.begin(log),
            limit=self.limit or _LISTED,
            only_ids=self.only_ids,
        )


CALLS: Final[Mapping[str, type[ConsumerCall[Any, Any]]]] = {
    str(one.__struct_config__.tag): one
    for one in (AckCall, AckUptoCall, NackCall, InProgressCall, TermCall, PendingCall, ClaimCall)
}
"""The calls by the names that messages have for them."""


def read_call(do: str, payload: Mapping[str, Any]) -> ConsumerCall[Any, Any]:
    """Reads a call of a consumer.

    Args:
        do: The name of the call.
        payload: Its arguments.

    Raises:
        InvalidRequest: If the call is unknown or the value of a field is wrong.
    """
    if do not in CALLS:
        raise InvalidRequest("do", do, "one of: " + ", ".join(CALLS))
    return convert(CALLS[do], payload)


def _place(log: "ChangeLog", text: str) -> Position:
    """Returns the position of a delivery.

    Raises:
        PositionError: If the cursor does not belong to this history of the log.
    """
    try:
        return log.position_of(text)
    except HistoryPruned:  # the delivery is lost if it was not done; a claim reports it
        return PositionToken.parse(text).position
