"""Messages of a server, as its client parses them."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Generic, Self

import msgspec

from publishers.commits.group_commit import Commit
from publishers.errors import PositionMalformed
from publishers.fanout.gap import Gap
from publishers.model.change import Area, Change, Operation, row_id
from publishers.model.fields import ATTACHED, FIELDS, Field, FieldKind, FieldPlace, compiled, extended
from publishers.model.position import Position, PositionToken
from publishers.snapshots import ChunkEnd, SnapshotBegin, SnapshotCursor, SnapshotEnd
from publishers.snapshots.signals import SnapshotSignal
from publishers.views.entities import M
from transports.codec.envelope import Ping, Pong
from transports.codec.groups import MemberReply
from transports.codec.schemas import SchemaAnswer
from transports.codec.slots import SlotInfo, SlotReply
from transports.codec.snapshot_places import token_in
from transports.errors import CloseCode, Violation

__all__ = [
    "Ack",
    "AckedReply",
    "AppendedReply",
    "CheckpointReply",
    "ChunkEndReply",
    "DeliveriesReply",
    "Done",
    "Failure",
    "Goaway",
    "GroupReply",
    "GroupsReply",
    "Item",
    "JoinedReply",
    "Missing",
    "Next",
    "RemoteChange",
    "RemoteCommit",
    "RemoteDelivery",
    "RemoteGap",
    "RemoteModelChange",
    "RemoteSignal",
    "Reply",
    "Schema",
    "SlotsReply",
    "SnapshotBeginReply",
    "SnapshotEndReply",
    "SpooledReply",
    "SubscribedReply",
    "WireDelivery",
    "WireEvent",
    "read",
]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


class RemoteChange(Change, frozen=True, gc=False, eq=False):
    """A change that arrived from a server; equal to the original change.

    Attributes:
        cursor: The cursor behind the change: store it, and subscribe with ``since=cursor`` to resume behind this change.
    """

    cursor: str = ""

    @property
    def after(self) -> Position:
        """The position of the next change. For a snapshot row it does not lie behind the row's page: store ``cursor`` instead."""
        return self.position if self.operation is Operation.READ else super().after

    @property
    def idempotency_key(self) -> str:
        """``ChangeLog.idempotency_key`` of this change."""
        cursor = self.cursor.split(":", 3)[-1] if SnapshotCursor.is_text(self.cursor) else self.cursor
        log_id, _, place = cursor.partition(":")
        epoch = place.partition(":")[0]
        # Epochs of format 1 have no random bits and cannot be told apart, so they are left out.
        found = f"{log_id}:{epoch}:{self.position}" if "." in epoch else f"{log_id}:{self.position}"
        return row_id(found, self) if self.operation is Operation.READ else found


class RemoteModelChange(RemoteChange, Generic[M], frozen=True, gc=True, eq=False):
    """A change from a server whose images are objects of the class given with ``as_``."""

    _body: M | None = None
    _before: M | None = None

    @property
    def body(self) -> M | None:
        """As ``ModelChange.body``."""
        return self._body

    @property
    def before(self) -> M | None:
        """As ``ModelChange.before``."""
        return self._before


@dataclass(frozen=True, slots=True)
class RemoteDelivery:
    """A delivery to a group consumer, to be acknowledged.

    Attributes:
        cursor: The cursor that identifies the delivery.
        changes: The change; with ``ack="transaction"`` all matching changes of the transaction.
        count: The number of times it was delivered, this time included.
        generation: The generation of the consumer.
    """

    cursor: str
    changes: tuple[RemoteChange, ...]
    count: int
    generation: int

    @property
    def change(self) -> RemoteChange:
        """The change, or the first of several."""
        return self.changes[0]


@dataclass(frozen=True, slots=True)
class RemoteGap(Gap):
    """A gap that a server reported.

    Attributes:
        begin_cursor: The first missing cursor.
        end_cursor: The cursor at which the history continues.
    """

    begin_cursor: str
    end_cursor: str


@dataclass(frozen=True, slots=True)
class RemoteSignal:
    """A snapshot signal that a server sent between rows.

    Attributes:
        signal: The signal.
        cursor: The cursor at the signal.
    """

    signal: SnapshotSignal
    cursor: str


