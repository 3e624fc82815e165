"""The parts of PySpark that have no public name; nothing else in this package uses any.

A classic session wraps objects of the JVM. No public API shows the plan of a frame, makes a Dataset of an RDD in the JVM, or returns
Arrow data by partition. ``pyproject.toml`` bounds the versions of PySpark, and a test looks whether these parts are there.
"""

from typing import Any

from pyspark import SparkContext
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.util import _load_from_socket

__all__ = [
    "dataset_of",
    "gateway_of",
    "has_context",
    "java_column",
    "java_context",
    "java_session",
    "load_from_socket",
]

load_from_socket: Any = _load_from_socket
"""Reads what the JVM serves on a socket."""


def dataset_of(frame: DataFrame) -> Any:
    """Returns the Dataset in the JVM that a frame wraps."""
    return frame._jdf  # noqa: SLF001 - see above


def java_column(column: Column) -> Any:
    """Returns the column in the JVM that a column wraps."""
    return column._jc  # noqa: SLF001 - see above


def java_session(session: SparkSession) -> Any:
    """Returns the session in the JVM."""
    return session._jsparkSession  # noqa: SLF001 - see above


def java_context(context: SparkContext) -> Any:
    """Returns the context in the JVM."""
    return context._jsc.sc()  # noqa: SLF001 - see above


def gateway_of(context: SparkContext) -> Any:
    """Returns the gateway to the JVM of a context: a ``JavaGateway`` of py4j, whose package has no types."""
    return context._gateway  # noqa: SLF001 - see above


def has_context() -> bool:
    """Whether a context is running in this process; a builder would change its session."""
    return SparkContext._active_spark_context is not None  # noqa: SLF001 - see above
