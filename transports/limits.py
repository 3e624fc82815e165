"""The bounds of a connection and of a server, each with a name and a default."""

import math
from dataclasses import dataclass
from typing import Final

from publishers.errors import InvalidOption
from publishers.options import check_options

__all__ = [
    "BATCH_EVENTS",
    "CREDITS_MAX",
    "DOCUMENT_CACHE_BYTES",
    "HEAVIEST",
    "HIGH_WATER",
    "INLINE_WEIGHT",
    "SCANS_WAITING",
    "Limits",
    "bounds_of",
    "half",
]

CREDITS_MAX: Final = 2**31 - 1
"""The most credits in one message; a subscription may accumulate ``UNBOUNDED``."""

BATCH_EVENTS: Final = 1_000
"""Most events that a client may request in one ``next``, and deliveries in one answer: bytes bound it before, unless changes are tiny."""

HIGH_WATER: Final = 64 * 1024
"""Unsent bytes above which nothing is polled for a connection: what a socket takes at once, so the link is never idle for want of them."""

DOCUMENT_CACHE_BYTES: Final = 8 * 2**20
"""Memory of a server for recently parsed GraphQL documents: programs send a few, again and again, of some ten KiB each with their syntax trees."""

INLINE_WEIGHT: Final = 500
"""Criteria up to this weight are parsed and registered on the event loop, heavier ones on a thread: half a millisecond, which others wait."""

HEAVIEST: Final = 8
"""How many subscriptions of the greatest weight a connection may have: all of its hundred are light, or some of them heavy."""

SCANS_WAITING: Final = 1_000
"""Most requests of a server that wait for a thread of one kind; each is small by then, since its bytes were counted."""

