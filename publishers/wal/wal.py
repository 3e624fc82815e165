"""The log as its owner sees it: the only opening that may write."""

import contextlib
import errno
import logging
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final
from uuid import UUID
from weakref import ref

from flow import forks
from flow.clock import SYSTEM_CLOCK, Clock
from publishers.errors import LogClosed, LogFailed, LogForked, LogFull, LogUnreadable, NotALog
from publishers.options import LogOptions
from publishers.wal.append.active_segment import FIRST_FILL
from publishers.wal.append.head_writer import HeadWriter
from publishers.wal.append.sealed import Appended, Transaction
from publishers.wal.append.writer import Writer
from publishers.wal.disk.descriptors import DESCRIPTORS
from publishers.wal.disk.filesystem import (
    FencedError,
    FileSystem,
    RealFileSystem,
    check_openable,
    full,
    means_full,
)
from publishers.wal.disk.reserve import Reserve
from publishers.wal.files.directory import check_names
from publishers.wal.files.head import CLEAN
from publishers.wal.files.segment import write_index
from publishers.wal.format.control import OWNER_BYTES, Epoch, ProducerState, unmarked
from publishers.wal.keep.hard_links import Links
from publishers.wal.keep.retention import Retention
from publishers.wal.peers import Peers
from publishers.wal.read.reader import Reader
from publishers.wal.recover.recovery import recover
from publishers.wal.withholding import Withholding

__all__ = ["Wal"]

_LOG: Final = logging.getLogger("penstock.housekeeping")
_TWO: Final = "two threads wrote at the same time, and the second one was refused"
_PAGE: Final = 4096  # bytes that are written to learn whether there is room again
_AHEAD: Final = 1.0
"""Seconds by which the last commit must be ahead of the clock for a warning; a burst of commits alone never gets so far."""


