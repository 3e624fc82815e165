"""A store: a directory of named change logs, and the system log that records their creation, renames and drops."""

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Self

from msgspec.structs import replace

from flow.clock import SYSTEM_CLOCK, Clock
from publishers.errors import LogDropped, LogFailed, LogReadOnly, PenstockError
from publishers.log.changelog import ChangeLog
from publishers.log.statistics import LogStatistics
from publishers.log.transaction_writer import Tracer, check_tracer
from publishers.options import KIB, LogOptions, check_directory, check_kept, check_switches, check_wait
from publishers.store.directory import SYSTEM_DIRECTORY, StoreDirectory
from publishers.store.log_entries import LogEntries, LogEntry, check_labels, created, dropped, replaced
from publishers.store.open_logs import OpenLogs
from publishers.store.system import SystemLog
from publishers.wal import FileSystem, RealFileSystem
from publishers.wal.disk.modes import kept_readers
from publishers.wal.files.own_options import write_own

__all__ = ["KEEP", "ChangeStore", "StoreStatistics"]

_SYSTEM_OPTIONS: Final = {
    "retain_bytes": None,
    "retain_age": None,
    "publish": True,
    "sync": "always",
    "fill_step": 64 * KIB,
    "state": False,
}
"""The options of the system log: it is small, and is never truncated by retention, since it is the list of the logs; the present
list is in memory, so it needs no compacted state."""


class _Keep:
    """The type of ``KEEP``."""

    def __repr__(self) -> str:
        return "KEEP"


KEEP: Final = _Keep()
"""An argument of ``retype`` that leaves the present value."""


@dataclass(frozen=True, slots=True)
class StoreStatistics:
    """The statistics of one opened store.

    Attributes:
        system: The statistics of the system log.
        logs: The statistics by name of the logs that are open in this process.
        names: The names of all logs of the store.
    """

    system: LogStatistics
    logs: Mapping[str, LogStatistics]
    names: tuple[str, ...]


