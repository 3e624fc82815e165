"""The errors of ``publishers.spark``, in one tree.

::

    PenstockError
    `-- SparkError
        |-- JavaMissing        no Java that Spark can run on
        |-- ConnectRefused     a DataFrame of Spark Connect                     (module)
        |-- SchemaRefused      a DataFrame whose rows cannot become changes     (column)
        |-- RowRefused         a row that cannot become a change                (column)
        |-- TooManyBadRows     a batch with more bad rows than its limit        (count, limit, column)
        |-- SinkNameTaken      two sinks with one name in one batch             (name, batch_id)
        |-- CheckpointLost     a batch id below the last committed one          (producer, batch_id, last)
        |-- BatchChanged       the last committed batch id with other rows      (producer, batch_id, version)
        |-- ComparisonTooLarge changes of a compared batch exceed their bound   (limit)
        |-- BatchTooLarge      more than Spark hands to the driver in one job
        |-- StagingLost        files staged by executors are missing            (path)
        |-- JobFailed          a job of a batch failed, or was stopped          (batch_id)
        `-- SinkFailed         a ``BaseException`` that is no ``Exception`` ended a batch

`publishers.errors.ValueRefused` is raised for a change that cannot become a typed row.

Spark shows the text of an error to its user and loses the object. So the text alone says what is wrong and what would be
right.
"""

from pathlib import Path

from publishers.commits.errors import ProducerConflict
from publishers.errors import PenstockError, ValueRefused

__all__ = [
    "BatchChanged",
    "BatchTooLarge",
    "CheckpointLost",
    "ComparisonTooLarge",
    "ConnectRefused",
    "JavaMissing",
    "JobFailed",
    "RowRefused",
    "SchemaRefused",
    "SinkFailed",
    "SinkNameTaken",
    "SparkError",
    "StagingLost",
    "TooManyBadRows",
    "UnorderedWarning",
    "ValueRefused",
]


class SparkError(PenstockError):
    """The root of the errors of ``publishers.spark``."""


class JavaMissing(SparkError, RuntimeError):
    """No Java of version 17 or newer was found for Spark."""

    says = "Java 17 or newer is needed: install it, or pip install 'penstock-cdc[spark,jre]'"


class ConnectRefused(SparkError, TypeError):
    """A query runs in Spark Connect, which calls ``foreachBatch`` in a process of its server, where no log is open."""

    module: str
    says = (
        "run the query in a classic SparkSession of the process that owns the log, such as "
        "publishers.spark.spark_session('name') makes where SPARK_REMOTE is not set, or, if it is no stream, commit its "
        "rows there: log.commit(upsert('order', row.id, row.asDict()) for row in df.toLocalIterator()); this one "
        "belongs to Spark Connect ({module}), which runs foreachBatch in a process of its server, where no log is open; "
        "or commit through a server: ChangeSink('ws://host:8090/ws', ...)"
    )


class SchemaRefused(SparkError, ValueError):
    """The columns of a DataFrame cannot become keys and bodies without loss."""

    column: str
    why: str
    says = "column {column!r} {why}"


class RowRefused(SparkError, ValueError):
    """A row of a batch cannot become a change; nothing of the batch was committed."""

    column: str
    why: str
    says = "column {column!r} {why}"


class TooManyBadRows(SparkError, ValueError):
    """A batch has more bad rows than ``bad_rows_max``; nothing of it was committed."""

    count: int
    limit: int
    column: str
    why: str
    says = (
        "{count} rows or more of the batch are bad, the last ones because column {column!r} {why}, but bad_rows_max is "
        "{limit}; mend the rows at their source, or raise the option"
    )


class SinkNameTaken(SparkError, ValueError):
    """Two sinks in one batch have the same name; each would mistake the other's commit for its own, repeated."""

    name: str
    batch_id: int
    says = (
        "another ChangeSink named {name!r} takes part in batch {batch_id} of this query; "
        "give each sink of a foreachBatch a name of its own: ChangeSink(..., name='...')"
    )


class CheckpointLost(SparkError):
    """A batch id is below the last one of its producer; nothing was committed. Spark repeats only the newest batch."""

    producer: str
    batch_id: int
    last: int | None

    def _text(self) -> str:
        further = "further on" if self.last is None else str(self.last)
        return (
            f"batch {self.batch_id} came under producer={self.producer!r}, whose last batch in the log is {further}: Spark repeats "
            "the newest batch only, so this is another checkpoint, or an older copy of it, and the rows may be new ones; put the "
            "checkpoint back, or give the sink another producer= to commit all that comes"
        )


class BatchChanged(SparkError, ProducerConflict):
    """A batch has the last committed id of its producer, but other rows; nothing was committed."""

    says = (
        "batch {sequence} of producer={producer!r} has other rows than version {version} of the log, which was committed under "
        "that number; put the checkpoint back if it was lost, give the sink another producer= to commit all that comes, "
        "or leave producer= and on_rerun= out if the query computes other rows each time"
    )

    @property
    def batch_id(self) -> int:
        """The number of the batch, which is its sequence."""
        return self.sequence


class BatchTooLarge(SparkError):
    """A partition exceeds ``spark.driver.maxResultSize`` even after the finest split; nothing was committed."""

    limit: str
    says = (
        "one partition of the batch is above spark.driver.maxResultSize ({limit}) although it was cut to about "
        "collect_bytes; raise that option (and spark.driver.memory), lower the sink's collect_bytes, or bound the "
        "batch at its source, for instance with maxFilesPerTrigger"
    )


class ComparisonTooLarge(SparkError):
    """The changes of a compared batch exceed ``compare_bytes``; nothing was committed."""

    limit: int
    says = (
        "the changes of the batch need more than compare_bytes ({limit}); bound the batch at its source, for instance with "
        "maxFilesPerTrigger, raise the option, or commit this batch by a sink without compare=True"
    )


class StagingLost(SparkError, RuntimeError):
    """The driver does not find the files that executors report as staged; nothing of the batch was committed."""

    path: Path
    cause: OSError
    says = (
        "what executors have staged in {path} is not there as they wrote it ({cause}); with staging='executors' this directory has "
        "to be one that every executor and the driver see under the same path, so they run on one machine; staging='driver' needs none"
    )


class JobFailed(SparkError, RuntimeError):
    """A job of a batch failed, or the query was stopped while it ran; ``sink.error`` holds the complete Java error.

    Spark searches the error text for the name of an interruption, with a regular expression that uses stack frames for each
    character. When a query is stopped, a long text therefore causes a ``StackOverflowError`` of a thousand lines. This text is
    short, and begins as Spark's expression expects.
    """

    batch_id: int
    reason: str
    says = "batch {batch_id} failed in Spark: py4j.protocol.Py4JJavaError: An error occurred while calling {reason:.500}"


class SinkFailed(SparkError, RuntimeError):
    """A ``BaseException`` that is no ``Exception`` ended a batch; passed on as it is, it would make Spark wait for ever."""

    batch_id: int
    cause: BaseException

    def _text(self) -> str:
        return f"batch {self.batch_id} was ended by {type(self.cause).__name__}: {self.cause}"


class UnorderedWarning(UserWarning):
    """The operations come from a column, but no ``order_by`` orders the rows of a batch."""

    def __init__(self, column: str) -> None:
        super().__init__(
            f"operations come in the column {column!r}, and nothing orders the rows of a batch: of a key that is there twice the older "
            "row may win; name the columns that order them with order_by=, or say order_by=() if each key comes once"
        )
        self.column = column
