"""Applies the system log of a store to this process: opens, closes and renames logs."""

import contextlib
import logging
import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from msgspec.structs import replace as replace_entry

from flow import forks
from flow.bridges.callbacks import CallbackSubscription
from flow.clock import Clock
from flow.contracts import UNBOUNDED
from flow.demand import Tide
from flow.executors import INLINE
from publishers.criteria.criteria import Criterion
from publishers.errors import (
    LogClosed,
    LogDropped,
    LogForked,
    NoSuchLog,
    NotALog,
    PenstockError,
)
from publishers.log.changelog import ChangeLog
from publishers.log.transaction_writer import Tracer
from publishers.model.change import Area, Change
from publishers.model.position import Position
from publishers.mutations.mutation import Mutation
from publishers.options import LogOptions
from publishers.store.directory import SYSTEM_DIRECTORY, StoreDirectory, kind_of
from publishers.store.log_entries import LogEntries, LogEntry, LogStep
from publishers.store.system import SystemLog
from publishers.views.view import Content
from publishers.wal import FileSystem

__all__ = ["OpenLogs"]

_log = logging.getLogger("penstock.store")
_PAGE: Final = 1000


@dataclass(eq=False, repr=False)
class OpenLogs:
    """The logs of one opened store.

    Attributes:
        system: The system log.
        entries: The logs, as of the last change that was read from the system log.
        disk: The directory of the store.
        filesystem: The file system.
        lock: Guards everything here; never held while user code may run.
        eager: Whether a log is opened as soon as it appears.
        refused: The error of the last attempt to open a log, by log id; without the logs that are open.
        closed: Whether the store was closed.
        inherited: The error that every call raises in a child of ``fork``; None in the process that opened the store.
    """

    disk: StoreDirectory
    system: SystemLog
    _options: Mapping[str, Any]
    _read_only: bool
    _borrowed: bool
    filesystem: FileSystem
    _clock: Clock
    _tracer: Tracer | None
    entries: LogEntries = field(default_factory=LogEntries)
    lock: threading.RLock = field(default_factory=threading.RLock)
    eager: bool = False
    refused: dict[str, PenstockError | OSError] = field(default_factory=dict)
    closed: bool = False
    inherited: LogForked | None = None
    _applied: Position | None = None
    _steps: deque[LogStep] = field(default_factory=deque)  # applied to ``entries``, not carried out yet
    # By log id: names change, directories are used again.
    _handles: dict[str, ChangeLog] = field(default_factory=dict)

    def __post_init__(self) -> None:
        forks.register(self)

    def forked(self, pid: int, /) -> None:
        """See ``flow.forks.Forkable``: every call raises ``LogForked``, but ``close`` does nothing."""
        self.lock = threading.RLock()
        self.inherited = LogForked(self.disk.path, pid)
        self.closed = True

    # The caller holds the lock.

    def check_open(self) -> None:
        """Refuses calls after ``close``.

        Raises:
            LogClosed: If the store is closed.
            LogForked: In a child of ``fork``.
        """
        if self.closed:
            raise self.inherited or LogClosed()

    def handle(self, entry: LogEntry) -> ChangeLog | None:
        """The log, if it is open in this process or has failed (``failure``)."""
        handle = self._handles.get(entry.log_id)
        return None if handle is None or (handle.closed and handle.failure is None) else handle

    def forget(self, log: ChangeLog) -> None:
        """Removes a log from the open logs; the caller closes it."""
        self._handles.pop(log.log_id.hex, None)

    def handles(self) -> list[ChangeLog]:
        """All logs that were opened and not dropped, including closed ones."""
        return list(self._handles.values())

    def open(self, entry: LogEntry) -> ChangeLog:
        """Opens a log; creates it if its entry has no log id yet.

        Raises:
            NotALog: If its files are gone, or are those of another log.
            NoSuchLog: If the store is read-only and the log was dropped meanwhile.
            PenstockError, OSError: What ``ChangeLog.open`` raises.
        """
        known = {
            name: value for name, value in entry.options.items() if name in LogOptions.__dataclass_fields__
        }
        try:
            if entry.log_id and kind_of(self.filesystem, self.disk.path / entry.directory) == "nothing":
                # Opening would create the files again.
                raise NotALog(self.disk.path / entry.directory, "its files are gone")
            log = ChangeLog.open(
                self.disk.path / entry.directory,
                read_only=self._read_only,
                borrowed=self._borrowed and bool(entry.log_id),
                filesystem=self.filesystem,
                clock=self._clock,
                tracer=self._tracer,
                **{**self._options, **known},
            )
            if entry.log_id and log.log_id.hex != entry.log_id:
                log.close()
                raise NotALog(log.path, f"it is another log than the one that was made as {entry.name!r}")
        except (PenstockError, OSError) as error:
            if self._read_only and self._gone(entry):
                raise NoSuchLog(entry.name, set(self.entries) - {entry.name}) from error
            raise
        log.name = entry.name
        found = replace_entry(entry, log_id=log.log_id.hex)
        log.serving.attend(
            lambda what, body: self.system.board.publish(log.name, what, body),
            lambda error: LogDropped(log.name) if self._gone(found) else error,
        )
        self._handles[found.log_id] = log
        return log

    def _gone(self, entry: LogEntry) -> bool:
        """Whether the files of a log are gone; the DROPPED change may not be visible yet. False if the whole store is gone."""
        there = self.disk.log_id(SYSTEM_DIRECTORY) == self.system.log_id.hex
        return there and self.disk.log_id(entry.directory) != entry.log_id

    def record(self, mutation: Mutation) -> None:
        """Commits to the system log, and applies the commit."""
        self.system.record(mutation)
        self.catch_up()

    def catch_up(self) -> None:
        """Applies new changes of the system log to ``entries``; the caller then calls ``carry_out`` without the lock."""
        while self._applied is None or self._applied < self.system.head:
            page = self.system.history(
                Criterion(areas={Area.ENGINE}), self._applied, limit=_PAGE, content=Content.BODY
            )
            for change in page.changes:
                step = self.entries.apply(change)
                if step is not None:
                    self._steps.append(step)
            self._applied = page.next

    # Doubts that a dead process left. What fails here is left to the next opening.

    def decide(self) -> None:
        """Settles every doubt by the system log: keeps the directories that it lists, removes the others."""
        known = self.entries.directories()
        for directory in self.disk.doubts():
            if directory in known:
                self.settle(directory)
            else:
                self.remove(directory)

    def settle(self, directory: str) -> None:
        """Removes a doubt file; the directory stays."""
        try:
            self.disk.settle(directory)
        except OSError:
            _log.exception("the doubt about %s is left to the next opening of the store", directory)

    def remove(self, directory: str) -> None:
        """Removes a directory and its doubt file."""
        try:
            self.disk.remove(directory)
        except OSError:
            _log.exception("%s is left to be removed by the next opening of the store", directory)

    # The caller does not hold the lock.

    def log(self, name: str) -> ChangeLog:
        """The log of a name; opens it if it is not open, or has failed."""
        with self.lock:
            self.check_open()
            entry = self.entries.find(name)
            handle = self.handle(entry)
            if handle is not None and handle.failure is None:
                return handle
            try:
                opened: ChangeLog | PenstockError | OSError = self.open(entry)
                self.refused.pop(entry.log_id, None)
            except (PenstockError, OSError) as error:
                opened = self.refused[entry.log_id] = error
        if isinstance(opened, Exception):
            if not isinstance(opened, NoSuchLog):
                self.system.board.publish(
                    name, "FAILED", {"error": type(opened).__name__, "message": str(opened)}
                )
            raise opened
        self.publish_opened(opened)
        return opened

    def refresh(self) -> None:
        """Applies new changes of the system log, and carries them out, unless the store is closed.

        Raises:
            LogForked: In a child of ``fork``.
        """
        with self.lock:
            if self.closed:
                if self.inherited is not None:
                    raise self.inherited
                return
            self.catch_up()
        self.carry_out()

    def follow(self) -> None:
        """Refreshes at each new change of the system log."""
        feed = self.system.changes(Criterion(areas={Area.ENGINE}), since=self.system.head)
        watcher = CallbackSubscription[Change](lambda _: self.refresh(), self._lose, None, Tide(UNBOUNDED))
        feed.subscribe(watcher, executor=INLINE, name="store")
        self.refresh()

    def _lose(self, error: Exception) -> None:
        _log.error("the store %s is no longer followed: %s", self.disk.path, error)

    def publish_opened(self, log: ChangeLog) -> None:
        """Publishes the event OPENED of a log."""
        body = {
            "epoch": log.epoch,
            "oldest": str(log.oldest),
            "head": str(log.head),
            "readOnly": log.read_only,
        }
        self.system.board.publish(log.name, "OPENED", body)

    def carry_out(self) -> None:
        """Closes dropped logs, renames open ones, and opens new ones if ``eager``; may run user code."""
        while self._steps:
            with self.lock:
                if self.closed or not self._steps:
                    return
                before, after = self._steps.popleft()
                known = None if before is None else self._handles.get(before.log_id)
                if after is None and known is not None:
                    self.forget(known)
                elif after is not None and known is not None:
                    known.name = after.name
                if before is not None and after is None:
                    self.refused.pop(before.log_id, None)
            if before is not None and after is None and known is not None:
                known.close(LogDropped(before.name))
            if before is None and after is not None and self.eager:
                # ``log`` has published the failure, or the log is dropped.
                with contextlib.suppress(PenstockError, OSError):
                    self.log(self._name_of(after.log_id) or after.name)

    def _name_of(self, log_id: str) -> str | None:
        """The present name of a log; it may have had several since its creation."""
        with self.lock:
            return next((entry.name for entry in self.entries.values() if entry.log_id == log_id), None)
