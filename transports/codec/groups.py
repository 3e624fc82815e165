"""Messages of group consumers in ``penstock.v1+json``: validated calls, and the server's answers."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final

import msgspec

from publishers.groups import DeadLetter, GroupDelivery, PendingRow
from publishers.model.position import Position
from publishers.slots.slots import check_slot_name
from publishers.views.view import Integers
from transports.codec.events import encode_change, encode_text
from transports.codec.fields import checked_credits, typed, whole, word
from transports.errors import InvalidRequest
from transports.limits import Limits

__all__ = [
    "AckCall",
    "ClaimCall",
    "ConsumerCall",
    "IdleMs",
    "InProgressCall",
    "JoinRequest",
    "MemberReply",
    "NackCall",
    "PendingCall",
    "SpokenCall",
    "TermCall",
    "call_of",
    "deliveries_json",
    "idle_of",
    "letter_json",
    "pending_json",
]

_TEXT_MAX: Final = 256
_REASON_MAX: Final = 1_000
_GENERATION_MAX: Final = 2**53 - 1
_MILLIS_MAX: Final = 86_400_000 * 365

IdleMs = Annotated[int, msgspec.Meta(ge=0, le=_MILLIS_MAX)]
"""Milliseconds since a delivery was made."""


class JoinRequest(msgspec.Struct, frozen=True):
    """A consumer's request to join a group.

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

    log: str | None
    group: str
    consumer: str
    credits: int
    generation: int | None = None
    opening: str | None = None
    received: int = 0
    history: bool = False
    integers: Integers = Integers.NUMBER

    @classmethod
    def of(cls, payload: Mapping[str, Any]) -> "JoinRequest":
        """Validates the payload of ``join``.

        Raises:
            InvalidRequest, InvalidOption: If the value of a field is invalid.
            InvalidDemand: If ``credits`` is out of range.
        """
        group = payload.get("group")
        check_slot_name(group)
        generation, opening = payload.get("generation"), _text(payload, "opening", _TEXT_MAX)
        received = whole("received", payload.get("received"), 0, _GENERATION_MAX, 0)
        if received and generation is None:
            raise InvalidRequest("received", received, "left out where there is no generation")
        return cls(
            log=typed(payload, "log", str, "text"),
            group=str(group),
            consumer=_needed(_text(payload, "consumer", _TEXT_MAX), "consumer", _TEXT_MAX),
            credits=checked_credits("credits", payload.get("credits", 0)),
            generation=None if generation is None else whole("generation", generation, 1, _GENERATION_MAX),
            opening=opening,
            received=received,
            history=typed(payload, "history", bool, "true or false") or False,
            integers=Integers(word(payload, "integers", "NUMBER", [one.value for one in Integers])),
        )


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


class AckCall(msgspec.Struct, frozen=True):
    """``ack`` or ``ack_upto``: acknowledges deliveries, or all of the consumer's deliveries up to one.

    Attributes:
        places: The cursors of the deliveries.
        durable: Whether the answer waits until the acknowledgement survives a crash.
        upto: Whether it covers everything up to the cursor.
    """

    places: tuple[str, ...]
    durable: bool
    upto: bool


class NackCall(msgspec.Struct, frozen=True):
    """``nack``: returns deliveries to the group.

    Attributes:
        places: The cursors of the deliveries.
        delay: Seconds until they are due again; None for the next value of ``backoff``.
        count: Whether the attempt counts.
        error: The reason.
    """

    places: tuple[str, ...]
    delay: float | None
    count: bool
    error: str


class InProgressCall(msgspec.Struct, frozen=True):
    """``in_progress``: the deliveries need more time."""

    places: tuple[str, ...]


class TermCall(msgspec.Struct, frozen=True):
    """``term``: gives up on deliveries."""

    places: tuple[str, ...]
    reason: str


class PendingCall(msgspec.Struct, frozen=True):
    """``pending``: lists the unacknowledged deliveries of the group.

    Attributes:
        start: The cursor to begin at; None for the first.
        consumer: The consumer whose deliveries to list; None for all.
        min_idle: Only deliveries made at least this many seconds ago.
        limit: The most rows.
    """

    start: str | None
    consumer: str | None
    min_idle: float
    limit: int


