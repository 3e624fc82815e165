"""The bounds of a connection and of a server, each with a name and a default."""

import math
from dataclasses import dataclass, fields
from typing import Final

from publishers.errors import InvalidOption

__all__ = ["CREDITS_MAX", "Limits"]

CREDITS_MAX: Final = 2**31 - 1
"""The most credits in one message; a subscription may accumulate ``UNBOUNDED``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds of one connection, or of the server where stated; sizes in bytes, times in seconds.

    Attributes:
        connections: Most connections of a server; a further one is closed with 1013.
        free_descriptors: File descriptors of the process that connections of all ports leave to its logs and files, but at most
            a quarter of what ``RLIMIT_NOFILE`` allows; beyond them the connection ends that has been silent for longest.
        subscriptions: Most subscriptions of a connection.
        snapshots: Most subscriptions of a connection that receive rows at a time; each keeps a page of rows in memory, up to
            1,000 rows or 1 MiB, within the option ``snapshot_bytes`` of the log.
        subscription_weight: Most that the criteria of one subscription or query may weigh, in units of
            ``publishers.criteria.cost``: a key or a name weighs about 2, a pattern 32 for each of its places.
        connection_weight: Most that the criteria of all subscriptions of a connection may weigh.
        criteria_weight: Most that the criteria of all subscriptions of a server may weigh; equal criteria count once.
        inline_weight: Criteria up to this weight are parsed and registered on the event loop, heavier ones on a thread.
        message_bytes: Largest incoming message; a larger one closes the connection with 1009.
        messages_per_second: Control messages a second, with twice as many in a burst; more close with 4490.
        frames_per_second: WebSocket frames a second, including fragments and control frames, with twice as many in a burst;
            more close with 4490. Never below ``messages_per_second``.
        batch_events: Most events that a client may request in one ``next``.
        batch_bytes: Most bytes of changes in one ``next``; a single larger change is sent alone.
        high_water: Unsent bytes above which nothing is polled for the connection.
        window: Unsent bytes up to which frames are added in one turn.
        request_timeout: Time for a client to send the head of an HTTP request, and then its body if that is short.
        body_rate: Least bytes a second of a longer body, on average over each ``request_timeout`` in which the server waits
            for it.
        body_timeout: Most time that the server waits for a body.
        body_bytes: Most bytes of requests of GraphQL and of other HTTP bodies that a server holds, beside those of appends; a client gets
            at most half.
        head_bytes: Most bytes of an HTTP request that are not its body (target, headers, trailers, sizes of chunks), and one
            more for each byte of its body; above it 431, or the connection is aborted.
        init_timeout: Time for a client to send ``connection_init``.
        authenticate_timeout: Time to authenticate a client; after it the client is refused with a retryable error.
        revocation: Time within which a revocation takes effect: a connection ends whose principal is no longer admitted, and
            a subscription whose grant is gone or narrower.
        authenticate_threads: Most threads of a server for authenticators that may block; a client, identified by its
            address, gets at most half of them.
        keepalive: Time between WebSocket pings, and the time in which each must be answered.
        stall_timeout: Time after which a connection is aborted if bytes are unsent and the peer accepts none of them.
        close_timeout: Time for the peer to answer a close frame.
        resync_checkpoint: Time between checkpoints of a subscription in RESYNC.
        heartbeat: Default time without a ``next`` after which a checkpoint is sent. If 0, the shorter of ``keepalive`` and
            ``stall_timeout``, after which a silent connection is given up, but from 1 to 300.
        fence_events: GraphQL: number of events after which a ping asks whether the client has handled them.
        fence_width: GraphQL: most such pings that may be unanswered; no event is sent meanwhile.
        fence_timeout: GraphQL: time without an answer after which a connection stops sending such pings.
        document_bytes: GraphQL: longest document, in characters; large values belong in its variables.
        document_tokens: GraphQL: most lexical tokens of a document.
        document_fields: GraphQL: most fields and fragments of a document, each counted wherever it is spread.
        document_depth: GraphQL: greatest nesting of selections, with fragments spread.
        document_aliases: GraphQL: most aliases of a document.
        document_fragments: GraphQL: most fragments of a document.
        document_pairs: GraphQL: most comparisons of fields with the same response name, weighted by their arguments.
        variable_values: GraphQL: most values in the variables of a request; a text counts once per 64 characters.
        document_cache_bytes: GraphQL: memory of a server for recently parsed documents.
        history_events: GraphQL: most changes in a page of history.
        history_bytes: GraphQL: bytes after which a page of history ends; a single larger record is sent alone.
        answer_bytes: GraphQL: largest answer to a query.
        prepare_threads: Most threads of a server that parse and validate large GraphQL requests, and parse and compile heavy
            criteria.
        late_share: Seconds of processor time, of each second, that the requests of one principal, or of the address of a client
            without a name, may take while event loops are late; beyond it they are not read. Not while there is nobody else.
        appends: Most unanswered appends of a connection; twice as many close it with 4490.
        append_bytes: Most bytes of their messages; a single larger one is accepted if it is alone.
        appending_bytes: Most bytes of unanswered appends of a server, over all transports; beyond it appends are refused
            with a retryable error. A principal, or the address of a client without a name, gets at most half.
        transactions: Most transactions in parts that a connection has begun and not committed.
        transaction_idle: Time that such a transaction may wait for its next part; then it is dropped.
        transaction_bytes: Most bytes of a transaction that arrives in parts, or as lines over HTTP; they are spooled to a
            file.
        spooled_bytes: Most bytes of such files of a server.
        principal_spooled_bytes: Most bytes of such files of one principal, or of the address of a client without a name.
        append_threads: Most threads of a server that parse, validate and encode appends.
        expect_bytes_per_second: Bytes of logs that are scanned in a second for the expectations of one principal, with twice as
            many in a burst; each transaction counts 1,024 more. Beyond it such appends are refused with a retryable error.
        producers: Most producers of one principal that have appended to a log within ``producer_idle``; a further one is
            refused. Names that connections draw for themselves do not count.
        producer_idle: Time that a producer counts after its last append.
        slot_grace: Time that a slot is kept for a client whose connection was lost, so that the client can resume its
            opening.
        slot_leases: Most slots that clients of a server have open, including those kept for absent clients. A further one
            takes the place of the one that has been absent longest, or is refused if none is absent.
        principal_slot_leases: Most slots that clients of one principal have open, likewise. Not for a server without authentication.
        group_grace: Time that a group consumer stays joined after its connection was lost, so that it can resume its
            generation.
        group_members: Most group consumers that clients of a server have joined, including those of absent clients. A
            further one takes the place of the one that has been absent longest, or is refused if none is absent.
        principal_group_members: Most group consumers of one principal, likewise. Not for a server without authentication.
        group_calls: Most unanswered calls of such a consumer, such as acknowledgements; a further one is refused.
        scan_threads: Most threads of a server on which queries, look-ups and searches for a start position read the log.
        scan_share: Most of these threads that one client, identified by its address, uses at a time; a query counts until
            its answer was accepted.
        scans_waiting: Most requests of a server that wait for such a thread.
        resp_command_bytes: Redis protocol: bytes of the arguments of one command, plus 16 for each; at most 16 KiB for a client that
            is not authenticated. Beyond it the connection is closed. Also those of all commands of a transaction, which
            beyond it fails.
        resp_arguments: Redis protocol: most arguments of a command, including its name; at most 10 for a client that is not
            authenticated. Also of all commands of a transaction.
        resp_refusals: Redis protocol: how often a connection may show a wrong token, or send a command without one, before it is
            closed.
        resp_pipeline: Redis protocol: most commands of a connection that are answered in one turn of the event loop, and an
            eighth of the arguments and empty commands that are read in it.
        resp_events: Redis protocol: most events, or rows, of one reply.
        resp_reply_bytes: Redis protocol: bytes of changes after which a reply to a poll ends; a single larger record is sent
            alone.
        resp_output_bytes: Redis protocol: most bytes of unsent replies of a server; near it, replies to polls become small, and
            beyond it the connection that holds most is aborted.
        resp_input_bytes: Redis protocol: most bytes of commands of a server that are not answered yet; beyond it the connection
            that holds most is aborted.
        resp_consumers: Redis protocol: most group consumers that a server keeps; the one idle longest has to join again, at
            no cost to it.
        resp_block: Redis protocol: longest time that a command waits, whatever it asks for.
        commit_age: Longest time since the newest commit of each log with which the server is healthy; unbounded by default, since
            most logs have pauses. Beyond it ``/health`` answers 503, and the metrics have the limit, which an alert compares.
    """

    connections: int = 10_000
    free_descriptors: int = 128
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
    body_rate: int = 1024
    body_timeout: float = 600.0
    body_bytes: int = 32 * 2**20
    head_bytes: int = 64 * 1024
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
    late_share: float = 0.1
    appends: int = 256
    append_bytes: int = 4 * 2**20
    appending_bytes: int = 32 * 2**20
    transactions: int = 4
    transaction_idle: float = 60.0
    transaction_bytes: int = 256 * 2**20
    spooled_bytes: int = 2**30
    principal_spooled_bytes: int = 512 * 2**20
    append_threads: int = 4
    expect_bytes_per_second: int = 16 * 2**20
    producers: int = 1_000
    producer_idle: float = 3_600.0
    slot_grace: float = 10.0
    slot_leases: int = 1_000
    principal_slot_leases: int = 500
    group_grace: float = 10.0
    group_members: int = 10_000
    principal_group_members: int = 5_000
    group_calls: int = 256
    scan_threads: int = 8
    scan_share: int = 4
    scans_waiting: int = 1_000
    resp_command_bytes: int = 256 * 1024
    resp_arguments: int = 10_000
    resp_refusals: int = 16
    resp_pipeline: int = 128
    resp_events: int = 10_000
    resp_reply_bytes: int = 4 * 2**20
    resp_output_bytes: int = 256 * 2**20
    resp_input_bytes: int = 64 * 2**20
    resp_consumers: int = 10_000
    resp_block: float = 60.0
    commit_age: float = math.inf

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
