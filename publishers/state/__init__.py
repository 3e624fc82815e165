"""The compacted state of a log: the newest body of each entity, kept beside the log by a consumer with a thread of its own.

Its rows lie in an SQLite file in a directory that no other part of the log reads. In each transaction of that file the rows
and the place in the log as of which they are change together, so that the reader of a page knows which changes follow.
"""

from publishers.state.compacted_state import CompactedState
from publishers.state.rows import EntityRow, StatePage, StateStatistics

__all__ = ["CompactedState", "EntityRow", "StatePage", "StateStatistics"]
