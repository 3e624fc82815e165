"""The short way of a small transaction to a sealed one."""

from collections.abc import Callable, Collection, Sequence

from publishers.commits.label import Label
from publishers.mutations.rows import Mutation, rows_of
from publishers.options import LogOptions
from publishers.wal import Transaction, seal_rows
from publishers.wal.format.rows import ROWS_MAX

__all__ = ["RowEncoder"]


class RowEncoder:
    """Encodes transactions of a few ordinary changes straight; the others are for the way over columns.

    Args:
        options: Bounds of frames, transactions, changes and keys.
        versions: The versions of the schema that was told of an entity type; changes of such a one are to be stamped.
        stamp: Gives a change its origin; None if the log has none.
    """

    __slots__ = ("_bytes", "_most", "_options", "_stamp", "_versions")

    def __init__(
        self,
        options: LogOptions,
        versions: Callable[[str], Collection[int]],
        stamp: Callable[[Mutation], Mutation] | None,
    ) -> None:
        self._options = options
        self._versions = versions
        self._stamp = stamp
        self._most = min(ROWS_MAX, options.max_transaction_changes)
        self._bytes = min(
            options.frame_bytes, options.max_change_bytes, options.max_transaction_bytes, options.spool_bytes
        )

    def seal(self, mutations: Sequence[Mutation], label: Label) -> Transaction | None:
        """The sealed transaction, or None if the changes have to become columns first."""
        if not 0 < len(mutations) <= self._most:
            return None
        options = self._options
        rows = rows_of(mutations, label.annotations, self._stamp, options.max_key_bytes)
        if rows is None or len(rows.payload) > self._bytes or any(map(self._versions, rows.entity_types)):
            return None
        return seal_rows(rows, producer=label.producer, sequence=label.sequence, compress=options.compress)
