"""The sink of a streaming query: each micro-batch becomes one version of a change log, exactly once."""

import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, count
from time import monotonic, perf_counter
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeVar
from uuid import UUID, uuid5

from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame

from flow.misuse import names_arguments
from publishers.errors import AdmissionStopped, ExpectationFailed, InvalidOption
from publishers.log.changelog import ChangeLog
from publishers.log.statistics import Produced
from publishers.model.change import Operation
from publishers.options import check_switches
from publishers.spark.arguments import (
    check_comparable,
    check_least,
    check_named,
    check_texts,
    check_words,
    column_names,
    operation_words,
)
from publishers.spark.arrow import ContentDigest, columns_of, pieces
from publishers.spark.bad_rows import Aside, BadRows, OnBadRow
from publishers.spark.comparison import BatchComparison, StateReads
from publishers.spark.errors import (
    BatchChanged,
    CheckpointLost,
    ConnectRefused,
    JobFailed,
    SinkFailed,
    UnorderedWarning,
)
from publishers.spark.executor_staging import Outcome, StagingPlace, staging_of
from publishers.spark.partitions import TooMuchAtOnce, Window, connect_windows, spread_windows, windows
from publishers.spark.plan import plan_of
from publishers.spark.queries import Claims, QueryBatch, connect_module, gate_of
from publishers.spark.repeats import is_repeated
from publishers.spark.schema import Encoding
from publishers.spark.schema_changes import with_schema
from publishers.spark.server_log import ServerLog, target_of
from publishers.spark.stored_batches import StoredBatches
from publishers.spark.untold import UntoldRow, UntoldValues
from publishers.wal.format.columns import Columns

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

    from publishers.commits.group_commit import Commit

__all__ = ["ChangeSink", "SinkStatistics"]

MIB: Final = 1024 * 1024

_T = TypeVar("_T")

OnRerun = Literal["trust", "verify"]

_TEXTS: Final = (
    "entity_type", "name", "operation_column", "entity_type_column", "before", "flaw_column", "producer", "token", "log_name",
)  # fmt: skip
_claims: Final = Claims()
_numbers: Final = count(1)


class _Stoppable(Protocol):
    """The part of a ``StreamingQuery`` that `ChangeSink.stop` uses."""

    @property
    def id(self) -> str: ...

    def stop(self) -> None: ...


@dataclass(frozen=True, slots=True)
class SinkStatistics:
    """Totals of a sink, and the timings of its last batch, which break down Spark's ``addBatch``.

    Attributes:
        batches: Batches committed.
        repeated: Batches that the log already had.
        rows: Rows committed.
        bad_rows: Bad rows skipped.
        unchanged: Rows skipped because they equal the log's state; see ``compare``.
        batch_id: The last committed batch, or None.
        batch_rows: Rows of that batch.
        version: Version of that batch in the log.
        abandoned: Removed files of killed tasks or a killed driver; see ``staging``.
        gate_seconds: Seconds that the batch waited for gating subscribers.
        encode_seconds: Seconds in which Spark computed and encoded the batch, and the driver received it.
        commit_seconds: Seconds in which the log wrote, synced and published it.
        elsewhere: Whether Spark Connect has taken the sink to another process, whose batches are not counted here.
    """

    batches: int = 0
    repeated: int = 0
    rows: int = 0
    bad_rows: int = 0
    unchanged: int = 0
    batch_id: int | None = None
    batch_rows: int = 0
    version: int | None = None
    abandoned: int = 0
    gate_seconds: float = 0.0
    encode_seconds: float = 0.0
    commit_seconds: float = 0.0
    elsewhere: bool = False


