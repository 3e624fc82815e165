"""What the system log of a store tells, and what follows from it in this process: logs open, close, change names."""

import contextlib
import logging
import threading
from collections import deque
from dataclasses import dataclass, field
from typing import Final

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
        entries: What it has told so far.
        disk: The directory.
        lock: Held for everything but what may reach user code.
        eager: Whether logs are opened as they appear.
        refused: Why logs could not be opened at the last try, by log id; none that is open now.
        closed: Whether the store was closed.
        inherited: What to raise in a child of ``fork``; None in the process that opened the store.
    """

    disk: StoreDirectory
    system: SystemLog
    _options: LogOptions
    _read_only: bool
    _filesystem: FileSystem
    _clock: Clock
    _tracer: Tracer | None
    entries: LogEntries = field(default_factory=LogEntries)
    lock: threading.RLock = field(default_factory=threading.RLock)
    eager: bool = False
    refused: dict[str, PenstockError | OSError] = field(default_factory=dict)
    closed: bool = False
    inherited: LogForked | None = None
    _told: Position | None = None
    _steps: deque[LogStep] = field(default_factory=deque)  # told, and not carried out yet
    _handles: dict[str, ChangeLog] = field(
        default_factory=dict
    )  # by log id: names change, directories come again

    def __post_init__(self) -> None:
        forks.register(self)

    def forked(self, pid: int, /) -> None:
        """See ``flow.forks.Forkable``: everything is refused with ``LogForked``, and to close does nothing."""
        self.lock = threading.RLock()
        self.inherited = LogForked(self.disk.path, pid)
        self.closed = True

    # The caller holds the lock.

    def check_open(self) -> None:
        """Refuses what comes after the end.

        Raises:
            LogClosed: If the store is closed.
            LogForked: In a child of ``fork``.
        """
        if self.closed:
            raise self.inherited or LogClosed()

    def handle(self, entry: LogEntry) -> ChangeLog | None:
        """The log, if it is open here, or has ended by itself."""
        handle = self._handles.get(entry.log_id)
        return None if handle is None or (handle.closed and handle.failure is None) else handle

    def forget(self, log: ChangeLog) -> None:
        """Takes a log from the list; the caller closes it."""
        self._handles.pop(log.log_id.hex, None)

    def handles(self) -> list[ChangeLog]:
        """All logs that were opened."""
        return list(self._handles.values())

    def open(self, entry: LogEntry) -> ChangeLog:
        """Opens a log; one without a log id is made."""
        known = {
            name: value for name, value in entry.options.items() if name in LogOptions.__dataclass_fields__
        }
        try:
            if entry.log_id and kind_of(self._filesystem, self.disk.path / entry.directory) == "nothing":
                raise NotALog(self.disk.path / entry.directory, "its files are gone")  # none are made anew
            log = ChangeLog.open(
                self.disk.path / entry.directory,
                read_only=self._read_only,
                options=LogOptions.chosen(self._options, known),
                filesystem=self._filesystem,
                clock=self._clock,
                tracer=self._tracer,
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
        log.attend(
            lambda what, body: self.system.board.tell(log.name, what, body),
            lambda error: LogDropped(log.name) if self._gone(found) else error,
        )
        self._handles[found.log_id] = log
        return log

    def _gone(self, entry: LogEntry) -> bool:
        """Whether the files of a log are gone, which the system log may not have told yet; not if the whole store is."""
        there = self.disk.log_id(SYSTEM_DIRECTORY) == self.system.log_id.hex
        return there and self.disk.log_id(entry.directory) != entry.log_id

    def record(self, mutation: Mutation) -> None:
        """Commits to the system log, and takes what it tells then."""
        self.system.record(mutation)
        self.catch_up()

    def catch_up(self) -> None:
        """Takes what the system log tells; ``carry_out``, without the lock, is to follow."""
        while self._told is None or self._told < self.system.head:
            page = self.system.history(
                Criterion(areas={Area.ENGINE}), self._told, limit=_PAGE, content=Content.BODY
            )
            for change in page.changes:
                step = self.entries.apply(change)
                if step is not None:
                    self._steps.append(step)
            self._told = page.next

    # What a dead process left, and what cannot be done just now: the next opening does it.

    def decide(self) -> None:
        """Ends every doubt as the system log has it."""
        known = self.entries.directories()
        for directory in self.disk.doubts():
            if directory in known:
                self.settle(directory)
            else:
                self.remove(directory)

    def settle(self, directory: str) -> None:
        """Ends a doubt; the directory stays."""
        try:
            self.disk.settle(directory)
        except OSError:
            _log.exception("the doubt about %s is left to the next opening of the store", directory)

    def remove(self, directory: str) -> None:
        """Ends a doubt; the directory goes."""
        try:
            self.disk.remove(directory)
        except OSError:
            _log.exception("%s is left to be removed by the next opening of the store", directory)

    # The caller does not hold the lock.

    def log(self, name: str) -> ChangeLog:
        """The log of a name, opened if it is not, or has ended by itself."""
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
                self.system.board.tell(
                    name, "FAILED", {"error": type(opened).__name__, "message": str(opened)}
                )
            raise opened
        self.tell_opened(opened)
        return opened

    def refresh(self) -> None:
        """Takes what the system log tells, unless the store is closed.

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
        """Refreshes whenever there is something new."""
        feed = self.system.changes(Criterion(areas={Area.ENGINE}), since=self.system.head)
        watcher = CallbackSubscription[Change](lambda _: self.refresh(), self._lose, None, Tide(UNBOUNDED))
        feed.subscribe(watcher, executor=INLINE, name="store")
        self.refresh()

    def _lose(self, error: Exception) -> None:
        _log.error("the store %s is no longer followed: %s", self.disk.path, error)

    def tell_opened(self, log: ChangeLog) -> None:
        """Puts up that a log is open now."""
        body = {
            "epoch": log.epoch,
            "oldest": str(log.oldest),
            "head": str(log.head),
            "readOnly": log.read_only,
        }
        self.system.board.tell(log.name, "OPENED", body)

    def carry_out(self) -> None:
        """Does what follows from what the system log told; may reach user code."""
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
                with contextlib.suppress(PenstockError, OSError):  # it was told of, or is gone again
                    self.log(self._name_of(after.log_id) or after.name)

    def _name_of(self, log_id: str) -> str | None:
        """What a log is called now; it may have had several names since it was made."""
        with self.lock:
            return next((entry.name for entry in self.entries.values() if entry.log_id == log_id), None)
