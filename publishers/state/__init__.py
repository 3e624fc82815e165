"""The compacted state of a log: the newest body of each entity, maintained by a consumer on its own thread.

Its rows are in an SQLite file beside the log. Each transaction of that file stores rows together with their position in the log,
so the reader of a page knows which changes follow it.
"""

from publishers.state.compacted_state import CompactedState
from publishers.state.rows import EntityRow, StatePage, StateStatistics

__all__ = ["CompactedState", "EntityRow", "StatePage", "StateStatistics"]
