"""Spark's part of the demo, on a thread of its own.

The main thread may be interrupted anywhere, in the middle of an answer from the JVM too, which would leave that
connection out of step. So it never talks to Spark but to stop it.
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

from penstock_flights.digest import StreamDigest
from penstock_flights.flights import KEY_COLUMNS, ORDER_COLUMN
from penstock_flights.plan import FLIGHTS, DemoPlan, Wanted
from penstock_flights.stream import read_events, source_digest
from publishers.spark import ChangeSink, ProgressListener, SinkStatistics, spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from publishers.log.changelog import ChangeLog

__all__ = ["Pipeline"]

_QUIET: Final = ("py4j", "pyspark", "SQLQueryContextLogger", "DataFrameQueryContextLogger")
_LEAVING: Final = 30.0  # seconds
# On two cores the threads of the other collector are in the way of everybody else.
_JAVA: Final = "-XX:+UseSerialGC"
_TEXT_MOST: Final = 500


class Pipeline:
    """Starts Spark, streams the prepared events into the log, and computes what subscribers must end up with.

    Attributes:
        noise: File that gets what the JVM prints.
        version: Spark's version, once it runs.
        started: Seconds that the start took, once it runs.
        streaming: When the query was started, by ``monotonic``; None before that.
        streamed: Whether every prepared event is in the log.
        expected: What Spark computes from the source, by the subscriber's name.
        queries: Hears what Spark says of its queries.
        error: Why it failed, in one line; None while all is well.
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
        """Begins to start Spark, which takes some seconds."""
        for name in _QUIET:
            logging.getLogger(name).setLevel(logging.CRITICAL + 1)
        self._thread.start()

    def stream(self, log: "ChangeLog", events: Path, plan: DemoPlan, subscribers: Sequence[Wanted]) -> None:
        """Lets Spark stream ``events`` into ``log`` as soon as it runs, and then digest what each subscriber wants."""
        self._given = log, events, plan, subscribers
        self._go.set()

    @property
    def statistics(self) -> SinkStatistics:
        """What was committed since this program was started."""
        return SinkStatistics() if self._sink is None else self._sink.statistics()

    def stop(self) -> None:
        """Ends the query after the batch that it is in, and Spark. Idempotent; not on the pipeline's own thread."""
        with self._changing:
            self._stopping.set()
        self._go.set()
        # Whatever Spark says on the way out is of no interest any more: it is being stopped.
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
        except Exception as error:  # noqa: BLE001 - told by the main thread, in one line
            if not self._stopping.is_set():
                self.error = self._told(error)
        finally:
            session, self._session = self._session, None
            if session is not None:
                with contextlib.suppress(Exception):
                    session.stop()

    def _work(self) -> None:
        began = monotonic()
        with _stderr_to(self.noise):
            self._session = spark = spark_session(
                "penstock demo", cores=2, **{"spark.driver.extraJavaOptions": _JAVA}
            )
        self.version, self.started = spark.version, monotonic() - began
        self._go.wait()
        if self._given is None or self._stopping.is_set():
            return
        log, events, plan, subscribers = self._given
        # Those who ask for flights count what comes, and schemas of flights would be among it.
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
        digests: dict[str | None, StreamDigest] = {}  # two subscribers may want the same
        for wanted in subscribers:
            if wanted.where not in digests:
                digests[wanted.where] = source_digest(spark, events, where=wanted.where)
            self.expected[wanted.name] = digests[wanted.where]

    def _told(self, error: Exception) -> str:
        failed = None if self._sink is None else self._sink.error
        if isinstance(failed, Exception):
            error = failed
        text = str(error)
        if isinstance(error, PySparkException | Py4JError):
            # Behind the first lines there is the trace of the JVM.
            lines = [line.strip() for line in text.splitlines() if line.strip()]
            words = " ".join(lines[:2]).removeprefix("[None] ").partition(" SQLSTATE:")[0]
            text = "Spark failed: " + words.rpartition(" terminated with exception: ")[2]
        return " ".join(text.split())[:_TEXT_MOST] or type(error).__name__


@contextlib.contextmanager
def _stderr_to(path: Path) -> Iterator[None]:
    """Sends what this process, and a JVM that is started meanwhile, prints as errors to a file."""
    kept = os.dup(2)
    try:
        with path.open("ab") as file:
            os.dup2(file.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
