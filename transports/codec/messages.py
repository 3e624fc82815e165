"""Messages of a client: parsed, validated and typed before anything acts on them.

An error in the envelope (malformed JSON, no object, an unknown type, an invalid id) breaks the protocol: ``Violation`` 4400
closes the connection. An error in the request or the demand of one subscription is reported to that subscription and affects
nothing else. Unknown fields are ignored, except in a criterion.
"""

import math
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Final, Literal, cast, get_args
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
from transports.codec.fields import checked_credits, typed, whole, word
from transports.codec.slots import SlotRequest, slot_of
from transports.codec.starts import VERSION_MAX, asks_for_state, checked_snapshot, start_of
from transports.errors import InvalidRequest
from transports.limits import CREDITS_MAX, Limits

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

_Id = Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
_LINGER_MAX_MS: Final = 1_000
_HEARTBEAT_MAX_MS: Final = 3_600_000


class Subscribe(msgspec.Struct, frozen=True):
    """``subscribe``: the payload is unchecked."""

    id: _Id
    payload: dict[str, Any]


class Request(msgspec.Struct, frozen=True):
    """``request``: demand for ``n`` more events; the session checks ``n``."""

    id: _Id
    n: Any


class Complete(msgspec.Struct, frozen=True):
    """``complete``: the client cancels the operation of this id."""

    id: _Id


class Acknowledge(msgspec.Struct, frozen=True):
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


class Again(msgspec.Struct, frozen=True):
    """``again``: a request for more rows; the payload is unchecked."""

    id: _Id
    payload: dict[str, Any] = msgspec.field(default_factory=dict)


class Join(msgspec.Struct, frozen=True):
    """``join``: a consumer joins a group; the payload is unchecked."""

    id: _Id
    payload: dict[str, Any]


class Call(msgspec.Struct, frozen=True):
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


class Ask(msgspec.Struct, frozen=True):
    """``schema``, ``slot`` or ``groups``: an operation with one answer; the payload is unchecked."""

    id: _Id
    type: str
    payload: dict[str, Any]


class Append(msgspec.Struct, frozen=True):
    """``append``: a transaction; the payload is unchecked."""

    id: _Id
    payload: AppendPayload


class BeginParts(msgspec.Struct, frozen=True):
    """``begin``: starts a transaction in parts; the payload is unchecked."""

    id: _Id
    payload: dict[str, Any] = msgspec.field(default_factory=dict)


class PartPayload(msgspec.Struct, frozen=True):
    """The payload of ``part``: changes as raw JSON."""

    changes: msgspec.Raw


class Part(msgspec.Struct, frozen=True):
    """``part``: the next changes of a transaction."""

    id: _Id
    payload: PartPayload


class CommitPayload(msgspec.Struct, frozen=True):
    """The payload of ``commit``."""

    first: Any = None


class CommitParts(msgspec.Struct, frozen=True):
    """``commit``: all parts of a transaction were sent; it enters the append window."""

    id: _Id
    payload: CommitPayload = CommitPayload()


class Abort(msgspec.Struct, frozen=True):
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
    | Ask
    | Append
    | BeginParts
    | Part
    | CommitParts
    | Abort
    | Ping
    | Pong
)

_envelope: Final[Envelope[Message]] = Envelope(
    {
        "connection_init": Init,
        "subscribe": Subscribe,
        "request": Request,
        "complete": Complete,
        "ack": Acknowledge,
        "again": Again,
        "join": Join,
        "group": Call,
        "schema": Ask,
        "slot": Ask,
        "groups": Ask,
        "append": Append,
        "begin": BeginParts,
        "part": Part,
        "commit": CommitParts,
        "abort": Abort,
        "ping": Ping,
        "pong": Pong,
    }
)
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

    @property
    def place(self) -> Start | Position | datetime | UUID | str:
        """The start: a cursor or ``start``."""
        return self.start if self.since is None else self.since

    @property
    def stated(self) -> bool:
        """Whether the rows of the current state come first."""
        return asks_for_state(self.place)

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
        """Validates the payload of a ``subscribe`` message.

        Raises:
            InvalidRequest, InvalidOption: If the value of a field is invalid.
            InvalidCriteria: If a criterion is invalid or has an unknown field.
            TooCostly: If the criteria weigh more than ``subscription_weight``, estimated by their lengths.
            InvalidDemand: If ``credits`` is out of range.
        """
        batch = typed(payload, "batch", dict, "an object") or {}
        linger = whole("batch.lingerMs", batch.get("lingerMs"), 0, _LINGER_MAX_MS, 0)
        beat = whole(
            "heartbeatMs", payload.get("heartbeatMs"), 0, _HEARTBEAT_MAX_MS, int(limits.heartbeat * 1000)
        )
        slot = slot_of(payload)
        if "criteria" not in payload and slot is None:
            raise InvalidCriteria("criteria", None, "a list of objects; an empty one for everything")
        raw_criteria = payload.get("criteria", [])
        cost = weigh_json(raw_criteria, limits.subscription_weight)
        check_weight(cost, limits)
        heavy = cost.weight > limits.inline_weight
        since = typed(payload, "since", str, "text")
        if since is not None and payload.get("start") is not None:
            raise InvalidRequest("start", payload["start"], "left out where since is given")
        until = payload.get("until")
        start = start_of(payload.get("start"))
        jump = word(payload, "onGap", "fail", ["fail", "jump"]) == "jump"
        mode = word(payload, "snapshot", "", [*get_args(SnapshotMode)]) or None
        snapshot = checked_snapshot(
            cast("SnapshotMode | None", mode), start if since is None else since, jump=jump
        )
        return cls(
            log=typed(payload, "log", str, "text"),
            criteria=None if heavy else Criteria.from_json(raw_criteria),
            raw_criteria=raw_criteria if heavy else None,
            empty=raw_criteria == [],
            slot=slot,
            view=View.of(
                Content(word(payload, "content", "HEADER", [content.value for content in Content])),
                Images(word(payload, "images", "WRITTEN", [images.value for images in Images])),
                fields=typed(payload, "fields", list, "a list"),
                mask=typed(payload, "mask", dict, "an object") or None,
                integers=Integers(word(payload, "integers", "NUMBER", [one.value for one in Integers])),
            ),
            since=since,
            start=start,
            until=None if until is None else whole("until", until, 1, VERSION_MAX),
            credits=checked_credits("credits", payload.get("credits")),
            batch_events=whole("batch.maxEvents", batch.get("maxEvents"), 1, limits.batch_events, 32),
            batch_bytes=min(
                whole("batch.maxBytes", batch.get("maxBytes"), 1, CREDITS_MAX, limits.batch_bytes),
                limits.batch_bytes,
            ),
            linger=linger / 1000,
            fail_on_lag=word(payload, "onLag", "resync", ["resync", "fail"]) == "fail",
            jump=jump,
            whole=typed(payload, "whole", bool, "true or false") or False,
            snapshot=snapshot,
            heartbeat=beat / 1000,
        )


def check_weight(cost: Cost, limits: Limits) -> None:
    """Checks the weight of the criteria of one subscription or query.

    Raises:
        TooCostly: If the weight exceeds ``subscription_weight``.
    """
    if cost.weight > limits.subscription_weight:
        raise TooCostly("subscription_weight", cost.weight, limits.subscription_weight, cost.cheaper)
