"""Messages of a client: parsed, validated and typed before anything acts on them.

An error in the envelope (malformed JSON, no object, an unknown type, an invalid id) breaks the protocol: ``Violation`` 4400
closes the connection. An error in the request or the demand of one subscription is reported to that subscription and affects
nothing else. Unknown fields are ignored, except in a criterion.
"""

import math
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Final, Literal, get_args
from uuid import UUID

import msgspec

from publishers.criteria.cost import Cost, weigh, weigh_json
from publishers.criteria.criteria import Criteria
from publishers.errors import InvalidCriteria, InvalidOption, TooCostly
from publishers.model.position import Position, Start
from publishers.snapshots import SnapshotMode
from publishers.views.view import Content, Images, Integers, View
from transports.codec.appends import AppendPayload
from transports.codec.envelope import Envelope, Init, Ping, Pong
from transports.codec.fields import Credits, LogName, checked_credits, convert
from transports.codec.slots import SlotRequest
from transports.codec.starts import VERSION_MAX, asks_for_state, checked_snapshot, start_of
from transports.errors import InvalidRequest
from transports.limits import BATCH_EVENTS, CREDITS_MAX, INLINE_WEIGHT, Limits

__all__ = [
    "Abort",
    "Acknowledge",
    "Again",
    "Append",
    "Ask",
    "BeginParts",
    "Call",
    "CommitParts",
    "Complete",
    "Join",
    "Message",
    "Part",
    "Request",
    "Subscribe",
    "SubscribeRequest",
    "check_weight",
    "encode",
    "milliseconds",
    "parse",
    "view_json",
]

_FIXED: Final = ("criteria", "start", "until", "onGap", "whole", "snapshot")
"""Fields of ``subscribe`` that a slot determines."""
_Id = Annotated[str, msgspec.Meta(min_length=1, max_length=64)]


class Subscribe(msgspec.Struct, frozen=True, tag_field="type", tag="subscribe"):
    """``subscribe``: the payload is unchecked."""

    id: _Id
    payload: dict[str, Any]


class Request(msgspec.Struct, frozen=True, tag_field="type", tag="request"):
    """``request``: demand for ``n`` more events; the session checks ``n``."""

    id: _Id
    n: Any


class Complete(msgspec.Struct, frozen=True, tag_field="type", tag="complete"):
    """``complete``: the client cancels the operation of this id."""

    id: _Id


class Acknowledge(msgspec.Struct, frozen=True, tag_field="type", tag="ack"):
    """``ack``: the consumer of a slot needs no change before the cursor any more.

    Attributes:
        id: The id of the subscription.
        cursor: The cursor, unchecked.
        n: The number that the answer repeats; None for no answer, unless the acknowledgement is refused.
        durable: Whether the answer waits until the acknowledgement survives a crash.
    """

    id: _Id
    cursor: str
    n: int | None = None
    durable: bool = False


class Again(msgspec.Struct, frozen=True, tag_field="type", tag="again"):
    """``again``: a request for more rows; the payload is unchecked."""

    id: _Id
    payload: dict[str, Any] = msgspec.field(default_factory=dict)


class Join(msgspec.Struct, frozen=True, tag_field="type", tag="join"):
    """``join``: a consumer joins a group; the payload is unchecked."""

    id: _Id
    payload: dict[str, Any]


class Call(msgspec.Struct, frozen=True, tag_field="type", tag="group"):
    """``group``: a call of a group consumer.

    Attributes:
        id: The id of the consumer.
        n: The number that the answer repeats.
        do: The name of the call, unchecked.
        payload: Its arguments, unchecked.
    """

    id: _Id
    n: int
    do: str
    payload: dict[str, Any] = msgspec.field(default_factory=dict)


class Ask(msgspec.Struct, frozen=True, tag_field="type"):
    """An operation with one answer; the payload is unchecked."""

    id: _Id
    payload: dict[str, Any]


class AskSchema(Ask, frozen=True, tag="schema"):
    """``schema``: a question about a schema."""


class AskSlot(Ask, frozen=True, tag="slot"):
    """``slot``: an operation on slots."""


class AskGroup(Ask, frozen=True, tag="groups"):
    """``groups``: an operation on a group."""


class Append(msgspec.Struct, frozen=True, tag_field="type", tag="append"):
    """``append``: a transaction; the payload is unchecked."""

    id: _Id
    payload: AppendPayload


class BeginParts(msgspec.Struct, frozen=True, tag_field="type", tag="begin"):
    """``begin``: starts a transaction in parts; the payload is unchecked."""

    id: _Id
    payload: dict[str, Any] = msgspec.field(default_factory=dict)


class PartPayload(msgspec.Struct, frozen=True):
    """The payload of ``part``: changes as raw JSON."""

    changes: msgspec.Raw


