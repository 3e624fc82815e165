"""Spark's read limits of micro-batches, new in PySpark 4.2. Earlier releases never pass one, so placeholders suffice."""

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
else:  # pragma: no cover - PySpark 4.1 has no limits
    ReadAllAvailable = ReadLimit = ReadMaxBytes = ReadMaxFiles = SupportsTriggerAvailableNow = object

__all__ = ["ReadAllAvailable", "ReadLimit", "ReadMaxBytes", "ReadMaxFiles", "SupportsTriggerAvailableNow"]