class RemoteCommit(Commit):
    """The outcome of a transaction that a server has committed.

    Attributes:
        cursor: The cursor behind the transaction, to expect or to read from; None for a duplicate that is not the last
            transaction of its producer.
    """

    cursor: str | None

    def __new__(
        cls, version: int, cursor: str | None, *, duplicate: bool, changes: int, committed_at: int = 0
    ) -> Self:
        """Makes a commit from the server's answer."""
        made = super().__new__(cls, version, duplicate, changes, committed_at)
        made.cursor = cursor
        return made


@extended(
    (field.name, msgspec.Raw, msgspec.Raw())
    if field.kind is FieldKind.JSON
    else (field.name, (int | str if field.kind is FieldKind.NUMBER else field.type) | None, None)
    for field in ATTACHED
)
class WireEvent(msgspec.Struct):
    """One event; fields that do not apply are omitted."""

    cursor: str
    version: int
    index: int
    count: int
    timestamp: datetime
    area: str
    operation: str
    entity_type: str | None = None
    key: str | None = None
    body: msgspec.Raw = msgspec.Raw()
    before: msgspec.Raw = msgspec.Raw()
    changed: tuple[str, ...] | None = None
    lacking: tuple[str, ...] = ()
    error: str | None = None

    def change(self) -> RemoteChange:
        """Returns the change, with its own copy of the bytes."""
        return _change(self)


class Ack(msgspec.Struct, tag_field="type", tag="connection_ack"):
    """``connection_ack``: the client may subscribe."""

    payload: dict[str, Any] | None = None


class SubscribedReply(msgspec.Struct, tag_field="type", tag="subscribed"):
    """``subscribed``: from ``cursor`` on, no change can be missed."""

    id: str
    log: str
    epoch: int
    cursor: str
    oldest: str
    head: str
    slot: SlotReply | None = None


class JoinedReply(msgspec.Struct, tag_field="type", tag="joined"):
    """``joined``: a consumer has joined its group or resumed its joining."""

    id: str
    log: str
    group: MemberReply


class WireDelivery(msgspec.Struct):
    """A delivery in the server's encoding."""

    at: str
    count: int
    events: list[WireEvent]

    def delivery(self, generation: int) -> RemoteDelivery:
        """Returns the delivery for a consumer of the given generation."""
        return RemoteDelivery(self.at, tuple(event.change() for event in self.events), self.count, generation)


class DeliveriesReply(msgspec.Struct, tag_field="type", tag="deliveries"):
    """``deliveries``: deliveries of a group."""

    id: str
    items: list[WireDelivery]

    def deliveries(self, generation: int) -> list[RemoteDelivery]:
        """Returns the deliveries for a consumer of the given generation."""
        return [item.delivery(generation) for item in self.items]


class GroupReply(msgspec.Struct, tag_field="type", tag="group"):
    """``group``: the answer to a call of a group consumer, or its refusal.

    Attributes:
        id: The id of the consumer.
        n: The number of the call.
        result: The result, as JSON.
        error: The reason of a refusal.
    """

    id: str
    n: int
    result: msgspec.Raw = msgspec.Raw()
    error: dict[str, Any] | None = None


class AckedReply(msgspec.Struct, tag_field="type", tag="acked"):
    """``acked``: an acknowledgement of a slot is recorded, or durable if that was requested, or refused.

    Attributes:
        id: The id of the subscription.
        cursor: The next change that is not acknowledged.
        n: The number of the acknowledgement. The answer covers all earlier ones too, but an error only this one.
        error: The reason of a refusal.
    """

    id: str
    cursor: str
    n: int | None = None
    error: dict[str, Any] | None = None


class Next(msgspec.Struct, tag_field="type", tag="next"):
    """``next``: a batch of events."""

    id: str
    events: list[WireEvent]
    cursor: str
    boundary: bool

    def changes(self) -> Sequence[RemoteChange]:
        """Returns the events as changes."""
        return [event.change() for event in self.events]


