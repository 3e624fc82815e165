"""Spark's limits of micro-batches, which PySpark has since 4.2; before it they are nothing that it ever hands over."""

from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING or find_spec("pyspark.sql.streaming.datasource"):
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        ReadMaxFiles,
        SupportsTriggerAvailableNow,
    )
else:  # pragma: no cover - PySpark 4.1, which knows no limits
    ReadAllAvailable = ReadLimit = ReadMaxBytes = ReadMaxFiles = SupportsTriggerAvailableNow = object

__all__ = ["ReadAllAvailable", "ReadLimit", "ReadMaxBytes", "ReadMaxFiles", "SupportsTriggerAvailableNow"]
