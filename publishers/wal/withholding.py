"""Withheld transactions: durable, but not visible. HEAD records them, readers stop before them, and a truncation removes them.

HEAD carries the flag DEFERRED and the newest visible version, from before the first withheld transaction is written until the
last one becomes visible. That version may be not synced yet, and a crash may remove it: then nothing is withheld any more, and
recovery notes that.

Readers of the owner, like followers, stop exactly at the end of the visible versions. So no cache ever holds a byte that a
truncation removes and another transaction replaces.
"""

from dataclasses import dataclass
from pathlib import Path
from threading import Lock

from publishers.errors import LogFailed, WalCorrupted
from publishers.wal.append.active_segment import ActiveSegment
from publishers.wal.append.head_writer import HeadWriter
from publishers.wal.append.writer import Writer
from publishers.wal.disk.filesystem import FileSystem, check_exhausted, means_full
from publishers.wal.files.head import CUT, DEFERRED, SLOT_BYTES, Head
from publishers.wal.files.segment import DATA_START, SegmentHeader, segment_name
from publishers.wal.format.control import draw_random
from publishers.wal.read.catalog import Catalog, Limit
from publishers.wal.recover.inspector import restore
from publishers.wal.recover.truncate import place_of, truncate

__all__ = ["Withholding"]


@dataclass
class Withholding:
    """The part of an owned log that withholds transactions.

    `show` and `forget_after` are called under the write gate, `shows` and `forget_after` under the publish gate; any thread may
    call the other methods.

    Attributes:
        active: Whether HEAD records that transactions are withheld.
        shown: The end of the versions that were made visible last.
        housekeeping: Held for a step of housekeeping, and for a truncation.
    """

    _writer: Writer
    _head: Head
    _head_writer: HeadWriter
    _catalog: Catalog
    _filesystem: FileSystem
    _directory: Path

    def __post_init__(self) -> None:
        self.housekeeping: Lock = Lock()
        self.shown: Limit = self._writer.limit
        self.active: bool = bool(self._head.state.flags & DEFERRED)
        if self.active:
            self.shown = self._end_of(self.visible)

    @property
    def visible(self) -> int:
        """The newest visible version."""
        state, durable = self._head.state, self._writer.limit.version
        return min(state.visible, durable) if state.flags & DEFERRED else durable

    def readable(self) -> Limit:
        """The limit of readers."""
        return self.shown if self.active else self._writer.limit

    def shows(self, visible: int) -> Limit:
        """Notes that all versions up to this one become visible; returns where they end."""
        writer = self._writer
        ends = writer.ends
        limit = writer.limit
        if limit.version == visible:
            while ends and ends[0].version <= visible:
                ends.popleft()
            self.shown = limit
            return limit
        place = self.shown
        while ends and ends[0].version <= visible:
            version, _, location, end, _ = ends.popleft()
            place = Limit(version, location.segment, end)
        if place.version < visible:
            place = self._end_of(visible)  # more versions were appended than `ends` holds
        self.shown = place
        return place

    def _end_of(self, visible: int) -> Limit:
        limit = self._writer.limit._replace(version=visible)
        return Limit(visible, *place_of(self._catalog, limit, visible + 1))

    def show(self, visible: int | None) -> None:
        """See `Wal.show`."""
        if visible is None and not self.active:
            return
        writer = self._writer
        writer.health.check()
        begins = visible is not None and not self.active
        try:
            self._head_writer.write(visible=visible)
            self.active = visible is not None
            if begins:
                # Into both slots: if the slot with the flag were damaged, the other one would reveal withheld transactions.
                self._head_writer.write(visible=visible)
        except OSError as error:
            if means_full(error):
                raise writer.health.refuse(error, None, SLOT_BYTES) from error
            writer.health.fail(error)
            raise LogFailed("unknown", str(error)) from error

    def forget_after(self, version: int) -> None:
        """See `Wal.forget_after`."""
        self._writer.sync()
        with self.housekeeping, self._head_writer.lock:
            self._forget_after(version)

    def _forget_after(self, version: int) -> None:
        writer = self._writer
        visible = self.visible
        segment, offset = place_of(self._catalog, writer.limit, version + 1)
        header = self._read_header(segment)
        begun = False
        try:
            self._head.write(writer.epoch, version, segment, offset, flags=CUT, visible=visible)
            begun = True
            self._cut(header, version, offset, visible if visible < version else None)
        except OSError as error:
            if means_full(error) and not begun:
                raise writer.health.refuse(error, None, SLOT_BYTES) from error
            writer.health.fail(error)
            raise LogFailed("unknown", str(error)) from error
        except BaseException as error:
            writer.health.fail(error)
            raise

    def _cut(self, header: SegmentHeader, version: int, offset: int, visible: int | None) -> None:
        writer, catalog = self._writer, self._catalog
        number = header.number
        truncate(
            self._filesystem, self._directory, number, offset, [entry.number for entry in catalog.entries]
        )
        epoch = writer.epoch + 1
        path = self._directory / segment_name(number)
        file = self._filesystem.open(path, "write")
        try:
            left = restore(file, number, offset)
            if (left.chain.version, left.end) != (version, offset):
                raise WalCorrupted(number, left.bad, left.why or "the frames end before the place of the cut")
            random = draw_random(self._filesystem)
            self._head.write(epoch, version, number, offset, visible=visible, random=random)
        except BaseException:
            file.close()
            raise
        active = ActiveSegment(self._filesystem, path, file, header, offset, offset)
        active.index = left.sparse
        catalog.cut(number, left.sparse)
        writer.restart(epoch, active, left.chain, left.tables)
        writer.open_epoch()
        self.active = visible is not None
        # Into both slots: if this slot were damaged, the other one would truncate the transactions committed from now on.
        try:
            self._head.write(epoch, *writer.evidence())
        except OSError as error:
            if not means_full(error):  # the housekeeping writes it as soon as there is room
                raise

    def _read_header(self, number: int) -> SegmentHeader:
        try:
            return SegmentHeader.unpack(self._catalog.pread(number, DATA_START, 0))
        except (OSError, ValueError) as error:
            if isinstance(error, OSError):
                check_exhausted(error)
            raise WalCorrupted(number, 0, f"the header cannot be read ({error})") from error
