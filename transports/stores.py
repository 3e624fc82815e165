"""The logs of a store as a server has them: those that are open, and under a reserved name the system log."""

from collections.abc import ItemsView, Iterator, Mapping
from typing import TYPE_CHECKING

from publishers.store.log_entries import SYSTEM

if TYPE_CHECKING:
    from publishers.log.changelog import ChangeLog
    from publishers.store.store import ChangeStore

__all__ = ["SYSTEM", "StoreLogs"]


class StoreLogs(Mapping[str, "ChangeLog"]):
    """What a store has open now. Nothing is opened by looking: that reads the disk, and is not for an event loop.

    The system log is found under ``$system`` but not listed, so a client may leave the name out where there is one log.

    Args:
        store: All its logs are opened here, and if it is read-only those that appear later, as they do.
    """

    def __init__(self, store: "ChangeStore") -> None:
        self._store = store
        store.open_all()

    def __getitem__(self, name: str) -> "ChangeLog":
        log = self._store.system if name == SYSTEM else self._store.peek(name)
        if log is None:
            raise KeyError(name)
        return log

    def __iter__(self) -> Iterator[str]:
        return iter(self._store.opened())

    def __len__(self) -> int:
        return len(self._store.opened())

    def refused(self) -> dict[str, Exception]:
        """Those that could not be opened, and why."""
        return self._store.refused()

    def items(self) -> "ItemsView[str, ChangeLog]":
        """All at this moment: one that is dropped meanwhile is not looked up again."""
        return self._store.opened().items()
