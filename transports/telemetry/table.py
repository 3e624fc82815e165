"""Values of labels that are known before anything happens.

A counter has a sample of 0 for each from the start: Prometheus sees no increase in a series that begins at 1.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from transports.errors import CloseCode
from transports.problems import ERROR_CODES

__all__ = [
    "RESP_COMMANDS",
    "RESP_ENDINGS",
    "RESP_ERRORS",
    "TABLE",
    "Metric",
    "MetricKind",
    "Sample",
    "read_buckets",
    "samples",
]


# A counter has a sample of 0 for each value that is known: Prometheus sees no increase in a series that begins at 1.
ENDINGS: Final = (
    *(code.name for code in CloseCode),
    "STALLED",
    "HTTP_STALLED",
    "HTTP_REFUSED",
    "CROWDED",
    "TLS_REFUSED",
)
"""Why the server closes connections."""

APPEND_OUTCOMES: Final = ("WRITTEN", "DUPLICATE", *ERROR_CODES)

RESP_ENDINGS: Final = (
    "CROWDED",
    "GOING_AWAY",
    "INTERNAL",
    "OVERLOAD",
    "PROTOCOL_ERROR",
    "STALLED",
    "TLS_REFUSED",
    "UNAUTHORIZED",
)
"""Why the server closes connections of the Redis protocol."""

RESP_COMMANDS: Final = (
    *("AUTH", "CDCPOLL", "CDC.POLL", "CDC.GROUP", "CDC.ACK", "CDC.NACK", "CDC.PENDING", "CDC.CLAIM", "CLIENT", "COMMAND"),
    *("DISCARD", "ECHO", "EXEC", "HELLO", "INFO", "MULTI", "PING", "QUIT", "SELECT", "UNKNOWN"),
)  # fmt: skip
"""The commands of the Redis protocol, and ``UNKNOWN`` for others."""

_WORDS: Final = (
    *("BUSYGROUP", "ERR", "EXECABORT", "GROUP_DAMAGED", "NOAUTH", "NOGROUP", "NOLOG", "NOPERM"),
    *("NOPROTO", "NOSEQUENCE", "PAUSED", "READONLY", "TRYAGAIN", "WRONGPASS"),
)  # fmt: skip
RESP_ERRORS: Final = tuple(sorted({*_WORDS, *ERROR_CODES}))
"""First words of errors of the Redis protocol: those of Redis, and codes."""


Told = Mapping[str, Any]
Sample = tuple[tuple[str, ...], float]
"""The values of the labels except ``log``, and the value of the sample."""


class MetricKind(Enum):
    """The kind of a metric."""

    COUNTER = "counter"
    """The value only rises, until the server restarts."""
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Metric:
    """A row of the table.

    Attributes:
        name: The name; that of a counter ends in ``_total``.
        kind: The kind.
        what: The description.
        read: Reads its samples from the statistics of a server, or of one log.
        labels: The names of its labels except ``log``; each has a bounded number of values, at most a hundred.
        of_log: Whether it has a sample for each log, with the label ``log``.
    """

    name: str
    kind: MetricKind
    what: str
    read: Callable[[Told], Iterator[Sample]]
    labels: tuple[str, ...] = ()
    of_log: bool = True

    @property
    def unit(self) -> str:
        """The unit in UCUM notation, as OpenTelemetry requires."""
        name = self.name.removesuffix("_total")
        return "s" if name.endswith("_seconds") else "By" if name.endswith("_bytes") else "1"

    @property
    def all_labels(self) -> tuple[str, ...]:
        """The names of all its labels."""
        return ("log", *self.labels) if self.of_log else self.labels


def _at(*path: str) -> Callable[[Told], Iterator[Sample]]:
    """Reads the figure at a path; no sample if it is absent."""

    def read(statistics: Told) -> Iterator[Sample]:
        found: Any = statistics
        for name in path:
            found = found.get(name) if isinstance(found, Mapping) else None
        if found is not None:
            yield (), float(found)

    return read


def _counts(*path: str, known: Iterable[str]) -> Callable[[Told], Iterator[Sample]]:
    """Reads the counts at a path by name, 0 for known names that were not counted; no sample if the path is absent."""

    def read(statistics: Told) -> Iterator[Sample]:
        found: Any = statistics
        for name in path:
            found = found.get(name) if found is not None else None
        if found is not None:
            for name, count in {**dict.fromkeys(known, 0), **found}.items():
                yield (name,), float(count)

    return read


def _each(*path: str, of: str | None = None) -> Callable[[Told], Iterator[Sample]]:
    """Reads the figures at a path by name; with ``of``, that field of each."""

    def read(statistics: Told) -> Iterator[Sample]:
        found: Any = statistics
        for name in path:
            found = found.get(name, {})
        for name, value in found.items():
            value = value if of is None else value[of]  # noqa: PLW2901 - the figure inside the entry
            if value is not None:
                yield (name,), float(value)

    return read


def _took(name: str) -> Callable[[Told], Iterator[Sample]]:
    """Reads the buckets of a histogram by upper bound, then the sum."""

    def read(statistics: Told) -> Iterator[Sample]:
        if (found := statistics.get(name)) is not None:
            yield from (((bound,), float(count)) for bound, count in found["buckets"].items())
            yield ("sum",), found["seconds"]

    return read


def _of(group: str, *path: str) -> Callable[[Told], Iterator[Sample]]:
    """Reads a figure of each slot, consumer group, query or sink, where it is known."""
    find = _at(*path)

    def read(statistics: Told) -> Iterator[Sample]:
        for name, one in statistics.get(group, {}).items():
            for _, value in find(one):
                yield (name,), value

    return read


def _states(group: str) -> Callable[[Told], Iterator[Sample]]:
    def read(statistics: Told) -> Iterator[Sample]:
        for name, one in statistics.get(group, {}).items():
            yield (name, one["state"]), 1.0

    return read


def _query_parts(statistics: Told) -> Iterator[Sample]:
    for name, query in statistics.get("sparkQueries", {}).items():
        for part, seconds in query["seconds"].items():
            yield (name, part), seconds


def _server(
    name: str,
    kind: MetricKind,
    what: str,
    read: Callable[[Told], Iterator[Sample]],
    labels: tuple[str, ...] = (),
) -> Metric:
    return Metric("penstock_" + name, kind, what, read, labels, of_log=False)


def _log(
    name: str,
    kind: MetricKind,
    what: str,
    read: Callable[[Told], Iterator[Sample]],
    labels: tuple[str, ...] = (),
) -> Metric:
    return Metric("penstock_log_" + name, kind, what, read, labels)


def _sink(
    name: str,
    kind: MetricKind,
    what: str,
    read: Callable[[Told], Iterator[Sample]],
    labels: tuple[str, ...] = ("sink",),
) -> Metric:
    return Metric("penstock_sink_" + name, kind, what, read, labels)


_C, _G, _H = MetricKind.COUNTER, MetricKind.GAUGE, MetricKind.HISTOGRAM

SERVER_METRICS: Final = (
    _server("connections", _G, "Open WebSockets, by sub-protocol", _each("protocols"), ("protocol",)),
    _server("connections_limit", _G, "Limit of open WebSockets (option `connections`)", _at("limits", "connections")),
    _server("connections_ended_total", _C, "Connections that the server closed, by close code name, `STALLED`, `HTTP_STALLED`, `CROWDED`, `TLS_REFUSED`, or `HTTP_REFUSED` for bytes that are no request", _counts("ended", known=ENDINGS), ("reason",)),
    _server("silent_connections", _G, "TCP connections of the process, at all ports, that have not sent a request; they end first if descriptors run out", _at("silentConnections")),
    _server("charged_seconds_total", _C, "Processor time of the process that was charged to those who asked for it", _at("chargedSeconds")),
    _server("held_turns_total", _C, "How often one beyond `late_share` was not read because event loops were late", _at("heldTurns")),
    _server("late_seconds", _G, "How late the event loops of the process run what is due; above 0.02 they are late. 0 if nobody has sent anything for a second", _at("lateSeconds")),
    _server("errors_total", _C, "Subscriptions that ended with an error and failed requests about logs, by error code; `TOO_COSTLY` is an exceeded quota", _counts("errors", known=ERROR_CODES), ("code",)),
    _server("unsent_bytes", _G, "Bytes written for all clients that the kernel has not accepted yet", _at("unsentBytes")),
    _server("most_unsent_bytes", _G, "Unsent bytes of the client that has the most", _at("mostUnsentBytes")),
    _server("unsent_limit_bytes", _G, "Limit of the unsent bytes of one client (option `window_bytes`)", _at("limits", "window")),
    _server("criteria_weight", _G, "Weight of the criteria of all subscriptions", _at("criteriaWeight")),
    _server("criteria_weight_limit", _G, "Limit of the weight of all criteria (option `criteria_weight`)", _at("limits", "criteriaWeight")),
    _server("body_bytes", _G, "Bytes of GraphQL requests and other HTTP bodies that the server holds, beside those of appends", _at("bodyBytes")),
    _server("body_bytes_limit", _G, "Limit of the bytes of such bodies (option `body_bytes`)", _at("limits", "bodyBytes")),
    _server("appending_bytes", _G, "Bytes of appends that are not answered yet", _at("appendingBytes")),
    _server("appending_bytes_limit", _G, "Limit of the bytes of unanswered appends (option `appending_bytes`)", _at("limits", "appendingBytes")),
    _server("slot_leases", _G, "Slots opened by clients: held, or reserved for clients that lost their connection", _each("slotLeases"), ("state",)),
    _server("slot_leases_limit", _G, "Limit of slots opened by clients (option `slot_leases`)", _at("limits", "slotLeases")),
    _server("group_members", _G, "Group consumers joined by clients: held, or reserved for clients that lost their connection", _each("groupMembers"), ("state",)),
    _server("group_members_limit", _G, "Limit of group consumers joined by clients (option `group_members`)", _at("limits", "groupMembers")),
    _server("spooled_bytes", _G, "Bytes of transactions that arrive in parts or as lines", _at("spooledBytes")),
    _server("spooled_bytes_limit", _G, "Limit of the bytes of such transactions (option `spooled_bytes`)", _at("limits", "spooledBytes")),
    _server("append_transactions", _G, "Transactions in parts that are open or being committed", _at("appends", "transactions")),
    _server("appends_unanswered", _G, "Appends received that have not reached the durability that their clients wait for", _at("appends", "unanswered")),
    _server("appends_total", _C, "Appends by outcome: `WRITTEN`, `DUPLICATE`, or the error code", _counts("appends", "outcomes", known=APPEND_OUTCOMES), ("outcome",)),
    _server("append_bytes_total", _C, "Bytes of the appends that were written, as received", _at("appends", "bytes")),
    _server("expect_scanned_bytes_total", _C, "Bytes of logs that were scanned for appends that expect keys to be unchanged, with 1,024 for each transaction", _at("appends", "expectScanned")),
    _server("expect_scanned_bytes_limit", _G, "Limit of these bytes a second for one principal (option `expect_bytes_per_second`)", _at("limits", "expectBytesPerSecond")),
    _server("most_connection_weight", _G, "Weight of the criteria of the heaviest connection", _at("mostConnectionWeight")),
    _server("connection_weight_limit", _G, "Limit of the weight of the criteria of one connection (8 times the option `subscription_weight`)", _at("limits", "connectionWeight")),
    _server("work", _G, "Tasks caused by clients: `preparing`, `scanning`, `waiting` for a thread, or `held` until the client has received the answer", _each("threads"), ("state",)),
    _server("work_waiting_limit", _G, "Limit of the tasks that wait for a thread", _at("limits", "scansWaiting")),
    _server("graphql_documents", _G, "GraphQL documents in the cache", _at("graphql", "documents")),
    _server("graphql_documents_bytes", _G, "Bytes of the GraphQL documents in the cache", _at("graphql", "documentBytes")),
    _server("graphql_documents_limit_bytes", _G, "Limit of the bytes of cached GraphQL documents", _at("limits", "documentCacheBytes")),
    _server("resp_connections", _G, "Open connections of the Redis protocol", _at("resp", "connections")),
    _server("resp_connections_ended_total", _C, "Redis connections that the server closed, by reason", _counts("resp", "ended", known=RESP_ENDINGS), ("reason",)),
    _server("resp_commands_total", _C, "Redis commands answered, by command", _counts("resp", "commands", known=RESP_COMMANDS), ("command",)),
    _server("resp_errors_total", _C, "Error replies of the Redis protocol, by their first word", _counts("resp", "errors", known=RESP_ERRORS), ("code",)),
    _server("resp_waiting", _G, "Redis commands that wait for a change", _at("resp", "waiting")),
    _server("resp_consumers", _G, "Group consumers in use over the Redis protocol", _at("resp", "consumers")),
    _server("resp_consumers_limit", _G, "Limit of group consumers over the Redis protocol", _at("resp", "limits", "consumers")),
    _server("resp_unsent_bytes", _G, "Bytes of Redis replies that the kernel has not accepted yet", _at("resp", "unsentBytes")),
    _server("resp_unsent_limit_bytes", _G, "Unsent bytes above which the server aborts the Redis connection that holds most (option `resp_output_bytes`)", _at("resp", "limits", "unsentBytes")),
    _server("resp_unfinished_bytes", _G, "Bytes of Redis commands that are not executed yet, with those behind `MULTI`", _at("resp", "unfinishedBytes")),
    _server("resp_unfinished_limit_bytes", _G, "Bytes of such commands above which the server aborts the Redis connection that holds most (option `resp_input_bytes`)", _at("resp", "limits", "unfinishedBytes")),
    _server("graphql_refused_total", _C, "GraphQL requests and responses refused because they exceeded a cost limit", _at("graphql", "refused")),
    _server("spark_query_state", _G, "1 for the current state of a streaming query of this process (`spark_queries`); metrics of single queries cover 64 queries at most", _states("sparkQueries"), ("query", "state")),
    _server("spark_query_batches_total", _C, "Micro-batches of a query since its listener first saw it", _of("sparkQueries", "batches"), ("query",)),
    _server("spark_query_rows_total", _C, "Rows of these micro-batches", _of("sparkQueries", "rows"), ("query",)),
    _server("spark_query_input_rate", _G, "Rows a second that arrived for the last batch of a query", _of("sparkQueries", "inputRate"), ("query",)),
    _server("spark_query_rate", _G, "Rows a second at which a query processed its last batch", _of("sparkQueries", "rate"), ("query",)),
    _server("spark_query_batch_seconds", _G, "Duration of each part of the last batch, by Spark's names; `addBatch` is the sink and includes its gate", _query_parts, ("query", "part")),
    _server("spark_query_behind_versions", _G, "Versions of its source logs that a query has not read yet", _of("sparkQueries", "behind"), ("query",)),
)  # fmt: skip
"""The metrics of the server."""

_LOG_METRICS: Final = (
    _log("sound", _G, "1 if no fault of the log is known, else 0; `/health` names the fault", _at("sound")),
    _log("writer_alive", _G, "1 if a process has the log open for writing, else 0; no sample if this user may not know", _at("writerAlive")),
    _log("commit_age_seconds", _G, "Time since the newest visible commit", _at("commitAge")),
    _log("commit_age_limit_seconds", _G, "Time without a commit above which the server is not healthy (option `commit_age`); no sample unless it is set", _at("commitAgeLimit")),
    _log("epoch", _G, "How often the log was opened for writing", _at("epoch")),
    _log("oldest_version", _G, "Oldest version that is kept", _at("oldest", "version")),
    _log("visible_version", _G, "Newest version visible to subscribers; its rate is the commit rate", _at("watermark")),
    _log("durable_version", _G, "Newest version that survives a crash", _at("durable")),
    _log("appended_version", _G, "Newest version that was written", _at("appended")),
    _log("withheld_versions", _G, "Versions that wait for `publish` or `forget_after`", _at("withheld")),
    _log("withheld_bytes", _G, "Bytes of withheld versions in memory", _at("withheldBytes")),
    _log("withheld_limit_bytes", _G, "Limit of the bytes of withheld versions in memory (option `withheld_bytes`)", _at("bounds", "withheldBytes")),
    _log("snapshot_bytes", _G, "Bytes of rows that snapshots have read and their subscribers have not taken", _at("snapshotBytes")),
    _log("snapshot_limit_bytes", _G, "Limit of the bytes of such rows (option `snapshot_bytes`)", _at("bounds", "snapshotBytes")),
    _log("segments", _G, "Segments that are kept", _at("segments")),
    _log("bytes", _G, "Bytes of the segments; known to the process that owns the log", _at("bytes")),
    _log("held_bytes", _G, "Bytes of deleted segments that consumers keep by hard links", _at("heldBytes")),
    _log("changes_total", _C, "Changes that became visible", _at("published", "changes")),
    _log("written_bytes_total", _C, "Stored bytes of the transactions that became visible", _at("published", "bytes")),
    _log("commit_groups_total", _C, "Groups of commits, each with one write; commits divided by groups is the mean group size", _at("groups")),
    _log("syncs_total", _C, "Syncs of commits to the disk", _at("syncs")),
    _log("sync_seconds_total", _C, "Time spent in syncs of commits", _at("syncSeconds")),
    _log("queued_commits", _G, "Commits in the queue", _at("queued")),
    _log("queue_bytes", _G, "Bytes of the commits in the queue", _at("queueBytes")),
    _log("queue_limit_bytes", _G, "Limit of the bytes of queued commits (option `queue_bytes`)", _at("bounds", "queueBytes")),
    _log("producers", _G, "Producers whose last sequence is remembered", _at("producers")),
    _log("producers_limit", _G, "Limit of remembered producers of each kind: local, of clients, of connections of clients (option `producers`)", _at("bounds", "producers")),
    _log("space_low", _G, "1 if housekeeping could not reserve space on the disk", _at("spaceLow")),
    _log("reserve_bytes", _G, "Space reserved on the disk", _at("reserveBytes")),
    _log("reserve_target_bytes", _G, "Intended size of the reserved space; below it commits fail with `LogFull` (option `reserve_bytes`)", _at("bounds", "reserveBytes")),
    _log("clock_ahead_seconds", _G, "Time by which the last commit is ahead of the clock", _at("clockAhead")),
    _log("subscriptions", _G, "Subscriptions", _at("subscriptionCount")),
    _log("resync_subscriptions", _G, "Subscriptions in RESYNC: no ring serves them, so they read from the log", _at("lagging")),
    _log("publishers", _G, "Shared publishers, one for each distinct criteria", _at("publisherCount")),
    _log("detached_publishers", _G, "Publishers that commits are not matched against, because their criteria are too costly", _at("detachedCount")),
    _log("attached_weight", _G, "Conditions that attached publishers evaluate for each change", _at("attachedWeight")),
    _log("attached_weight_limit", _G, "Limit of the conditions of attached publishers", _at("bounds", "attachedWeight")),
    _log("match_weight", _G, "Conditions of all publishers", _at("matchWeight")),
    _log("match_weight_limit", _G, "Limit of the conditions of all publishers (option `match_weight`)", _at("bounds", "matchWeight")),
    _log("matches_total", _C, "Evaluations of a predicate against a block of changes", _at("evaluations")),
    _log("ring_events", _G, "Changes in all rings", _at("rings", "events")),
    _log("ring_bytes", _G, "Bytes of the changes in all rings", _at("rings", "bytes")),
    _log("ring_fill_ratio", _G, "Fill of the fullest ring, from 0 to 1 of `ring_events` or `ring_bytes`", _at("rings", "fill")),
    _log("delivered_total", _C, "Changes delivered, counted once for each subscriber", _each("delivered", "areas"), ("area",)),
    _log("read_frames_total", _C, "Frames read from the disk for subscribers, followers and history", _at("framesRead")),
    _log("read_bytes_total", _C, "Bytes of these frames", _at("bytesRead")),
    _log("replay_bytes", _G, "Bytes of frames in memory for lagging subscriptions", _at("replayBytes")),
    _log("replay_limit_bytes", _G, "Limit of the bytes of these frames (option `replay_bytes`)", _at("bounds", "replayBytes")),
    _log("replay_waiting", _G, "Subscriptions that wait for the replayer", _at("replayWaiting")),
    _log("source_waiting", _G, "Pages of row sources that wait for a thread", _at("sourceWaiting")),
    _log("dispatch_threads", _G, "Threads that serve in-process subscribers without an executor", _at("dispatchThreads")),
    _log("dispatch_threads_limit", _G, "Limit of these threads", _at("bounds", "dispatchThreads")),
    _log("lag_versions", _G, "Versions by which subscriptions lag: the quantile `share` over all subscriptions; `1` is the slowest", _each("lags", of="versions"), ("share",)),
    _log("lag_events", _G, "Changes in these versions; a lower bound where the log does not remember them", _each("lags", of="changes"), ("share",)),
    _log("lag_bytes", _G, "Stored bytes of these versions; a lower bound where the log does not remember them", _each("lags", of="bytes"), ("share",)),
    _log("lag_seconds", _G, "Age of the oldest of these versions; a lower bound where the log does not remember them", _each("lags", of="seconds"), ("share",)),
    _log("expiry_seconds", _G, "Time until retention deletes the next change of the slowest subscription, if it stopped now and writes continued at the rate of the last minute; known to the process that owns the log", _at("expiry", "seconds")),
    _log("expiry_bytes", _G, "Bytes that may be written until then, by `retain_bytes`", _at("expiry", "bytes")),
    _log("holds", _G, "Holds, by state", _each("holdStates"), ("state",)),
    _log("hold_expiry_seconds", _G, "Time until the first hold exceeds its `keep_age` and is lost", _at("holdExpiry", "seconds")),
    _log("hold_expiry_bytes", _G, "Bytes that may be written until the first hold exceeds its `keep_bytes`", _at("holdExpiry", "bytes")),
    _log("send_latency_seconds", _H, "Time from the commit of the first change of a message until the message is written to its connection, for LIVE subscriptions; includes the time without demand", _took("sendLatency")),
    _log("append_latency_seconds", _H, "Time from the arrival of an append, or of the commit of a transaction in parts, until it has the durability that its client waits for", _took("appendLatency")),
    _log("append_answer_latency_seconds", _H, "The same until the append is answered; answers are sent in the order of the appends of a client", _took("appendAnswerLatency")),
    _log("slots", _G, "Slots", _at("slotCount")),
    _log("slots_lost", _G, "Slots that need a reset, because they are lost or forked", _at("slotsLost")),
    _log("slot_journal_bytes", _G, "Bytes of the journal of the slots", _at("slotJournalBytes")),
    _log("slot_state", _G, "1 for the current state of a slot; metrics of single slots cover 64 slots at most", _states("slots"), ("slot", "state")),
    _log("slot_lag_versions", _G, "Versions that the consumer of a slot has not acknowledged", _of("slots", "lag", "versions"), ("slot",)),
    _log("slot_lag_events", _G, "Changes in these versions", _of("slots", "lag", "changes"), ("slot",)),
    _log("slot_lag_bytes", _G, "Stored bytes of these versions", _of("slots", "lag", "bytes"), ("slot",)),
    _log("slot_lag_seconds", _G, "Age of the oldest of these versions", _of("slots", "lag", "seconds"), ("slot",)),
    _log("slot_held_bytes", _G, "Bytes of the log from the segment of the slot's position on", _of("slots", "heldBytes"), ("slot",)),
    _log("slot_left_bytes", _G, "Bytes that may be written until a slot exceeds its cap in bytes and is lost", _of("slots", "bytesLeft"), ("slot",)),
    _log("slot_left_seconds", _G, "Time until a slot exceeds its cap in seconds and is lost", _of("slots", "secondsLeft"), ("slot",)),
    _log("consumer_groups", _G, "Consumer groups", _at("consumerGroupCount")),
    _log("consumer_groups_stopped", _G, "Consumer groups that deliver nothing until an operator intervenes: lost, forked, or paused by their breaker", _at("consumerGroupsStopped")),
    _log("consumer_group_state", _G, "1 for the current state of a group; metrics of single groups cover 64 groups at most", _states("consumerGroups"), ("group", "state")),
    _log("consumer_group_consumers", _G, "Consumers that have joined a group", _of("consumerGroups", "consumers"), ("group",)),
    _log("consumer_group_pending", _G, "Deliveries of a group that are not acknowledged", _of("consumerGroups", "pending"), ("group",)),
    _log("consumer_group_due", _G, "Changes that a group has to deliver again", _of("consumerGroups", "due"), ("group",)),
    _log("consumer_group_parked", _G, "Changes that a group has read ahead", _of("consumerGroups", "parked"), ("group",)),
    _log("consumer_group_acked_total", _C, "Deliveries of a group that were acknowledged", _of("consumerGroups", "acked"), ("group",)),
    _log("consumer_group_redelivered_total", _C, "Repeated deliveries of a group", _of("consumerGroups", "redelivered"), ("group",)),
    _log("consumer_group_dead_total", _C, "Dead letters of a group since it was created", _of("consumerGroups", "dead"), ("group",)),
    _log("consumer_group_lost_total", _C, "Changes that a group had read and that retention deleted before they were done, since it was created", _of("consumerGroups", "lost"), ("group",)),
    _log("consumer_group_lag_versions", _G, "Versions from the first change on that a group has not done", _of("consumerGroups", "lag", "versions"), ("group",)),
    _log("consumer_group_lag_events", _G, "Changes in these versions", _of("consumerGroups", "lag", "changes"), ("group",)),
    _log("consumer_group_lag_bytes", _G, "Stored bytes of these versions", _of("consumerGroups", "lag", "bytes"), ("group",)),
    _log("consumer_group_lag_seconds", _G, "Age of the oldest of these versions", _of("consumerGroups", "lag", "seconds"), ("group",)),
    _sink("state", _G, "1 for the current state of a sink; metrics of sinks exist where the sinks run in the process of the server", _states("sinks"), ("sink", "state")),
    _sink("lag_versions", _G, "Versions that the target of a sink has not confirmed", _of("sinks", "lag", "versions")),
    _sink("lag_events", _G, "Changes in these versions", _of("sinks", "lag", "changes")),
    _sink("lag_bytes", _G, "Stored bytes of these versions", _of("sinks", "lag", "bytes")),
    _sink("lag_seconds", _G, "Age of the oldest of these versions", _of("sinks", "lag", "seconds")),
    _sink("batches_total", _C, "Batches that the target has accepted", _of("sinks", "batches")),
    _sink("changes_total", _C, "Changes in these batches", _of("sinks", "changes")),
    _sink("failures_total", _C, "Failed attempts that are retried", _of("sinks", "failures")),
    _sink("given_up_total", _C, "Batches whose last permitted attempt failed", _of("sinks", "givenUp")),
    _sink("rejected_total", _C, "Changes that the target rejected permanently", _of("sinks", "rejected")),
    _sink("dropped_total", _C, "Rejected changes that were left out, as `on_reject` says", _of("sinks", "dropped")),
    _sink("dead_letters_total", _C, "Rejected changes that were written to the dead letters", _of("sinks", "deadLetters")),
    _sink("attempt", _G, "Number of the next attempt of the batch that failed; 0 if no batch failed", _of("sinks", "attempt")),
    _sink("retry_seconds", _G, "Time until the next attempt", _of("sinks", "retryIn")),
    _sink("last_error_age_seconds", _G, "Time since the last failure", _of("sinks", "lastErrorAge")),
    _log("state_lag_versions", _G, "Versions that the compacted state has not stored; metrics of the state exist where the owner of the log keeps one", _at("compactedState", "lag", "versions")),
    _log("state_lag_events", _G, "Changes in these versions, where the log remembers them", _at("compactedState", "lag", "changes")),
    _log("state_lag_bytes", _G, "Stored bytes of these versions, where the log remembers them", _at("compactedState", "lag", "bytes")),
    _log("state_lag_seconds", _G, "Age of the oldest of these versions", _at("compactedState", "lag", "seconds")),
    _log("state_rows", _G, "Entities in the compacted state", _at("compactedState", "rows")),
    _log("state_bytes", _G, "Bytes of the file of the compacted state", _at("compactedState", "bytes")),
    _log("state_batches_total", _C, "Batches of changes that the compacted state has stored", _at("compactedState", "batches")),
    _log("state_rebuilds_total", _C, "Rebuilds of the compacted state from the log", _at("compactedState", "rebuilds")),
    _log("state_failures_total", _C, "Failed reads and writes of the compacted state; each is retried unless the state has failed", _at("compactedState", "failures")),
    _log("state_failed", _G, "1 if the compacted state has stopped", _at("compactedState", "failed")),
)  # fmt: skip

TABLE: Final = (*SERVER_METRICS, *_LOG_METRICS)
"""Every metric."""


def samples(metric: Metric, statistics: Told) -> Iterator[Sample]:
    """Yields the samples of a metric from the statistics of a server, with the values of all its labels.

    For a histogram these are its buckets, with the upper bound as the last label value, and the sum, with ``sum``.
    """
    if not metric.of_log:
        yield from metric.read(statistics)
        return
    for name, log in statistics["logs"].items():
        for labels, value in metric.read(log):
            yield (name, *labels), value


def read_buckets(metric: Metric, statistics: Told) -> Iterator[tuple[str, list[tuple[str, float]], float]]:
    """Yields for each log of a histogram its name, the buckets with their upper bounds, and the sum."""
    for name, log in statistics["logs"].items():
        found = [(bound, value) for (bound,), value in metric.read(log)]
        if found:
            yield name, found[:-1], found[-1][1]
