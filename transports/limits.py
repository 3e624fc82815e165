"""The bounds of a connection, each with a name and a default."""

from dataclasses import dataclass, fields
from typing import Final

from publishers.errors import InvalidOption

__all__ = ["CREDITS_MAX", "Limits"]

CREDITS_MAX: Final = 2**31 - 1
"""Most credits that one message may carry; a subscription may gather ``UNBOUNDED`` of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds of one connection; sizes in bytes, times in seconds.

    Attributes:
        connections: Most connections of a server; above it a new one is closed with 1013.
        subscriptions: Most subscriptions of a connection.
        message_bytes: Largest incoming message; above it the connection is closed with 1009.
        messages_per_second: Control messages a second, with twice as many in a burst; above it 4490.
        batch_events: Most events that a client may ask for in one ``next``.
        batch_bytes: Most bytes of changes in one ``next``; a single larger change goes alone.
        high_water: Unsent bytes above which nothing is polled for the connection.
        window: Unsent bytes up to which frames are added in one turn.
        request_timeout: How long a client may take to send the head of an HTTP request, and then its body.
        init_timeout: How long a client may take until ``connection_init``.
        keepalive: Time between WebSocket pings, and the time in which each must be answered.
        stall_timeout: How long bytes may wait without any of them being taken, until the connection is aborted.
        close_timeout: How long the peer may take to answer a close frame.
        resync_checkpoint: Time between checkpoints of a subscription in RESYNC.
        heartbeat: Default time without a ``next`` after which a checkpoint is sent, from 1 to 300 by default: the shorter of
            ``keepalive`` and ``stall_timeout``, after which a silent connection is given up.
        fence_events: GraphQL: events after which a ping asks whether the client has handled them.
        fence_width: GraphQL: most such pings that may be unanswered; no event is sent meanwhile.
        fence_timeout: GraphQL: without an answer for so long, the connection goes on without such pings.
        document_tokens: GraphQL: most lexical tokens of a document.
        history_events: GraphQL: most changes in a page of history.
    """

    connections: int = 10_000
    subscriptions: int = 100
    message_bytes: int = 2**20
    messages_per_second: int = 1_000
    batch_events: int = 1_000
    batch_bytes: int = 192 * 1024
    high_water: int = 64 * 1024
    window: int = 256 * 1024
    request_timeout: float = 10.0
    init_timeout: float = 3.0
    keepalive: float = 12.0
    stall_timeout: float = 10.0
    close_timeout: float = 2.0
    resync_checkpoint: float = 1.0
    heartbeat: float = 0.0
    fence_events: int = 50
    fence_width: int = 4
    fence_timeout: float = 10.0
    document_tokens: int = 2_000
    history_events: int = 1_000

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if each.name == "heartbeat" and value == 0.0 and value is not False:
                continue
            whole = isinstance(each.default, int)
            if (
                isinstance(value, bool)
                or not isinstance(value, int if whole else (int, float))
                or not value > 0
            ):
                raise InvalidOption(
                    each.name, value, "a whole number above 0" if whole else "a number above 0"
                )
        if self.high_water + self.batch_bytes > self.window:
            raise InvalidOption("window", self.window, "at least high_water + batch_bytes")
        if not self.heartbeat:
            object.__setattr__(
                self, "heartbeat", min(max(1.0, min(self.keepalive, self.stall_timeout)), 300.0)
            )
