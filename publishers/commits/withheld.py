"""Withheld transactions: written, but not yet allowed to be delivered. One bounded list a log."""

from collections import deque
from typing import Final

from publishers.fanout.publish_gate import Published

__all__ = ["Withheld"]

_ENTRY: Final = 256
"""Approximate overhead in bytes of a transaction in the list, beside its changes."""
_LEAST_RUNS: Final = 64
"""Runs of hidden versions that are tracked exactly, however small the byte bound is; a run costs next to nothing."""


class Withheld:
    """The transactions from the first that was committed with ``visible=False`` to the newest.

    Ordinary transactions behind a withheld one are withheld too. The list is bounded: a transaction that exceeds the bound
    empties the list, and only its version is kept. When that version is published, rings restart behind it, and their
    cursors read the log. After opening a log only versions are known, and each counts as committed with ``visible=False``.

    Only the leader changes the list; any thread may read its attributes.

    Args:
        max_bytes: Most bytes of transactions to keep in memory.
        visible: Newest visible version when the log is opened.
        newest: Newest version when the log is opened.

    Attributes:
        first: The oldest withheld version; None if there is none.
        nbytes: Bytes kept in memory.
    """

    def __init__(self, max_bytes: int, visible: int, newest: int) -> None:
        self.first: int | None = None
        self.nbytes: int = 0
        self._max_bytes = max_bytes
        self._kept: deque[tuple[Published, int]] = deque()
        self._hidden: deque[tuple[int, int]] = deque()  # runs of versions committed with visible=False
        self._unkept = 0  # newest withheld version that is not in the list; 0 if all are
        self._unkept_changes: int | None = 0  # changes up to _unkept; None if not all were counted
        if visible < newest:
            self._unkept_changes = None
            self._hidden.append((visible + 1, newest))
            self._unkept = newest
            self.first = visible + 1

    def hide(self, version: int) -> None:
        """Notes a version that was committed with ``visible=False``."""
        hidden = self._hidden
        # The number of runs is bounded: beyond it, ordinary versions between two hidden ones count as hidden.
        crowded = len(hidden) >= max(self._max_bytes // _ENTRY, _LEAST_RUNS)
        if hidden and (crowded or hidden[-1][1] == version - 1):
            hidden[-1] = (hidden[-1][0], version)
        else:
            hidden.append((version, version))
        if self.first is None:
            self.first = version

    def keep(self, transaction: Published, nbytes: int) -> None:
        """Keeps a transaction with a version from ``first`` on; versions arrive in order."""
        weight = nbytes + _ENTRY
        self._kept.append((transaction, weight))
        self.nbytes += weight
        if transaction.blocks is None or self.nbytes > self._max_bytes:
            self._unkept = transaction.version
            if self._unkept_changes is not None:
                self._unkept_changes += sum(one.size for one, _ in self._kept)
            self._kept.clear()
            self.nbytes = 0

    def reach(self, version: int, newest: int) -> int:
        """Returns the newest version that becomes visible with ``version``: the last before the next one with ``visible=False``."""
        for first, last in self._hidden:
            if last > version:
                return max(version, first - 1)
        return newest

    def take(self, version: int) -> list[Published]:
        """Removes and returns everything up to a version that is about to be published."""
        taken: list[Published] = []
        if self._unkept:
            if version < self._unkept:
                taken.append(Published(version, 0, None))
                self._unkept_changes = None
            else:
                taken.append(Published(self._unkept, self._unkept_changes or 0, None))
                self._unkept = self._unkept_changes = 0
        kept = self._kept
        while kept and kept[0][0].version <= version:
            transaction, weight = kept.popleft()
            self.nbytes -= weight
            taken.append(transaction)
        hidden = self._hidden
        while hidden and hidden[0][0] <= version:
            _, last = hidden.popleft()
            if last > version:
                hidden.appendleft((version + 1, last))
        self.first = hidden[0][0] if hidden else None
        return taken

    def forget_after(self, version: int) -> None:
        """Drops the transactions above a version, because they are truncated."""
        kept = self._kept
        while kept and kept[-1][0].version > version:
            self.nbytes -= kept.pop()[1]
        hidden = self._hidden
        while hidden and hidden[-1][1] > version:
            first, _ = hidden.pop()
            if first <= version:
                hidden.append((first, version))
        self.first = hidden[0][0] if hidden else None
        if version < self._unkept:
            self._unkept_changes = None
        self._unkept = min(self._unkept, version) if hidden else 0
        if not hidden:
            self._unkept_changes = 0
