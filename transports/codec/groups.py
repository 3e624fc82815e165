"""What consumers of groups say over ``penstock.v1+json``, checked, and how the server answers."""

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from publishers.groups import GroupDelivery, PendingRow
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
    "InProgressCall",
    "JoinWish",
    "MemberReply",
    "NackCall",
    "PendingCall",
    "SpokenCall",
    "TermCall",
    "call_of",
    "deliveries_json",
    "pending_json",
]

_TEXT_MAX: Final = 256
_REASON_MAX: Final = 1_000
_GENERATION_MAX: Final = 2**53 - 1
_MILLIS_MAX: Final = 86_400_000 * 365


class JoinWish(msgspec.Struct, frozen=True):
    """What a consumer says that joins a group.

    Attributes:
        log: Name of the log; None for the only one.
        group: Name of the group.
        consumer: What the consumer is called.
        credits: How many deliveries may be sent at once.
        generation: Of a joining that is to go on after a lost connection; None for a new one.
        opening: What the client calls this joining, so that one whose answer was lost is not a second one.
        received: How many deliveries have come of that joining.
        history: Whether what a consumer of this name had before it joined again comes first.
        integers: How large whole numbers are told.
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
    def of(cls, payload: Mapping[str, Any]) -> "JoinWish":
        """Checks the payload of ``join``.

        Raises:
            InvalidRequest, InvalidOption: If a field has a value that it does not take.
            InvalidDemand: If ``credits`` is out of its range.
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
    """What ``joined`` says of a consumer.

    Attributes:
        name: Of the group.
        consumer: What the consumer is called.
        generation: Of its joining.
    """

    name: str
    consumer: str
    generation: int


class AckCall(msgspec.Struct, frozen=True):
    """``ack``, or ``ack_upto``: some deliveries are done, or everything that the consumer has up to one.

    Attributes:
        places: Their places, as they came with them.
        durable: Whether it is answered only when a crash cannot take it.
        upto: Whether it is everything up to the place.
    """

    places: tuple[str, ...]
    durable: bool
    upto: bool


class NackCall(msgspec.Struct, frozen=True):
    """``nack``: some deliveries are refused.

    Attributes:
        places: Their places.
        delay: Seconds until they are due again; None for the next one of ``backoff``.
        count: Whether they were tried.
        error: Why.
    """

    places: tuple[str, ...]
    delay: float | None
    count: bool
    error: str


class InProgressCall(msgspec.Struct, frozen=True):
    """``in_progress``: some deliveries take longer."""

    places: tuple[str, ...]


class TermCall(msgspec.Struct, frozen=True):
    """``term``: some deliveries are given up."""

    places: tuple[str, ...]
    reason: str


class PendingCall(msgspec.Struct, frozen=True):
    """``pending``: what the group has delivered, and is not acknowledged.

    Attributes:
        start: From which place on; None for the first.
        consumer: Of which consumer; None for all.
        min_idle: Only what was delivered so many seconds ago.
        limit: Most rows.
    """

    start: str | None
    consumer: str | None
    min_idle: float
    limit: int


class ClaimCall(msgspec.Struct, frozen=True):
    """``claim``: takes over what other consumers have.

    Attributes:
        min_idle: Only what was delivered so many seconds ago.
        places: Which; None for all from ``start`` on.
        start: From which place on; None for the first.
        limit: Most of them.
        only_ids: Whether they are only looked at.
    """

    min_idle: float
    places: tuple[str, ...] | None
    start: str | None
    limit: int
    only_ids: bool


SpokenCall = AckCall | NackCall | InProgressCall | TermCall
"""What is said of some deliveries."""

ConsumerCall = SpokenCall | PendingCall | ClaimCall


def call_of(do: str, payload: Mapping[str, Any], limits: Limits) -> ConsumerCall:
    """What a consumer asks for, checked.

    Args:
        do: What is to be done.
        payload: Its arguments.
        limits: ``batch_events`` bounds rows and claims.

    Raises:
        InvalidRequest: If there is no such thing, or a field has a value that it does not take.
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
        _idle(payload),
        whole("limit", payload.get("limit"), 1, limits.batch_events, min(100, limits.batch_events)),
    )


def _claim(payload: Mapping[str, Any], limits: Limits) -> ConsumerCall:
    return ClaimCall(
        _idle(payload),
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
    """Deliveries as a JSON list: of each its place, how often it was delivered, and its events."""
    told = []
    for one in found:
        events = b",".join(
            encode_change(change, str(token(change.after)), integers) for change in one.changes
        )
        place = encode_text(str(token(one.position)))
        told.append(b'{"at":%s,"count":%d,"events":[%s]}' % (place, one.count, events))
    return b"[%s]" % b",".join(told)


def pending_json(rows: list[PendingRow], token: Callable[[Position], object]) -> list[dict[str, Any]]:
    """What is pending, as ``pending`` is answered."""
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


def _places(payload: Mapping[str, Any]) -> tuple[str, ...]:
    """The places that a call is about, at least one; a message has a bound, so they have too."""
    places = payload.get("at")
    if not isinstance(places, list) or not places or not all(isinstance(one, str) for one in places):
        raise InvalidRequest("at", places, "a list of places, as they came with deliveries")
    return tuple(places)


def _idle(payload: Mapping[str, Any]) -> float:
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
