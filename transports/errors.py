"""Errors of connections, and the codes of the wire.

::

    PenstockError
    |-- WireError                 an error of one operation: code, retryable, data      (code, data)
    |   |-- InvalidRequest        a field of a message has an invalid value             (path)
    |   |-- InvalidDemand         credits that are no valid count of events, §3.9       (value)
    |   |-- Forbidden             the client may not see or do what it asks for         (path)
    |   |-- Unauthenticated       credentials are missing or wrong, or have expired
    |   |-- NotAuthenticated      the client was not authenticated in time              (seconds)
    |   |-- LogNotFound           the server has no log of that name                    (name)
    |   |-- TooManySubscriptions  the connection has as many as it may have             (limit)
    |   |-- TooManySnapshots      too many subscriptions receive rows at a time         (limit)
    |   |-- SlotNotOpen           an acknowledgement names an opening that is over      (name, opening)
    |   |-- ConsumerNotJoined     a call names a joining that is over                   (name, consumer, opening)
    |   |-- TooManySlots          the server has as many open as it allows              (limit)
    |   |-- TooManyMembers        as many group consumers have joined as may            (limit)
    |   |-- TooManyCalls          as many calls of a consumer are unanswered as may be  (limit)
    |   |-- TooManyAppends        more is unanswered than the connection may have       (option, limit)
    |   |-- NoTransaction         a commit names a transaction that is not open
    |   |-- TransactionIdle       a transaction in parts has waited too long            (seconds)
    |   |-- TooManyProducers      a principal has as many producers as it may have      (limit)
    |   `-- GoingAway             the server is stopping
    |-- RemoteError               an error that a server sent, as its client sees it    (code, data)
    |-- ConnectionLost            the connection ended before the subscription did      (close_code, why)
    |-- InvalidInput              a line of a command's input is invalid                (line)
    |-- ServerFailed              the server could not start                            (host, port)
    `-- ExtraMissing              an optional dependency is not installed               (extra)
    Violation                     the peer broke the protocol: the connection closes    (close_code)

The codes are those of the protocol's document; ``retryable`` says whether the same message may succeed later unchanged.
"""

import enum
from collections.abc import Mapping
from typing import Any, ClassVar, Final

from publishers.errors import PenstockError

__all__ = [
    "CloseCode",
    "ConnectionLost",
    "ConsumerNotJoined",
    "ExtraMissing",
    "Forbidden",
    "GoingAway",
    "InvalidDemand",
    "InvalidInput",
    "InvalidRequest",
    "LogNotFound",
    "NotAuthenticated",
    "RemoteError",
    "ServerFailed",
    "SlotNotOpen",
    "TooManyAppends",
    "TooManyCalls",
    "TooManyMembers",
    "TooManyProducers",
    "TooManySlots",
    "TooManySnapshots",
    "TooManySubscriptions",
    "Unauthenticated",
    "Violation",
    "WireError",
    "close_reason",
    "shortened",
]

_MESSAGE_CHARACTERS: Final = 600
_REASON_BYTES: Final = 123  # RFC 6455 §5.5: a control frame holds 125 bytes, two of which are the code


class CloseCode(enum.IntEnum):
    """The reason for closing a WebSocket: RFC 6455 §7.4.1, the 44xx codes of graphql-transport-ws, and two of our own.

    1011 is omitted on purpose: clients treat it as fatal, but internal errors of the server may be overcome by a retry.
    """

    NORMAL = 1000
    GOING_AWAY = 1001
    PROTOCOL_ERROR = 1002
    ABNORMAL = 1006
    INVALID_DATA = 1007
    MESSAGE_TOO_BIG = 1009
    RESTART = 1012
    OVERLOAD = 1013
    BAD_REQUEST = 4400
    UNAUTHORIZED = 4401
    FORBIDDEN = 4403
    INIT_TIMEOUT = 4408
    ID_IN_USE = 4409
    TOO_MANY_INITS = 4429
    FLOOD = 4490
    SLOW_CONSUMER = 4491
    INTERNAL = 4500

    @property
    def retryable(self) -> bool:
        """Whether connecting again unchanged may succeed."""
        return self not in _FATAL


_FATAL: Final = frozenset(
    {
        CloseCode.PROTOCOL_ERROR,
        CloseCode.INVALID_DATA,
        CloseCode.MESSAGE_TOO_BIG,
        CloseCode.BAD_REQUEST,
        CloseCode.UNAUTHORIZED,
        CloseCode.FORBIDDEN,
        CloseCode.ID_IN_USE,
        CloseCode.TOO_MANY_INITS,
        CloseCode.FLOOD,
        CloseCode.INTERNAL,
    }
)