class Wal:
    """A log that is open for writing.

    Threads: `append`, `sync`, `close` and `abandon` are called under the caller's write gate, by one thread at a time; a
    second one in `append` is refused, because two writers would destroy the log.
    `publish_tail` likewise has a gate of its own. `maintain` is for one housekeeping thread, which may run concurrently with
    all of these. `reader`, `producer` and the properties are for any thread at any time.

    Attributes:
        log_id: The unique id of the log, made at its creation.
        directory: The directory of the log.
        options: Its bounds and policies.
        reader: Reads durable transactions that are not withheld.
        retention: Deletes segments that no hold, and no bound, keeps.
        torn_bytes: Bytes that recovery truncated: writes that were never acknowledged.
        links: Hard links for consumers that must not depend on retention.
        space_low: Whether the last zero-fill, spare segment, index or HEAD found no room on the disk, no descriptor or no memory.
        begun: How many calls of `append` have begun.
        notify: Wakes followers in other processes if `publish_tail` was called since the last call; any thread may call it,
            without a gate.
        inherited: The error that calls raise in a child of ``fork``; None in the process that opened the log.
    """

    inherited: LogForked | None = None

    def __init__(
        self,
        directory: Path,
        options: LogOptions | Callable[[], LogOptions],
        filesystem: FileSystem,
        clock: Clock,
        files: contextlib.ExitStack,
        wait: float,
    ) -> None:
        """Internal; use `open`. Makes the parts of an open log, in the order in which they are opened.

        Args:
            directory: The directory of the log.
            options: Bounds and policies, or what chooses them.
            filesystem: The file system of the directory.
            clock: Stamps commits, and measures durations.
            files: Closes the files that are opened here, in reverse order.
            wait: Seconds to wait for the lock.
        """
        self.directory = directory
        self.space_low: bool = False
        self._closed = self._stamps_ahead = False
        self._pen = ["the pen"]  # taken by the one writer: as atomic as a lock, and faster
        self.begun: int = 0
        self._files = files
        self._filesystem = filesystem
        self._clock = clock.monotonic
        # The lock comes first, and earlier owners are fenced off before any other file is read.
        self._peers = peers = Peers(filesystem, directory, files, options, clock.monotonic, wait)
        options = peers.options
        self.options: LogOptions = options
        self._tail = peers.tail
        self.notify: Callable[[], None] = peers.notify
        self._reserve = reserve = Reserve(filesystem, directory, options)
        recovered = recover(filesystem, directory, options, clock.now_us(), reserve, peers.tail, files)
        catalog, head, active, chain, tables, torn_bytes = recovered
        self.torn_bytes: int = torn_bytes
        epoch = head.state.epoch
        self.log_id: UUID = catalog.log_id
        self._catalog = catalog
        self._writer = writer = Writer(
            filesystem, directory, options, clock, catalog, head, epoch, active, chain, tables, reserve
        )
        files.callback(writer.close)
        # Links are opened before a new epoch, which may begin a segment: they are made in the order of the segments.
        self.links: Links = Links(filesystem, directory, lambda: catalog.entries, options.held_max_bytes)
        writer.open_epoch()
        _fill(reserve)
        peers.sign(epoch)
        # These use the writer, and own no file.
        self._head_writer = head_writer = HeadWriter(head, writer)
        self._withholding = Withholding(writer, head, head_writer, catalog, filesystem, directory)
        self._head_at = self._clock()
        self.reader: Reader = Reader(catalog, self._withholding.readable)
        self._whole: Callable[[], Reader | None] = lambda: None
        self.retention: Retention = Retention(
            catalog,
            lambda: (writer.active.number, writer.active.offset),
            head_writer.write,
            options,
            filesystem,
            directory,
            writer.ages,
        )
        forks.register(self)

    def forked(self, pid: int, /) -> None:
        """See `flow.forks.Forkable`: each file releases its own resources, and this object uses them no more."""
        self.inherited = self.retention.holds.inherited = LogForked(self.directory, pid)
        self._closed = True

    @classmethod
    def open(
        cls,
        directory: Path | str,
        options: LogOptions | Callable[[], LogOptions] | None = None,
        *,
        filesystem: FileSystem | None = None,
        clock: Clock = SYSTEM_CLOCK,
        wait: float = 0.0,
    ) -> "Wal":
        """Opens a log, with recovery after a crash, or creates one in a new or empty directory.

        Args:
            directory: The directory of the log.
            options: Bounds and policies; or what chooses them while the lock is held, before any other file is read.
            filesystem: The file system; the real one if None.
            clock: Stamps commits, and measures durations.
            wait: Seconds to wait for another writer to close the log.

        Raises:
            LogBusy: If the log is open for writing elsewhere.
            NotALog: If the directory holds something else.
            WalCorrupted: If acknowledged data are damaged.
            LogUnreadable: If a file of the log, or its directory, cannot be opened.
            LogFull: If recovery has no room to write.
            LogExhausted: If the process has too few descriptors for it, or too little memory.
            LogFailed: If the disk fails during recovery.
        """
        options = options or LogOptions()
        filesystem = filesystem or RealFileSystem()
        path = Path(directory)
        with _refusing(filesystem, path), contextlib.ExitStack() as files:
            try:
                filesystem.make_directory(path)
                check_names(path, filesystem.listing(path))
            except (FileExistsError, NotADirectoryError):
                raise NotALog(path, "it is not a directory") from None
            wal = cls(path, options, filesystem, clock, files, wait)
            wal.publish_tail(wal.visible)
            DESCRIPTORS.fill()  # a log whose own files have taken them could not go on
            wal._files = files.pop_all()
        return wal

    # --- state -------------------------------------------------------------------------------------------------------

    @property
    def epoch(self) -> int:
        """The epoch: the number of this opening for writing; `forget_after` begins another epoch."""
        return self._writer.epoch

    @property
    def appended(self) -> int:
        """The newest version written; 0 if there is none."""
        return self._writer.appended

    @property
    def durable(self) -> int:
        """The newest version that survives a crash (under ``sync="os"``: the newest written); 0 if there is none."""
        return self._writer.limit.version

    @property
    def synced(self) -> int:
        """The newest version that was synced, under any sync policy."""
        return self._writer.synced

    @property
    def visible(self) -> int:
        """The newest visible version: the durable one, or the version in HEAD while later ones are withheld."""
        return self._withholding.visible

    @property
    def withholding(self) -> bool:
        """Whether HEAD records that versions above ``visible`` are withheld."""
        return self._withholding.active

    @property
    def oldest(self) -> int:
        """The oldest kept version; 0 if the log is empty."""
        return self._catalog.entries[0].first_version if self._writer.appended else 0

    @property
    def epochs(self) -> tuple[Epoch, ...]:
        """The openings for writing within the kept history, without those that wrote no version.

        The surviving versions of an epoch end before the ``first_version`` of the first *greater* epoch here.
        """
        return self._writer.tables.epochs

    @property
    def whole(self) -> Reader:
        """A reader of all durable transactions, withheld or not, for the owner's own use; one for all that use it at a time.

        It and the blocks that it caches are freed when nothing refers to it.
        """
        reader = self._whole()
        if reader is None:
            reader = Reader(self._catalog, lambda: self._writer.limit)
            self._whole = ref(reader)  # of two threads that come here at once, each has one of its own
        return reader

    @property
    def syncs(self) -> tuple[int, float]:
        """The number of syncs of commits since the opening, and their duration in seconds."""
        return self._writer.syncs, self._writer.sync_seconds

    @property
    def failed(self) -> str | None:
        """Why the log has failed; None if it has not."""
        return self._writer.health.why

    @property
    def lacks(self) -> LogFull | None:
        """The last refusal for want of room, descriptors or memory; None again once the housekeeping has found enough."""
        return self._writer.health.lacks

    @property
    def bytes(self) -> int:
        """Bytes of all segments, without the zeros behind the end."""
        return self.retention.bytes

    @property
    def reserve_bytes(self) -> int:
        """Bytes reserved for writes that must succeed on a full disk; fewer than `reserve_target_bytes` after such writes."""
        return self._reserve.nbytes

    @property
    def reserve_target_bytes(self) -> int:
        """Bytes that are to be reserved: as many as the log has, within ``reserve_bytes`` and a sixteenth of a segment."""
        return self._reserve.wanted

    @property
    def clock_ahead(self) -> float:
        """Seconds by which the time of the last commit is ahead of the clock; 0 unless the clock was set back since."""
        return self._writer.ahead

    @property
    def producers(self) -> int:
        """The number of remembered producers."""
        return len(self._writer.tables.producers)

    @property
    def producers_forgotten(self) -> int:
        """The number of producers that were evicted by the bounds ``producers`` and ``producer_ttl``."""
        return self._writer.tables.forgotten

    def producer(self, producer: UUID) -> ProducerState | None:
        """The last transaction of a producer, synced or not; None if it has none, or was evicted."""
        known = self._writer.tables.producers
        found = known.get(producer.bytes)
        return known.get(unmarked(producer.bytes)) if found is None else found

    def producers_of(self, producer: UUID, since: int) -> int:
        """The number of remote producers with the same owner and chosen names that have committed since a time, in unix microseconds."""
        return self._writer.tables.of_owner(producer.bytes[:OWNER_BYTES], since)

    # --- writing -----------------------------------------------------------------------------------------------------

    def append(self, transactions: Sequence[Transaction]) -> list[Appended]:
        """Assigns versions to transactions in order and writes them, with one ``pwrite`` if none is spooled.

        Nothing is durable before `sync`. The caller discards spooled transactions afterwards.

        Returns:
            One item for each transaction. There are fewer only if a segment became full in between and the disk had no
            room for the next one; appending the rest again raises the error.

        Raises:
            LogFull: If the disk has no room. Nothing of the transactions is left, and the log stays usable.
            LogFailed: If the disk fails; the outcome is unknown, or ``refused`` if the log had failed before.
            LogClosed: If the log was closed.
        """
        if self._closed:
            raise LogClosed
        try:
            pen = self._pen.pop()
        except IndexError:
            raise LogFailed("refused", _TWO) from None
        try:
            self.begun += 1
            tail = self._tail
            if tail.fence != tail.own:  # as `Tail.claimed`, for every commit
                self._writer.health.fail(FencedError())
            return self._writer.append(transactions)
        finally:
            self._pen.append(pen)

    def sync(self) -> int:
        """Makes all appended transactions durable and readable; returns the newest durable version.

        Raises:
            LogFailed: If the sync fails, which is permanent, or the log had failed before.
            LogClosed: If the log was closed.
        """
        if self._closed:
            raise LogClosed
        return self._writer.sync()

    @property
    def overdue(self) -> bool:
        """Whether the active segment is older than ``segment_age`` and not empty; for any thread."""
        return not self._closed and self._writer.must_roll()

    def roll(self) -> None:
        """Rolls the active segment if it is older than ``segment_age``, and updates TAIL. Both gates must be held.

        Raises:
            LogFull: If the disk has no room for a segment; nothing has changed.
            LogFailed: If the disk fails.
            LogClosed: If the log was closed.
        """
        if self._closed:
            raise LogClosed
        writer = self._writer
        writer.health.check()
        if not writer.must_roll():
            return
        try:
            writer.roll()
        except OSError as error:
            writer.health.fail(error)
            raise LogFailed("unknown", str(error)) from error
        writer.sync()
        self.publish_tail(self._withholding.shown.version)

    def publish_tail(self, visible: int) -> None:
        """Writes the newest visible version, at most the durable one, into TAIL for followers in other processes."""
        place = self._withholding.shows(visible)
        writer, durable = self._writer, self._writer.limit.version
        if not self._tail.write(writer.epoch, visible, place.segment, place.offset, durable, writer.random):
            writer.health.fail(FencedError())
            raise LogFailed("unknown", str(FencedError()))
        self._peers.unannounced = True

    def show(self, visible: int | None) -> None:
        """Stores the newest visible version durably.

        Called before more versions become visible, and before the first withheld transaction is appended.

        Args:
            visible: The newest visible version, which may not be written yet; None if nothing is withheld.

        Raises:
            LogFull: If the disk has no room; nothing has changed.
            LogFailed: If the disk fails.
        """
        self._withholding.show(visible)

    def forget_after(self, version: int) -> None:
        """Truncates the withheld transactions above a version, including producers' sequences, and begins a new epoch.

        Both gates must be held. After a crash on the way, either nothing has changed, or recovery completes the truncation.

        Raises:
            LogFull: If the disk has no room; nothing has changed.
            LogFailed: If the disk fails.
            WalCorrupted: If the log cannot be read; nothing has changed, or the log has failed.
        """
        if self._closed:
            raise LogClosed
        try:
            self._withholding.forget_after(version)
        finally:
            self._whole = lambda: None  # it may have cached what is truncated
        self._peers.sign(self.epoch)
        self.publish_tail(self.visible)

    def vouch(self, version: int) -> None:
        """Makes HEAD cover a version that a consumer is about to store as its position.

        Any thread may call it for a synced version. For a version that is only appended (``sync="os"``) it syncs first, and
        must be called under the write gate.

        Raises:
            LogClosed: If the log was closed before HEAD covered the version.
            LogFailed: If the disk fails.
            LogFull: If the disk has no room.
        """
        self._head_writer.vouch(version)

    def refuse(self, error: BaseException, needed: int) -> LogFull:
        """Notes that a commit found no room, descriptor or memory before it was appended; returns the error to raise."""
        return self._writer.health.refuse(error, self._free(), needed)

    def insist(self, write: Callable[[], None]) -> None:
        """Performs a small write beside the log that may use the reserve, such as storing a consumer's position.

        Args:
            write: The write. If the disk is full it is repeated from its beginning while the reserve can release room.

        Raises:
            OSError: What the write raises.
        """
        self._reserve.holding(write)

    # --- housekeeping ------------------------------------------------------------------------------------------------

    def maintain(self, floor: int | None = None) -> bool:
        """Does one step of each kind of housekeeping: zero-fill, a spare segment, indexes, HEAD, retention.

        It raises no error of the disk. If the disk is full it retries at the next call (``space_low``); any other error fails
        the log (`failed`).

        Args:
            floor: The least version that retention must keep in addition to the holds.

        Returns:
            Whether a step did anything, so that another call may find more to do.
        """
        steps = (
            self._peers.tend,
            self.links.tend,
            self._fill_reserve,  # first, before other steps use the room
            self._fill,
            self._make_spare,
            self._write_index,
            self._refresh_head,
            self._watch_clock,
            lambda: self._retain(floor),
        )
        with self._withholding.housekeeping:
            return self._take(steps)

    def _take(self, steps: Sequence[Callable[[], bool]]) -> bool:
        """Runs the steps one after the other; returns whether any of them did anything."""
        health = self._writer.health
        lacks: LogFull | None = None
        done = False
        for step in steps:
            if self._closed or health.why is not None:
                break
            try:
                done = step() or done
            except (OSError, MemoryError, LogFull, LogUnreadable) as error:
                if isinstance(error, LogFull):
                    lacks = error
                elif means_full(error):
                    lacks = full(error, self._free(), self.options.fill_step)
                else:
                    health.fail(error)
        self.space_low = lacks is not None
        if lacks is None:
            if health.why is None:
                health.go_on()
        elif type(lacks) is not type(health.lacks):  # else a commit has noted how much it needs
            health.note(lacks)
        return done

    def _free(self) -> int | None:
        with contextlib.suppress(OSError):
            return self._filesystem.free_bytes(self.directory)
        return None

    def _fill_reserve(self) -> bool:
        self._reserve.grow(self.bytes)
        return self._reserve.fill()

    def _fill(self) -> bool:
        """Writes zeros ahead when less than half of a step is left; after a refusal, as many as that commit needed, or a page.

        A step is as much as the log has, within ``fill_step``: so a store of many small logs takes little room.
        """
        active = self._writer.active
        options, lacks = self.options, self.lacks
        step = min(options.fill_step, max(FIRST_FILL, self.bytes))
        end = active.offset + step
        if lacks is not None:
            free = self._free()
            if free is not None and free < lacks.needed:
                raise OSError(errno.ENOSPC, "there is less room than the last commit needed")
            end = max(end, active.offset + lacks.needed, active.filled + _PAGE)
        elif active.filled - active.offset >= step // 2:
            return False
        return active.fill(min(end, options.segment_bytes))

    def _make_spare(self) -> bool:
        """Makes the spare segment once the active segment is half full."""
        writer = self._writer
        if not writer.spares.wanted or 2 * writer.active.offset < self.options.segment_bytes:
            return False
        writer.spares.make()
        return True

    def _write_index(self) -> bool:
        closed = self._writer.closed
        if not closed:
            return False
        active, trailer = closed[0]
        if active.number >= self._catalog.entries[0].number:
            data = active.index.pack(self._catalog.log_id, active.number, trailer)
            write_index(self._filesystem, self.directory, active.number, data)
        closed.popleft()
        return True

    def _refresh_head(self) -> bool:
        """Writes HEAD if it or one of its slots is behind, at most once in ``head_sync`` seconds."""
        head = self._head_writer.head
        _, segment, offset = self._writer.evidence()
        if (segment, offset) <= (head.state.segment, head.state.offset) and head.even:
            return False
        if self._clock() - self._head_at < self.options.head_sync:
            return False
        self._head_writer.write()
        self._head_at = self._clock()
        return True

    def _watch_clock(self) -> bool:
        """Warns once while commits are stamped ahead of the clock, since the clock was set back."""
        ahead = self._writer.ahead
        if ahead > _AHEAD and not self._stamps_ahead:
            _LOG.warning(
                "the last commit is %.0f s ahead of the clock, which has been set back; until the clock has caught up, each "
                "commit is stamped one microsecond after the previous commit",
                ahead,
            )
        self._stamps_ahead = ahead > _AHEAD or (self._stamps_ahead and ahead > 0)
        return False

    def _retain(self, floor: int | None) -> bool:
        # Versions that are not visible yet are never deleted: subscribers wait for them.
        unseen = self.visible + 1
        return self.retention.step(unseen if floor is None else min(floor, unseen))

    # --- the end -----------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Syncs, writes a clean HEAD and closes. Idempotent. The housekeeping must have stopped.

        Raises:
            LogFailed: If the disk fails; the log is closed nevertheless.
        """
        if self._closed:
            return
        health = self._writer.health
        try:
            if health.why is None:
                self._writer.sync()
                self.publish_tail(self.visible)
                self.notify()
                self._head_writer.write(flags=CLEAN)
        except OSError as error:
            # A full disk is no loss: recovery scans the data that HEAD does not cover.
            if not means_full(error):
                health.fail(error)
                raise LogFailed("unknown", str(error)) from error
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Closes the files without writing, as a crash of the process would."""
        if self._closed:
            return
        self._closed = True
        self._head_writer.close()
        self._files.close()


@contextlib.contextmanager
def _refusing(filesystem: FileSystem, path: Path) -> Iterator[None]:
    """Converts an error of the disk to the error of opening a log."""
    try:
        yield
    except (OSError, MemoryError) as error:
        if isinstance(error, MemoryError) or (means_full(error) and error.errno != errno.EROFS):
            free = None
            with contextlib.suppress(OSError):
                free = filesystem.free_bytes(path)
            raise full(error, free, LogOptions().fill_step) from error
        check_openable(error, path)
        raise LogFailed("refused", str(error), opening=True) from error


def _fill(reserve: Reserve) -> None:
    """Fills the reserve. If the disk has no room, the log is opened without it, and refuses changes until there is room."""
    try:
        reserve.fill()
    except OSError as error:
        if not means_full(error):
            raise
