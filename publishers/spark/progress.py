"""The progress of streaming queries, kept for terminals, pages, and metrics collectors."""

import json
import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.streaming.listener import StreamingQueryListener

from publishers.errors import InvalidOption, PositionError
from publishers.model.position import PositionToken

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
        SourceProgress,
    )

__all__ = ["ProgressListener", "QueryProgress", "QueryState"]

_log: Final = logging.getLogger("penstock.spark")


class QueryState(Enum):
    """The state of a streaming query."""

    RUNNING = "RUNNING"
    IDLE = "IDLE"
    STOPPED = "STOPPED"
    FAILED = "FAILED"


@dataclass(frozen=True, slots=True)
class QueryProgress:
    """One streaming query at Spark's last event about it.

    Attributes:
        query_id: Id of the query; the checkpoint stores it.
        name: The ``queryName``, or None.
        state: Whether the query runs, waits for input, or has ended.
        batch_id: The last batch; None before the first one.
        batches: Batches since the listener's first event about the query.
        rows: Rows of these batches.
        batch_rows: Rows of the last batch.
        input_rate: Rows per second that arrived for the last batch.
        rate: Rows per second at which Spark processed the last batch.
        seconds: Seconds of each phase of the last batch, by Spark's names; ``addBatch`` is the sink, including its wait at the gate.
        behind: Versions between the query's offsets and the ends of its logs; None if the query reads no log, or if Spark reports no
            end.
        error: The error that ended the query, in one line; None if there is none.
    """

    query_id: str
    name: str | None
    state: QueryState = QueryState.RUNNING
    batch_id: int | None = None
    batches: int = 0
    rows: int = 0
    batch_rows: int = 0
    input_rate: float = 0.0
    rate: float = 0.0
    seconds: Mapping[str, float] = field(default_factory=dict)
    behind: int | None = None
    error: str | None = None

    def __str__(self) -> str:
        """Formats the progress as one line for a terminal."""
        named = self.name or self.query_id
        behind = "" if self.behind is None else f", {self.behind} versions behind"
        why = "" if self.error is None else f": {self.error}"
        batch = (
            "no batch yet"
            if self.batch_id is None
            else f"batch {self.batch_id} of {self.batch_rows} rows at {self.rate:.0f}/s"
        )
        return f"{named} {self.state.value}, {batch}{behind}{why}"


