"""The protocol as a machine without I/O: text messages in, effects out."""

from transports.session.machine import (
    Authenticate,
    Cancel,
    Close,
    Demand,
    Effect,
    Entry,
    Open,
    Send,
    ServerSession,
)
from transports.session.states import Phase, Stage

__all__ = [
    "Authenticate",
    "Cancel",
    "Close",
    "Demand",
    "Effect",
    "Entry",
    "Open",
    "Phase",
    "Send",
    "ServerSession",
    "Stage",
]
