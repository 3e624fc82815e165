"""Where the rows of a snapshot come from."""

from collections.abc import Callable
from typing import Literal, Protocol

from publishers.state.rows import RowPlace
from publishers.state.table import TablePage

__all__ = ["SnapshotMode", "SnapshotSource"]

SnapshotMode = Literal["initial", "initial_only"]
"""What follows the rows.

``"initial"``
    Every change after them.
``"initial_only"``
    The end.
"""


class SnapshotSource(Protocol):
    """Rows by pages, each as of a version of the log; the compacted state of a log is one."""

    def read(
        self, after: RowPlace | None, types: tuple[str, ...] | None, limit: int, max_bytes: int
    ) -> TablePage:
        """Rows behind one, in the order of entity types and the bytes of keys, all of one moment.

        A later page is of the same version, or a later one. It may block.

        Args:
            after: The row behind which the page begins; None for the first.
            types: Entity types of which rows are wanted, sorted; None for all.
            limit: Most rows.
            max_bytes: Bytes after which the page ends; it holds one row at least, if there is one.
        """
        ...

    def listen(self, version: int, tell: Callable[[], object]) -> None:
        """Calls once what is read is as of a version or a later one, or never will be: at once, or from another thread."""
        ...
