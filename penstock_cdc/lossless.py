"""JSON without a loss: how keys and values are written, and which of them a type of Spark can read."""

import publishers.lossless as _lossless
from publishers.lossless import *  # noqa: F403 - all of it, see __all__ there

__all__ = _lossless.__all__
