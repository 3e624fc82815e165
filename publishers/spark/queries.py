"""What a sink must know of the query that calls it, and what the sinks of one query must know of each other."""

import threading
import weakref
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

from publishers.spark.errors import ConnectRefused, SinkNameTaken

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["Claims", "QueryBatch", "connect_module", "gate_of"]


def connect_module(frame: "DataFrame") -> str | None:
    """The module that says that a frame belongs to Spark Connect; None if it does not."""
    modules = (type(frame).__module__, type(frame.sparkSession).__module__)
    return next((module for module in modules if module.startswith("pyspark.sql.connect")), None)


class QueryBatch(NamedTuple):
    """One micro-batch of one run of one query.

    Attributes:
        query_id: Lives in the checkpoint, survives restarts; None outside a streaming query.
        run_id: Another one after each restart.
        query_name: As given with ``queryName``.
        batch_id: Counts from 0 with a new checkpoint.
    """

    query_id: str | None
    run_id: str | None
    query_name: str | None
    batch_id: int

    @classmethod
    def of(cls, frame: "DataFrame", batch_id: int, *, anywhere: bool = False) -> "QueryBatch":
        """Reads it from the local properties of the thread that Spark runs the batch on.

        Args:
            frame: The rows.
            batch_id: The number that Spark gave.
            anywhere: Whether the batch may run in a worker of Spark Connect, which knows of no query.

        Raises:
            ConnectRefused: If the frame belongs to Spark Connect, and may not.
        """
        module = connect_module(frame)
        if module is not None:
            if not anywhere:
                raise ConnectRefused(module)
            return cls(None, None, None, int(batch_id))
        context = frame.sparkSession.sparkContext
        query_id = context.getLocalProperty("sql.streaming.queryId")
        # A query runs its jobs in a group named by its run; the description begins with its name if it has one.
        run_id = context.getLocalProperty("spark.jobGroup.id") if query_id else None
        described = context.getLocalProperty("spark.job.description") if query_id else None
        name = (described or "").replace("<br/>", "\n").partition("\n")[0]
        return cls(query_id, run_id, None if not name or name.startswith("id = ") else name, int(batch_id))


class Claims:
    """Who commits under which name in which batch, so that two sinks of one name are noticed.

    To the log they would look like one sink that runs a batch twice, and the second one's changes would be lost without
    a word. One entry is kept for each log, producer and its newest batch.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: weakref.WeakKeyDictionary[object, dict[str | UUID, tuple[QueryBatch, int]]]
        self._held = weakref.WeakKeyDictionary()

    def take(self, log: object, producer: str | UUID, name: str, batch: QueryBatch, sink: int) -> None:
        """Notes that ``sink``, a number that no other sink of this process has, commits ``batch``.

        The same batch in another run of the query, or by the same sink, is a re-run and welcome.

        Raises:
            SinkNameTaken: If another sink does, or has done, so in this run.
        """
        with self._lock:
            of_log = self._held.setdefault(log, {})
            found = of_log.get(producer)
            if found is not None and found[0] == batch and found[1] != sink:
                raise SinkNameTaken(name, batch.batch_id)
            of_log[producer] = (batch, sink)

    def give_back(self, log: object, producer: str | UUID, sink: int) -> None:
        """Forgets a batch that failed, or that belongs to no query and is over."""
        with self._lock:
            of_log = self._held.get(log, {})
            if producer in of_log and of_log[producer][1] == sink:
                del of_log[producer]


_gates_lock: Final = threading.Lock()
_gates: "Final[weakref.WeakValueDictionary[str, threading.Event]]" = weakref.WeakValueDictionary()


def gate_of(query_id: str) -> threading.Event:
    """The event that opens the gates of all sinks of a query while it is being stopped; keep a reference to it."""
    with _gates_lock:
        return _gates.setdefault(query_id, threading.Event())
