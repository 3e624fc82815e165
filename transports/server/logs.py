"""The logs that a server serves: those of a store, or those at a path, even when the path gets another log."""

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
    0.25  # seconds between checks whether the open log has ended, and then whether the path has a new one
)


class StoreLogs(Mapping[str, ChangeLog]):
    """The logs that a store has open. A look-up never opens a log: that reads the disk, which an event loop must not do.

    The system log is found under ``$system`` but is not listed, so a client may omit the name if there is one other log.

    Args:
        store: The store. All its logs are opened here; if it is read-only, logs that appear later are opened as they appear.
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
        """The logs that could not be opened, each with its error."""
        return self._store.refused()

    def items(self) -> ItemsView[str, ChangeLog]:
        """The logs at this moment; a log that is dropped during the iteration is not looked up again."""
        return self._store.opened().items()


class FollowedName(Mapping[str, ChangeLog]):
    """The log, or the logs of the store, at a path, which follows the path when its content is replaced, renamed or removed.

    Subscriptions to the previous log end with ``LogReplaced`` or ``LogGone``: the new log may have another history, and no
    subscriber moves to it unawares. A client that subscribes again reads the new log, which validates the client's position.
    Until the path has a log again, the previous log refuses every request with its error.

    Pass it to ``transports.serve`` or ``Application`` in place of a log. As a context manager it closes on exit.

    Attributes:
        path: The path that it follows. A log is served under the last component of this path, not of a symbolic link's
            target.

    Args:
        path: The path of a log or a store, which must exist.
        options: Passed to ``ChangeLog.open`` or ``ChangeStore.open`` each time; logs open read-only.

    Raises:
        NotALog: If the path holds neither a log nor a store.
        WalCorrupted, LogUnreadable: If the log is damaged or cannot be opened.
    """

    def __init__(self, path: str | Path, **options: Any) -> None:
        self.path: Path = check_directory(path)
        self._options = options
        self._ended = threading.Event()
        self._opened, self._logs = self._open()
        self._thread = threading.Thread(target=self._watch, name=f"penstock-{self.name}-name", daemon=True)
        self._thread.start()

    @property
    def name(self) -> str:
        """The name under which a single log is served."""
        return Path(os.path.abspath(self.path)).name

    def __getitem__(self, name: str) -> ChangeLog:
        return self._logs[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._logs)

    def __len__(self) -> int:
        return len(self._logs)

    def items(self) -> ItemsView[str, ChangeLog]:
        """The logs at this moment."""
        return self._logs.items()

    def refused(self) -> dict[str, Exception]:
        """The logs of a store that could not be opened, each with its error."""
        return self._logs.refused() if isinstance(self._logs, StoreLogs) else {}

    def close(self) -> None:
        """Closes the open log or store and stops following the path. Idempotent."""
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
            except Exception as error:  # noqa: BLE001 - whatever it is, the next attempt may succeed
                if str(error) != said:
                    said = str(error)
                    _LOG.warning("waiting for a log at %s: %s", self.path, error)
                continue
            said = ""
            before = self._opened
            self._opened, self._logs = found
            before.close()
            _LOG.warning("the log now at %s is followed", self.path)


def logs_by_name(logs: "ChangeLog | ChangeStore | Mapping[str, ChangeLog]") -> Mapping[str, ChangeLog]:
    """The logs of a server by name.

    Raises:
        InvalidOption: If an object is not an open log.
        LogForked: In a child of ``fork``, if a log was opened in its parent.
    """
    if isinstance(logs, ChangeStore):
        return StoreLogs(logs)
    named = logs if isinstance(logs, Mapping) else {getattr(logs, "name", ""): logs}
    for log in named.values():
        if not hasattr(log, "serving"):
            raise InvalidOption(
                "log",
                log,
                "an open log, such as ChangeLog.open(path, read_only=True), several by name, or a store",
            )
        log.serving.check_here()
    return named
