"""Group consumers on the wire: what joins them, and what a server tells them."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final

import msgspec

from publishers.groups import DeadLetter, GroupDelivery, PendingRow
from publishers.model.position import Position
from publishers.views.view import Integers
from transports.codec.events import encode_change, encode_text
from transports.codec.fields import Count, Credits, Generation, LogName, Name, Text, checked_credits, convert
from transports.errors import InvalidRequest

__all__ = [
    "IdleMs",
    "JoinRequest",
    "MemberReply",
    "deliveries_json",
    "letter_json",
    "pending_json",
]

_MILLIS_MAX: Final = 86_400_000 * 365

IdleMs = Annotated[int, msgspec.Meta(ge=0, le=_MILLIS_MAX)]
"""Milliseconds since a delivery was made."""


class JoinRequest(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A consumer's request to join a group, the payload of ``join``.

    Attributes:
        log: The name of the log; None for the only one.
        group: The name of the group.
        consumer: The name of the consumer.
        credits: The number of deliveries that may be sent at once.
        generation: The generation of a joining to resume after a lost connection; None for a new one.
        opening: The client's id of this joining, so that a repeated request whose answer was lost does not join twice.
        received: The number of deliveries of that joining that have arrived.
        history: Whether deliveries that an earlier consumer of this name held come first again.
        integers: How large integers are encoded.
    """

    log: LogName = None
    group: Name
    consumer: Text
    credits: Credits = 0
    generation: Generation | None = None
    opening: Text | None = None
    received: Count = 0
    history: bool = False
    integers: Integers = Integers.NUMBER

    @classmethod
    def of(cls, payload: Mapping[str, Any]) -> "JoinRequest":
        """Reads the payload of ``join``.

        Raises:
            InvalidRequest: If the value of a field is wrong.
            InvalidDemand: If ``credits`` is out of range.
        """
        found = convert(cls, payload)
        checked_credits("credits", found.credits)
        if found.received and found.generation is None:
            raise InvalidRequest("received", found.received, "left out where there is no generation")
        return found


class MemberReply(msgspec.Struct):
    """The ``group`` field of ``joined``.

    Attributes:
        name: The name of the group.
        consumer: The name of the consumer.
        generation: The generation of its joining.
    """

    name: str
    consumer: str
    generation: int


def deliveries_json(
    found: tuple[GroupDelivery, ...], token: Callable[[Position], object], integers: Integers
) -> bytes:
    """Returns deliveries as a JSON list, each with its cursor, delivery count and events."""
    deliveries = []
    for one in found:
        events = b",".join(
            encode_change(change, str(token(change.after)), integers) for change in one.changes
        )
        place = encode_text(str(token(one.position)))
        deliveries.append(b'{"at":%s,"count":%d,"events":[%s]}' % (place, one.count, events))
    return b"[%s]" % b",".join(deliveries)


def pending_json(rows: list[PendingRow], token: Callable[[Position], object]) -> list[dict[str, Any]]:
    """Returns the JSON rows of a ``pending`` answer."""
    return [
        {
            "at": str(token(row.position)),
            "consumer": row.consumer,
            "generation": row.generation,
            "idleMs": int(row.idle * 1000),
            "count": row.count,
        }
        for row in rows
    ]


def letter_json(letter: DeadLetter) -> dict[str, Any]:
    """A dead letter as JSON, for clients and commands."""
    plain: dict[str, Any] = msgspec.to_builtins(letter)
    return {**plain, "position": str(letter.position)}
