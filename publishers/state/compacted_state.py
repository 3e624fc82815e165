"""The compacted state of an open log: a thread follows the visible changes, and any thread reads the rows."""

import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Final

from publishers.background import BackgroundThread
from publishers.errors import (
    HistoryPruned,
    LogClosed,
    LogFull,
    PenstockError,
    PositionError,
    StateIncomplete,
    StateUnusable,
)
from publishers.fanout.service import Service
from publishers.model.position import Position
from publishers.mutations.arguments import check_entity_type, key_bytes
from publishers.options import KIB, MIB, check_whole
from publishers.state.pace import STATE_BEHIND_BYTES, STATE_INTERVAL, STATE_SHARE, Pace
from publishers.state.ports import StatedLog
from publishers.state.rows import EntityRow, RowActions, RowPlace, StatePage, StateStatistics, shown_row
from publishers.state.table import (
    Spans,
    StateTable,
    TablePage,
    TablePlace,
    damaged,
    remove_device,
    remove_table,
)
from publishers.wal import Hold
from publishers.wal.format.frame import LAST
from publishers.wal.read.catalog import Location

__all__ = ["CompactedState"]

_log: Final = logging.getLogger("penstock.state")
_HOLD: Final = "compacted state"
_BATCH: Final = (
    8 * MIB
)  # bytes of rows from which on a transaction of SQLite is ended, where one of the log ends
_PIECE: Final = 64 * KIB  # likewise where commits come: storing takes longer than reading
_PART: Final = MIB  # bytes of rows that are kept before they are given to SQLite
_RETRY: Final = 1.0  # seconds until something is tried again that the disk refused
_LOOK: Final = 0.1  # seconds without a commit after which nothing is taken from a writer
_PAGE: Final = 1_000
_PAGE_BYTES: Final = MIB

Waiter = Callable[[], object]


