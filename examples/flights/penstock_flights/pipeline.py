"""Spark's part of the demo, on a thread of its own.

An interrupt of the main thread may come in the middle of an answer from the JVM, which would leave that connection out of step.
So the main thread never calls Spark, except to stop it.
"""

import contextlib
import logging
import os
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from penstock_cdc.spark import ChangeSink, ProgressListener, SinkStatistics, spark_session
from penstock_flights.digest import StreamDigest
from penstock_flights.flights import KEY_COLUMNS, ORDER_COLUMN
from penstock_flights.plan import FLIGHTS, DemoPlan, Wanted
from penstock_flights.stream import read_events, source_digests

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from penstock_cdc import ChangeLog

__all__ = ["Pipeline"]

_QUIET: Final = ("py4j", "pyspark", "SQLQueryContextLogger", "DataFrameQueryContextLogger")
_LEAVING: Final = 30.0  # seconds
_SETTINGS: Final = {
    # On two cores the threads of a parallel collector would take CPU time from the rest of the demo, and in half a minute the
    # second compiler does not earn back what it takes: it compiles what is called ten times as often as by default.
    "spark.driver.extraJavaOptions": (
        "-XX:+UseSerialGC -XX:Tier4InvocationThreshold=50000 -XX:Tier4MinInvocationThreshold=6000"
        " -XX:Tier4CompileThreshold=150000 -XX:Tier4BackEdgeThreshold=400000"
    ),
}
_TEXT_MOST: Final = 500


class Pipeline:
    """Starts Spark, streams the prepared events into the log, and computes the expected digest of each subscriber.

    Attributes:
        noise: The file that receives the output of the JVM.
        version: Spark's version, once it runs.
        started: Seconds that the start took, once Spark runs.
        streaming: The start of the query, by ``monotonic``; None before that.
        streamed: Whether every prepared event is in the log.
        expected: The digests that Spark computed from the source, by the subscriber's name.
        queries: Receives the events of Spark's queries.
        error: Why it failed, in one line; None if it did not.
    """

    def __init__(self, noise: Path) -> None:
        self.noise = noise
        self.version: str | None = None
        self.started = 0.0
        self.streaming: float | None = None
        self.streamed = threading.Event()
        self.expected: dict[str, StreamDigest] = {}
        self.queries = ProgressListener()
        self.error: str | None = None
        self._given: tuple[ChangeLog, Path, DemoPlan, Sequence[Wanted]] | None = None
        self._go = threading.Event()
        self._stopping = threading.Event()
        self._sink: ChangeSink | None = None
        self._session: SparkSession | None = None
        self._query: StreamingQuery | None = None
        self._changing = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="demo-spark", daemon=True)

    def start(self) -> None:
        """Starts Spark in the background, which takes some seconds."""
        for name in _QUIET:
            logging.getLogger(name).setLevel(logging.CRITICAL + 1)
        self._thread.start()

    def stream(self, log: "ChangeLog", events: Path, plan: DemoPlan, subscribers: Sequence[Wanted]) -> None:
        """Once Spark runs, streams ``events`` into ``log``, then computes the expected digest of each subscriber."""
        self._given = log, events, plan, subscribers
        self._go.set()

    @property
    def statistics(self) -> SinkStatistics:
        """Statistics of the commits since the start of this program."""
        return SinkStatistics() if self._sink is None else self._sink.statistics()

    def stop(self) -> None:
        """Stops the query after its present batch, then Spark. Idempotent; not for the pipeline's own thread."""
        with self._changing:
            self._stopping.set()
        self._go.set()
        # Errors of Spark during its shutdown are ignored.
        with contextlib.suppress(Exception):
            if self._sink is not None and self._query is not None:
                self._sink.stop(self._query)
            if self._session is not None:
                self._session.sparkContext.cancelAllJobs()
        if self._thread.is_alive():
            self._thread.join(_LEAVING)

    def _run(self) -> None:
        try:
            self._work()
        except Exception as error:  # noqa: BLE001 - the main thread reports it in one line
            if not self._stopping.is_set():
                self.error = self._described(error)
        finally:
            session, self._session = self._session, None
            if session is not None:
                with contextlib.suppress(Exception):
                    session.stop()

    def _work(self) -> None:
        began = monotonic()
        with _stderr_to(self.noise):
            self._session = spark = spark_session("penstock demo", cores=2, **_SETTINGS)
        self.version, self.started = spark.version, monotonic() - began
        self._go.wait()
        if self._given is None or self._stopping.is_set():
            return
        log, events, plan, subscribers = self._given
        # Subscribers count every change of the entity type, and a schema would be one of them.
        self._sink = ChangeSink(
            log, entity_type=FLIGHTS, key=KEY_COLUMNS, order_by=ORDER_COLUMN, tell_schema=False
        )
        stream = read_events(spark, events, files_per_trigger=1).writeStream.queryName("flights")
        stream = stream.option("checkpointLocation", str(plan.checkpoint)).trigger(availableNow=True)
        spark.streams.addListener(self.queries)
        with self._changing:
            if self._stopping.is_set():
                return
            self.streaming = monotonic()
            self._query = stream.foreachBatch(self._sink).start()
        self._query.awaitTermination()
        if self._stopping.is_set():
            return
        self.streamed.set()
        digests = source_digests(spark, events, [wanted.where for wanted in subscribers])
        self.expected = {wanted.name: digests[wanted.where] for wanted in subscribers}

    def _described(self, error: Exception) -> str:
        failed = None if self._sink is None else self._sink.error
        if isinstance(failed, Exception):
            error = failed
        text = str(error)
        if isinstance(error, PySparkException | Py4JError):
            # The stack trace of the JVM follows the first lines.
            lines = [line.strip() for line in text.splitlines() if line.strip()]
            words = " ".join(lines[:2]).removeprefix("[None] ").partition(" SQLSTATE:")[0]
            text = "Spark failed: " + words.rpartition(" terminated with exception: ")[2]
        return " ".join(text.split())[:_TEXT_MOST] or type(error).__name__


@contextlib.contextmanager
def _stderr_to(path: Path) -> Iterator[None]:
    """Redirects standard error, of this process and of a JVM started meanwhile, to a file."""
    kept = os.dup(2)
    try:
        with path.open("ab") as file:
            os.dup2(file.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
