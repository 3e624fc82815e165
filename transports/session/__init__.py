"""The protocol as a machine without I/O: text messages in, effects out."""

from transports.session.conversation import (
    Authenticate,
    Cancel,
    Close,
    Conversation,
    Demand,
    Effect,
    Entry,
    Send,
)
from transports.session.machine import Open, ServerSession, Subscription
from transports.session.states import Phase, Stage

__all__ = [
    "Authenticate",
    "Cancel",
    "Close",
    "Conversation",
    "Demand",
    "Effect",
    "Entry",
    "Open",
    "Phase",
    "Send",
    "ServerSession",
    "Stage",
    "Subscription",
]