def close_reason(text: str) -> str:
    """Truncates a text to the size of a close frame, at a character boundary."""
    raw = text.encode("utf-8", "replace")
    return raw.decode() if len(raw) <= _REASON_BYTES else raw[:_REASON_BYTES].decode("utf-8", "ignore")


class Violation(Exception):
    """The peer broke the protocol; the connection has to be closed with ``close_code`` and this text."""

    def __init__(self, close_code: CloseCode, why: str) -> None:
        super().__init__(why)
        self.close_code = close_code

    @property
    def reason(self) -> str:
        """The text, truncated to the size of a close frame."""
        return close_reason(str(self))


class WireError(PenstockError):
    """An error of one operation that arises in the transport itself.

    Attributes:
        code: Its code on the wire.
        carried: The attributes that a client gets beside code and text.
    """

    code: ClassVar[str] = "INTERNAL"
    carried: ClassVar[str] = ""

    @property
    def data(self) -> dict[str, object]:
        """The values of ``carried``, by name."""
        return {name: getattr(self, name) for name in self.carried.split()}


class InvalidRequest(WireError):
    """A field of a message has an invalid value."""

    code = "INVALID_REQUEST"
    carried = "path"
    path: str
    value: object
    right: str
    says = "{path} is {value!r:.200}, but must be {right}"


class InvalidDemand(WireError):
    """Credits that are not a valid count of events (Reactive Streams §3.9)."""

    code = "INVALID_DEMAND"
    name: str
    value: object
    low: int
    high: int

    def _text(self) -> str:
        return f"{self.name} is {_short(self.value)}, but must be a whole number between {self.low} and {self.high} (rule 3.9)"


class Forbidden(WireError):
    """The client asks for something that it may not see or do. The text does not repeat the request."""

    code = "FORBIDDEN"
    carried = "path"
    path: str
    right: str
    says = "{path} must be {right}"


class Unauthenticated(WireError):
    """The credentials of a client are missing or wrong, or its principal has expired."""

    code = "UNAUTHENTICATED"
    says = "the token or certificate is missing, wrong or expired"


class NotAuthenticated(WireError):
    """The client was not authenticated in time; it may retry."""

    code = "NOT_AUTHENTICATED"
    retryable = True
    seconds: float
    says = "the client could not be authenticated within {seconds:g} s; try again later"


class LogNotFound(WireError):
    """The server has no log of that name."""

    code = "LOG_NOT_FOUND"
    carried = "path"
    path = "log"
    name: str | None
    names: list[str]

    def _text(self) -> str:
        return f"log is {self.name!r:.100}, but must be one of: {', '.join(sorted(self.names)) or 'none'}"


class TooManySubscriptions(WireError):
    """The connection has as many subscriptions as it may have."""

    code = "TOO_MANY_SUBSCRIPTIONS"
    carried = "limit"
    retryable = True
    limit: int
    says = "this connection has its {limit} subscriptions; complete one, or connect again"


class TooManySnapshots(WireError):
    """The connection has as many subscriptions that receive rows as it may have at a time."""

    code = "TOO_MANY_SNAPSHOTS"
    carried = "limit"
    retryable = True
    limit: int
    says = "{limit} subscriptions of this connection (limit snapshots) are receiving rows; wait until one of them has all its rows"


class SlotNotOpen(WireError):
    """An acknowledgement names an opening of a slot that is over. Nothing has changed."""

    code = "SLOT_NOT_OPEN"
    carried = "name opening"
    name: str
    opening: str
    says = "slot {name!r} is not open as {opening!r} (any more); subscribe with that opening, and acknowledge what is delivered then"


class ConsumerNotJoined(WireError):
    """A call names a joining of a group that is over. Nothing has changed."""

    code = "CONSUMER_NOT_JOINED"
    carried = "name consumer opening"
    name: str
    consumer: str
    opening: str
    says = (
        "consumer {consumer!r} of group {name!r} has not joined as {opening!r} (any more); subscribe with that opening, "
        "and acknowledge what is delivered then"
    )


class TooManySlots(WireError):
    """As many slots are open, or wait for their clients, as the server allows, or as it allows the principal.

    Attributes:
        limit: The bound.
        own: Whether it is that of the principal.
    """

    code = "TOO_MANY_SLOTS"
    carried = "limit"
    retryable = True
    limit: int
    own: bool = False

    def _text(self) -> str:
        whose = " by this principal (limit principal_slot_leases)" if self.own else " (limit slot_leases)"
        return (
            f"{self.limit} slots are open{whose}, and each has a connected client; wait until one is closed"
        )


