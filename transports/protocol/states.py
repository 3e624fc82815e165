"""The phases of a connection, of both protocols and on both sides, and the stages of what runs on it.

=============  =====================================  ==============
phase          event                                  next phase
=============  =====================================  ==============
opened         INIT: the client sends its greeting    greeted
greeted        ACK: the server lets it in             acknowledged
acknowledged   WORK: a message about an operation     acknowledged
acknowledged   GOAWAY: the server is about to stop    draining
draining       WORK                                   draining
any            CLOSE: the connection is gone          closed
=============  =====================================  ==============

An event that is not in the table breaks the protocol. Messages that are legal at any time, such as ``ping``, are no events.
"""

import enum
from collections.abc import Mapping
from typing import Final

from transports.errors import CloseCode, Violation

__all__ = ["PHASES", "ConnectionPhase", "EntryStage", "PhaseEvent", "advance"]


class ConnectionPhase(enum.Enum):
    """The phase of a connection: opened -> greeted -> acknowledged -> (draining) -> closed."""

    OPENED = "opened"
    GREETED = "greeted"
    ACKNOWLEDGED = "acknowledged"
    DRAINING = "draining"
    CLOSED = "closed"

    @property
    def early(self) -> bool:
        """Whether the server has not acknowledged the connection yet."""
        return self in (ConnectionPhase.OPENED, ConnectionPhase.GREETED)


class PhaseEvent(enum.Enum):
    """The events that change a phase or need one; each with the close code and reason for a peer that sends it at the wrong time."""

    INIT = (CloseCode.TOO_MANY_INITS, "connection_init must be sent once, and it was sent before")
    ACK = (CloseCode.BAD_REQUEST, "connection_ack must be sent once, after connection_init")
    WORK = (CloseCode.UNAUTHORIZED, "connection_init must be sent, and connection_ack awaited, first")
    GOAWAY = (CloseCode.BAD_REQUEST, "goaway must be sent once, after connection_ack")
    CLOSE = (CloseCode.NORMAL, "")


class EntryStage(enum.Enum):
    """The stage of a subscription: requested -> active -> ended."""

    REQUESTED = "requested"
    ACTIVE = "active"
    ENDED = "ended"


PHASES: Final[Mapping[tuple[ConnectionPhase, PhaseEvent], ConnectionPhase]] = {
    (ConnectionPhase.OPENED, PhaseEvent.INIT): ConnectionPhase.GREETED,
    (ConnectionPhase.GREETED, PhaseEvent.ACK): ConnectionPhase.ACKNOWLEDGED,
    (ConnectionPhase.ACKNOWLEDGED, PhaseEvent.WORK): ConnectionPhase.ACKNOWLEDGED,
    (ConnectionPhase.ACKNOWLEDGED, PhaseEvent.GOAWAY): ConnectionPhase.DRAINING,
    (ConnectionPhase.DRAINING, PhaseEvent.WORK): ConnectionPhase.DRAINING,
    **{(phase, PhaseEvent.CLOSE): ConnectionPhase.CLOSED for phase in ConnectionPhase},
}


def advance(phase: ConnectionPhase, event: PhaseEvent) -> ConnectionPhase:
    """Returns the phase that an event leads to.

    Raises:
        Violation: If the event is not legal in the phase.
    """
    after = PHASES.get((phase, event))
    if after is None:
        raise Violation(*event.value)
    return after
