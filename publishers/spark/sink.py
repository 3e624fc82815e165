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
    column_names,
    operation_words,
)
from publishers.spark.arrow import ContentDigest, columns_of, pieces
from publishers.spark.bad_rows import Aside, BadRows, OnBadRow
from publishers.spark.comparison import BatchComparison
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
from publishers.wal.format.columns import Columns

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

    from publishers.commits.group_commit import Commit

__all__ = ["ChangeSink", "SinkStatistics"]

MIB: Final = 1024 * 1024

_T = TypeVar("_T")

OnRerun = Literal["trust", "verify"]

_TEXTS: Final = (
    "entity_type", "name", "operation_column", "entity_type_column", "before", "producer", "token", "log_name",
)  # fmt: skip
_claims: Final = Claims()
_numbers: Final = count(1)


class _Stoppable(Protocol):
    """What is needed of a ``StreamingQuery``."""

    @property
    def id(self) -> str: ...

    def stop(self) -> None: ...


@dataclass(frozen=True, slots=True)
class SinkStatistics:
    """What a sink has done, and how long its last batch took; to be shown beside Spark's ``addBatch``.

    Attributes:
        batches: Batches committed.
        repeated: Batches that the log had already.
        rows: Rows committed.
        bad_rows: Rows that were left out.
        unchanged: Rows that were left out because the log's state has them as they are; see ``compare``.
        batch_id: The last batch committed, or None.
        batch_rows: Its rows.
        version: The version it became.
        abandoned: Files of killed tasks, or of a killed driver, that were removed; see ``staging``.
        gate_seconds: How long it waited for gating subscribers.
        encode_seconds: How long Spark computed it and Arrow brought it here.
        commit_seconds: How long the log took to write, sync and publish it.
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


class ChangeSink:
    """Commits the micro-batches of a streaming query to a change log: ``df.writeStream.foreachBatch(ChangeSink(...))``.

    Spark runs a batch again after a failure, a kill, and often after an ordinary stop. Each batch is committed under the
    query's id, the sink's name and the batch's number, so a batch that the log has already costs no job and writes
    nothing, whatever order its rows would come in. One batch is one version, however large: what does not fit into memory
    is spooled by the log and appears at once. A batch without rows commits nothing. A query with a new checkpoint has a
    new id, and its batches are new batches.

    Rows become changes in the order of partitions, or of ``order_by``. Their key is the text of the ``key`` columns,
    several joined by ``/``; their body is JSON of the other columns and the key's, made in the JVM without loss.

    Whatever fails inside, fails the query with its message; Spark loses the object, which stays in :attr:`error`.

    A sink may serve several queries at once. It is called on Spark's threads in the driver, and keeps them waiting, and so
    Spark from planning further batches, while a gating subscriber lags behind.

    Args:
        log: Where to commit: a log that is open for writing in this process, or the address of a server whose clients may append:
            ``"wss://host/ws"``. Then the sink works in the driver of any cluster, can be pickled, and works in Spark Connect,
            where ``name`` or ``producer`` has to be given. A batch has at most ``transaction_bytes``, a
            limit of the server, and is held in memory as a whole.
        token: Shown to the server.
        log_name: The log of the server; may be left out if it has one.
        entity_type: The entity type of all rows, unless ``entity_type_column`` is given.
        key: Column or columns of the key.
        name: Tells apart the sinks of one query; the entity type if None.
        operation: ``"upsert"`` or ``"remove"``, for all rows. Removed rows have no body.
        operation_column: Column that tells the operation of each row: ``upsert`` (also ``insert``, ``update``), ``remove``
            (also ``delete``), ``expire``, or ``truncate``, which concerns all entities of the type and needs no key.
        operations: What that column holds instead, in letters of any case: ``{"c": "upsert", "d": "remove"}``.
        entity_type_column: Column that tells the entity type of each row.
        order_by: Column or columns that order the rows of a batch, nulls first. Where operations come in a column and this is left
            out, an ``UnorderedWarning`` says that rows of one key may come in any order; ``()`` says that they may.
        body: Columns of the body; None for all but before, operation, entity type and order columns.
        before: Column of the images before: a struct whose fields are those of the body, null where there is none. With it
            subscribers may ask for what changed (``Images.CHANGE``, ``CHANGED_WITH_OLD``), for transitions, and for what
            was removed.
        compare: Whether each row is compared with the log's state (the log is open with ``state=True``): a new entity is committed as
            such, another one with its image before and the names of the fields that differ, and what is as the row says is left out;
            so is the removal of what is not there. Another writer may commit meanwhile: then the batch is compared again.
        compare_bytes: Most bytes of changes that a batch may come to with ``compare``; they are held until all are known.
        producer: A name to commit under instead of the query's id and the sink's name. Needed outside of streaming queries. It
            outlives a checkpoint: the last number is refused if it comes with other rows.
        on_rerun: What is done with a batch that the log has already under the query's id: ``"trust"`` takes it for what it was, without
            a job; ``"verify"`` computes it again and refuses other rows, as is always done under ``producer`` and through a server. A
            number below the last one, which Spark never runs again, is refused in any case.
        tell_schema: Whether to tell each entity type's schema by a change of the area SCHEMA, in the form of
            ``publishers.lossless``, ahead of the first row that needs it and in its transaction, whenever the types of the
            body's columns are not contained in what was told last, which grows by them; and so to stamp each row with the version of its schema. None for
            True, or False with the log of a server, to which no schemas are told.
        on_bad_row: What becomes of a row whose key is null, empty or longer than ``max_key_bytes``, or whose operation or entity
            type is unknown: ``"fail"`` fails the batch, ``"skip"`` leaves it out and counts it, ``"dead_letter"`` also
            commits it to ``dead_letters``, before the batch and exactly once.
        dead_letters: The log of bad rows; None for one beside ``log``, of its path with ``.dead`` behind it, which is open
            for as long as a batch writes to it.
        bad_rows_max: Bad rows of one batch above which it fails all the same; as many are held in memory.
        stall_timeout: Seconds for which a gating subscriber may make no progress, or a server not answer, before the query fails.
        collect_bytes: About how much of a large batch is brought to the driver in one Spark job; the heap of the driver needs
            several times as much. A batch with a larger partition, and the first one, is stored on the disks of the executors
            meanwhile. One of which more than four times as much is to be ordered is computed three times more.
        staging: Where rows are made into what the log stores: ``"driver"``, to which they are brought, or ``"executors"``, which write
            it into the directory of the log, each partition in a task of its own; the driver then commits these files as one version,
            without looking at rows. The directory has to be on storage that all executors see under the same path, and penstock in
            their Python. A batch with ``order_by`` is computed twice then, and its annotations tell neither rows nor digest.

    Raises:
        InvalidOption: If an argument is of the wrong kind, out of its bounds, or contradicts another.
        LogReadOnly: If the log was opened to be followed.
    """

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
        _check_words(operation, on_rerun)
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
        )
        if operation_column is not None and order_by is None:
            warnings.warn(UnorderedWarning(operation_column), stacklevel=2)
        self._staging = staging_of(
            staging, target, self._encoding, entity_type, on_bad_row, compare=compare, tell_schema=tells
        )
        self.name = name or entity_type or producer or ""
        self._producer = producer
        self._verify = producer is not None or on_rerun == "verify"
        self._tell_schema = tells
        self._compare_bytes = compare_bytes if compare else None
        self._stall_timeout = stall_timeout
        self._collect_bytes = collect_bytes
        self._row_bytes: float | None = None  # what a row needs, as long as partitions are not too large
        self._number = next(_numbers)
        self._gates: dict[str, threading.Event] = {}
        self._lock = threading.Lock()
        self._statistics = SinkStatistics()
        self._error: BaseException | None = None

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        """Commits one batch; what ``foreachBatch`` calls.

        Raises:
            ConnectRefused: If the query runs in Spark Connect.
            SchemaRefused: If the columns cannot become changes.
            RowRefused: If a row cannot.
            SinkNameTaken: If another sink of this name takes part in the batch.
            CheckpointLost: If the log has a later batch of the query, or under ``producer``.
            BatchChanged: If the log has other rows under this number.
            TooManyBadRows: If more rows are bad than may be.
            JobFailed: If a job fails in Java in a way that Spark does not tell Python, or is interrupted.
            BatchTooLarge: If a few rows alone are above what Spark hands to the driver.
            SubscriberStalled: If a gating subscriber made no progress for ``stall_timeout``.
            ComparisonTooLarge: If it changes more than is held to be compared.
            ExpectationFailed: If others went on changing what it was compared with for ``stall_timeout``.
            LogError: If the log refuses the commit.
            SinkFailed: If something that is no ``Exception`` ended the batch; Spark would wait for ever for an answer.
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
        """What ended the last batch, as it was raised; None if it went well."""
        return self._error

    def statistics(self) -> SinkStatistics:
        """What this sink has done so far."""
        return self._statistics

    def stop(self, query: "StreamingQuery | _Stoppable") -> None:
        """Stops a query, first opening the gates at which its sinks may be waiting.

        A plain ``query.stop()`` waits until the running batch is over, and so for the subscriber that holds it back. The
        batch that waited is committed all the same; should Spark run it again, the log knows it.
        """
        gate = self._gate(str(query.id))
        gate.set()
        try:
            query.stop()
        finally:
            gate.clear()

    def __reduce__(self) -> tuple[Any, ...]:
        """Is made anew where it is sent to, which only Spark Connect asks for.

        Raises:
            ConnectRefused: If the log is open in this process, and nowhere else.
        """
        if self._remade is None:
            raise ConnectRefused("it asks for a pickled sink")
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
                    self._encoding.check(frame.schema)  # what it refuses is refused before anything waits
                self._commit(frame, batch, producer)
            # Without a run there is no telling a second sink from a caller that tries again.
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
        """Looks whether the log has this very batch; under the query's id it has, as long as its checkpoint is not an older copy."""
        assert isinstance(self._log, ChangeLog)  # which alone tells beforehand what it has
        producer = self._producer or f"{self.name} of query {batch.query_id}"
        if known.sequence > batch.batch_id:
            raise CheckpointLost(producer, batch.batch_id, known.sequence)
        if not self._verify:
            return
        log, version = self._log, known.version

        def compared(found: Iterable[Window]) -> bool:
            columns = self._columns(found, self._aside.begin(self._encoding))
            return is_repeated(chain.from_iterable(columns), log, version)

        repeated = self._brought(frame, compared)
        if not repeated:
            raise BatchChanged(producer, batch.batch_id, version)

    def _commit(self, frame: DataFrame, batch: QueryBatch, producer: str | UUID) -> None:
        started = perf_counter()
        # An opened gate lets the batch through: the query is being stopped and waits for it.
        with suppress(AdmissionStopped):
            self._log.admit(
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
        """Commits what the driver is brought."""
        bad = self._aside.begin(self._encoding)
        gathered = _Gathered(self._columns(found, bad), self._begin_comparing())
        commit = self._write(gathered, bad, frame, batch, producer)
        if gathered.rows:
            small = not isinstance(found, StoredBatches) or found.largest <= self._collect_bytes
            self._row_bytes = gathered.bytes / gathered.rows if small else None
        return Outcome(commit, gathered.digest.rows, gathered.seconds, bad.count, gathered.unchanged)

    def _count(self, batch: QueryBatch, outcome: Outcome, gate_seconds: float, seconds: float) -> None:
        """Counts a batch; of one that the log had already only that it had."""
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
        # Spark forgets the batch once this returns, so it must be on the disk under every sync policy.
        return self._log.commit_columns(
            columns,
            meta={"spark": self._annotations(batch) | gathered.told(bad.count)},
            producer=(producer, batch.batch_id),
            durable=True,
            **gathered.expected,
        )

    def _begin_comparing(self) -> BatchComparison | None:
        if self._compare_bytes is None:
            return None
        assert isinstance(self._log, ChangeLog)  # which alone has a state
        return BatchComparison(self._log, self._compare_bytes, self._stall_timeout)

    def _settled(self, frame: DataFrame, use: Callable[[Iterable[Window]], _T]) -> _T:
        """What is brought, and once more whenever others have changed meanwhile what it was compared with."""
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
        """The columns of a batch; behind the last of them, and so before the commit, bad rows are carried aside."""
        yield from gathered
        self._aside.carry(bad, self.name, producer, batch.batch_id)

    def _brought(self, frame: DataFrame, use: Callable[[Iterable[Window]], _T]) -> _T:
        """What ``use`` makes of the windows of a batch, by the cheapest way that brings it."""
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

    def _columns(self, found: Iterable[Window], bad: BadRows) -> Iterator[list[Columns]]:
        """The batch as columns of frames, a window of partitions at a time."""
        for window in found:
            cut = pieces(map(bad.without, window), self._log.options.frame_bytes)
            yield [columns_of(piece, self._encoding, self._entity_type) for piece in cut]

    def _annotations(self, batch: QueryBatch) -> dict[str, Any]:
        told: dict[str, Any] = {"sink": self.name, "batch": batch.batch_id}
        if batch.query_id is not None:
            told["query_id"] = batch.query_id
        if batch.query_name is not None:
            told["query"] = batch.query_name
        return told

    def _gate(self, query_id: str) -> threading.Event:
        with self._lock:
            return self._gates.setdefault(query_id, gate_of(query_id))


class _Gathered:
    """The columns of a batch, to be passed over once.

    Two windows are looked at ahead, which tells whether there is anything and whether there is only one; of a batch in
    one window row count and digest are known before it is committed, and go into its annotations. What was compared is one window.
    """

    def __init__(
        self, windows_of_columns: Iterator[list[Columns]], comparison: BatchComparison | None
    ) -> None:
        self._comparison = comparison
        self._windows = windows_of_columns if comparison is None else comparison.decided(windows_of_columns)
        self.seconds = 0.0
        self._bytes = 0
        self.digest = ContentDigest()
        self._first = self._next()
        self._second = self._next() if self._first is not None else None
        self.empty = self._first is None
        self.whole = self._second is None

    def _next(self) -> list[Columns] | None:
        """The next window that has rows."""
        started = perf_counter()
        found = next(filter(None, self._windows), None)
        for columns in found or ():
            self.digest.add(columns)
            self._bytes += columns.nbytes
        self.seconds += perf_counter() - started
        return found

    @property
    def rows(self) -> int:
        """Rows that Spark has brought."""
        return self.digest.rows if self._comparison is None else self._comparison.content.rows

    @property
    def bytes(self) -> int:
        """Bytes of these."""
        return self._bytes if self._comparison is None else self._comparison.nbytes

    @property
    def unchanged(self) -> int:
        """Rows of them that change nothing."""
        return 0 if self._comparison is None else self._comparison.unchanged

    def told(self, bad_rows: int) -> dict[str, Any]:
        """What annotations say of the rows, as far as it is known before they are committed."""
        if not self.whole:
            return {}
        told: dict[str, Any] = {"rows": self.digest.rows, "digest": str(self.digest)}
        if bad_rows:
            told["bad_rows"] = bad_rows
        if self._comparison is not None:
            told |= {"unchanged": self.unchanged, "content": str(self._comparison.content)}
        return told

    @property
    def expected(self) -> dict[str, Any]:
        """What the commit must expect of the log."""
        return {} if self._comparison is None else {"expect": self._comparison.expect}

    def __iter__(self) -> Iterator[Columns]:
        for window in chain((self._first, self._second), iter(self._next, None)):
            yield from window or ()
        self._first = self._second = None


def _check_words(operation: str, on_rerun: str) -> None:
    """Refuses words that are none of those which there are.

    Raises:
        InvalidOption: If one is another.
    """
    if operation not in ("upsert", "remove"):
        raise InvalidOption("operation", operation, "'upsert' or 'remove'")
    if on_rerun not in ("trust", "verify"):
        raise InvalidOption("on_rerun", on_rerun, "'trust' or 'verify'")