class TooManyMembers(WireError):
    """As many group consumers have joined, or wait for their clients, as the server allows, or as it allows the principal.

    Attributes:
        limit: The bound.
        own: Whether it is that of the principal.
    """

    code = "TOO_MANY_CONSUMERS"
    carried = "limit"
    retryable = True
    limit: int
    own: bool = False

    def _text(self) -> str:
        whose = " of this principal (limit principal_group_members)" if self.own else " (limit group_members)"
        return f"{self.limit} consumers{whose} have joined, and each has a connected client; wait until one leaves"


class TooManyCalls(WireError):
    """As many calls of a consumer are unanswered as it may have; this call had no effect."""

    code = "TOO_MANY_CALLS"
    carried = "limit"
    retryable = True
    limit: int
    says = "{limit} calls of this consumer (limit group_calls) are not answered; wait for answers, and send the call again"


class TooManyAppends(WireError):
    """More appends or bytes are unanswered than a connection may have; nothing was written."""

    code = "TOO_MANY_APPENDS"
    carried = "option limit"
    retryable = True
    option: str
    limit: int
    says = "the unanswered appends exceed {option}, which is {limit}; wait for answers, and send the append again"


class NoTransaction(WireError):
    """A ``commit`` names a transaction in parts that is not open; nothing was written."""

    code = "NO_TRANSACTION"
    carried = "path"
    path = "id"
    name: str
    says = "id is {name!r:.80}, but must be the id of an open transaction: begun, and not refused, dropped or aborted"


class TransactionIdle(WireError):
    """A transaction in parts has waited too long for its next part or its commit; nothing was written."""

    code = "TRANSACTION_IDLE"
    carried = "limit"
    retryable = True
    limit: float
    says = "no part arrived for {limit:g} s (transaction_idle); begin the transaction again"


class TooManyProducers(WireError):
    """A principal has as many producers as it may have; nothing was written."""

    code = "TOO_MANY_PRODUCERS"
    carried = "limit"
    limit: int
    idle: float
    says = (
        "{limit} producers of this principal (limit producers) have appended within {idle:g} s; use one of them, "
        "or leave producer and sequence out"
    )


class GoingAway(WireError):
    """The server is stopping; subscribe again with the last cursor, elsewhere or later."""

    code = "GOING_AWAY"
    retryable = True
    says = "the server is stopping; subscribe again with the last cursor"


class RemoteError(PenstockError):
    """The error with which a server ended a subscription or refused a request.

    Attributes:
        code: The code of the protocol, such as ``HISTORY_PRUNED``.
        retryable: Whether the same request may succeed later.
        data: The data of the code, such as ``oldest`` or ``head``.
        outcome: For a transaction ``"refused"`` if nothing was written, or ``"unknown"`` if it may have been; None
            otherwise.
    """

    code: str
    message: str
    retryable: bool
    data: dict[str, Any]
    outcome: str | None = None
    says = "{code}: {message}"

    @classmethod
    def from_payload(cls, payload: Mapping[str, Any]) -> "RemoteError":
        """Makes the error from the payload of a server."""
        data = dict(payload)
        code, message = str(data.pop("code", "INTERNAL")), str(data.pop("message", ""))
        return cls(code, message, retryable=data.pop("retryable", False) is True, data=data)


class ConnectionLost(PenstockError):
    """The connection ended before the subscription did, or could not be established.

    Attributes:
        outcome: As for ``RemoteError``.
    """

    url: str
    why: str
    close_code: int | None = None
    retryable: bool = True
    outcome: str | None = None
    says = "the connection to {url} is lost: {why}"


class ServerFailed(PenstockError):
    """The server could not start."""

    host: str
    port: int
    why: str
    says = "cannot serve on {host}:{port}: {why}"


class InvalidInput(PenstockError, ValueError):
    """A line of a command's input is invalid; none of the input was used."""

    line: int
    why: str
    says = "line {line}: {why}"


class ExtraMissing(PenstockError):
    """An optional dependency is not installed."""

    what: str
    module: str
    extra: str
    says = "{what} needs {module}, which is not installed; run: pip install 'penstock-cdc[{extra}]'"


def _short(value: object) -> str:
    """Returns the value, or its size if it is huge: converting a huge number to text is quadratic, and Python refuses it."""
    if not isinstance(value, int):
        return f"{value!r:.60}"
    return str(value) if value.bit_length() <= 128 else f"a number of {value.bit_length()} bits"


def shortened(text: str) -> str:
    """Returns a message of bounded length, because a wrong value may be as large as the message that contained it."""
    return text if len(text) <= _MESSAGE_CHARACTERS else text[:_MESSAGE_CHARACTERS] + "..."