class ChangeSink:
    """Commits the micro-batches of a streaming query to a change log: ``df.writeStream.foreachBatch(ChangeSink(...))``.

    Spark runs a batch again after a failure, a kill, and often after an ordinary stop. The sink commits each batch under the
    query's id, the sink's name and the batch's number. So a batch that the log already has costs no job and writes nothing,
    even if its rows would come in another order. One batch is one version of any size: the log spools what exceeds memory and
    publishes the batch at once. A batch without rows commits nothing. A query with a new checkpoint has a new id, and its batches
    are new batches.

    Rows become changes in the order of partitions, or of ``order_by``. The key is the text of the ``key`` columns, joined by
    ``/``. The body is JSON of all other columns and the key columns; the JVM encodes it without loss.

    An error in the sink fails the query with the error's message. Spark loses the error object; :attr:`error` keeps it.

    A sink may serve several queries at once. Spark calls it on its own threads in the driver. While a gating subscriber lags, the
    sink blocks that thread, so Spark plans no further batch.

    Args:
        log: The log to commit to: a log open for writing in this process, or the address of a server that accepts appends from
            clients: ``"wss://host/ws"``. With a server, the sink works in the driver of any cluster, can be pickled, and works in Spark
            Connect, where ``name`` or ``producer`` is required. With a server, a batch is limited to the server's
            ``transaction_bytes`` and is held in memory as a whole.
        token: Access token for the server.
        log_name: Name of the server's log; None if the server has only one.
        entity_type: The entity type of all rows; required unless ``entity_type_column`` is given.
        key: Column or columns of the key.
        name: Name of the sink, unique among the sinks of one query; None for the entity type.
        operation: Operation of all rows, ``"upsert"`` or ``"remove"``. Removals have no body.
        operation_column: Column with the operation of each row: ``upsert`` (also ``insert``, ``update``), ``remove`` (also
            ``delete``), ``expire``, or ``truncate``, which removes all entities of the type and needs no key.
        operations: Other words for that column, regardless of case: ``{"c": "upsert", "d": "remove"}``.
        entity_type_column: Column with the entity type of each row.
        order_by: Column or columns that order the rows of a batch, nulls first. With ``operation_column`` and without
            ``order_by``, an ``UnorderedWarning`` says that rows of one key may come in any order; ``()`` accepts this.
        body: Columns of the body; None for all but before, operation, entity type and order columns.
        before: Column of the before images: a struct with the fields of the body, null if a row has none. With before images,
            subscribers can request differences (``Images.CHANGE``, ``CHANGED_WITH_OLD``), transitions, and removed bodies.
        flaw_column: Column that says why a row is bad: a struct of the texts ``column`` and ``why``, null for a good row. The
            row is handled by ``on_bad_row``.
        compare: Whether to compare each row with the log's state; the log must be open with ``state=True``. A new entity is
            committed as new. A changed entity is committed with its before image and the names of the changed fields. Rows that
            equal the state, and removals of entities that do not exist, are skipped. If another writer commits meanwhile, the sink
            compares the batch again.
        compare_bytes: Maximum bytes of a batch's changes with ``compare``, at least 1; the driver holds them until the batch is
            complete. Also most bytes of earlier rows of a batch that are remembered to fill in values from, see ``debezium``.
        producer: Name to commit under instead of the query's id and the sink's name; required outside of streaming queries. The
            name outlives a checkpoint, so the sink refuses the last committed batch number if it comes with other rows.
        on_rerun: How to handle a batch that the log already has under the query's id. ``"trust"`` accepts it without a job;
            ``"verify"`` computes it again and refuses other rows. With ``producer``, and through a server, the sink always verifies. A
            number below the last one is always refused, since Spark never runs it again.
        tell_schema: Whether to publish each entity type's schema as a SCHEMA change in the form of ``publishers.lossless``; the log
            stamps each row with the version of its schema. The sink publishes it ahead of the first row that needs it, in the same
            transaction (before it, with ``staging="executors"``), when the newest published schema does not contain the types of the
            body's columns; the new schema merges both. None means True for a log in this process, and False for the log of a server,
            which takes no schemas from a sink.
        on_bad_row: How to handle a row with a flaw, or whose key is null, empty or longer than ``max_key_bytes``, or whose operation
            or entity type is invalid: ``"fail"`` fails the batch, ``"skip"`` skips and counts the row, ``"dead_letter"`` also commits the row
            to ``dead_letters``, before the batch and exactly once.
        dead_letters: The log of bad rows. None for a log beside ``log``, with ``.dead`` appended to its path; the sink opens it only
            while a batch writes to it.
        bad_rows_max: Maximum number of bad rows in a batch, at least 0; the batch fails above it. Memory holds up to so many.
        stall_timeout: Seconds, at least 0, without progress of a gating subscriber, or without an answer of the server, before the
            query fails.
        collect_bytes: Approximate bytes of a large batch that one Spark job brings to the driver, at least 1; the driver's heap
            needs several times as much. The first batch, and batches with a larger partition, are stored on the disks of the executors
            meanwhile. A batch with ``order_by`` above four times this size is computed three more times.
        staging: Where rows are encoded for the log. ``"driver"`` brings the rows to the driver. ``"executors"`` writes each partition
            into the directory of the log, in a task of its own; the driver commits these files as one version, without reading the
            rows. All executors must run on the machine of the driver, see the directory under the same path, and have penstock in their Python. With ``"executors"``,
            a batch with ``order_by`` is computed twice, and the annotations of a batch contain neither row count nor digest.

    Raises:
        InvalidOption: If an argument is of the wrong kind, out of bounds, or contradicts another.
        LogReadOnly: If the log was opened read-only.
        StateOff: If ``compare`` is set, and the log was opened without its state.
    """

    @names_arguments()
    def __init__(
        self,
        log: ChangeLog | str,
        *,
        token: str | None = None,
        log_name: str | None = None,
        entity_type: str | None = None,
        key: str | Sequence[str],
        name: str | None = None,
        operation: str = "upsert",
        operation_column: str | None = None,
        operations: Mapping[str, str] | None = None,
        entity_type_column: str | None = None,
        order_by: str | Sequence[str] | None = None,
        body: Sequence[str] | None = None,
        before: str | None = None,
        flaw_column: str | None = None,
        compare: bool = False,
        compare_bytes: int = 256 * MIB,
        producer: str | None = None,
        on_rerun: OnRerun = "trust",
        tell_schema: bool | None = None,
        on_bad_row: OnBadRow = "fail",
        dead_letters: ChangeLog | None = None,
        bad_rows_max: int = 10_000,
        stall_timeout: float = 60.0,
        collect_bytes: int = 64 * MIB,
        staging: StagingPlace = "driver",
    ) -> None:
        given: dict[str, Any] = {name: value for name, value in locals().items() if name != "self"}
        check_texts(**{name: given[name] for name in _TEXTS})
        tells = not isinstance(log, str) if tell_schema is None else tell_schema
        check_switches(tell_schema=tells, compare=compare)
        target = target_of(log, token, log_name, tell_schema=tells, on_bad_row=on_bad_row)
        self._remade = partial(ChangeSink, **given) if isinstance(target, ServerLog) else None
        self._named = producer or name
        check_named(entity_type, entity_type_column, producer if name is None else name)
        check_words(operation, on_rerun)
        check_least(
            stall_timeout=(stall_timeout, 0),
            collect_bytes=(collect_bytes, 1),
            compare_bytes=(compare_bytes, 1),
        )
        if compare:
            check_comparable(target, before)
        self._aside = Aside(target, on_bad_row, dead_letters, bad_rows_max)
        self._log = target
        self._entity_type = entity_type
        self._encoding = Encoding(
            key=column_names("key", key),
            body=None if body is None else column_names("body", body),
            operation=Operation.UPSERT if operation == "upsert" else Operation.REMOVE,
            operation_column=operation_column,
            operations=operation_words(operations, operation_column),
            entity_type_column=entity_type_column,
            order_by=() if order_by in (None, ()) else column_names("order_by", order_by),
            before=None if before is None else column_names("before", before)[0],
            flaw_column=flaw_column,
        )
        if operation_column is not None and order_by is None:
            warnings.warn(UnorderedWarning(operation_column), stacklevel=3)  # past `names_arguments`
        self._staging = staging_of(
            staging, target, self._encoding, entity_type, on_bad_row, compare=compare, tell_schema=tells
        )
        self.name: str = name or entity_type or producer or ""
        self._producer = producer
        self._verify = producer is not None or on_rerun == "verify"
        self._tell_schema = tells
        self._compare_bytes = compare_bytes if compare else None
        untold = target, self._encoding, entity_type, compare_bytes, stall_timeout
        self._untold: Callable[[StateReads | None], UntoldValues] = partial(UntoldValues, *untold)
        self._stall_timeout = stall_timeout
        self._collect_bytes = collect_bytes
        self._row_bytes: float | None = None  # measured in the last batch; None after a large partition
        self._number = next(_numbers)
        self._gates: dict[str, threading.Event] = {}
        self._lock = threading.Lock()
        self._statistics = SinkStatistics()
        self._error: BaseException | None = None

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        """Commits one batch; ``foreachBatch`` calls this.

        Raises:
            ConnectRefused: If the query runs in Spark Connect, and the log is not a server's.
            SchemaRefused: If the columns cannot become changes.
            RowRefused: If a row cannot become a change.
            SinkNameTaken: If another sink with this name commits the same batch.
            CheckpointLost: If the log has a later batch of the query or of ``producer``.
            BatchChanged: If the log has other rows under this number.
            TooManyBadRows: If the batch has more bad rows than ``bad_rows_max``.
            JobFailed: If a job fails in Java with an error that Spark does not convert for Python, or is interrupted.
            BatchTooLarge: If a few rows alone exceed ``spark.driver.maxResultSize``.
            StagingLost: If the driver does not find the files that executors have staged.
            SubscriberStalled: If a gating subscriber makes no progress for ``stall_timeout``.
            ComparisonTooLarge: If the changes of the batch exceed ``compare_bytes``.
            ExpectationFailed: If other writers keep changing entities that were read from the state, for ``stall_timeout``.
            LogError: If the log refuses the commit.
            SinkFailed: If a ``BaseException`` that is no ``Exception`` ends the batch; Spark would wait for ever for an answer.
        """
        self._error = None
        try:
            self._run(frame, batch_id)
        except Py4JJavaError as error:
            self._error = error
            what, _, trace = str(error).partition("calling ")[2].partition("\n")
            raise JobFailed(batch_id, what + trace.partition("\n")[0]) from None
        except Exception as error:
            self._error = error
            raise
        except BaseException as error:
            self._error = error
            raise SinkFailed(batch_id, error) from error

    @property
    def error(self) -> BaseException | None:
        """The error that ended the last batch, as raised; None if the batch succeeded."""
        return self._error

    def statistics(self) -> SinkStatistics:
        """Returns the statistics of this sink since its creation."""
        return self._statistics

    def stop(self, query: "StreamingQuery | _Stoppable") -> None:
        """Stops a query; first opens the gates at which its sinks may be waiting.

        A plain ``query.stop()`` waits for the running batch, and thus for the gating subscriber that holds it back. The waiting
        batch is committed nevertheless; if Spark runs it again, the log recognizes it.
        """
        gate = self._gate(str(query.id))
        gate.set()
        try:
            query.stop()
        finally:
            gate.clear()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles the arguments, from which the receiver creates a new sink; only Spark Connect pickles sinks.

        Raises:
            ConnectRefused: If the log is open in this process and not a server's.
        """
        if self._remade is None:
            raise ConnectRefused("it asks for a pickled sink")
        self._statistics = replace(self._statistics, elsewhere=True)
        return self._remade, ()

    def _run(self, frame: DataFrame, batch_id: int) -> None:
        batch = QueryBatch.of(frame, batch_id, anywhere=self._remade is not None)
        producer = self._producer_of(batch)
        _claims.take(self._log, producer, self.name, batch, self._number)
        kept = False
        try:
            known = self._log.produced(producer)
            if known is not None and known.sequence >= batch.batch_id:
                self._check_repeated(frame, batch, known)
                with self._lock:
                    self._statistics = replace(self._statistics, repeated=self._statistics.repeated + 1)
            else:
                if connect_module(frame) is None:
                    plan_of(self._encoding, frame)
                else:
                    self._encoding.check(frame.schema)  # refuse a wrong schema before the gate waits
                self._commit(frame, batch, producer)
            # Without a run id, a second sink looks like a caller that retries.
            kept = batch.run_id is not None
        finally:
            if not kept:
                _claims.give_back(self._log, producer, self._number)

    def _producer_of(self, batch: QueryBatch) -> str | UUID:
        if self._producer is not None:
            return self._producer
        if batch.query_id is None and self._remade is not None and self._named is not None:
            return self._named
        if batch.query_id is None:
            raise InvalidOption(
                "producer", None, "given outside of a streaming query, which has an id to commit under"
            )
        return uuid5(UUID(batch.query_id), self.name)

    def _check_repeated(self, frame: DataFrame, batch: QueryBatch, known: Produced) -> None:
        """Checks that a batch number in the log is this batch. Under the query's id it is, unless the checkpoint is an older copy.

        Raises:
            CheckpointLost: If the log has a later batch.
            BatchChanged: If the log has other rows under this number; checked only if this sink verifies.
        """
        assert isinstance(self._log, ChangeLog)  # produced() of a server's log returns None
        producer = self._producer or f"{self.name} of query {batch.query_id}"
        if known.sequence > batch.batch_id:
            raise CheckpointLost(producer, batch.batch_id, known.sequence)
        if not self._verify:
            return
        log, version = self._log, known.version

        def compared(found: Iterable[Window]) -> bool:
            columns = self._columns(found, self._aside.begin(self._encoding), None)
            return is_repeated(chain.from_iterable(columns), log, version)

        with suppress(UntoldRow):
            if not self._brought(frame, compared):
                raise BatchChanged(producer, batch.batch_id, version)

    def _commit(self, frame: DataFrame, batch: QueryBatch, producer: str | UUID) -> None:
        started = perf_counter()
        # An opened gate admits the batch: the query is stopping and waits for it.
        with suppress(AdmissionStopped):
            self._log.serving.admit(
                stopped=self._gate(batch.query_id or self.name), stall_timeout=self._stall_timeout
            )
        admitted = perf_counter()
        if self._staging is None:
            outcome = self._settled(frame, partial(self._collected, frame, batch, producer))
        else:
            meta = {"spark": self._annotations(batch)}
            outcome = self._staging.commit(frame, meta, (producer, batch.batch_id))
        self._count(batch, outcome, admitted - started, perf_counter() - admitted)

    def _collected(
        self, frame: DataFrame, batch: QueryBatch, producer: str | UUID, found: Iterable[Window]
    ) -> Outcome:
        """Commits the windows that the driver receives."""
        bad = self._aside.begin(self._encoding)
        reads = StateReads(self._log) if isinstance(self._log, ChangeLog) else None
        gathered = _Gathered(self._columns(found, bad, reads), self._begin_comparing(reads), reads)
        commit = self._write(gathered, bad, frame, batch, producer)
        if gathered.rows:
            small = not isinstance(found, StoredBatches) or found.largest <= self._collect_bytes
            self._row_bytes = gathered.bytes / gathered.rows if small else None
        return Outcome(commit, gathered.digest.rows, gathered.seconds, bad.count, gathered.unchanged)

    def _count(self, batch: QueryBatch, outcome: Outcome, gate_seconds: float, seconds: float) -> None:
        """Adds a batch to the statistics; a repeated batch counts only as repeated."""
        commit = outcome.commit
        fresh = commit is None or not commit.duplicate
        with self._lock:
            before = self._statistics
            figures = replace(before, abandoned=before.abandoned + outcome.abandoned)
            if fresh:
                figures = replace(
                    figures,
                    bad_rows=before.bad_rows + outcome.bad_rows,
                    unchanged=before.unchanged + outcome.unchanged,
                )
            if commit is not None:
                figures = replace(
                    figures,
                    batches=before.batches + fresh,
                    repeated=before.repeated + (not fresh),
                    rows=before.rows + (outcome.rows if fresh else 0),
                    batch_id=batch.batch_id,
                    batch_rows=outcome.rows,
                    version=commit.version,
                    gate_seconds=gate_seconds,
                    encode_seconds=outcome.encode_seconds,
                    commit_seconds=seconds - outcome.encode_seconds,
                )
            self._statistics = figures

    def _write(
        self, gathered: "_Gathered", bad: BadRows, frame: DataFrame, batch: QueryBatch, producer: str | UUID
    ) -> "Commit | None":
        if gathered.empty:
            self._aside.carry(bad, self.name, producer, batch.batch_id)
            return None
        columns: Iterable[Columns] = self._then_aside(gathered, bad, batch, producer)
        if self._tell_schema and isinstance(self._log, ChangeLog):
            columns = with_schema(columns, self._encoding.told(frame.schema), self._log.schema)
        expected: dict[str, Any] = {} if gathered.reads is None else {"expect": gathered.reads.expect}
        # Spark forgets the batch once this returns, so it must be durable under every sync policy.
        return self._log.commit_columns(
            columns,
            meta={"spark": self._annotations(batch) | gathered.told(bad.count)},
            producer=(producer, batch.batch_id),
            durable=True,
            trust=True,  # `_check_repeated` compares, with the rows in any order
            **expected,
        )

    def _begin_comparing(self, reads: StateReads | None) -> BatchComparison | None:
        if self._compare_bytes is None:
            return None
        assert isinstance(self._log, ChangeLog)  # check_comparable refuses other logs, which have no state
        assert reads is not None
        return BatchComparison(self._log, reads, self._compare_bytes, self._stall_timeout)

    def _settled(self, frame: DataFrame, use: Callable[[Iterable[Window]], _T]) -> _T:
        """Collects and commits a batch; repeats both while other writers change entities that it has read, up to ``stall_timeout``."""
        ends = monotonic() + self._stall_timeout
        while True:
            try:
                return self._brought(frame, use)
            except ExpectationFailed:
                if monotonic() > ends:
                    raise

    def _then_aside(
        self, gathered: "_Gathered", bad: BadRows, batch: QueryBatch, producer: str | UUID
    ) -> Iterator[Columns]:
        """Yields the columns of a batch; commits bad rows after the last column, and thus before the batch is committed."""
        yield from gathered
        self._aside.carry(bad, self.name, producer, batch.batch_id)

    def _brought(self, frame: DataFrame, use: Callable[[Iterable[Window]], _T]) -> _T:
        """Calls ``use`` with the windows of a batch, collected in the cheapest way that can bring them; returns its result."""
        encoding, collect, row_bytes = self._encoding, self._collect_bytes, self._row_bytes
        if connect_module(frame) is not None:
            return use(connect_windows(frame, encoding))
        if row_bytes is not None:
            with suppress(TooMuchAtOnce):
                return use(windows(frame, encoding, collect_bytes=collect, row_bytes=row_bytes))
            self._row_bytes = None
        with suppress(TooMuchAtOnce):
            return use(StoredBatches(frame, encoding, collect_bytes=collect))
        made = use(spread_windows(frame, encoding, collect_bytes=collect))
        self._row_bytes = None
        return made

    def _columns(
        self, found: Iterable[Window], bad: BadRows, reads: StateReads | None
    ) -> Iterator[list[Columns]]:
        """Yields the batch as columns of frames, one list per window of partitions; without ``reads``, one that the log has already."""
        untold = self._untold(reads)
        for window in found:
            cut = pieces(map(bad.without, map(untold.filled, window)), self._log.options.frame_bytes)
            yield [columns_of(piece, self._encoding, self._entity_type) for piece in cut]

    def _annotations(self, batch: QueryBatch) -> dict[str, Any]:
        annotations: dict[str, Any] = {"sink": self.name, "batch": batch.batch_id}
        if batch.query_id is not None:
            annotations["query_id"] = batch.query_id
        if batch.query_name is not None:
            annotations["query"] = batch.query_name
        return annotations

    def _gate(self, query_id: str) -> threading.Event:
        with self._lock:
            return self._gates.setdefault(query_id, gate_of(query_id))


class _Gathered:
    """The columns of a batch; can be iterated once.

    Reads two windows ahead to learn whether the batch is empty, and whether it has only one window. The row count and digest of
    a batch with one window are known before the commit, and go into its annotations. A compared batch is always one window.
    """

    def __init__(
        self, found: Iterator[list[Columns]], comparison: BatchComparison | None, reads: StateReads | None
    ) -> None:
        self._comparison, self.reads = comparison, reads
        self._windows = found if comparison is None else comparison.decided(found)
        self.seconds = 0.0
        self._bytes = 0
        self.digest = ContentDigest()
        self._first = self._next()
        self._second = self._next() if self._first is not None else None
        self.empty = self._first is None
        self.whole = self._second is None

    def _next(self) -> list[Columns] | None:
        """Returns the next window with rows; None at the end."""
        started = perf_counter()
        found = next(filter(None, self._windows), None)
        for columns in found or ():
            self.digest.add(columns)
            self._bytes += columns.nbytes
        self.seconds += perf_counter() - started
        return found

    @property
    def rows(self) -> int:
        """Rows received from Spark."""
        return self.digest.rows if self._comparison is None else self._comparison.content.rows

    @property
    def bytes(self) -> int:
        """Bytes of these rows."""
        return self._bytes if self._comparison is None else self._comparison.nbytes

    @property
    def unchanged(self) -> int:
        """Received rows that change nothing."""
        return 0 if self._comparison is None else self._comparison.unchanged

    def told(self, bad_rows: int) -> dict[str, Any]:
        """Returns the annotations about the rows; empty if the batch has several windows."""
        if not self.whole:
            return {}
        annotations: dict[str, Any] = {"rows": self.digest.rows, "digest": str(self.digest)}
        if bad_rows:
            annotations["bad_rows"] = bad_rows
        if self._comparison is not None:
            annotations |= {"unchanged": self.unchanged, "content": str(self._comparison.content)}
        return annotations

    def __iter__(self) -> Iterator[Columns]:
        for window in chain((self._first, self._second), iter(self._next, None)):
            yield from window or ()
        self._first = self._second = None
