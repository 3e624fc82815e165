"""The states of a connection and of a subscription, and which message is legal in which."""

import enum
from collections.abc import Mapping
from typing import Final, NamedTuple

from transports.codec.envelope import Init, Ping, Pong
from transports.codec.messages import Complete, Message, Request, Subscribe
from transports.errors import CloseCode, Violation

__all__ = ["Phase", "Stage", "admit"]


class Phase(enum.Enum):
    """Where a connection is: opened -> greeted -> acknowledged -> (draining) -> closed."""

    OPENED = "opened"
    GREETED = "greeted"
    ACKNOWLEDGED = "acknowledged"
    DRAINING = "draining"
    CLOSED = "closed"


class Stage(enum.Enum):
    """Where a subscription is: requested -> active -> ended."""

    REQUESTED = "requested"
    ACTIVE = "active"
    ENDED = "ended"


class _Refusal(NamedTuple):
    code: CloseCode
    why: str


_EARLY: Final = _Refusal(
    CloseCode.UNAUTHORIZED, "connection_init must be sent, and connection_ack awaited, first"
)
_AGAIN: Final = _Refusal(
    CloseCode.TOO_MANY_INITS, "connection_init must be sent once, and it was sent before"
)

# What a message from the client does to the phase: it leads to a phase, or breaks the protocol.
_TABLE: Final[Mapping[Phase, Mapping[type[Message], Phase | _Refusal]]] = {
    Phase.OPENED: {
        Init: Phase.GREETED,
        Ping: Phase.OPENED,
        Pong: Phase.OPENED,
        Subscribe: _EARLY,
        Request: _EARLY,
        Complete: _EARLY,
    },
    Phase.GREETED: {
        Init: _AGAIN,
        Ping: Phase.GREETED,
        Pong: Phase.GREETED,
        Subscribe: _EARLY,
        Request: _EARLY,
        Complete: _EARLY,
    },
    Phase.ACKNOWLEDGED: {
        Init: _AGAIN,
        Ping: Phase.ACKNOWLEDGED,
        Pong: Phase.ACKNOWLEDGED,
        Subscribe: Phase.ACKNOWLEDGED,
        Request: Phase.ACKNOWLEDGED,
        Complete: Phase.ACKNOWLEDGED,
    },
    Phase.DRAINING: {
        Init: _AGAIN,
        Ping: Phase.DRAINING,
        Pong: Phase.DRAINING,
        Subscribe: Phase.DRAINING,
        Request: Phase.DRAINING,
        Complete: Phase.DRAINING,
    },
}


def admit(phase: Phase, message: Message) -> Phase:
    """The phase that a message leads to.

    Raises:
        Violation: If the message is not legal in the phase.
    """
    step = _TABLE[phase][type(message)]
    if isinstance(step, _Refusal):
        raise Violation(step.code, step.why)
    return step
