"""The owner's face of a log: the one opening that may write."""

import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final
from uuid import UUID

from flow import forks
from flow.clock import SYSTEM_CLOCK, Clock
from publishers.errors import LogClosed, LogFailed, LogForked, LogFull, LogUnreadable, NotALog
from publishers.options import LogOptions
from publishers.wal.append.head_writer import HeadWriter
from publishers.wal.append.sealed import Appended, Transaction
from publishers.wal.append.writer import Writer
from publishers.wal.disk.filesystem import FencedError, FileSystem, RealFileSystem, check_openable, means_full
from publishers.wal.disk.reserve import Reserve
from publishers.wal.files.directory import check_names
from publishers.wal.files.head import CLEAN
from publishers.wal.files.segment import write_index
from publishers.wal.format.control import OWNER_BYTES, Epoch, ProducerState
from publishers.wal.keep.hard_links import Links
from publishers.wal.keep.retention import Retention
from publishers.wal.peers import Peers
from publishers.wal.read.reader import Reader
from publishers.wal.recover.recovery import recover
from publishers.wal.withholding import Withholding

__all__ = ["Wal"]

_LOG: Final = logging.getLogger(__name__)
_AHEAD: Final = 1.0
"""Seconds above which a last commit ahead of the clock is worth a warning: no burst of commits gets so far by itself."""