class Part(msgspec.Struct, frozen=True, tag_field="type", tag="part"):
    """``part``: the next changes of a transaction."""

    id: _Id
    payload: PartPayload


class CommitPayload(msgspec.Struct, frozen=True):
    """The payload of ``commit``."""

    first: Any = None


class CommitParts(msgspec.Struct, frozen=True, tag_field="type", tag="commit"):
    """``commit``: all parts of a transaction were sent; it enters the append window."""

    id: _Id
    payload: CommitPayload = CommitPayload()


class Abort(msgspec.Struct, frozen=True, tag_field="type", tag="abort"):
    """``abort``: the client abandons a transaction."""

    id: _Id


Message = (
    Init
    | Subscribe
    | Request
    | Complete
    | Acknowledge
    | Again
    | Join
    | Call
    | AskSchema
    | AskSlot
    | AskGroup
    | Append
    | BeginParts
    | Part
    | CommitParts
    | Abort
    | Ping
    | Pong
)

_envelope: Final[Envelope[Message]] = Envelope(*get_args(Message))
_encoder: Final = msgspec.json.Encoder()


def encode(message: Mapping[str, Any]) -> bytes:
    """Returns the JSON of a message."""
    return _encoder.encode(message)


def milliseconds(name: str, seconds: object) -> int:
    """Returns a duration as messages have it.

    Raises:
        InvalidOption: If it is no number of seconds of at least 0.
    """
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds < math.inf:
        raise InvalidOption(name, seconds, "seconds, at least 0")
    return round(seconds * 1000)


def view_json(view: View) -> dict[str, Any]:
    """Returns the fields of ``subscribe`` for a view, which has at most one lens."""
    fields: dict[str, Any] = {"content": view.content.value, "images": view.images.value}
    for lens in view.lenses:
        fields["fields"] = None if lens.fields is None else lens.fields.to_json()
        fields["mask"] = None if lens.mask is None else lens.mask.to_json()
    if view.integers is not Integers.NUMBER:
        fields["integers"] = view.integers.value
    return fields


def parse(text: bytes | str) -> Message:
    """Parses one message.

    Raises:
        Violation: 4400, with the error and the expected form.
    """
    return _envelope.read(text)


class _Batch(msgspec.Struct, frozen=True, rename="camel"):
    """The field ``batch`` of ``subscribe``.

    Attributes:
        max_events: The most events in one ``next``.
        max_bytes: The most bytes of changes in one ``next``.
        linger_ms: Milliseconds to wait for more events.
    """

    max_events: Annotated[int, msgspec.Meta(ge=1, le=BATCH_EVENTS)] | None = None
    max_bytes: Annotated[int, msgspec.Meta(ge=1, le=CREDITS_MAX)] | None = None
    linger_ms: Annotated[int, msgspec.Meta(ge=0, le=1_000)] | None = None


