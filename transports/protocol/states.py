"""The states of a connection and of a subscription, and which message is legal in which."""

import enum

from transports.codec.envelope import Init
from transports.errors import CloseCode, Violation

__all__ = ["Phase", "Stage", "admit"]


class Phase(enum.Enum):
    """Where a connection is: opened -> greeted -> acknowledged -> (draining) -> closed."""

    OPENED = "opened"
    GREETED = "greeted"
    ACKNOWLEDGED = "acknowledged"
    DRAINING = "draining"
    CLOSED = "closed"

    @property
    def early(self) -> bool:
        """Whether the client has not been acknowledged yet."""
        return self in (Phase.OPENED, Phase.GREETED)


class Stage(enum.Enum):
    """Where a subscription is: requested -> active -> ended."""

    REQUESTED = "requested"
    ACTIVE = "active"
    ENDED = "ended"


def admit(phase: Phase, message: object, late: tuple[type, ...]) -> Phase:
    """The phase that a message from the client leads to.

    Args:
        phase: Where the connection is.
        message: What came.
        late: The kinds of message that are legal only after ``connection_ack``.

    Raises:
        Violation: If the message is not legal in the phase.
    """
    if isinstance(message, Init):
        if phase is not Phase.OPENED:
            again = "connection_init must be sent once, and it was sent before"
            raise Violation(CloseCode.TOO_MANY_INITS, again)
        return Phase.GREETED
    if phase.early and isinstance(message, late):
        early = "connection_init must be sent, and connection_ack awaited, first"
        raise Violation(CloseCode.UNAUTHORIZED, early)
    return phase