class ClaimCall(msgspec.Struct, frozen=True):
    """``claim``: takes over deliveries of other consumers.

    Attributes:
        min_idle: Only deliveries made at least this many seconds ago.
        places: The cursors of the deliveries; None for all from ``start`` on.
        start: The cursor to begin at; None for the first.
        limit: The most deliveries.
        only_ids: Whether to list the deliveries without claiming them.
    """

    min_idle: float
    places: tuple[str, ...] | None
    start: str | None
    limit: int
    only_ids: bool


SpokenCall = AckCall | NackCall | InProgressCall | TermCall
"""The calls about deliveries."""

ConsumerCall = SpokenCall | PendingCall | ClaimCall


def call_of(do: str, payload: Mapping[str, Any], limits: Limits) -> ConsumerCall:
    """Validates a call of a consumer.

    Args:
        do: The name of the call.
        payload: Its arguments.
        limits: The limits; ``batch_events`` bounds rows and claims.

    Raises:
        InvalidRequest: If the call is unknown or the value of a field is invalid.
    """
    if do not in _CALLS:
        raise InvalidRequest("do", do, "one of: " + ", ".join(_CALLS))
    return _CALLS[do](payload, limits)


def _acked(payload: Mapping[str, Any], _: Limits) -> ConsumerCall:
    return AckCall(_places(payload), typed(payload, "durable", bool, "true or false") or False, upto=False)


def _acked_upto(payload: Mapping[str, Any], _: Limits) -> ConsumerCall:
    places = _places(payload)
    if len(places) != 1:
        raise InvalidRequest("at", len(places), "one place")
    return AckCall(places, typed(payload, "durable", bool, "true or false") or False, upto=True)


def _nack(payload: Mapping[str, Any], _: Limits) -> ConsumerCall:
    delay = payload.get("delayMs")
    counts = typed(payload, "count", bool, "true or false")
    return NackCall(
        _places(payload),
        None if delay is None else whole("delayMs", delay, 0, _MILLIS_MAX) / 1000,
        counts is not False,
        _text(payload, "error", _REASON_MAX) or "refused",
    )


def _in_progress(payload: Mapping[str, Any], _: Limits) -> ConsumerCall:
    return InProgressCall(_places(payload))


def _term(payload: Mapping[str, Any], _: Limits) -> ConsumerCall:
    return TermCall(_places(payload), _needed(_text(payload, "reason", _REASON_MAX), "reason", _REASON_MAX))


def _pending(payload: Mapping[str, Any], limits: Limits) -> ConsumerCall:
    return PendingCall(
        typed(payload, "start", str, "text"),
        _text(payload, "consumer", _TEXT_MAX),
        idle_of(payload),
        whole("limit", payload.get("limit"), 1, limits.batch_events, min(100, limits.batch_events)),
    )


def _claim(payload: Mapping[str, Any], limits: Limits) -> ConsumerCall:
    return ClaimCall(
        idle_of(payload),
        None if payload.get("at") is None else _places(payload),
        typed(payload, "start", str, "text"),
        whole("limit", payload.get("limit"), 1, limits.batch_events, min(100, limits.batch_events)),
        typed(payload, "onlyIds", bool, "true or false") or False,
    )


_CALLS: Final[Mapping[str, Callable[[Mapping[str, Any], Limits], ConsumerCall]]] = {
    "ack": _acked,
    "ack_upto": _acked_upto,
    "nack": _nack,
    "in_progress": _in_progress,
    "term": _term,
    "pending": _pending,
    "claim": _claim,
}


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


def _places(payload: Mapping[str, Any]) -> tuple[str, ...]:
    """Returns the cursors of a call, at least one; the size of the message bounds their number."""
    places = payload.get("at")
    if not isinstance(places, list) or not places or not all(isinstance(one, str) for one in places):
        raise InvalidRequest("at", places, "a list of places, as they came with deliveries")
    return tuple(places)


def idle_of(payload: Mapping[str, Any]) -> float:
    """``minIdleMs`` of a payload, in seconds."""
    return whole("minIdleMs", payload.get("minIdleMs"), 0, _MILLIS_MAX, 0) / 1000


def _text(payload: Mapping[str, Any], name: str, most: int) -> str | None:
    value = typed(payload, name, str, f"a text of 1 to {most} characters")
    if value is not None and not 1 <= len(value) <= most:
        raise InvalidRequest(name, value, f"a text of 1 to {most} characters")
    return value


def _needed(value: str | None, name: str, most: int) -> str:
    if value is None:
        raise InvalidRequest(name, None, f"a text of 1 to {most} characters")
    return value