class Missing(msgspec.Struct, tag_field="type", tag="gap"):
    """``gap``: the history from ``begin`` to ``end`` is no longer kept; the next event lies at or behind ``end``."""

    id: str
    begin: str
    end: str

    def gap(self) -> RemoteGap:
        """Returns the gap.

        Raises:
            Violation: 4400, if an end is not a cursor.
        """
        try:
            begin, end = PositionToken.parse(self.begin), PositionToken.parse(self.end)
        except PositionMalformed as error:
            raise Violation(
                CloseCode.BAD_REQUEST, f"the server told of a gap that is none: {error}"
            ) from None
        return RemoteGap(begin.position, end.position, self.begin, self.end)


class SnapshotBeginReply(msgspec.Struct, tag_field="type", tag="snapshot_begin"):
    """``snapshot_begin``: a snapshot begins or resumes."""

    id: str
    snapshot: str
    cursor: str
    asked: int | None = None

    def signal(self, asked: int | None) -> RemoteSignal:
        """Returns the signal for the subscriber, with the subscriber's number of the request."""
        return RemoteSignal(SnapshotBegin(self.snapshot, _position(self.cursor), asked), self.cursor)


class ChunkEndReply(msgspec.Struct, tag_field="type", tag="chunk_end"):
    """``chunk_end``: the rows of a page are complete."""

    id: str
    cursor: str

    def signal(self) -> RemoteSignal:
        """Returns the signal for the subscriber."""
        return RemoteSignal(ChunkEnd(self.cursor), self.cursor)


class SnapshotEndReply(msgspec.Struct, tag_field="type", tag="snapshot_end"):
    """``snapshot_end``: all rows were sent."""

    id: str
    snapshot: str
    cursor: str

    def signal(self) -> RemoteSignal:
        """Returns the signal for the subscriber."""
        return RemoteSignal(SnapshotEnd(self.snapshot, _position(self.cursor)), self.cursor)


class Item(msgspec.Struct):
    """The progress of one subscription."""

    id: str
    cursor: str
    head: str
    state: str
    live: int | None = None


class CheckpointReply(msgspec.Struct, tag_field="type", tag="checkpoint"):
    """``checkpoint``: the progress of subscriptions."""

    items: list[Item]
    n: int
    nextMs: int = 0  # noqa: N815 - the spelling of the wire


class Failure(msgspec.Struct, tag_field="type", tag="error"):
    """``error``: a subscription failed."""

    id: str
    payload: dict[str, Any]


class Done(msgspec.Struct, tag_field="type", tag="complete"):
    """``complete``: a subscription is complete."""

    id: str
    cursor: str | None = None


class Schema(msgspec.Struct, tag_field="type", tag="schema"):
    """``schema``: the requested schema; None if there is none."""

    id: str
    payload: SchemaAnswer | None


class SlotsReply(msgspec.Struct, tag_field="type", tag="slot"):
    """``slot``: the slots that an order concerned."""

    id: str
    payload: list[SlotInfo]


class GroupsReply(msgspec.Struct, tag_field="type", tag="groups"):
    """What was done with a group, or asked of it."""

    id: str
    payload: dict[str, Any]


class AppendedReply(msgspec.Struct, tag_field="type", tag="appended"):
    """``appended``: a transaction has progressed as far as requested."""

    id: str
    version: int
    cursor: str | None
    duplicate: bool
    changes: int
    timestamp: datetime | None = None

    def commit(self) -> RemoteCommit:
        """Returns the outcome of the transaction."""
        return RemoteCommit(
            self.version,
            self.cursor,
            duplicate=self.duplicate,
            changes=self.changes,
            committed_at=0 if self.timestamp is None else (self.timestamp - _EPOCH) // _MICROSECOND,
        )


class SpooledReply(msgspec.Struct, tag_field="type", tag="spooled"):
    """``spooled``: the number of stored parts of a transaction."""

    id: str
    parts: int


class Goaway(msgspec.Struct, tag_field="type", tag="goaway"):
    """``goaway``: the server is about to stop."""

    deadlineMs: int = 0  # noqa: N815 - the spelling of the wire
    reason: str = ""


