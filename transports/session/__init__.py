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
from transports.session.machine import LookUp, Open, Question, ServerSession, Subscription
from transports.session.states import Phase, Stage

__all__ = [
    "Authenticate",
    "Cancel",
    "Close",
    "Conversation",
    "Demand",
    "Effect",
    "Entry",
    "LookUp",
    "Open",
    "Phase",
    "Question",
    "Send",
    "ServerSession",
    "Stage",
    "Subscription",
]
