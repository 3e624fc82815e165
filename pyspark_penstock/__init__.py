"""Where Spark looks for formats by itself: in top-level modules whose names begin with ``pyspark_``."""

import contextlib

with contextlib.suppress(ImportError):  # it would end the search for every other format
    from publishers.spark.source import ChangeSource as DefaultSource

    __all__ = ["DefaultSource"]
