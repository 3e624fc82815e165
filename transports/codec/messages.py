"""Messages from a client: read, checked and typed before anything acts on them.

What is wrong with the envelope (no JSON, no object, an unknown type, an id that is none) breaks the protocol:
``Violation`` 4400 closes the connection. What is wrong with the wish of one subscription, or with what it requests, is
told to that subscription only, and nothing else breaks. Unknown fields are ignored, unless they are a criterion's.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Final, Literal, cast, get_args
from uuid import UUID

import msgspec

from publishers.criteria.cost import Cost, weigh, weigh_json
from publishers.criteria.criteria import Criteria
from publishers.errors import InvalidCriteria, TooCostly
from publishers.model.position import Position, Start
from publishers.snapshots import SnapshotMode
from publishers.views.view import Content, Images, Integers, View
from transports.codec.appends import AppendPayload
from transports.codec.envelope import Envelope, Init, Ping, Pong
from transports.codec.fields import checked_credits, typed, whole, word
from transports.codec.slots import SlotWish, slot_of
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
    "Steer",
    "Subscribe",
    "SubscribeWish",
    "check_weight",
    "encode",
    "parse",
    "view_json",
]

_Id = Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
_LINGER_MAX_MS: Final = 1_000
_HEARTBEAT_MAX_MS: Final = 3_600_000


class Subscribe(msgspec.Struct, frozen=True):
    """``subscribe``: the wish is still unchecked."""

    id: _Id
    payload: dict[str, Any]


class Request(msgspec.Struct, frozen=True):
    """``request``: ``n`` more events, which may be anything until the session has looked at it."""

    id: _Id
    n: Any


class Complete(msgspec.Struct, frozen=True):
    """``complete``: the client wants nothing more for this id."""

    id: _Id


class Acknowledge(msgspec.Struct, frozen=True):
    """``ack``: a consumer of a slot needs nothing before the cursor any more.

    Attributes:
        id: Of the subscription.
        cursor: The place, unchecked.
        n: What the answer is to bear; None for no answer, unless it is refused.
        durable: Whether it is answered only when a crash cannot take it.
    """

    id: _Id
    cursor: str
    n: int | None = None
    durable: bool = False


class Again(msgspec.Struct, frozen=True):
    """``again``: rows are asked for once more, of which is still unchecked."""

    id: _Id
    payload: dict[str, Any] = msgspec.field(default_factory=dict)


class Join(msgspec.Struct, frozen=True):
    """``join``: a consumer of a group, still unchecked."""

    id: _Id
    payload: dict[str, Any]


class Call(msgspec.Struct, frozen=True):
    """``group``: what such a consumer says or asks.

    Attributes:
        id: Of the consumer.
        n: What the answer is to bear.
        do: What is to be done, unchecked.
        payload: Its arguments, unchecked.
    """

    id: _Id
    n: int
    do: str
    payload: dict[str, Any] = msgspec.field(default_factory=dict)


class Ask(msgspec.Struct, frozen=True):
    """``schema``: what is asked is still unchecked."""

    id: _Id
    payload: dict[str, Any]


class Steer(msgspec.Struct, frozen=True):
    """``slot``: what is to be done with a slot is still unchecked."""

    id: _Id
    payload: dict[str, Any]


class SteerGroup(msgspec.Struct, frozen=True):
    """``groups``: what is to be done with a group is still unchecked."""

    id: _Id
    payload: dict[str, Any]


class Append(msgspec.Struct, frozen=True):
    """``append``: a transaction, still unchecked."""

    id: _Id
    payload: AppendPayload


class BeginParts(msgspec.Struct, frozen=True):
    """``begin``: a transaction whose changes come in parts, still unchecked."""

    id: _Id
    payload: dict[str, Any] = msgspec.field(default_factory=dict)


class PartPayload(msgspec.Struct, frozen=True):
    """The payload of ``part``: changes, left as they came."""

    changes: msgspec.Raw


class Part(msgspec.Struct, frozen=True):
    """``part``: the next changes of a transaction."""

    id: _Id
    payload: PartPayload


class CommitPayload(msgspec.Struct, frozen=True):
    """The payload of ``commit``."""

    first: Any = None


class CommitParts(msgspec.Struct, frozen=True):
    """``commit``: all parts of a transaction were sent, and it takes its turn."""

    id: _Id
    payload: CommitPayload = CommitPayload()


class Abort(msgspec.Struct, frozen=True):
    """``abort``: the client does not want a transaction any more."""

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
    | Steer
    | SteerGroup
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
        "slot": Steer,
        "groups": SteerGroup,
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
    """The JSON of a message of the server."""
    return _encoder.encode(message)


def view_json(view: View) -> dict[str, Any]:
    """A view as ``subscribe`` asks for it; it has at most one lens."""
    wish: dict[str, Any] = {"content": view.content.value, "images": view.images.value}
    for lens in view.lenses:
        wish["fields"] = None if lens.fields is None else lens.fields.to_json()
        wish["mask"] = None if lens.mask is None else lens.mask.to_json()
    if view.integers is not Integers.NUMBER:
        wish["integers"] = view.integers.value
    return wish


def parse(text: bytes | str) -> Message:
    """Reads one message.

    Raises:
        Violation: 4400, with what was wrong and what would be right.
    """
    return _envelope.read(text)


class SubscribeWish(msgspec.Struct, frozen=True):
    """What a client subscribes to, checked.

    Attributes:
        log: Name of the log, or None for the only one.
        criteria: Which changes; None where they are too heavy to be read on an event loop, see ``read``.
        view: How much of each.
        since: Cursor to start at, unchecked; else ``start`` holds.
        start: Where to begin without a cursor.
        until: Last version, or None.
        credits: Events that may be sent at once.
        batch_events: Most events in one ``next``.
        batch_bytes: Most bytes of changes in one ``next``.
        linger: Seconds to wait for more events.
        fail_on_lag: End with ``LAGGED`` instead of reading on from the log.
        jump: Go on at the oldest position where history is missing, and tell of the gap.
        whole: Send a transaction inside which it starts from its beginning.
        snapshot: When there are rows.
        wishes: The criteria as they came, where they are not read yet.
        slot: The slot that is opened, which has the criteria; None for none.
        heartbeat: Seconds without a ``next`` until a checkpoint is sent; 0 for never.
        empty: Whether the list of criteria was empty: on the system log that means nothing.
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
    wishes: object = None
    slot: SlotWish | None = None

    @property
    def place(self) -> Start | Position | datetime | UUID | str:
        """Where to begin."""
        return self.start if self.since is None else self.since

    @property
    def stated(self) -> bool:
        """Whether the entities that there are come first."""
        return asks_for_state(self.place)

    @property
    def takes_rows(self) -> bool:
        """Whether it may be given rows, at first or some time."""
        return self.stated or self.snapshot not in (None, "never")

    def read(self) -> tuple[Criteria, Cost]:
        """The criteria and what they cost, in time of their size.

        Raises:
            InvalidCriteria: If they are none.
        """
        criteria = Criteria.from_json(self.wishes) if self.criteria is None else self.criteria
        hash(criteria)  # kept by what they are made of
        return criteria, weigh(criteria)

    def bare(self) -> "SubscribeWish":
        """The same without the criteria, which stay with the publisher."""
        return msgspec.structs.replace(self, criteria=None, wishes=None)

    @classmethod
    def of(cls, payload: Mapping[str, Any], limits: Limits) -> "SubscribeWish":
        """Checks the payload of a ``subscribe`` message.

        Raises:
            InvalidRequest, InvalidOption: If a field has a value that it does not take.
            InvalidCriteria: If a criterion has, or has an unknown field.
            TooCostly: If they weigh more than ``subscription_weight``, by their lengths.
            InvalidDemand: If ``credits`` is out of its range.
        """
        batch = typed(payload, "batch", dict, "an object") or {}
        linger = whole("batch.lingerMs", batch.get("lingerMs"), 0, _LINGER_MAX_MS, 0)
        beat = whole(
            "heartbeatMs", payload.get("heartbeatMs"), 0, _HEARTBEAT_MAX_MS, int(limits.heartbeat * 1000)
        )
        slot = slot_of(payload)
        if "criteria" not in payload and slot is None:
            raise InvalidCriteria("criteria", None, "a list of objects; an empty one for everything")
        wishes = payload.get("criteria", [])
        cost = weigh_json(wishes, limits.subscription_weight)
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
            criteria=None if heavy else Criteria.from_json(wishes),
            wishes=wishes if heavy else None,
            empty=wishes == [],
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
    """Checks what the criteria of one subscription or query weigh.

    Raises:
        TooCostly: If that is above ``subscription_weight``.
    """
    if cost.weight > limits.subscription_weight:
        raise TooCostly("subscription_weight", cost.weight, limits.subscription_weight, cost.cheaper)
