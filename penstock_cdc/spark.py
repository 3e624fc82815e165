"""Change logs in Spark: the sink for streaming queries, and the data source; it needs the extra ``spark``."""

import publishers.spark as _spark
from publishers.spark import *  # noqa: F403 - all of it, see __all__ there

__all__ = _spark.__all__
