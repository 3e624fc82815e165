"""The bounds of a connection, and of a server, each with a name and a default."""

from dataclasses import dataclass, fields
from typing import Final

from publishers.errors import InvalidOption

__all__ = ["CREDITS_MAX", "Limits"]

CREDITS_MAX: Final = 2**31 - 1
"""Most credits that one message may carry; a subscription may gather ``UNBOUNDED`` of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds of one connection, or of the server where that is said; sizes in bytes, times in seconds.

    Attributes:
        connections: Most connections of a server; above it a new one is closed with 1013.
        subscriptions: Most subscriptions of a connection.
        snapshots: Most subscriptions of a connection that are being given the state at a time; each keeps a page of rows in memory,
            up to 1,000 or 1 MiB.
        subscription_weight: Most that the criteria of one subscription or query may weigh, in units of
            ``publishers.criteria.cost``: a key or a name is about two, a pattern 32 for each of its places.
        connection_weight: Most that the criteria of all subscriptions of a connection may weigh.
        criteria_weight: Most that the criteria of all subscriptions of a server may weigh; equal ones count once.
        inline_weight: Criteria up to this weight are read and entered on the event loop, heavier ones on a thread.
        message_bytes: Largest incoming message; above it the connection is closed with 1009.
        messages_per_second: Control messages a second, with twice as many in a burst; above it 4490.
        frames_per_second: WebSocket frames a second, with twice as many in a burst, fragments and control frames too; above
            it 4490. Never below ``messages_per_second``.
        batch_events: Most events that a client may ask for in one ``next``.
        batch_bytes: Most bytes of changes in one ``next``; a single larger change goes alone.
        high_water: Unsent bytes above which nothing is polled for the connection.
        window: Unsent bytes up to which frames are added in one turn.
        request_timeout: How long a client may take to send the head of an HTTP request, and then its body.
        init_timeout: How long a client may take until ``connection_init``.
        authenticate_timeout: How long it may take to find out who a client is; after it the client is sent away, to try again.
        revocation: How long it may take until a connection whose principal is let in no longer, and a subscription whose grant
            is gone or narrower, is ended.
        authenticate_threads: Most threads of a server on which authenticators run that may block; a client, counted by its
            address, has half of them at a time.
        keepalive: Time between WebSocket pings, and the time in which each must be answered.
        stall_timeout: How long bytes may wait without any of them being taken, until the connection is aborted.
        close_timeout: How long the peer may take to answer a close frame.
        resync_checkpoint: Time between checkpoints of a subscription in RESYNC.
        heartbeat: Default time without a ``next`` after which a checkpoint is sent, from 1 to 300 by default: the shorter of
            ``keepalive`` and ``stall_timeout``, after which a silent connection is given up.
        fence_events: GraphQL: events after which a ping asks whether the client has handled them.
        fence_width: GraphQL: most such pings that may be unanswered; no event is sent meanwhile.
        fence_timeout: GraphQL: without an answer for so long, the connection goes on without such pings.
        document_bytes: GraphQL: longest document, in characters; large values belong into its variables.
        document_tokens: GraphQL: most lexical tokens of a document.
        document_fields: GraphQL: most fields and fragments of a document, each counted wherever it is spread.
        document_depth: GraphQL: most selections within each other, fragments spread.
        document_aliases: GraphQL: most aliases of a document.
        document_fragments: GraphQL: most fragments of a document.
        document_pairs: GraphQL: most comparisons of fields with one response name, weighed by their arguments.
        variable_values: GraphQL: most values in the variables of a request; a text counts once for each 64 characters.
        document_cache_bytes: GraphQL: memory for documents that were read lately, of a server.
        history_events: GraphQL: most changes in a page of history.
        history_bytes: GraphQL: bytes after which a page of history ends; a single larger record goes alone.
        answer_bytes: GraphQL: largest answer to a query.
        prepare_threads: Most threads of a server on which large requests of GraphQL are read and checked, and
            heavy criteria read and compiled.
        appends: Most appends of a connection that are not answered yet; with twice as many it is closed with 4490.
        append_bytes: Most bytes of the messages of those; a single larger one is taken if it is alone.
        appending_bytes: Most bytes of unanswered appends of a server, whatever way they came; beyond it, appends are refused,
            and may be sent again.
        transactions: Most transactions in parts that a connection has begun and not committed.
        transaction_idle: How long such a transaction may wait for its next part; after it it is dropped.
        transaction_bytes: Most bytes of a transaction that comes in parts, or as lines over HTTP; they are spooled to a file.
        spooled_bytes: Most bytes of such files of a server.
        principal_spooled_bytes: Most bytes of such files of one principal.
        append_threads: Most threads of a server on which appends are read, checked and encoded.
        producers: Most producers of one principal that have appended to a log within ``producer_idle``; a further one is refused.
        producer_idle: How long a producer that appends nothing counts.
        slot_grace: How long a slot is kept for a client whose connection was lost, so that it goes on with the opening that it has.
        slot_leases: Most slots that clients of a server have open, those of clients that are away included; the one that was left
            first makes room, and where none was, a further one is refused.
        group_grace: How long a consumer of a group stays joined whose connection was lost, so that it goes on with the generation that it has.
        group_members: Most consumers of groups that clients of a server have joined as, those of clients that are away included; the one
            that was left first makes room, and where none was, a further one is refused.
        group_calls: Most calls of such a consumer, such as acknowledgements, that are not answered yet; a further one is refused.
        scan_threads: Most threads of a server on which queries, look-ups and searches for a start read the log.
        scan_share: Most of these that one client has at a time, counted by its address; queries count until their
            answers were taken.
        scans_waiting: Most requests of a server that wait for such a thread.
        resp_command_bytes: Redis protocol: bytes of the arguments of one command, each counted with 16 more; of a client that has not
            shown who it is up to 16 KiB. Beyond it the connection is closed.
        resp_arguments: Redis protocol: most arguments of a command, its name counted; of such a client up to 10.
        resp_pipeline: Redis protocol: most commands of a connection that are answered in one turn of the event loop.
        resp_events: Redis protocol: most events, or rows, of one reply.
        resp_reply_bytes: Redis protocol: bytes of changes after which a reply to a poll ends; a single larger record goes alone.
        resp_output_bytes: Redis protocol: bytes of replies of a server that clients have not taken, from which on replies to polls
            become small.
        resp_consumers: Redis protocol: most consumers of groups that a server keeps; the one that was asked for longest ago has to join again,
            which costs it nothing.
        resp_block: Redis protocol: longest time for which a command waits, whatever it asks for.
    """

    connections: int = 10_000
    subscriptions: int = 100
    snapshots: int = 10
    subscription_weight: int = 50_000
    connection_weight: int = 400_000
    criteria_weight: int = 2_000_000
    inline_weight: int = 500
    message_bytes: int = 2**20
    messages_per_second: int = 1_000
    frames_per_second: int = 4_000
    batch_events: int = 1_000
    batch_bytes: int = 192 * 1024
    high_water: int = 64 * 1024
    window: int = 256 * 1024
    request_timeout: float = 10.0
    init_timeout: float = 3.0
    authenticate_timeout: float = 5.0
    authenticate_threads: int = 4
    revocation: float = 5.0
    keepalive: float = 12.0
    stall_timeout: float = 10.0
    close_timeout: float = 2.0
    resync_checkpoint: float = 1.0
    heartbeat: float = 0.0
    fence_events: int = 50
    fence_width: int = 4
    fence_timeout: float = 10.0
    document_bytes: int = 128 * 1024
    document_tokens: int = 2_000
    document_fields: int = 1_000
    document_depth: int = 32
    document_aliases: int = 32
    document_fragments: int = 64
    document_pairs: int = 20_000
    variable_values: int = 20_000
    document_cache_bytes: int = 8 * 2**20
    history_events: int = 1_000
    history_bytes: int = 8 * 2**20
    answer_bytes: int = 16 * 2**20
    prepare_threads: int = 2
    appends: int = 256
    append_bytes: int = 4 * 2**20
    appending_bytes: int = 32 * 2**20
    transactions: int = 4
    transaction_idle: float = 60.0
    transaction_bytes: int = 256 * 2**20
    spooled_bytes: int = 2**30
    principal_spooled_bytes: int = 512 * 2**20
    append_threads: int = 4
    producers: int = 1_000
    producer_idle: float = 3_600.0
    slot_grace: float = 10.0
    slot_leases: int = 1_000
    group_grace: float = 10.0
    group_members: int = 10_000
    group_calls: int = 256
    scan_threads: int = 8
    scan_share: int = 4
    scans_waiting: int = 1_000
    resp_command_bytes: int = 256 * 1024
    resp_arguments: int = 10_000
    resp_pipeline: int = 128
    resp_events: int = 10_000
    resp_reply_bytes: int = 4 * 2**20
    resp_output_bytes: int = 256 * 2**20
    resp_consumers: int = 10_000
    resp_block: float = 60.0

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
