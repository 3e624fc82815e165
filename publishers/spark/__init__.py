"""Spark writes change logs and reads them: a sink of streaming queries, the format ``penstock``, and a SparkSession to run them in.

Importing this package needs PySpark (``pip install 'penstock-cdc[spark]'``), and no Java until a session is built.
"""

import publishers.spark.requirements  # noqa: F401 - looks for what the others import
from publishers.spark import errors
from publishers.spark.change_feed import CHANGE_FEED, change_feed
from publishers.spark.debezium import DEBEZIUM, debezium
from publishers.spark.errors import *  # noqa: F403 - every error that there is, see __all__ there
from publishers.spark.frame_source import FrameSource
from publishers.spark.java import ensure_java
from publishers.spark.progress import ProgressListener, QueryProgress, QueryState
from publishers.spark.session import SparkSettingWarning, spark_session
from publishers.spark.sink import ChangeSink, SinkStatistics
from publishers.spark.source import ChangeSource, register

__all__ = [
    "CHANGE_FEED",
    "DEBEZIUM",
    "ChangeSink",
    "ChangeSource",
    "FrameSource",
    "ProgressListener",
    "QueryProgress",
    "QueryState",
    "SinkStatistics",
    "SparkSettingWarning",
    "change_feed",
    "debezium",
    "ensure_java",
    "register",
    "spark_session",
]
__all__ += errors.__all__