class ChangeStore(Mapping[str, ChangeLog]):
    """Named change logs, owned by one process and followed by any number.

    Open it with ``ChangeStore.open``. It is a mapping from names to logs: ``store["orders"]`` is ``store.log("orders")``.
    All methods may be called from any thread. It is a context manager that closes itself and its logs.

    The system log, ``store.system``, records the creation, renames and drops of logs, and is the source of truth: a log exists
    once its creation is committed there, and no longer once its drop is. A store opened with ``read_only=True`` follows the
    system log, so logs appear, disappear and change their names there without a second opening.

    Attributes:
        path: The directory of the store.
        read_only: Whether this store follows its owner instead of owning the directory.
        system: The system log.
    """

    def __init__(self, logs: OpenLogs, options: Mapping[str, Any], *, read_only: bool) -> None:
        """Internal; use ``open``."""
        self.path: Path = logs.disk.path
        self.read_only = read_only
        self.system: SystemLog = logs.system
        self._logs = logs
        self._options = options

    @classmethod
    def open(
        cls,
        path: str | Path,
        *,
        read_only: bool = False,
        borrowed: bool = False,
        wait: float = 0.0,
        filesystem: FileSystem | None = None,
        clock: Clock = SYSTEM_CLOCK,
        tracer: Tracer | None = None,
        **options: Any,
    ) -> Self:
        """Opens a store, either as its owner, which creates a missing store, or read-only, following the owner.

        Args:
            path: The directory of the store.
            read_only: Follow the process that owns the store, and serve subscribers.
            borrowed: The store is another program's, as for a command: see ``ChangeLog.open``.
            wait: Seconds to wait for another owner to close the store, before ``LogBusy``; at most a day.
            filesystem: The file system; the real one if None.
            clock: The source of time.
            tracer: The tracer of each log; see ``ChangeLog.open``.
            options: Fields of ``LogOptions``. They are given to each log that is opened, which keeps some of them
                (``ChangeLog.open``); an option given at the creation of a log takes precedence.

        Raises:
            InvalidOption: If an option is unknown or out of its bounds.
            NotAStore: If the directory is a log or something else; with ``read_only``, also if it is empty or missing.
            LogBusy: If another process, or another ``ChangeStore`` in this process, owns the store.
            WalCorrupted: If the system log is damaged.
        """
        check_switches(read_only=read_only, borrowed=borrowed)
        check_wait(wait)
        check_tracer(tracer)
        chosen, directory = LogOptions.chosen(None, options), check_directory(path)
        if not read_only and filesystem is None:  # new logs are for those who may read the others
            quiet = borrowed and "readers" not in options
            options["readers"] = kept_readers(directory / SYSTEM_DIRECTORY, None if quiet else chosen.readers)
            chosen = LogOptions.chosen(None, options)
        storage = filesystem or RealFileSystem(chosen.readers)
        disk = StoreDirectory(directory, storage)
        disk.check(missing=not read_only)
        with contextlib.ExitStack() as stack:
            if not read_only:
                disk.own(wait)
                stack.callback(disk.close)
            kept = LogOptions.chosen(chosen, _SYSTEM_OPTIONS)
            system = SystemLog.open(
                disk.path / SYSTEM_DIRECTORY,
                read_only=read_only,
                options=kept,
                filesystem=storage,
                clock=clock,
            )
            stack.callback(system.close)
            logs = OpenLogs(disk, system, options, read_only, borrowed, storage, clock, tracer)
            logs.catch_up()
            logs.carry_out()
            if read_only:
                logs.follow()
            else:
                logs.decide()
            stack.pop_all()
        return cls(logs, options, read_only=read_only)

    @property
    def failure(self) -> Exception | None:
        """Why a read-only store stopped following its owner: ``failure`` of the system log. None while it follows, or if closed."""
        return self.system.failure

    # Logs.

    def log(self, name: str) -> ChangeLog:
        """The log of a name, opened at the first call and shared from then on; the store closes it.

        A followed log that has failed (``failure``) is opened again.

        Raises:
            NoSuchLog: If there is none.
            LogBusy: If another process writes to it, and this store is not read-only.
            LogClosed: If the store is closed.
            WalCorrupted: If acknowledged data are damaged.
        """
        self._logs.refresh()
        return self._logs.log(name)

    def create(
        self,
        name: str,
        *,
        type: str | None = None,  # noqa: A002 - the word of the event
        labels: Mapping[str, str] | None = None,
        **options: Any,
    ) -> ChangeLog:
        """Creates a log. On return it exists durably, and is visible to every process that has the store open.

        Args:
            name: Its name; also the name of its directory, if no such directory exists.
            type: The kind of log, chosen by the application: a text of 1 to 256 characters, or None.
            labels: Further texts by name, chosen by the application: at most 64, each of at most 256 characters.
            options: Fields of ``LogOptions`` that differ from the store's; they are stored with the log.

        Raises:
            InvalidName: If the name is not valid for a log.
            InvalidOption: If an option is unknown or out of its bounds.
            InvalidChange: If the type or a label cannot be stored.
            LogExists: If a log has the name, perhaps in other case.
            LogReadOnly, LogFull, LogFailed: If the change cannot be committed to the system log.
        """
        with self._changing() as entries:
            entries.check_free(name)
            said = check_labels(type, labels)
            LogOptions.chosen(None, {**self._options, **options})
            directory = entries.free_directory(name, self._logs.disk.names())
            self._logs.disk.doubt(directory)
            entry = LogEntry(name, "", directory, type, said, options)
            log: ChangeLog | None = None
            try:
                log = self._logs.open(entry)
                self._logs.record(created(replace(entry, log_id=log.log_id.hex)))
            except (PenstockError, OSError) as error:
                if log is not None:
                    self._logs.forget(log)
                    log.close()
                if not _unknown(error):
                    self._logs.remove(directory)
                raise
            self._logs.settle(directory)
        self._logs.publish_opened(log)
        return log

    def drop(self, name: str) -> None:
        """Drops a log with all its changes: every subscription, local and remote, ends with ``LogDropped``.

        Raises:
            NoSuchLog: If there is no log of the name.
            LogBusy: If another process writes to the log.
            LogReadOnly, LogFull, LogFailed: If the change cannot be committed to the system log.
        """
        with self._changing() as entries:
            entry = entries.find(name)
            handle = self._logs.handle(entry)
            lock = self._logs.disk.lock_log(entry.directory) if handle is None else None
            try:
                self._logs.disk.doubt(entry.directory)
                try:
                    self._logs.record(dropped(entry))
                except PenstockError as error:
                    if not _unknown(error):
                        self._logs.settle(entry.directory)
                    raise
            finally:
                if lock is not None:
                    lock.close()
        if handle is not None:
            handle.close(LogDropped(name))  # waits if another thread closes it already
        self._logs.remove(entry.directory)

    def rename(self, old: str, new: str) -> None:
        """Renames a log. Its subscriptions and writers continue, and its directory stays.

        Raises:
            NoSuchLog: If there is no log of the old name.
            InvalidName: If the new name is not valid for a log.
            LogExists: If another log has the new name, perhaps in other case.
            LogReadOnly, LogFull, LogFailed: If the change cannot be committed to the system log.
        """
        with self._changing() as entries:
            entry = entries.find(old)
            entries.check_free(new, but=old)
            if new != old:
                self._logs.record(replaced(entry, replace(entry, name=new)))

    def retype(
        self,
        name: str,
        *,
        type: str | _Keep | None = KEEP,  # noqa: A002 - the word of the event
        labels: Mapping[str, str] | _Keep | None = KEEP,
    ) -> None:
        """Replaces the type of a log, its labels, or both.

        Args:
            name: The log.
            type: Its new type, as in ``create``.
            labels: All its new labels, as in ``create``.

        Raises:
            NoSuchLog: If there is no log of the name.
            InvalidChange: If the type or a label cannot be stored.
            LogReadOnly, LogFull, LogFailed: If the change cannot be committed to the system log.
        """
        with self._changing() as entries:
            entry = entries.find(name)
            kind = entry.type if isinstance(type, _Keep) else type
            said = check_labels(kind, entry.labels if isinstance(labels, _Keep) else labels)
            self._logs.record(replaced(entry, replace(entry, type=kind, labels=said)))

    def set_options(self, name: str, **options: Any) -> None:
        """Changes options that a log keeps; they count from its next opening on.

        Args:
            name: The log.
            options: Those fields of ``LogOptions`` that a log keeps (``penstock log options``).

        Raises:
            NoSuchLog: If there is no log of the name.
            InvalidOption: If the log does not keep an option of that name, or the value is out of its bounds.
            LogBusy: If another process writes to the log.
            LogReadOnly, LogFull, LogFailed: If the change cannot be committed to the system log.
            OSError: If it cannot be written into the log; its next opening by the owner of the store does that.
        """
        check_kept(options)
        with self._changing() as entries:
            entry = entries.find(name)
            lock = self._logs.disk.lock_log(entry.directory) if self._logs.handle(entry) is None else None
            try:
                self._logs.record(replaced(entry, replace(entry, options={**entry.options, **options})))
                write_own(self._logs.filesystem, self.path / entry.directory, options)
            finally:
                if lock is not None:
                    lock.close()

    def names(self) -> list[str]:
        """The names of all logs, sorted."""
        return list(self)

    def entry(self, name: str) -> LogEntry:
        """The entry of a log; does not open the log.

        Raises:
            NoSuchLog: If there is no log of the name.
        """
        self._logs.refresh()
        with self._logs.lock:
            self._logs.check_open()
            return self._logs.entries.find(name)

    def opened(self) -> Mapping[str, ChangeLog]:
        """The logs that are open in this process now, or have failed (``failure``), by name."""
        with self._logs.lock:
            found = ((entry.name, self._logs.handle(entry)) for entry in self._logs.entries.values())
            return MappingProxyType({name: log for name, log in found if log is not None})

    def peek(self, name: str) -> ChangeLog | None:
        """The log of a name if it is among ``opened``, else None; never reads the disk."""
        with self._logs.lock:
            entry = self._logs.entries.get(name)
            return None if entry is None else self._logs.handle(entry)

    def open_all(self) -> None:
        """Opens every log, and from now on each new log.

        A log that cannot be opened is skipped, and an event FAILED of the area HOST is published.
        """
        self._logs.eager = True
        for name in self:
            with contextlib.suppress(PenstockError, OSError):  # ``OpenLogs.log`` has published FAILED
                self.log(name)

    def refused(self) -> dict[str, Exception]:
        """The error of the last attempt to open each log that could not be opened, by name. Never reads the disk."""
        with self._logs.lock:
            found = self._logs.refused
            return {one.name: found[one.log_id] for one in self._logs.entries.values() if one.log_id in found}

    def __getitem__(self, name: str) -> ChangeLog:
        return self.log(name)

    def __iter__(self) -> Iterator[str]:
        self._logs.refresh()
        with self._logs.lock:
            self._logs.check_open()
            return iter(list(self._logs.entries))

    def __len__(self) -> int:
        self._logs.refresh()
        with self._logs.lock:
            return len(self._logs.entries)

    def __contains__(self, name: object) -> bool:
        self._logs.refresh()
        with self._logs.lock:
            return isinstance(name, str) and name in self._logs.entries

    # Life.

    def statistics(self) -> StoreStatistics:
        """The statistics of the store and its open logs, as of now."""
        opened = self.opened()
        return StoreStatistics(
            self.system.statistics(),
            MappingProxyType({name: log.statistics() for name, log in opened.items() if log.failure is None}),
            tuple(self),
        )

    def refresh(self) -> None:
        """Applies new changes of the system log; a read-only store does so by itself, shortly after each commit."""
        self._logs.refresh()

    def close(self) -> None:
        """Closes every log, then the system log. Idempotent; in a child of ``fork`` it does nothing.

        Raises:
            LogFailed: If the last commits of a log could not be synced; everything is closed nevertheless.
        """
        with self._logs.lock:
            if self._logs.closed:
                return
            self._logs.closed = True
            handles = self._logs.handles()
        with contextlib.ExitStack() as last:
            last.callback(self._logs.disk.close)
            last.callback(self.system.close)
            for handle in handles:
                last.callback(handle.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        mode = "closed" if self._logs.closed else "read-only" if self.read_only else "owned"
        return f"<ChangeStore {str(self.path)!r} {mode}, {len(self._logs.entries)} logs>"

    # A mapping compares by content; a store is equal to itself only.

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other

    @contextlib.contextmanager
    def _changing(self) -> Iterator[LogEntries]:
        """Holds the lock for one change by the owner, then carries it out without the lock."""
        with self._logs.lock:
            self._logs.check_open()
            if self.read_only:
                raise LogReadOnly(self.path)
            self._logs.catch_up()  # an interrupt may have come between a commit and its consequences
            yield self._logs.entries
        self._logs.carry_out()


def _unknown(error: PenstockError | OSError) -> bool:
    """Whether a failed commit may be durable nevertheless."""
    return isinstance(error, LogFailed) and error.outcome == "unknown"