class _Payload(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The payload of ``subscribe``; see `SubscribeRequest`."""

    log: LogName = None
    criteria: Any = None
    content: Content = Content.HEADER
    images: Images = Images.WRITTEN
    fields: list[Any] | None = None
    mask: dict[str, Any] | None = None
    integers: Integers = Integers.NUMBER
    since: str | None = None
    start: Any = None
    until: Annotated[int, msgspec.Meta(ge=1, le=VERSION_MAX)] | None = None
    credits: Credits
    batch: _Batch = _Batch()
    on_lag: Literal["resync", "fail"] = "resync"
    on_gap: Literal["fail", "jump"] = "fail"
    whole: bool = False
    snapshot: SnapshotMode | None = None
    heartbeat_ms: Annotated[int, msgspec.Meta(ge=0, le=3_600_000)] | None = None
    slot: SlotRequest | None = None

    def check(self, payload: Mapping[str, Any]) -> None:
        """Checks what its fields do not say by themselves.

        Raises:
            InvalidRequest: If a value is wrong.
            InvalidDemand: If ``credits`` is out of range.
        """
        checked_credits("credits", self.credits)
        if self.since is not None and self.start is not None:
            raise InvalidRequest("start", self.start, "left out where since is given")
        if self.slot is not None:
            self._check_slot(self.slot, payload)

    def _check_slot(self, slot: SlotRequest, payload: Mapping[str, Any]) -> None:
        for name in _FIXED:
            if payload.get(name) is not None:
                raise InvalidRequest(name, payload[name], "left out where slot is given")
        slot.check()
        if slot.generation is None and self.since is not None:
            raise InvalidRequest("since", self.since, "left out where slot has no generation")


class SubscribeRequest(msgspec.Struct, frozen=True):
    """A subscribe request, validated.

    Attributes:
        log: The name of the log; None for the only one.
        criteria: The criteria; None if they are too heavy to parse on an event loop, see ``read``.
        view: The view of the changes.
        since: The cursor to start at, unchecked; None if ``start`` applies.
        start: The start without a cursor.
        until: The last version; None for no end.
        credits: The number of events that may be sent at once.
        batch_events: The most events in one ``next``.
        batch_bytes: The most bytes of changes in one ``next``.
        linger: Seconds to wait for more events.
        fail_on_lag: Whether to end with ``LAGGED`` instead of reading from the WAL.
        jump: Whether to resume at the oldest position where history is missing, and report the gap.
        whole: Whether to send a transaction from its beginning if the start lies inside it.
        snapshot: When rows are delivered.
        raw_criteria: The criteria as raw objects while they are not parsed.
        slot: The slot to open, which has the criteria; None without one.
        place: The start: a cursor or ``start``.
        stated: Whether the rows of the current state come first.
        heartbeat: Seconds without a ``next`` until a checkpoint is sent; 0 for never.
        empty: Whether the list of criteria was empty; on the system log an empty list selects nothing.
    """

    log: str | None
    criteria: Criteria | None
    view: View
    since: str | None
    start: Start | Position | datetime | UUID | Literal["state"]
    until: int | None
    credits: int
    batch_events: int
    batch_bytes: int
    linger: float
    fail_on_lag: bool
    heartbeat: float
    empty: bool = False
    jump: bool = False
    whole: bool = False
    snapshot: SnapshotMode | None = None
    raw_criteria: object = None
    slot: SlotRequest | None = None
    place: Start | Position | datetime | UUID | str = Start.LATEST
    stated: bool = False

    @property
    def takes_rows(self) -> bool:
        """Whether the subscription may receive rows, at the start or later."""
        return self.stated or self.snapshot not in (None, "never")

    def read(self) -> tuple[Criteria, Cost]:
        """Parses and weighs the criteria; takes time in proportion to their size.

        Raises:
            InvalidCriteria: If the criteria are invalid.
        """
        criteria = Criteria.from_json(self.raw_criteria) if self.criteria is None else self.criteria
        hash(criteria)  # computes the hash here, which the criteria cache
        return criteria, weigh(criteria)

    def bare(self) -> "SubscribeRequest":
        """Returns the request without the criteria, which the publisher keeps."""
        return msgspec.structs.replace(self, criteria=None, raw_criteria=None)

    @classmethod
    def of(cls, payload: Mapping[str, Any], limits: Limits) -> "SubscribeRequest":
        """Reads the payload of a ``subscribe`` message.

        Raises:
            InvalidRequest, InvalidOption: If the value of a field is wrong.
            InvalidCriteria: If a criterion is invalid or has an unknown field.
            TooCostly: If the criteria weigh more than ``subscription_weight``, estimated by their lengths.
            InvalidDemand: If ``credits`` is out of range.
        """
        asked = convert(_Payload, payload)
        batch, slot = asked.batch, asked.slot
        asked.check(payload)
        if slot is None and "criteria" not in payload:
            raise InvalidCriteria("criteria", None, "a list of objects; an empty one for everything")
        criteria = payload.get("criteria", [])
        cost = weigh_json(criteria, limits.subscription_weight)
        check_weight(cost, limits)
        heavy = cost.weight > INLINE_WEIGHT
        start, jump = start_of(asked.start), asked.on_gap == "jump"
        place = start if asked.since is None else asked.since
        stated = asks_for_state(place)
        heartbeat = limits.heartbeat if asked.heartbeat_ms is None else asked.heartbeat_ms / 1000
        return cls(
            log=asked.log,
            criteria=None if heavy else Criteria.from_json(criteria),
            raw_criteria=criteria if heavy else None,
            empty=criteria == [],
            slot=slot,
            view=View.of(
                asked.content,
                asked.images,
                fields=asked.fields,
                mask=asked.mask or None,
                integers=asked.integers,
            ),
            since=asked.since,
            start=start,
            until=asked.until,
            credits=asked.credits,
            batch_events=batch.max_events or 32,
            batch_bytes=min(batch.max_bytes or limits.batch_bytes, limits.batch_bytes),
            linger=(batch.linger_ms or 0) / 1000,
            fail_on_lag=asked.on_lag == "fail",
            jump=jump,
            whole=asked.whole,
            place=place,
            stated=stated,
            snapshot=checked_snapshot(asked.snapshot, stated=stated, jump=jump),
            heartbeat=heartbeat,
        )


def check_weight(cost: Cost, limits: Limits) -> None:
    """Checks the weight of the criteria of one subscription or query.

    Raises:
        TooCostly: If the weight exceeds ``subscription_weight``.
    """
    if cost.weight > limits.subscription_weight:
        raise TooCostly("subscription_weight", cost.weight, limits.subscription_weight, cost.cheaper)