class ProgressListener(StreamingQueryListener):
    """Keeps the last progress of each query: ``spark.streams.addListener(ProgressListener())``.

    Spark calls it on its own threads in the driver; it returns quickly and never raises. Thread-safe.

    Args:
        on_progress: Called with each progress on Spark's thread. It must return quickly, as Spark delivers no other event
            meanwhile. An exception that it raises is logged.
        queries_max: Maximum number of queries to keep, at least 1. Above it, ended queries are evicted first, then the queries
            with the oldest event.

    Raises:
        InvalidOption: If an argument is of the wrong kind or out of bounds.
    """

    def __init__(
        self, on_progress: Callable[[QueryProgress], None] | None = None, *, queries_max: int = 64
    ) -> None:
        if on_progress is not None and not callable(on_progress):
            raise InvalidOption("on_progress", on_progress, "a function of one QueryProgress")
        if isinstance(queries_max, bool) or not isinstance(queries_max, int) or queries_max < 1:
            raise InvalidOption("queries_max", queries_max, "a whole number from 1")
        self._on_progress = on_progress
        self._queries_max = queries_max
        self._lock = threading.Lock()
        self._queries: dict[str, QueryProgress] = {}  # by last event, newest last

    def queries(self) -> tuple[QueryProgress, ...]:
        """Returns the queries, ordered by their last event, newest last."""
        with self._lock:
            return tuple(self._queries.values())

    def statistics(self) -> dict[str, dict[str, Any]]:
        """Returns the progress of all queries as JSON values, by query name, or by id if there is no name."""
        return {
            one.name or one.query_id: {
                "state": one.state.value,
                "batch": one.batch_id,
                "batches": one.batches,
                "rows": one.rows,
                "batchRows": one.batch_rows,
                "inputRate": one.input_rate,
                "rate": one.rate,
                "seconds": dict(one.seconds),
                "behind": one.behind,
                "error": one.error,
            }
            for one in self.queries()
        }

    def onQueryStarted(self, event: "QueryStartedEvent") -> None:  # noqa: N802 - Spark's name
        """Notes a query that starts or restarts."""
        self._heard(
            str(event.id), lambda one: replace(one, name=event.name, state=QueryState.RUNNING, error=None)
        )

    def onQueryProgress(self, event: "QueryProgressEvent") -> None:  # noqa: N802 - Spark's name
        """Notes a completed batch."""
        progress = event.progress

        def done(one: QueryProgress) -> QueryProgress:
            return replace(
                one,
                name=progress.name,
                state=QueryState.RUNNING,
                batch_id=progress.batchId,
                batches=one.batches + 1,
                rows=one.rows + progress.numInputRows,
                batch_rows=progress.numInputRows,
                input_rate=_number(progress.inputRowsPerSecond),
                rate=_number(progress.processedRowsPerSecond),
                seconds={part: spent / 1000 for part, spent in progress.durationMs.items()},
                behind=_behind(progress.sources),
            )

        self._heard(str(progress.id), done)

    def onQueryIdle(self, event: "QueryIdleEvent") -> None:  # noqa: N802 - Spark's name
        """Notes a query that waits for input."""
        self._heard(
            str(event.id),
            lambda one: replace(one, state=QueryState.IDLE, behind=None if one.behind is None else 0),
        )

    def onQueryTerminated(self, event: "QueryTerminatedEvent") -> None:  # noqa: N802 - Spark's name
        """Notes a query that has ended."""
        error = None if event.exception is None else _reason(event.exception)
        state = QueryState.STOPPED if error is None else QueryState.FAILED
        self._heard(str(event.id), lambda one: replace(one, state=state, error=error))

    def _heard(self, query_id: str, change: Callable[[QueryProgress], QueryProgress]) -> None:
        with self._lock:
            known = self._queries.pop(query_id, None) or QueryProgress(query_id, None)
            updated = self._queries[query_id] = change(known)
            while len(self._queries) > self._queries_max:
                ended = (one.query_id for one in self._queries.values() if one.state in _ENDED)
                del self._queries[next(ended, next(iter(self._queries)))]
        if self._on_progress is not None:
            try:
                self._on_progress(updated)
            except Exception:  # noqa: BLE001 - the caller is a thread of Spark, which must not get it
                _log.exception("on_progress failed with the progress of %s", updated.name or query_id)


_TRACE: Final = "Traceback (most recent call last):"
_ENDED: Final = frozenset({QueryState.STOPPED, QueryState.FAILED})


def _reason(text: str) -> str:
    """Returns the line of a trace that states the error: the Python error if there is a Python trace, else the first line."""
    lines = text.strip().splitlines() or [""]
    if _TRACE not in text:
        return lines[0]
    python = lines[next(place for place, line in enumerate(lines) if _TRACE in line) + 1 :]
    return next((line for line in python if not line.startswith(" ")), lines[0])


def _number(value: float | None) -> float:
    """Returns a rate; 0 if Spark reports NaN, infinity or nothing, as for the first batch."""
    return value if value is not None and 0 <= value < float("inf") else 0.0


def _behind(sources: "list[SourceProgress]") -> int | None:
    """Returns the versions between the sources' offsets and the ends of their logs; None if no source is a log with a known end."""
    found = [(_version(one.endOffset), _version(one.latestOffset)) for one in sources]
    known = [max(0, latest - end) for end, latest in found if end is not None and latest is not None]
    return sum(known) if known else None


def _version(offset: str | None) -> int | None:
    try:
        return PositionToken.parse(json.loads(offset or "")["position"]).position.version
    except (ValueError, KeyError, TypeError, PositionError):
        return None