Reply = (
    Ack
    | SubscribedReply
    | AckedReply
    | JoinedReply
    | DeliveriesReply
    | GroupReply
    | Next
    | Missing
    | SnapshotBeginReply
    | ChunkEndReply
    | SnapshotEndReply
    | CheckpointReply
    | Failure
    | Done
    | Schema
    | SlotsReply
    | GroupsReply
    | AppendedReply
    | SpooledReply
    | Goaway
    | Ping
    | Pong
)

# Matches an escape; the group captures a lone low surrogate from 0xdc80 to 0xdcff, as the encoder writes it.
_ESCAPE: Final = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|udc([89a-f][0-9a-f])|.)", re.DOTALL
)
_PRIVATE: Final = range(0xE0, 0xF9)  # high bytes of private-use characters

_decoder: Final[msgspec.json.Decoder[Reply]] = msgspec.json.Decoder(Reply)


def read(text: bytes | str) -> Reply:
    """Parses one message of a server.

    Raises:
        Violation: 4400, if the text is not a message.
    """
    try:
        return _decoder.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        try:
            return _with_surrogates(text)
        except (ValueError, TypeError, KeyError, msgspec.MsgspecError, RecursionError, StopIteration):
            raise Violation(CloseCode.BAD_REQUEST, f"the server sent what is no message: {error}") from None


def _with_surrogates(text: bytes | str) -> Reply:
    """Parses a message with lone surrogates, which stand for keys that are not UTF-8 and which msgspec refuses.

    They are replaced by private-use characters that the message does not contain, and restored afterwards; all other text is
    unchanged.
    """
    data = text.encode() if isinstance(text, str) else bytes(text)
    high = next(high for high in _PRIVATE if not _occurs(high, data))
    free = b"\\u%02x" % high
    reply = _decoder.decode(_ESCAPE.sub(lambda found: free + found[1] if found[1] else found[0], data))
    if isinstance(reply, DeliveriesReply):
        events = [event for item in reply.items for event in item.events]
    elif isinstance(reply, Next):
        events = reply.events
    else:
        raise TypeError("only events have keys")
    back = {(high << 8) + byte: 0xDC00 + byte for byte in range(0x80, 0x100)}
    for event in events:
        for name in _KEYS:
            if (key := getattr(event, name)) is not None:
                setattr(event, name, key.translate(back))
        for name in _JSON:
            setattr(event, name, msgspec.Raw(bytes(getattr(event, name)).replace(free, b"\\udc")))
    return reply


def _occurs(high: int, data: bytes) -> bool:
    """Whether a message contains characters with this high byte, escaped or not."""
    plain = (chr((high << 8) + low).encode()[:2] for low in (0x80, 0xC0))
    return b"\\u%02x" % high in data.lower() or any(start in data for start in plain)


def _position(cursor: str) -> Position:
    try:
        return token_in(cursor).position
    except PositionMalformed as error:
        raise Violation(CloseCode.BAD_REQUEST, f"the server told of a place that is none: {error}") from None


def _read_of(field: Field) -> str:
    """Returns the expression that makes the attribute of a change from the member of an event."""
    text = f"event.{field.name}"
    if field.kind is FieldKind.JSON:
        return f"bytes({text}) or None"
    if field.place is not FieldPlace.META:
        return f"{field.type.__name__}[{text}]" if field.kind is FieldKind.WORD else text
    if field.kind is not FieldKind.NUMBER:
        return text
    # Beyond 2^53 it may arrive as text, if the subscriber asked for that.
    implied = "(event.version if event.area == 'DATA' else None)" if field.versioned else "None"
    return f"{implied} if {text} is None else int({text})"


_change: Final[Callable[[WireEvent], RemoteChange]] = compiled(
    "change(event)",
    f"return RemoteChange({', '.join(map(_read_of, FIELDS))}, event.cursor)",
    RemoteChange=RemoteChange,
    Area=Area,
    Operation=Operation,
)
_KEYS: Final = tuple(field.name for field in FIELDS if field.kind is FieldKind.KEY)
_JSON: Final = tuple(field.name for field in FIELDS if field.kind is FieldKind.JSON)