class CompactedState:
    """The newest body of each entity of a log.

    A thread reads the visible changes in batches. It stores the rows and the place of a batch in one transaction of an SQLite
    file, after the HEAD of the log covers that place. A hold protects the unread history from retention, within
    ``slot_keep_bytes`` and ``slot_keep_age``. Commits wake the thread at most once for each batch. While the log is written, the
    thread works in `STATE_SHARE` of the time, unless a caller waits for it or reads, the file is being rebuilt, or it is
    `STATE_BEHIND_BYTES` behind.

    Args:
        log: The log.
        service: The watermark of the log.
        directory: The directory of the file.

    Raises:
        StateIncomplete: If no file continues at the beginning of the log, and that is not version 1.
        StateUnusable: If the file is of another application or a newer version of penstock, or cannot be opened.
    """

    def __init__(self, log: StatedLog, service: Service, directory: Path) -> None:
        self._log = log
        self._service = service
        self._directory = directory
        self._moved = threading.Condition()
        self._called = threading.Event()
        self._swapping = threading.Lock()
        self._waiters: list[tuple[int, Waiter]] = []
        self._hurried = 0  # the newest version that a caller waits for
        self._asked_at = 0  # the newest version at the last read
        self._pace = Pace(STATE_SHARE)
        self._resting = False
        self._location: Location | None = None
        self._read_at = 0
        self._spoilt = False  # a reader has found damage
        self._due = 0  # the watermark at the beginning of a rebuild: reads are refused until it is reached
        self.ended: bool = False
        self.failure: PenstockError | None = None
        self.batches: int = 0
        self.rebuilds: int = 0
        self.failures: int = 0
        self._table, self._place = self._open()
        try:
            self._hold = self._held()
        except BaseException:
            self._table.close()
            raise
        self._thread = BackgroundThread(target=self._run, name=f"penstock-{log.name}-state", daemon=True)

    def start(self) -> None:
        """Begins to follow the log."""
        self._thread.start()

    # For any thread.

    @property
    def position(self) -> Position:
        """The position after the last change that the state contains."""
        return Position(self._place.version + 1)

    def get(self, entity_type: str, key: str | bytes) -> EntityRow | None:
        """Returns an entity as of ``position``, a moment behind the log; None if there is none. Reads the disk.

        Raises:
            InvalidChange: If the entity type or the key is none.
            StateIncomplete, StateUnusable: If there is no state, or it is being built.
            LogClosed: If the log was closed.
        """
        check_entity_type(entity_type)
        place = RowPlace(entity_type, key_bytes(key))
        found = self._asked(lambda table: table.get(place)).rows
        return shown_row(found[0]) if found else None

    def page(
        self,
        entity_type: str | None = None,
        *,
        after: EntityRow | str | bytes | None = None,
        limit: int = _PAGE,
        max_bytes: int = _PAGE_BYTES,
    ) -> StatePage:
        """Returns entities in the order of their keys, all as of one position. Reads the disk.

        Args:
            entity_type: The entity type; None for all, one after the other.
            after: The last row of the page before, or, with ``entity_type``, its key; None for the first page.
            limit: Most rows, from 1 to 100,000.
            max_bytes: Bytes after which the page ends; it has at least one row.

        Raises:
            InvalidOption: If ``limit`` or ``max_bytes`` is out of its bounds.
            InvalidChange: If the entity type or the key is none.
            StateIncomplete, StateUnusable: If there is no state, or it is being built.
            LogClosed: If the log was closed.
        """
        check_whole("limit", limit, "a whole number from 1 to 100000", 1, 100_000)
        check_whole("max_bytes", max_bytes, "a number of bytes, from 1", 1)
        if isinstance(after, EntityRow):
            behind: RowPlace | None = RowPlace(after.entity_type, key_bytes(after.key))
        elif after is None:
            behind = None
        else:
            check_entity_type(entity_type)
            assert entity_type is not None
            behind = RowPlace(entity_type, key_bytes(after, "after"))
        if entity_type is not None:
            check_entity_type(entity_type)
        types = None if entity_type is None else (entity_type,)
        found = self.read(behind, types, limit, max_bytes)
        return StatePage(tuple(map(shown_row, found.rows)), Position(found.version + 1), found.more)

    def read(
        self,
        after: RowPlace | None,
        types: tuple[str, ...] | None,
        limit: int,
        max_bytes: int,
        spans: Spans | None = None,
    ) -> TablePage:
        """Returns a page of stored rows; see `StateTable.read`."""
        return self._asked(lambda table: table.read(after, types, limit, max_bytes, spans))

    def find(self, places: Collection[RowPlace]) -> TablePage:
        """Returns the rows that exist at these places, as stored, all as of one version."""
        return self._asked(lambda table: table.find(places))

    def wait(self, version: int, timeout: float | None = None) -> None:
        """Waits until the state contains a version, without waiting for `STATE_INTERVAL`.

        Args:
            version: The version, such as that of a commit.
            timeout: Most seconds; None for no bound.

        Raises:
            TimeoutError: After ``timeout`` seconds.
            StateIncomplete, StateUnusable, LogClosed: If the state will never contain the version.
        """
        check_whole("version", version, "a version, from 0")
        come = threading.Event()
        self.listen(version, come.set)
        if not come.wait(timeout):
            raise TimeoutError(
                f"the state is at {self.position} after {timeout} s, and not at version {version}"
            )
        if self._place.version < version:
            raise self._gone()

    def listen(self, version: int, notify: Waiter) -> None:
        """Calls once the state contains a version, or ends before; on the thread of the state, or at once."""
        with self._moved:
            there = self._place.version >= version or self.ended
            if not there:
                self._waiters.append((version, notify))
                self._hurried = max(self._hurried, version)
        if there:
            notify()
        else:
            self._called.set()

    def statistics(self) -> StateStatistics:
        """Returns the statistics of this moment."""
        service, place = self._service, self._place
        position = Position(place.version + 1)
        return StateStatistics(
            position=position,
            behind=service.admission.behind(position, service.watermark.visible, self._read_at),
            rows=place.rows,
            nbytes=self._table.nbytes,
            batches=self.batches,
            rebuilds=self.rebuilds,
            failures=self.failures,
            failure=None if self.failure is None else str(self.failure),
        )

    def wake(self) -> None:
        """See `publishers.fanout.ports.Wakeable`: the watermark has advanced."""
        self._called.set()

    def close(self) -> None:
        """Ends the thread after the batch in progress, and closes the file. Idempotent."""
        self._end()
        if self._thread.ident is not None:
            self._thread.join()
        self._hold.release()
        self._table.close()

    def _asked(self, ask: Callable[[StateTable], TablePage]) -> TablePage:
        while True:
            if self._service.closed or self.failure is not None or self.ended:
                raise self._gone()
            table = self._table
            self._asked_at = self._service.watermark.visible
            if self._resting:
                self._called.set()
            try:
                found = ask(table)
            except sqlite3.Error as error:
                with self._swapping:  # the file was replaced during the read: read the new one
                    if table is not self._table:
                        continue
                if damaged(error):
                    self._spoilt = True
                    self._called.set()
                    raise StateUnusable(table.path, f"damaged ({error}), and made anew") from error
                raise StateUnusable(table.path, f"not to be read at the moment ({error})") from error
            if found.version < self._due:
                made = f"made of the log, and at version {found.version} of {self._due}; wait for that"
                raise StateUnusable(table.path, made)
            return found

    def _gone(self) -> Exception:
        return self._service.reason or self.failure or LogClosed()

    # Opening and rebuilding.

    def _open(self) -> tuple[StateTable, TablePlace]:
        """Opens the file, or a new one if it is damaged or of another history; returns it and its place."""
        table = None
        try:
            if remove_device(self._directory):
                _log.error("the state of the log %s was a device, and is made anew", self._log.name)
            table = StateTable(self._directory, self._log.log_id, self._service.options.readers)
            place = self._judged(table.place)
        except StateIncomplete:
            assert table is not None
            table.close()
            raise
        except sqlite3.Error as error:
            if not damaged(error):
                raise StateUnusable(self._directory, f"not to be opened ({error})") from error
            _log.error("the state of the log %s is damaged: %s", self._log.name, error)
            place = None
        except OSError as error:
            raise StateUnusable(self._directory, f"not to be opened ({error})") from error
        if place is not None:
            assert table is not None
            return table, place
        if table is not None:
            table.close()
        return self._anew()

    def _judged(self, place: TablePlace | None) -> TablePlace | None:
        """Returns the place if the log continues there; None if it belongs to another history."""
        if place is None:
            return None
        try:
            position = self._log.judge(place.token)
        except HistoryPruned as error:
            raise StateIncomplete(error.oldest) from error
        except PositionError as error:
            _log.warning("the state of the log %s is not of its history: %s", self._log.name, error)
            return None
        return place if position == Position(place.version + 1) else None

    def _anew(self) -> tuple[StateTable, TablePlace]:
        oldest = self._service.oldest
        if oldest.version > 1:
            raise StateIncomplete(oldest)
        self._due = self._service.watermark.visible
        try:
            remove_table(self._directory)
            table = StateTable(self._directory, self._log.log_id, self._service.options.readers)
        except (sqlite3.Error, OSError) as error:
            raise StateUnusable(self._directory, f"not to be made ({error})") from error
        self.rebuilds += 1
        return table, TablePlace(self._log.token(Position(1)), 0, 0)

    def _held(self) -> Hold:
        try:
            return self._log.hold(_HOLD, self.position, sync=self._sync)
        except HistoryPruned as error:
            raise StateIncomplete(error.oldest) from error

    def _sync(self) -> None:
        self._table.sync()

    def _rebuild(self) -> None:
        """Replaces the file by a new one; called by the thread."""
        self._spoilt = False
        self._hold.release()
        self._location = None
        with self._swapping:
            self._table.close()
            self._table, self._place = self._anew()
        self._hold = self._held()

    # The thread.

    def _run(self) -> None:
        try:
            self._begin()
            while not self.ended:
                self._step()
        except PenstockError as error:
            if not self._service.closed:
                self.failures += 1
                self.failure = StateIncomplete(error.oldest) if isinstance(error, HistoryPruned) else error
                _log.error("the state of the log %s goes on no more: %s", self._log.name, error)
        except Exception as error:  # noqa: BLE001 - any error is raised to the callers of ``get`` and ``page``
            self.failures += 1
            self.failure = StateUnusable(self._directory, f"given up ({error})")
            _log.exception("the state of the log %s goes on no more", self._log.name)
        finally:
            self._end()

    def _begin(self) -> None:
        while not self.ended:
            try:
                self._table.check()
            except sqlite3.DatabaseError as error:
                if damaged(error):
                    _log.error("the state of the log %s is damaged: %s", self._log.name, error)
                    self._rebuild()
                else:
                    self._try_again(error)
                    continue
            return

    def _step(self) -> None:
        """Follows the log to the watermark, and waits for the next change."""
        self._called.clear()
        upto = self._service.watermark.visible
        try:
            if self._spoilt:
                self._rebuild()
            while self._place.version < upto and not self.ended:
                self._pace.begin(bounded=not self._is_urgent())
                self._batch(upto)
                self._notify_waiters()
                if self._place.version < upto:
                    self._rest(self._pace.rest)
        except HistoryPruned as error:
            if error.oldest > self.position:
                raise
            self._location = None  # it was the end of a segment that is read and now deleted
            self._table.rollback()
            return
        except (sqlite3.Error, OSError, MemoryError, LogFull) as error:
            self._location = None
            self._table.rollback()
            if isinstance(error, sqlite3.Error) and damaged(error):
                self.failures += 1
                self._spoilt = True
            else:
                self._try_again(error)
            return
        began = time.monotonic()
        self._service.waiting.park(self)
        if self._service.watermark.visible == upto and not self.ended:  # an end before ``clear`` was not seen
            self._called.wait()
        left = STATE_INTERVAL - (time.monotonic() - began)
        while left > 0 and not self.ended and self._hurried <= self._place.version:
            self._called.clear()
            if self._hurried <= self._place.version and not self.ended and not self._called.wait(left):
                break
            left = STATE_INTERVAL - (time.monotonic() - began)

    def _try_again(self, error: Exception) -> None:
        """Waits a moment after an error that may pass."""
        self.failures += 1
        _log.warning(
            "the state of the log %s could not be stored, and is tried again: %s",
            self._log.name,
            str(error) or type(error).__name__,
        )
        self._called.wait(_RETRY)

    def _is_urgent(self) -> bool:
        """Whether the thread works without pauses, although that takes time from commits."""
        version, options = self._place.version, self._service.options
        if version < max(self._hurried, self._asked_at, self._due):
            return True
        keep_bytes, keep_age = options.slot_keep_bytes, options.slot_keep_age
        if keep_age is not None and self._read_at:
            behind = (self._service.clock.now_us() - self._read_at) / 1e6
            if behind >= keep_age / 2:
                return True
        most = STATE_BEHIND_BYTES
        if keep_bytes is not None:
            most = min(most, keep_bytes // 2)
        location, end = self._location, self._log.reader.end
        if location is None:
            return False
        ahead = (end.segment - location.segment) * options.segment_bytes + end.offset - location.offset
        return ahead >= most

    def _rest(self, seconds: float) -> None:
        """Leaves the interpreter to writers while they commit and nothing is urgent."""
        until = time.monotonic() + seconds
        seen = self._service.watermark.visible
        self._resting = True
        while (left := until - time.monotonic()) > 0:
            self._called.clear()
            if self.ended or self._spoilt or self._is_urgent():
                break
            self._called.wait(min(left, _LOOK))
            before, seen = seen, self._service.watermark.visible
            if seen == before:
                break
        self._resting = False

    def _batch(self, upto: int) -> None:
        """Stores the changes of some versions in one transaction."""
        log, table, place, pace = self._log, self._table, self._place, self._pace
        location = self._location or log.reader.locate(place.version + 1)
        rows, size, actions = place.rows, 0, RowActions()
        most = _PIECE if pace.bounded else _BATCH
        table.begin()
        while True:
            frame = log.reader.read(location)
            assert frame is not None  # it is visible
            header = frame.header
            actions.add(frame.columns, header.version, header.first_index, header.committed_at)
            location = frame.next
            done = header.flags & LAST and (
                header.version == upto or size + actions.nbytes >= most or pace.spent
            )
            if done or actions.nbytes >= _PART:
                rows += table.apply(actions)
                size += actions.nbytes
                actions = RowActions()
            if done:
                break
        log.vouch(header.version)
        position = Position(header.version + 1)
        place = TablePlace(log.token(position), header.version, rows)
        table.commit(place)
        self._location, self._read_at = location, header.committed_at
        self.batches += 1
        self._hold.move(position)
        with self._moved:
            self._place = place

    def _notify_waiters(self) -> None:
        with self._moved:
            version = self._place.version
            due = [notify for wanted, notify in self._waiters if wanted <= version or self.ended]
            self._waiters = [one for one in self._waiters if one[0] > version and not self.ended]
        for notify in due:
            notify()

    def _end(self) -> None:
        with self._moved:
            self.ended = True
        self._called.set()
        self._notify_waiters()
