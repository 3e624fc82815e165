"""The logs that a server serves: those of a store, or what lies at a path, whatever that is at the moment."""

import logging
import os
import threading
from collections.abc import ItemsView, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Self

from publishers.errors import InvalidOption
from publishers.log.changelog import ChangeLog
from publishers.options import check_directory
from publishers.store.directory import kind_of
from publishers.store.log_entries import SYSTEM
from publishers.store.store import ChangeStore
from publishers.wal import RealFileSystem

__all__ = ["FollowedName", "StoreLogs", "logs_by_name"]

_LOG: Final = logging.getLogger("penstock.transports")
_LOOK: Final = (
    0.25  # seconds between two looks whether what is open has ended, and then for what comes in its place
)


class StoreLogs(Mapping[str, ChangeLog]):
    """What a store has open now. Nothing is opened by looking: that reads the disk, and is not for an event loop.

    The system log is found under ``$system`` but not listed, so a client may leave the name out where there is one log.

    Args:
        store: All its logs are opened here, and if it is read-only those that appear later, as they do.
    """

    def __init__(self, store: ChangeStore) -> None:
        self._store = store
        store.open_all()

    def __getitem__(self, name: str) -> ChangeLog:
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

    def items(self) -> ItemsView[str, ChangeLog]:
        """All at this moment: one that is dropped meanwhile is not looked up again."""
        return self._store.opened().items()


class FollowedName(Mapping[str, ChangeLog]):
    """The log, or the logs of the store, at a path; and when it is replaced, renamed or removed, what comes to that path.

    What was open ends with ``LogReplaced`` or ``LogGone`` for those who have subscribed: another history may have come, and
    nobody is moved there without being told. Who subscribes again is served from what is there now, which judges the
    position that it brings. Until something is there, the old log refuses everything with its error.

    Give it to ``transports.serve`` or ``Application`` in place of a log. It is a context manager that closes.

    Attributes:
        path: What is followed; a log is served under the last name of it, and not that of what a symbolic link leads to.

    Args:
        path: Of a log or a store, which must be there.
        options: For each opening, as for ``ChangeLog.open`` or ``ChangeStore.open``; it is read-only.

    Raises:
        NotALog: If there is neither a log nor a store.
        WalCorrupted, LogUnreadable: If it is damaged, or cannot be opened.
    """

    def __init__(self, path: str | Path, **options: Any) -> None:
        self.path = check_directory(path)
        self._options = options
        self._ended = threading.Event()
        self._opened, self._logs = self._open()
        self._thread = threading.Thread(target=self._watch, name=f"penstock-{self.name}-name", daemon=True)
        self._thread.start()

    @property
    def name(self) -> str:
        """The name under which a log is served."""
        return Path(os.path.abspath(self.path)).name

    def __getitem__(self, name: str) -> ChangeLog:
        return self._logs[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._logs)

    def __len__(self) -> int:
        return len(self._logs)

    def items(self) -> ItemsView[str, ChangeLog]:
        """All at this moment."""
        return self._logs.items()

    def refused(self) -> dict[str, Exception]:
        """Of a store the logs that could not be opened, and why."""
        return self._logs.refused() if isinstance(self._logs, StoreLogs) else {}

    def close(self) -> None:
        """Closes what is open, and opens nothing more. Idempotent."""
        self._ended.set()
        self._thread.join()
        self._opened.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open(self) -> tuple[ChangeLog | ChangeStore, Mapping[str, ChangeLog]]:
        if kind_of(RealFileSystem(), self.path) == "store":
            store = ChangeStore.open(self.path, read_only=True, **self._options)
            return store, StoreLogs(store)
        log = ChangeLog.open(self.path, read_only=True, **self._options)
        log.name = self.name
        return log, {self.name: log}

    def _watch(self) -> None:
        said = ""
        while not self._ended.wait(_LOOK):
            if self._opened.failure is None:
                continue
            try:
                found = self._open()
            except Exception as error:  # noqa: BLE001 - whatever it is, it may be better at the next look
                if str(error) != said:
                    said = str(error)
                    _LOG.warning("waiting for a log at %s: %s", self.path, error)
                continue
            said = ""
            before = self._opened
            self._opened, self._logs = found
            before.close()
            _LOG.warning("what is at %s now is followed", self.path)


def logs_by_name(logs: "ChangeLog | ChangeStore | Mapping[str, ChangeLog]") -> Mapping[str, ChangeLog]:
    """The logs that a server is given, by their names.

    Raises:
        InvalidOption: If it is none.
        LogForked: In a child of ``fork``, if one was opened in its parent.
    """
    if isinstance(logs, ChangeStore):
        return StoreLogs(logs)
    named = logs if isinstance(logs, Mapping) else {getattr(logs, "name", ""): logs}
    for log in named.values():
        if not hasattr(log, "check_here"):
            raise InvalidOption(
                "log",
                log,
                "an open log, such as ChangeLog.open(path, read_only=True), several by name, or a store",
            )
        log.check_here()
    return named