class Wal:
    """A log that is open for writing.

    Threads: `append`, `sync`, `close` and `abandon` are called under the caller's write gate, by one thread at a time.
    `publish_tail` has a gate of its own, likewise. `maintain` is for one housekeeping thread, which may be at work
    during all of these. `reader`, `producer` and the properties are for any thread at any time.

    Attributes:
        log_id: Made at creation.
        directory: Where the log lies.
        reader: Reads what is durable and not withheld.
        retention: Deletes what nobody needs any more; its holds say who needs something.
        torn_bytes: What recovery cut off: writes that were never acknowledged.
        links: Hard links for consumers that must not depend on retention.
        space_low: Whether the last zero-fill, spare segment, index or HEAD found no room on the disk.
        notify: Wakes followers in other processes if `publish_tail` has moved; any thread may, and no gate is needed.
        inherited: What to raise in a child of ``fork``; None in the process that opened it.
    """

    inherited: LogForked | None = None

    def __init__(
        self,
        directory: Path,
        options: LogOptions,
        filesystem: FileSystem,
        clock: Clock,
        files: contextlib.ExitStack,
    ) -> None:
        """Not to be called; see `open`. Here stands what an open log consists of, in the order in which it is opened.

        Args:
            directory: Of the log.
            options: Bounds and policies.
            filesystem: Where it is.
            clock: For commits.
            files: Closes what is opened here, in the reverse order.
        """
        self.directory = directory
        self.space_low = self._closed = self._stamps_ahead = False
        self._files = files
        self._options = options
        self._filesystem = filesystem
        self._clock = clock.monotonic
        # The lock comes first, and owners before are fenced off before anything is looked at.
        self._peers = peers = Peers(filesystem, directory, files)
        self._tail = peers.tail
        self.notify = peers.notify
        self._reserve = reserve = Reserve(filesystem, directory, options)
        recovered = recover(filesystem, directory, options, clock.now_us(), reserve, peers.tail, files)
        catalog, head, active, chain, tables, self.torn_bytes = recovered
        epoch = head.state.epoch
        self.log_id: UUID = catalog.log_id
        self._catalog = catalog
        self._writer = writer = Writer(
            filesystem, directory, options, clock, catalog, head, epoch, active, chain, tables, reserve
        )
        files.callback(writer.close)
        # Before a new epoch, which may begin a segment: links are made in the order of the segments.
        self.links = Links(filesystem, directory, lambda: catalog.entries, options.held_max_bytes)
        writer.open_epoch()
        _fill(reserve)
        peers.sign(epoch)
        # What stands on the writer, and owns no file.
        self._head_writer = head_writer = HeadWriter(head, writer)
        self._withholding = Withholding(writer, head, head_writer, catalog, filesystem, directory)
        self._head_at = self._clock()
        self.reader = Reader(catalog, self._withholding.readable)
        self.retention = Retention(
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
        """See `flow.forks.Forkable`: each file lets go by itself, and nothing is done with them any more."""
        self.inherited = self.retention.holds.inherited = LogForked(self.directory, pid)
        self._closed = True

    @classmethod
    def open(
        cls,
        directory: Path | str,
        options: LogOptions | None = None,
        *,
        filesystem: FileSystem | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> "Wal":
        """Opens a log, after recovering what a crash may have left, or creates one in a new or empty directory.

        Args:
            directory: Of the log.
            options: Bounds and policies.
            filesystem: The real one by default.
            clock: What time it is, for commits; how long something has lasted.

        Raises:
            LogBusy: If the log is open for writing elsewhere.
            NotALog: If the directory holds something else.
            WalCorrupted: If acknowledged data are damaged.
            LogUnreadable: If a file of the log, or its directory, cannot be opened.
            LogFull: If recovery has no room to write.
            LogFailed: If the disk fails during recovery.
        """
        options = options or LogOptions()
        filesystem = filesystem or RealFileSystem()
        path = Path(directory)
        with _refusing(filesystem, path, options), contextlib.ExitStack() as files:
            try:
                filesystem.make_directory(path)
                check_names(path, filesystem.listing(path))
            except (FileExistsError, NotADirectoryError):
                raise NotALog(path, "it is not a directory") from None
            wal = cls(path, options, filesystem, clock, files)
            wal.publish_tail(wal.visible)
            wal._files = files.pop_all()
        return wal

    # --- what there is -----------------------------------------------------------------------------------------------

    @property
    def epoch(self) -> int:
        """Number of this opening for writing; `forget_after` begins another one."""
        return self._writer.epoch

    @property
    def appended(self) -> int:
        """Newest version written; 0 if there is none."""
        return self._writer.appended

    @property
    def durable(self) -> int:
        """Newest version that a crash cannot take (under ``sync="os"``: the newest written); 0 if there is none."""
        return self._writer.limit.version

    @property
    def synced(self) -> int:
        """Newest version that was synced, whatever the policy calls durable."""
        return self._writer.synced

    @property
    def visible(self) -> int:
        """Newest version that may be shown: the durable one, or the one HEAD names while others are withheld."""
        return self._withholding.visible

    @property
    def withholding(self) -> bool:
        """Whether HEAD tells that what is above ``visible`` is withheld."""
        return self._withholding.active

    @property
    def oldest(self) -> int:
        """Oldest version that is kept; 0 if the log is empty."""
        return self._catalog.entries[0].first_version if self._writer.appended else 0

    @property
    def epochs(self) -> tuple[Epoch, ...]:
        """The openings for writing as far as the history is kept, those without versions left out.

        What survived of an epoch ends before the ``first_version`` of the first *greater* epoch here.
        """
        return self._writer.tables.epochs

    @property
    def whole(self) -> Reader:
        """Reads what is durable, withheld or not, and leaves nothing of it in any cache: for the owner's own use."""
        return Reader(self._catalog, lambda: self._writer.limit)

    @property
    def syncs(self) -> tuple[int, float]:
        """How often commits were synced since the opening, and the seconds that took."""
        return self._writer.syncs, self._writer.sync_seconds

    @property
    def failed(self) -> str | None:
        """Why the log takes no more commits; None while all is well."""
        return self._writer.health.why

    @property
    def bytes(self) -> int:
        """Bytes of all segments, zeros ahead of the end not counted."""
        return self.retention.bytes

    @property
    def reserve_bytes(self) -> int:
        """Bytes that are kept back for what must be written on a full disk; below ``reserve_bytes`` it has been met."""
        return self._reserve.nbytes

    @property
    def clock_ahead(self) -> float:
        """Seconds by which the time of the last commit is ahead of the clock; 0 unless the clock was put back since."""
        return self._writer.ahead

    @property
    def producers(self) -> int:
        """How many producers are remembered."""
        return len(self._writer.tables.producers)

    @property
    def producers_forgotten(self) -> int:
        """How many producers were forgotten for the bounds ``producers`` and ``producer_ttl``."""
        return self._writer.tables.forgotten

    def producer(self, producer: UUID) -> ProducerState | None:
        """The last transaction of a producer, synced or not; None if it has none, or was forgotten."""
        return self._writer.tables.producers.get(producer.bytes)

    def producers_of(self, producer: UUID, since: int) -> int:
        """How many remote producers of the owner of one have committed since a time, in unix microseconds."""
        return self._writer.tables.of_owner(producer.bytes[:OWNER_BYTES], since)

    # --- writing -----------------------------------------------------------------------------------------------------

    def append(self, transactions: Sequence[Transaction]) -> list[Appended]:
        """Gives versions to transactions in the order given and writes them, with one ``pwrite`` if none is spooled.

        Nothing is durable before `sync`. Spooled transactions are to be discarded by the caller afterwards.

        Returns:
            One item for each transaction. There are fewer only if a segment got full in between and the disk had no
            room for the next one; to append the rest again tells why.

        Raises:
            LogFull: If the disk has no room. Nothing of the transactions is left, and the log stays good.
            LogFailed: If the disk fails; the outcome is unknown, or ``refused`` if the log had failed before.
            LogClosed: If the log was closed.
        """
        if self._closed:
            raise LogClosed
        tail = self._tail
        if tail.fence != tail.own:  # as `Tail.claimed`, for every commit
            self._writer.health.fail(FencedError())
        return self._writer.append(transactions)

    def sync(self) -> int:
        """Makes everything that was appended durable and readable; returns the newest durable version.

        Raises:
            LogFailed: If the sync fails, which is for good, or the log had failed before.
            LogClosed: If the log was closed.
        """
        if self._closed:
            raise LogClosed
        return self._writer.sync()

    @property
    def overdue(self) -> bool:
        """Whether the active segment is above ``segment_age`` and has anything in it; any thread may ask."""
        return not self._closed and self._writer.must_roll()

    def roll(self) -> None:
        """Closes the active segment, if it is above ``segment_age``, and tells followers. Both gates must be held.

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
        """Tells followers in other processes of the newest visible version, at most the durable one."""
        place = self._withholding.shows(visible)
        writer, durable = self._writer, self._writer.limit.version
        if not self._tail.write(writer.epoch, visible, place.segment, place.offset, durable, writer.random):
            writer.health.fail(FencedError())
            raise LogFailed("unknown", str(FencedError()))
        self._peers.unannounced = True

    def show(self, visible: int | None) -> None:
        """Makes known, durably, what may be shown: to be called before more is, and before the first withheld is appended.

        Args:
            visible: The newest version that may be shown, which may be yet to come; None if nothing is withheld.

        Raises:
            LogFull: If the disk has no room; nothing has changed.
            LogFailed: If the disk fails.
        """
        self._withholding.show(visible)

    def forget_after(self, version: int) -> None:
        """Removes what is withheld above a version, producers' sequences included, and begins a new epoch.

        Both gates must be held. A crash on the way leaves everything as it was, or the work to recovery.

        Raises:
            LogFull: If the disk has no room; nothing has changed.
            LogFailed: If the disk fails.
            WalCorrupted: If the log cannot be read; nothing has changed, or the log has failed.
        """
        if self._closed:
            raise LogClosed
        self._withholding.forget_after(version)
        self._peers.sign(self.epoch)
        self.publish_tail(self.visible)

    def vouch(self, version: int) -> None:
        """Makes HEAD cover a version, which somebody is about to store as his position.

        Any thread may call it for a version that is synced; for one that is only appended (``sync="os"``) it syncs
        first, and is to be called under the write gate.

        Raises:
            LogFailed: If the disk fails.
            LogFull: If the disk has no room.
        """
        self._head_writer.vouch(version)

    def insist(self, write: Callable[[], None]) -> None:
        """Does a small write beside the log for which room is kept back, such as that of somebody's position.

        Args:
            write: Done again from its beginning, if the disk is full, for as long as there is room to give back.

        Raises:
            OSError: What the write raises.
        """
        self._reserve.holding(write)

    # --- housekeeping ------------------------------------------------------------------------------------------------

    def maintain(self, floor: int | None = None) -> bool:
        """Does one step of each kind of housekeeping: zeros ahead, a spare segment, indexes, HEAD, retention.

        Never raises for the disk: where there is no room it tries again next time (``space_low``), any other error
        fails the log (`failed`).

        Args:
            floor: The least version that somebody needs beside the holds, for retention.

        Returns:
            Whether something was done, so that another step may find more to do.
        """
        steps = (
            self._peers.tend,
            self.links.tend,
            self._reserve.fill,  # before anything else gets room
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
        """Takes steps one after the other, each of which answers whether it has done something."""
        health = self._writer.health
        done = full = False
        for step in steps:
            if self._closed or health.why is not None:
                break
            try:
                done = step() or done
            except (OSError, LogUnreadable) as error:
                if isinstance(error, OSError) and means_full(error):
                    full = True
                else:
                    health.fail(error)
        self.space_low = full
        return done

    def _fill(self) -> bool:
        """Writes zeros when less than half a step of them is left."""
        active = self._writer.active
        step = self._options.fill_step
        if active.filled - active.offset >= step // 2:
            return False
        return active.fill(min(active.offset + step, self._options.segment_bytes))

    def _make_spare(self) -> bool:
        """Makes the spare segment once the active segment is half full."""
        writer = self._writer
        if not writer.spares.wanted or 2 * writer.active.offset < self._options.segment_bytes:
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
        """Writes HEAD, ``head_sync`` after the last time that it, or one of its slots, was found to be behind."""
        head = self._head_writer.head
        _, segment, offset = self._writer.evidence()
        if (segment, offset) <= (head.state.segment, head.state.offset) and head.even:
            return False
        if self._clock() - self._head_at < self._options.head_sync:
            return False
        self._head_writer.write()
        self._head_at = self._clock()
        return True

    def _watch_clock(self) -> bool:
        """Warns once while commits are stamped with the future, because the clock was ahead for a moment."""
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
        # What nobody was shown yet, somebody waits for.
        unseen = self.visible + 1
        return self.retention.step(unseen if floor is None else min(floor, unseen))

    # --- the end -----------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Syncs, writes a clean HEAD and closes; again is harmless. The housekeeping must have stopped.

        Raises:
            LogFailed: If the disk fails; the log is closed all the same.
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
            # What HEAD does not cover will be found by the scan.
            if not means_full(error):
                health.fail(error)
                raise LogFailed("unknown", str(error)) from error
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Closes the files and writes nothing, as a crash of the process would."""
        if self._closed:
            return
        self._closed = True
        self._files.close()


@contextlib.contextmanager
def _refusing(filesystem: FileSystem, path: Path, options: LogOptions) -> Iterator[None]:
    """Turns an error of the disk into what it means to who opens a log."""
    try:
        yield
    except OSError as error:
        if means_full(error):
            free = None
            with contextlib.suppress(OSError):
                free = filesystem.free_bytes(path)
            raise LogFull(free, options.fill_step) from error
        check_openable(error, path)
        raise LogFailed("refused", str(error), opening=True) from error


def _fill(reserve: Reserve) -> None:
    """Keeps room back; where there is none, the log is opened without, and takes no changes yet."""
    try:
        reserve.fill()
    except OSError as error:
        if not means_full(error):
            raise
