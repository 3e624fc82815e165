"""The one table of metrics: names, kinds, labels, and where each is found in the statistics of a server.

Everything about metrics derives from it: ``/metrics``, the instruments of OpenTelemetry, the table in
``docs/monitoring.md``, and ``penstock top``. Names never change; a metric whose value is unknown has no sample.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

__all__ = ["SERVER_METRICS", "TABLE", "Metric", "MetricKind", "Sample", "read_buckets", "samples"]

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
        labels: The names of its labels except ``log``; none has more than 64 values.
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

    def read(told: Told) -> Iterator[Sample]:
        found: Any = told
        for name in path:
            found = found.get(name) if isinstance(found, Mapping) else None
        if found is not None:
            yield (), float(found)

    return read


def _each(*path: str, of: str | None = None) -> Callable[[Told], Iterator[Sample]]:
    """Reads the figures at a path by name; with ``of``, that field of each."""

    def read(told: Told) -> Iterator[Sample]:
        found: Any = told
        for name in path:
            found = found.get(name, {})
        for name, value in found.items():
            value = value if of is None else value[of]  # noqa: PLW2901 - the figure inside the entry
            if value is not None:
                yield (name,), float(value)

    return read


def _took(name: str) -> Callable[[Told], Iterator[Sample]]:
    """Reads the buckets of a histogram by upper bound, then the sum."""

    def read(told: Told) -> Iterator[Sample]:
        if (found := told.get(name)) is not None:
            yield from (((bound,), float(count)) for bound, count in found["buckets"].items())
            yield ("sum",), found["seconds"]

    return read


def _of(group: str, *path: str) -> Callable[[Told], Iterator[Sample]]:
    """Reads a figure of each slot, consumer group, query or sink, where it is known."""
    find = _at(*path)

    def read(told: Told) -> Iterator[Sample]:
        for name, one in told.get(group, {}).items():
            for _, value in find(one):
                yield (name,), value

    return read


def _states(group: str) -> Callable[[Told], Iterator[Sample]]:
    def read(told: Told) -> Iterator[Sample]:
        for name, one in told.get(group, {}).items():
            yield (name, one["state"]), 1.0

    return read


def _query_parts(told: Told) -> Iterator[Sample]:
    for name, query in told.get("sparkQueries", {}).items():
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
    _server("connections", _G, "WebSockets that are open, by their sub-protocol", _each("protocols"), ("protocol",)),
    _server("connections_limit", _G, "Most of them (option `connections`)", _at("limits", "connections")),
    _server("connections_ended_total", _C, "Connections that the server has ended, by the name of the close code, `STALLED` or `HTTP_STALLED`", _each("ended"), ("reason",)),
    _server("errors_total", _C, "Subscriptions that ended with an error, and questions about logs that could not be answered, by the code; `TOO_COSTLY` is a quota that was refused", _each("errors"), ("code",)),
    _server("unsent_bytes", _G, "Bytes that were written for all clients and that the kernel has not taken", _at("unsentBytes")),
    _server("most_unsent_bytes", _G, "Those of the client with the most", _at("mostUnsentBytes")),
    _server("unsent_limit_bytes", _G, "Most of one client (option `window`)", _at("limits", "window")),
    _server("criteria_weight", _G, "What the criteria of all subscriptions weigh", _at("criteriaWeight")),
    _server("criteria_weight_limit", _G, "Most that they may (option `criteria_weight`)", _at("limits", "criteriaWeight")),
    _server("appending_bytes", _G, "Bytes of appends that are not answered yet", _at("appendingBytes")),
    _server("appending_bytes_limit", _G, "Most that they may be (option `appending_bytes`)", _at("limits", "appendingBytes")),
    _server("slot_leases", _G, "Slots that clients have open: held, or kept for clients whose connections were lost", _each("slotLeases"), ("state",)),
    _server("slot_leases_limit", _G, "Most of them (option `slot_leases`)", _at("limits", "slotLeases")),
    _server("group_members", _G, "Consumers of groups that clients have joined as: held, or kept for clients whose connections were lost", _each("groupMembers"), ("state",)),
    _server("group_members_limit", _G, "Most of them (option `group_members`)", _at("limits", "groupMembers")),
    _server("spooled_bytes", _G, "Bytes of transactions that come in parts, or as lines", _at("spooledBytes")),
    _server("spooled_bytes_limit", _G, "Most that they may be (option `spooled_bytes`)", _at("limits", "spooledBytes")),
    _server("append_transactions", _G, "Transactions in parts that are open, or on their way to their log", _at("appends", "transactions")),
    _server("appends_unanswered", _G, "Appends that have come and are not as far as their clients wait for", _at("appends", "unanswered")),
    _server("appends_total", _C, "Appends, by what became of them: `WRITTEN`, `DUPLICATE`, or the code of the error", _each("appends", "outcomes"), ("outcome",)),
    _server("append_bytes_total", _C, "Bytes of those that were written, as they came", _at("appends", "bytes")),
    _server("most_connection_weight", _G, "What those of the heaviest connection weigh", _at("mostConnectionWeight")),
    _server("connection_weight_limit", _G, "Most that they may (option `connection_weight`)", _at("limits", "connectionWeight")),
    _server("work", _G, "Pieces of work that clients cause: `preparing`, `scanning`, `waiting` for a thread, or `held` until their answer is taken", _each("threads"), ("state",)),
    _server("work_waiting_limit", _G, "Most that may wait (option `scans_waiting`)", _at("limits", "scansWaiting")),
    _server("graphql_documents", _G, "Documents of GraphQL that are kept", _at("graphql", "documents")),
    _server("graphql_documents_bytes", _G, "Their bytes", _at("graphql", "documentBytes")),
    _server("graphql_documents_limit_bytes", _G, "Most of them (option `document_cache_bytes`)", _at("limits", "documentCacheBytes")),
    _server("resp_connections", _G, "Connections of the Redis protocol", _at("resp", "connections")),
    _server("resp_connections_ended_total", _C, "Those that the server has ended, and why", _each("resp", "ended"), ("reason",)),
    _server("resp_commands_total", _C, "Commands of the Redis protocol that were answered", _each("resp", "commands"), ("command",)),
    _server("resp_errors_total", _C, "Errors that were told there, by their first word", _each("resp", "errors"), ("code",)),
    _server("resp_waiting", _G, "Commands there that wait for a change", _at("resp", "waiting")),
    _server("resp_consumers", _G, "Consumers of groups that are spoken of there", _at("resp", "consumers")),
    _server("resp_consumers_limit", _G, "Most of them (option `resp_consumers`)", _at("resp", "limits", "consumers")),
    _server("resp_unsent_bytes", _G, "Bytes of replies there that the kernel has not taken", _at("resp", "unsentBytes")),
    _server("resp_unsent_limit_bytes", _G, "Those from which on replies become small (option `resp_output_bytes`)", _at("resp", "limits", "unsentBytes")),
    _server("graphql_refused_total", _C, "Requests and answers of GraphQL that were above a limit of what they may cost", _at("graphql", "refused")),
    _server("spark_query_state", _G, "1 for the state in which a streaming query of this process is (`spark_queries`); this and all of queries for 64 of them", _states("sparkQueries"), ("query", "state")),
    _server("spark_query_batches_total", _C, "Micro-batches of a query since its listener heard of it", _of("sparkQueries", "batches"), ("query",)),
    _server("spark_query_rows_total", _C, "Rows that these had", _of("sparkQueries", "rows"), ("query",)),
    _server("spark_query_input_rate", _G, "Rows a second that came for its last batch", _of("sparkQueries", "inputRate"), ("query",)),
    _server("spark_query_rate", _G, "Rows a second that its last batch was processed with", _of("sparkQueries", "rate"), ("query",)),
    _server("spark_query_batch_seconds", _G, "How long the parts of its last batch took, by Spark's names: `addBatch` is the sink, with its gate", _query_parts, ("query", "part")),
    _server("spark_query_behind_versions", _G, "Versions that the logs which it reads have beyond what it has read", _of("sparkQueries", "behind"), ("query",)),
)  # fmt: skip
"""The metrics of the server."""

_LOG_METRICS: Final = (
    _log("sound", _G, "1 if the log is sound as far as is known, else 0; `/health` tells why", _at("sound")),
    _log("commit_age_seconds", _G, "Time since its newest visible commit", _at("commitAge")),
    _log("epoch", _G, "How often it was opened for writing", _at("epoch")),
    _log("oldest_version", _G, "Oldest version that is kept", _at("oldest", "version")),
    _log("visible_version", _G, "Newest version that subscribers may be given; its rate is that of commits", _at("watermark")),
    _log("durable_version", _G, "Newest version that a crash cannot take", _at("durable")),
    _log("appended_version", _G, "Newest version that was written", _at("appended")),
    _log("withheld_versions", _G, "Versions that wait for `publish` or `forget_after`", _at("withheld")),
    _log("withheld_bytes", _G, "Their bytes in memory", _at("withheldBytes")),
    _log("withheld_limit_bytes", _G, "Most of them (option `deferred_bytes`)", _at("bounds", "withheldBytes")),
    _log("segments", _G, "Segments that are kept", _at("segments")),
    _log("bytes", _G, "Their bytes; told by the owner of the log", _at("bytes")),
    _log("held_bytes", _G, "Bytes of deleted segments that consumers keep by hard links", _at("heldBytes")),
    _log("changes_total", _C, "Changes that became visible", _at("published", "changes")),
    _log("written_bytes_total", _C, "Stored bytes of their transactions", _at("published", "bytes")),
    _log("commit_groups_total", _C, "Groups of commits, each with one write; commits by groups is the size of a group", _at("groups")),
    _log("syncs_total", _C, "Syncs of commits to the disk", _at("syncs")),
    _log("sync_seconds_total", _C, "Time that they took", _at("syncSeconds")),
    _log("queued_commits", _G, "Commits that wait for their turn", _at("queued")),
    _log("queue_bytes", _G, "Their bytes", _at("queueBytes")),
    _log("queue_limit_bytes", _G, "Most of them (option `queue_bytes`)", _at("bounds", "queueBytes")),
    _log("producers", _G, "Producers whose last sequence is remembered", _at("producers")),
    _log("producers_limit", _G, "Most of them (option `producers`)", _at("bounds", "producers")),
    _log("space_low", _G, "1 if the housekeeping has found no room on the disk", _at("spaceLow")),
    _log("reserve_bytes", _G, "Room on the disk that is kept back", _at("reserveBytes")),
    _log("reserve_target_bytes", _G, "What it is to be; below it commits get `LogFull` (option `reserve_bytes`)", _at("bounds", "reserveBytes")),
    _log("clock_ahead_seconds", _G, "Time by which the last commit is ahead of the clock", _at("clockAhead")),
    _log("subscriptions", _G, "Subscriptions", _at("subscriptionCount")),
    _log("resync_subscriptions", _G, "Those that no ring serves, so that they read from the log", _at("lagging")),
    _log("publishers", _G, "Shared publishers: distinct criteria", _at("publisherCount")),
    _log("detached_publishers", _G, "Those with which commits are not matched, as they ask too much", _at("detachedCount")),
    _log("attached_weight", _G, "Questions that attached publishers have for each change", _at("attachedWeight")),
    _log("attached_weight_limit", _G, "Most of them (option `attached_weight`)", _at("bounds", "attachedWeight")),
    _log("match_weight", _G, "Questions of all publishers", _at("matchWeight")),
    _log("match_weight_limit", _G, "Most of them (option `match_weight`)", _at("bounds", "matchWeight")),
    _log("matches_total", _C, "How often a predicate was asked about a block of changes", _at("evaluations")),
    _log("ring_events", _G, "Changes in all rings", _at("rings", "events")),
    _log("ring_bytes", _G, "Their bytes", _at("rings", "bytes")),
    _log("ring_fill_ratio", _G, "How full the fullest ring is, from 0 to 1 of `ring_events` or `ring_bytes`", _at("rings", "fill")),
    _log("delivered_total", _C, "Changes that subscribers were given, each counted for each of them", _each("delivered", "areas"), ("area",)),
    _log("read_frames_total", _C, "Frames read from the disk for subscribers, followers and history", _at("framesRead")),
    _log("read_bytes_total", _C, "Their bytes", _at("bytesRead")),
    _log("replay_bytes", _G, "Frames in memory for those who lag", _at("replayBytes")),
    _log("replay_limit_bytes", _G, "Most of them (option `replay_bytes`)", _at("bounds", "replayBytes")),
    _log("replay_waiting", _G, "Subscriptions that wait for the replayer", _at("replayWaiting")),
    _log("source_waiting", _G, "Pages of sources of rows that wait for a thread", _at("sourceWaiting")),
    _log("dispatch_threads", _G, "Threads for subscribers of the process without an executor", _at("dispatchThreads")),
    _log("dispatch_threads_limit", _G, "Most of them (option `dispatch_threads_max`)", _at("bounds", "dispatchThreads")),
    _log("lag_versions", _G, "Versions that a subscription has not finished: such a share of them has at most so many, and `1` is the slowest", _each("lags", of="versions"), ("share",)),
    _log("lag_events", _G, "Changes in them; where they are not remembered, what there is at least", _each("lags", of="changes"), ("share",)),
    _log("lag_bytes", _G, "Their stored bytes, likewise", _each("lags", of="bytes"), ("share",)),
    _log("lag_seconds", _G, "Age of the oldest of them, likewise", _each("lags", of="seconds"), ("share",)),
    _log("expiry_seconds", _G, "Time until retention deletes what the slowest subscription reads next, if it stopped now and writing went on as in the last minute; told by the owner", _at("expiry", "seconds")),
    _log("expiry_bytes", _G, "Bytes that may be written until then, by `retain_bytes`", _at("expiry", "bytes")),
    _log("holds", _G, "Holds, by what becomes of them", _each("holdStates"), ("state",)),
    _log("hold_expiry_seconds", _G, "Time until the first hold is above its `keep_age` and lost", _at("holdExpiry", "seconds")),
    _log("hold_expiry_bytes", _G, "Bytes that may be written until the first hold is above its `keep_bytes`", _at("holdExpiry", "bytes")),
    _log("send_latency_seconds", _H, "Time from the commit of the first change of a message until it is written to its connection, of subscriptions that are LIVE; one that has no demand waits for its client", _took("sendLatency")),
    _log("append_latency_seconds", _H, "Time from the coming of an append, or of the commit of one in parts, until it is as far as its client waits for", _took("appendLatency")),
    _log("append_answer_latency_seconds", _H, "The same until it is answered, which is behind all that its client has appended before", _took("appendAnswerLatency")),
    _log("slots", _G, "Slots", _at("slotCount")),
    _log("slots_lost", _G, "Those that need a reset: they are lost, or forked", _at("slotsLost")),
    _log("slot_journal_bytes", _G, "Bytes of the journal of the slots", _at("slotJournalBytes")),
    _log("slot_state", _G, "1 for the state in which a slot is; this and all of single slots for 64 of them", _states("slots"), ("slot", "state")),
    _log("slot_lag_versions", _G, "Versions that the consumer of a slot has not acknowledged", _of("slots", "lag", "versions"), ("slot",)),
    _log("slot_lag_events", _G, "Changes in them", _of("slots", "lag", "changes"), ("slot",)),
    _log("slot_lag_bytes", _G, "Their stored bytes", _of("slots", "lag", "bytes"), ("slot",)),
    _log("slot_lag_seconds", _G, "Age of the oldest of them", _of("slots", "lag", "seconds"), ("slot",)),
    _log("slot_held_bytes", _G, "Bytes of the log from the segment of its place on", _of("slots", "heldBytes"), ("slot",)),
    _log("slot_left_bytes", _G, "Bytes that may be written until it is above its cap in bytes, and lost", _of("slots", "bytesLeft"), ("slot",)),
    _log("slot_left_seconds", _G, "Time until it is above its cap in seconds, and lost", _of("slots", "secondsLeft"), ("slot",)),
    _log("consumer_groups", _G, "Groups of consumers", _at("consumerGroupCount")),
    _log("consumer_groups_stopped", _G, "Those that give nothing until an operator does something: they are lost, forked, or paused by their breaker", _at("consumerGroupsStopped")),
    _log("consumer_group_state", _G, "1 for the state in which a group is; this and all of single groups for 64 of them", _states("consumerGroups"), ("group", "state")),
    _log("consumer_group_consumers", _G, "Consumers that have joined a group", _of("consumerGroups", "consumers"), ("group",)),
    _log("consumer_group_pending", _G, "Deliveries of a group that are not acknowledged", _of("consumerGroups", "pending"), ("group",)),
    _log("consumer_group_due", _G, "Changes of a group that are to be delivered again", _of("consumerGroups", "due"), ("group",)),
    _log("consumer_group_parked", _G, "Changes that a group has read ahead", _of("consumerGroups", "parked"), ("group",)),
    _log("consumer_group_acked_total", _C, "Deliveries of a group that were acknowledged", _of("consumerGroups", "acked"), ("group",)),
    _log("consumer_group_redelivered_total", _C, "Deliveries of a group that were not the first of a change", _of("consumerGroups", "redelivered"), ("group",)),
    _log("consumer_group_dead_total", _C, "Dead letters that a group has made since it was created", _of("consumerGroups", "dead"), ("group",)),
    _log("consumer_group_lost_total", _C, "Changes that a group had read and that retention took before they were done, since then", _of("consumerGroups", "lost"), ("group",)),
    _log("consumer_group_lag_versions", _G, "Versions from the first change on that a group has not done", _of("consumerGroups", "lag", "versions"), ("group",)),
    _log("consumer_group_lag_events", _G, "Changes in them", _of("consumerGroups", "lag", "changes"), ("group",)),
    _log("consumer_group_lag_bytes", _G, "Their stored bytes", _of("consumerGroups", "lag", "bytes"), ("group",)),
    _log("consumer_group_lag_seconds", _G, "Age of the oldest of them", _of("consumerGroups", "lag", "seconds"), ("group",)),
    _sink("state", _G, "1 for the state in which a sink is; this and all of sinks where they run beside the server", _states("sinks"), ("sink", "state")),
    _sink("lag_versions", _G, "Versions that the target of a sink has not confirmed", _of("sinks", "lag", "versions")),
    _sink("lag_events", _G, "Changes in them", _of("sinks", "lag", "changes")),
    _sink("lag_bytes", _G, "Their stored bytes", _of("sinks", "lag", "bytes")),
    _sink("lag_seconds", _G, "Age of the oldest of them", _of("sinks", "lag", "seconds")),
    _sink("batches_total", _C, "Batches that the target has taken", _of("sinks", "batches")),
    _sink("changes_total", _C, "Changes in them", _of("sinks", "changes")),
    _sink("failures_total", _C, "Attempts that have failed and are made again", _of("sinks", "failures")),
    _sink("given_up_total", _C, "Batches of which the last attempt that was allowed has failed", _of("sinks", "givenUp")),
    _sink("rejected_total", _C, "Changes that the target has refused for good", _of("sinks", "rejected")),
    _sink("dropped_total", _C, "Of these, changes that were left out, as `on_reject` says", _of("sinks", "dropped")),
    _sink("dead_letters_total", _C, "Of these, changes that are in the dead letters", _of("sinks", "deadLetters")),
    _sink("attempt", _G, "Number of the next attempt of the batch that has failed; 0 if none has", _of("sinks", "attempt")),
    _sink("retry_seconds", _G, "Time until then", _of("sinks", "retryIn")),
    _sink("last_error_age_seconds", _G, "Time since something failed last", _of("sinks", "lastErrorAge")),
    _log("state_lag_versions", _G, "Versions that the compacted state has not stored; this and all of it where the owner keeps one", _at("compactedState", "lag", "versions")),
    _log("state_lag_events", _G, "Changes in them, where they are remembered", _at("compactedState", "lag", "changes")),
    _log("state_lag_bytes", _G, "Their stored bytes, likewise", _at("compactedState", "lag", "bytes")),
    _log("state_lag_seconds", _G, "Age of the oldest of them", _at("compactedState", "lag", "seconds")),
    _log("state_rows", _G, "Entities in it", _at("compactedState", "rows")),
    _log("state_bytes", _G, "Bytes of its file", _at("compactedState", "bytes")),
    _log("state_batches_total", _C, "How often it has stored what was new", _at("compactedState", "batches")),
    _log("state_rebuilds_total", _C, "How often it was made anew from the log", _at("compactedState", "rebuilds")),
    _log("state_failures_total", _C, "How often something could not be read or stored; it is tried again unless it has failed", _at("compactedState", "failures")),
    _log("state_failed", _G, "1 if it goes on no more", _at("compactedState", "failed")),
)  # fmt: skip

TABLE: Final = (*SERVER_METRICS, *_LOG_METRICS)
"""Every metric."""


def samples(metric: Metric, told: Told) -> Iterator[Sample]:
    """Yields the samples of a metric from the statistics of a server, with the values of all its labels.

    For a histogram these are its buckets, with the upper bound as the last label value, and the sum, with ``sum``.
    """
    if not metric.of_log:
        yield from metric.read(told)
        return
    for name, log in told["logs"].items():
        for labels, value in metric.read(log):
            yield (name, *labels), value


def read_buckets(metric: Metric, told: Told) -> Iterator[tuple[str, list[tuple[str, float]], float]]:
    """Yields for each log of a histogram its name, the buckets with their upper bounds, and the sum."""
    for name, log in told["logs"].items():
        found = [(bound, value) for (bound,), value in metric.read(log)]
        if found:
            yield name, found[:-1], found[-1][1]
