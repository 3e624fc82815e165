"""The query of a sink: the identity of its batches, and the state that all sinks of one query share."""

import threading
import weakref
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

from publishers.spark.errors import ConnectRefused, SinkNameTaken

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["Claims", "QueryBatch", "connect_module", "gate_of"]


def connect_module(frame: "DataFrame") -> str | None:
    """Returns the Spark Connect module that a frame or its session comes from; None for a classic frame."""
    modules = (type(frame).__module__, type(frame.sparkSession).__module__)
    return next((module for module in modules if module.startswith("pyspark.sql.connect")), None)


class QueryBatch(NamedTuple):
    """One micro-batch of one run of one query.

    Attributes:
        query_id: Id of the query, which the checkpoint stores; it survives restarts. None outside a streaming query.
        run_id: Id of the run; each restart makes a new one.
        query_name: The ``queryName``, or None.
        batch_id: Number of the batch; counts from 0 with a new checkpoint.
    """

    query_id: str | None
    run_id: str | None
    query_name: str | None
    batch_id: int

    @classmethod
    def of(cls, frame: "DataFrame", batch_id: int, *, anywhere: bool = False) -> "QueryBatch":
        """Reads the identity of a batch from the local properties of the thread on which Spark runs it.

        Args:
            frame: The rows.
            batch_id: The number that Spark assigned.
            anywhere: Whether the batch may run in a worker of Spark Connect, where no query id is available.

        Raises:
            ConnectRefused: If the frame belongs to Spark Connect and ``anywhere`` is False.
        """
        module = connect_module(frame)
        if module is not None:
            if not anywhere:
                raise ConnectRefused(module)
            return cls(None, None, None, int(batch_id))
        context = frame.sparkSession.sparkContext
        query_id = context.getLocalProperty("sql.streaming.queryId")
        # Spark names the job group of a query after its run, and begins the job description with the query's name, if any.
        run_id = context.getLocalProperty("spark.jobGroup.id") if query_id else None
        described = context.getLocalProperty("spark.job.description") if query_id else None
        name = (described or "").replace("<br/>", "\n").partition("\n")[0]
        return cls(query_id, run_id, None if not name or name.startswith("id = ") else name, int(batch_id))


class Claims:
    """Records which sink commits which batch under which producer, to detect two sinks with the same name.

    To the log, two such sinks would look like one sink that repeats a batch, and the changes of the second would be lost
    in silence. Keeps one entry per log and producer: the newest batch.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: weakref.WeakKeyDictionary[object, dict[str | UUID, tuple[QueryBatch, int]]]
        self._held = weakref.WeakKeyDictionary()

    def take(self, log: object, producer: str | UUID, name: str, batch: QueryBatch, sink: int) -> None:
        """Records that ``sink``, a number unique in this process, commits ``batch``.

        The same batch in another run of the query, or by the same sink, is a repetition and allowed.

        Raises:
            SinkNameTaken: If another sink commits, or has committed, the batch in this run.
        """
        with self._lock:
            of_log = self._held.setdefault(log, {})
            found = of_log.get(producer)
            if found is not None and found[0] == batch and found[1] != sink:
                raise SinkNameTaken(name, batch.batch_id)
            of_log[producer] = (batch, sink)

    def give_back(self, log: object, producer: str | UUID, sink: int) -> None:
        """Removes the entry of a batch that failed, or that ended outside a streaming query."""
        with self._lock:
            of_log = self._held.get(log, {})
            if producer in of_log and of_log[producer][1] == sink:
                del of_log[producer]


_gates_lock: Final = threading.Lock()
_gates: "Final[weakref.WeakValueDictionary[str, threading.Event]]" = weakref.WeakValueDictionary()


def gate_of(query_id: str) -> threading.Event:
    """Returns the event that opens the gates of all sinks of a query while the query stops.

    The caller must keep a reference: the table of events is weak.
    """
    with _gates_lock:
        return _gates.setdefault(query_id, threading.Event())