_BOUNDS: Final = {
    "connections": "connections",
    "window": "window_bytes",
    "criteriaWeight": "criteria_weight",
    "connectionWeight": "connection_weight",
    "bodyBytes": "body_bytes",
    "appendingBytes": "appending_bytes",
    "spooledBytes": "spooled_bytes",
    "expectBytesPerSecond": "expect_bytes_per_second",
    "slotLeases": "slot_leases",
    "groupMembers": "group_members",
}
"""The field of ``Limits`` that bounds each figure of a server."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds of one connection, or of the server where stated; sizes in bytes, times in seconds.

    Attributes:
        connections: Most connections of a server; a further one is closed with 1013.
        subscriptions: Most subscriptions of a connection.
        snapshots: Most subscriptions of a connection that receive rows at a time; each keeps a page of rows in memory, up to
            1,000 rows or 1 MiB, within the option ``snapshot_bytes`` of the log.
        subscription_weight: Most that the criteria of one subscription or query may weigh, in units of
            about a microsecond: a key or a name weighs about 2, a pattern 32 for each of its places.
        criteria_weight: Most that the criteria of all subscriptions of a server may weigh; equal criteria count once.
        message_bytes: Largest incoming message; a larger one closes the connection with 1009.
        messages_per_second: Control messages a second, with twice as many in a burst; more close with 4490.
        window_bytes: Unsent bytes of a connection up to which frames are added in one turn; it has 64 KiB, and room for one batch.
        request_timeout: Time for a client to send the head of an HTTP request, and then its body if that is short.
        body_bytes: Most bytes of requests of GraphQL and of other HTTP bodies that a server holds, beside those of appends; a client gets
            at most half.
        authenticate_timeout: Time to authenticate a client; after it the client is refused with a retryable error.
        revocation: Time within which a revocation takes effect: a connection ends whose principal is no longer admitted, and
            a subscription whose grant is gone or narrower.
        authenticate_threads: Most threads of a server for authenticators that may block; a client, identified by its
            address, gets at most half of them.
        keepalive: Time between WebSocket pings, and the time in which each must be answered.
        stall_timeout: Time after which a connection is aborted if bytes are unsent and the peer accepts none of them.
        close_timeout: Time for the peer to answer a close frame.
        answer_bytes: GraphQL: largest answer to a query.
        late_share: Seconds of processor time, of each second, that the requests of one principal, or of the address of a client
            without a name, may take while event loops are late; beyond it they are not read. Not while there is nobody else.
        appends: Most unanswered appends of a connection; twice as many close it with 4490.
        append_bytes: Most bytes of their messages; a single larger one is accepted if it is alone.
        appending_bytes: Most bytes of unanswered appends of a server, over all transports; beyond it appends are refused
            with a retryable error. A principal, or the address of a client without a name, gets at most half.
        transaction_bytes: Most bytes of a transaction that arrives in parts, or as lines over HTTP; they are spooled to a
            file.
        spooled_bytes: Most bytes of such files of a server. A principal, or the address of a client without a name, gets at most half.
        expect_bytes_per_second: Bytes of logs that are scanned in a second for the expectations of one principal, with twice as
            many in a burst; each transaction counts 1,024 more. Beyond it such appends are refused with a retryable error.
        producers: Most producers of one principal that have appended to a log within an hour; a further one is
            refused. Names that connections draw for themselves do not count.
        grace: Time that slots and group consumers are kept for a client whose connection was lost, so that it can resume its opening
            of the slot, or its generation in the group.
        slot_leases: Most slots that clients of a server have open, including those kept for absent clients. A further one
            takes the place of the one that has been absent longest, or is refused if none is absent. A principal has half of them at
            most, at a server with authentication.
        group_members: Most group consumers that clients of a server have joined, including those of absent clients. A
            further one takes the place of the one that has been absent longest, or is refused if none is absent. A principal has half
            of them at most, at a server with authentication.
        scan_threads: Most threads of a server on which queries, look-ups and searches for a start position read the log. A client,
            identified by its address, uses half of them at a time; a query counts until its answer was accepted.
        resp_command_bytes: Redis protocol: bytes of the arguments of one command, plus 16 for each; at most 16 KiB for a client that
            is not authenticated. Beyond it the connection is closed. Also those of all commands of a transaction, which
            beyond it fails.
        resp_output_bytes: Redis protocol: most bytes of unsent replies of a server; near it, replies to polls become small, and
            beyond it the connection that holds most is aborted.
        resp_input_bytes: Redis protocol: most bytes of commands of a server that are not answered yet; beyond it the connection
            that holds most is aborted.
        commit_age: Longest time since the newest commit of each log with which the server is healthy; unbounded by default, since
            most logs have pauses. Beyond it ``/health`` answers 503, and the metrics have the limit, which an alert compares.
    """

    connections: int = 10_000
    subscriptions: int = 100
    snapshots: int = 10
    subscription_weight: int = 50_000
    criteria_weight: int = 2_000_000
    message_bytes: int = 2**20
    messages_per_second: int = 1_000
    window_bytes: int = 256 * 1024
    request_timeout: float = 10.0
    body_bytes: int = 32 * 2**20
    authenticate_timeout: float = 5.0
    authenticate_threads: int = 4
    revocation: float = 5.0
    keepalive: float = 12.0
    stall_timeout: float = 10.0
    close_timeout: float = 2.0
    answer_bytes: int = 16 * 2**20
    late_share: float = 0.1
    appends: int = 256
    append_bytes: int = 4 * 2**20
    appending_bytes: int = 32 * 2**20
    transaction_bytes: int = 256 * 2**20
    spooled_bytes: int = 2**30
    expect_bytes_per_second: int = 16 * 2**20
    producers: int = 1_000
    slot_leases: int = 1_000
    grace: float = 10.0
    group_members: int = 10_000
    scan_threads: int = 8
    resp_command_bytes: int = 256 * 1024
    resp_output_bytes: int = 256 * 2**20
    resp_input_bytes: int = 64 * 2**20
    commit_age: float = math.inf

    def __post_init__(self) -> None:
        check_options(self)
        if self.window_bytes <= HIGH_WATER:
            raise InvalidOption("window_bytes", self.window_bytes, f"above {HIGH_WATER}")

    @property
    def batch_bytes(self) -> int:
        """Most bytes of changes in one ``next``, which the window has room for where anything is polled; a single larger change is sent alone."""
        return self.window_bytes - HIGH_WATER

    @property
    def connection_weight(self) -> int:
        """Most that the criteria of all subscriptions of a connection may weigh: as much as `HEAVIEST` that are as heavy as one may be."""
        return HEAVIEST * self.subscription_weight

    @property
    def heartbeat(self) -> float:
        """Seconds without a ``next`` after which a checkpoint is sent to a client that asks for no other time.

        The shorter of ``keepalive`` and ``stall_timeout``, after which a silent connection is given up, but from 1 to 300.
        """
        return min(max(1.0, min(self.keepalive, self.stall_timeout)), 300.0)

    @property
    def principal_spooled_bytes(self) -> int:
        """Most bytes of such files of one principal, or of the address of a client without a name: half of ``spooled_bytes``."""
        return half(self.spooled_bytes)


def half(most: int) -> int:
    """The share of one principal, or of the address of a client without a name, of what a server has for all: others have as much left."""
    return -(-most // 2)


def bounds_of(limits: Limits) -> dict[str, object]:
    """The bounds of the figures of a server, by the names of the figures."""
    return {
        **{name: getattr(limits, option) for name, option in _BOUNDS.items()},
        "scansWaiting": SCANS_WAITING,
        "documentCacheBytes": DOCUMENT_CACHE_BYTES,
    }
