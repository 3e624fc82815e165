"""Change logs in Spark: a sink for streaming queries, the data source format ``penstock``, and a SparkSession to run both.

Importing this package needs PySpark (``pip install 'penstock-cdc[spark]'``). Java is needed only when a session is built.
"""

import publishers.spark.requirements  # noqa: F401 - must come first: it checks for PySpark and PyArrow
from publishers.spark.change_feed import CHANGE_FEED, change_feed
from publishers.spark.debezium import DEBEZIUM, debezium
from publishers.spark.errors import (
    BatchChanged,
    BatchTooLarge,
    CheckpointLost,
    ComparisonTooLarge,
    ConnectRefused,
    JavaMissing,
    JobFailed,
    RowRefused,
    SchemaRefused,
    SinkFailed,
    SinkNameTaken,
    SparkError,
    StagingLost,
    TooManyBadRows,
    UnorderedWarning,
    ValueRefused,
)
from publishers.spark.frame_source import FrameSource
from publishers.spark.java import ensure_java
from publishers.spark.progress import ProgressListener, QueryProgress, QueryState
from publishers.spark.session import SparkSettingWarning, spark_session
from publishers.spark.sink import ChangeSink, SinkStatistics
from publishers.spark.source import ChangeSource, register

__all__ = [
    "CHANGE_FEED",
    "DEBEZIUM",
    "BatchChanged",
    "BatchTooLarge",
    "ChangeSink",
    "ChangeSource",
    "CheckpointLost",
    "ComparisonTooLarge",
    "ConnectRefused",
    "FrameSource",
    "JavaMissing",
    "JobFailed",
    "ProgressListener",
    "QueryProgress",
    "QueryState",
    "RowRefused",
    "SchemaRefused",
    "SinkFailed",
    "SinkNameTaken",
    "SinkStatistics",
    "SparkError",
    "SparkSettingWarning",
    "StagingLost",
    "TooManyBadRows",
    "UnorderedWarning",
    "ValueRefused",
    "change_feed",
    "debezium",
    "ensure_java",
    "register",
    "spark_session",
]
