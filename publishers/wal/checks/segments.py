"""Examines the segments of a log in order: headers, frames, their chain, payloads, padding, and what follows the end."""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from publishers.errors import FormatTooNew
from publishers.model.position import epoch_text
from publishers.wal.checks.pieces import Bad, Good, pieces
from publishers.wal.checks.report import Finding, Report, Verdict
from publishers.wal.disk.filesystem import File, FileSystem
from publishers.wal.files.head import CUT, HEAD_NAME, HeadState, read_head
from publishers.wal.files.segment import (
    DATA_START,
    SegmentHeader,
    SparseIndex,
    Trailer,
    index_name,
    read_index,
    segment_name,
    segment_number,
    segment_numbers,
)
from publishers.wal.files.tail_page import TailState
from publishers.wal.format.control import Epoch
from publishers.wal.format.frame import CONTROL, HEADER_BYTES, LAST, Chain
from publishers.wal.read.catalog import Location
from publishers.wal.read.reader import unpack_payload
from publishers.wal.recover.inspector import Acknowledged, Replay, find_vouching, is_of_two_histories
from publishers.wal.recover.truncate import is_outdated

__all__ = ["Segments"]

_REPORT_EVERY: Final = 1 << 20


@dataclass
class Segments:
    """One examination of all segments; it fills in a report."""

    _filesystem: FileSystem
    _report: Report
    _head: HeadState | None
    _tail: TailState | None
    _names: list[str]
    _progress: Callable[[int, int], None]
    _total: int = 0
    _reported: int = 0
    _chain: Chain | None = None
    _whole: int = 0
    _last_at: int = 0
    _index_left: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    _epoch: Epoch | None = None

    def __post_init__(self) -> None:
        report, head, tail = self._report, self._head, self._tail
        self._directory = report.path
        self._numbers = segment_numbers(self._names)
        self._bounded = report.live or bool(head and head.flags & CUT)
        if not self._bounded:
            self._acknowledged = Acknowledged(head, tail)
        elif not report.live:
            self._acknowledged = Acknowledged(head, None)  # data behind the place of a truncation is given up
        elif tail is not None:  # HEAD may vouch for versions that are not visible yet
            self._acknowledged = Acknowledged(None, tail._replace(visible=0))
        else:
            self._acknowledged = Acknowledged(head and head._replace(durable=0), None)
        self._reached = self._acknowledged.reached

    def run(self) -> None:
        """Examines the segments."""
        report, head, numbers = self._report, self._head, self._numbers
        oldest = head.oldest if head is not None else numbers[0]
        newest = self._reached.segment if self._bounded else max(self._reached.segment, numbers[-1])
        report.first = oldest
        self._leftovers(oldest, newest)
        self._total = sum(self._size(number) for number in numbers if oldest <= number <= newest)
        expected = oldest
        for number in numbers:
            if oldest <= number <= newest:
                self._missing(expected, number - 1)
                self._guarded(number, last=number == newest)
                expected = number + 1
        self._missing(expected, newest)
        self._progress(self._total, self._total)
        if report.overtaken and not report.broken and self._chain is None:
            report.version = report.seen  # every version was visible, and was deleted by retention meanwhile
        report.seen = max(report.seen, report.version)
        self._histories()

    def _histories(self) -> None:
        """Checks that HEAD belongs to the segments: the random bits of their last epoch must be the same in both."""
        head, epoch = self._head, self._epoch
        if head is None:
            return
        tail = self._tail
        if epoch is not None and is_of_two_histories(head, epoch):
            other = (epoch.epoch, epoch.random)
        elif tail is not None and head.flags & CUT and not self._report.live and is_outdated(head, tail):
            other = (tail.epoch, tail.random)
        else:
            return
        ours, theirs = epoch_text(*other), epoch_text(head.epoch, head.random)
        why = f"it is of epoch {theirs}, but the segments are of epoch {ours}: these are two histories of the log"
        self._report.findings.append(Finding("history", Verdict.CORRUPT, 0, 0, HEAD_NAME, why))

    def _missing(self, first: int, last: int) -> None:
        if first > last:
            return
        if self._pruned(last):
            self._chain = None
            return
        what = "the segment is missing" if first == last else f"the segments from here to {last} are missing"
        self._break("segment-missing", first, 0, what)
        self._chain = None

    def _guarded(self, number: int, *, last: bool) -> None:
        self._last_at = 0
        try:
            with self._open(number) as file:
                self._inspect(file, number, last=last)
        except OSError as error:
            if isinstance(error, FileNotFoundError) and self._pruned(number):
                self._chain = None  # the header of the next segment is all that is known of its predecessor
                return
            why = f"it cannot be read ({error.strerror or error})"
            self._break("unreadable", number, self._last_at, why, Verdict.UNREADABLE)
            self._chain = None

    def _size(self, number: int) -> int:
        try:
            with self._open(number) as file:
                return file.size()
        except OSError:
            return 0

    def _open(self, number: int) -> contextlib.closing[File]:
        return contextlib.closing(self._filesystem.open(self._directory / segment_name(number), "read"))

    def _leftovers(self, oldest: int, newest: int) -> None:
        if self._report.live:
            return
        for name in self._names:
            number = segment_number(name) or segment_number(name, "idx")
            if number is None:
                continue
            orphan = name.endswith(".idx") and number not in self._numbers
            if number < oldest or orphan or (number > newest):
                why = "it is no longer part of the log; the next opening for writing removes it"
                self._report.findings.append(Finding("leftover", Verdict.TORN, number, 0, name, why))

    def _pruned(self, number: int) -> bool:
        """Whether retention has deleted a segment since HEAD was read."""
        if not self._report.live:
            return False
        try:
            with contextlib.closing(self._filesystem.open(self._directory / HEAD_NAME, "read")) as file:
                state = read_head(file)
        except OSError:
            return False
        gone = state is not None and number < state.oldest
        self._report.overtaken |= gone
        return gone

    # --- findings ------------------------------------------------------------------------------------------------------

    def _break(
        self,
        kind: str,
        number: int,
        offset: int,
        why: str,
        verdict: Verdict = Verdict.CORRUPT,
        until: int | None = None,
    ) -> None:
        """Adds a finding that ends the unbroken run."""
        self._report.broken = max(self._report.broken, verdict)
        name = segment_name(number)
        self._report.findings.append(Finding(kind, verdict, number, offset, name, why, until))

    # --- one segment ---------------------------------------------------------------------------------------------------

    def _inspect(self, file: File, number: int, *, last: bool) -> None:
        report = self._report
        size = file.size()
        bounded = last and self._bounded
        end = min(size, self._reached.offset) if bounded else size
        report.segments += 1
        header = self._header(file, number)
        before = self._chain
        self._chain = chain = (
            Chain(header.previous, header.first_version - 1, before.committed_at if before else 0)
            if header is not None
            else before or Chain(0, 0)
        )
        if not report.oldest and header is not None and not report.broken:
            report.oldest = header.first_version
            report.version = header.first_version - 1
        index, trailer = (None, None) if last else self._read_index(number)
        self._frames(file, number, end, chain, index, last=last)
        report.bytes += end
        if trailer is not None and self._clean(number):
            if (trailer.last_version, trailer.last_crc, trailer.end) != (chain.version, chain.crc, end):
                self._blame_index(number, "its trailer does not name the end of the segment")
            elif self._index_left:
                left = self._index_left
                why = f"it has {len(left)} entries without a frame, the first for byte {min(left)}"
                self._blame_index(number, why)

    def _read_index(self, number: int) -> tuple[SparseIndex | None, Trailer | None]:
        """Reads an index. It is derived from its segment, so never evidence, and is written some time after the segment is closed."""
        if self._report.log_id is None:
            return None, None
        log_id = UUID(hex=self._report.log_id)
        try:
            return read_index(self._filesystem, self._directory, log_id, number)
        except FileNotFoundError:
            why = "the file is missing; the next opening rebuilds it"
            self._blame_index(number, why, "index-missing", Verdict.SOUND)
        except OSError as error:
            why = f"it cannot be read ({error.strerror})"
            self._blame_index(number, why, "unreadable", Verdict.UNREADABLE)
        except ValueError as error:
            self._blame_index(number, str(error))
        return None, None

    def _blame_index(
        self, number: int, why: str, kind: str = "index", verdict: Verdict = Verdict.CORRUPT
    ) -> None:
        self._report.findings.append(Finding(kind, verdict, number, 0, index_name(number), why))

    def _clean(self, number: int) -> bool:
        name = segment_name(number)
        return not any(
            finding.name == name and finding.kind != "padding" for finding in self._report.findings
        )

    def _header(self, file: File, number: int) -> SegmentHeader | None:
        report = self._report
        try:
            header = SegmentHeader.unpack(file.pread(DATA_START, 0))
        except FormatTooNew as error:
            self._break("format", number, 8, str(error), Verdict.UNREADABLE)
            return None
        except ValueError as error:
            self._break("segment-header", number, 0, str(error))
            return None
        if report.log_id is None:
            report.log_id = header.log_id.hex
        if header.log_id.hex != report.log_id:
            why = f"the segment is of log {header.log_id.hex}, not {report.log_id}"
            self._break("log-id", number, 32, why)
            return header
        if header.number != number:
            self._break("numbering", number, 16, f"the segment has the number {header.number}")
            return header
        chain = self._chain
        if chain is not None and (header.previous, header.first_version - 1) != (chain.crc, chain.version):
            why = f"the header does not continue segment {number - 1}"
            self._break("segment-chain", number, 24, why)
        return header

    def _frames(
        self, file: File, number: int, end: int, chain: Chain, index: SparseIndex | None, *, last: bool
    ) -> None:
        report = self._report
        self._index_left = index.entries() if index is not None else {}
        self._whole = whole = DATA_START
        version = chain.version
        bads: list[Bad] = []
        replay = Replay()
        good = not report.broken
        for piece in pieces(file, DATA_START, end, chain):
            if isinstance(piece, Bad):
                bads.append(piece)
                continue
            offset, header, _ = piece
            self._last_at = offset
            self._one(file, number, piece, replay)
            self._report_progress(offset + header.extent)
            if header.ends and not bads:
                whole, version = offset + header.extent, chain.version
                if good and not report.broken:
                    report.end = Location(number, whole)
                    report.version = chain.version
        self._whole = whole
        if not bads and chain.unfinished:
            bads.append(Bad(whole, "unfinished", "a transaction begins here and does not end", None))
        if not bads and whole == DATA_START:
            bads.append(Bad(DATA_START, "checkpoint", "the checkpoint is missing", None))
        if last:
            self._judge(file, number, end, version, bads)
            return
        for bad in bads:
            self._break(bad.kind, number, bad.offset, bad.why, until=bad.until)
        if not bads and whole != end:
            self._break("zeroed", number, whole, f"the frames end {end - whole} bytes before the segment")

    def _judge(self, file: File, number: int, end: int, version: int, bads: list[Bad]) -> None:
        """Decides whether damage is torn or corrupt, by the rules of an opening."""
        report, whole = self._report, self._whole
        lost = self._acknowledged.lacking(version, Location(number, whole)) is not None
        acknowledged = lost or self._bounded or whole == DATA_START
        if bads and not acknowledged:
            acknowledged = find_vouching(file, whole, end, version) is not None
        verdict = Verdict.CORRUPT if acknowledged else Verdict.TORN
        for bad in bads:
            self._break(bad.kind, number, bad.offset, bad.why, verdict, bad.until)
        if lost and not bads:
            why = f"the log ends here, but version {report.seen} was acknowledged"
            self._break("lost-end", number, whole, why)

    def _one(self, file: File, number: int, piece: Good, replay: Replay) -> None:
        """Checks what the crc does not cover: that the payload can be decoded, and the bytes behind it."""
        report = self._report
        offset, header, payload = piece
        report.frames += 1
        report.seen = max(report.seen, header.version)
        if header.flags & LAST:
            report.transactions += 1
        padding = file.pread(-header.length & 7, offset + HEADER_BYTES + header.length)
        if any(padding):
            why = "the bytes after a payload must be zeros"
            at = offset + HEADER_BYTES + header.length
            report.findings.append(Finding("padding", Verdict.CORRUPT, number, at, segment_name(number), why))
        entry = self._index_left.get(offset)
        if entry == (header.version, header.first_index, header.committed_at):
            del self._index_left[offset]
        try:
            replay.take(offset, header, payload)
            if not header.flags & CONTROL:
                unpack_payload(header, payload)
        except FormatTooNew as error:
            self._break("format", number, offset, str(error), Verdict.UNREADABLE)
        except ValueError as error:
            self._break("payload", number, offset, str(error))
        for self._epoch in replay.tables.epochs[-1:]:
            report.met(self._epoch.epoch, self._epoch.random)

    def _report_progress(self, at: int) -> None:
        done = self._report.bytes
        if at - self._reported >= _REPORT_EVERY or at < self._reported:
            self._reported = at
            self._progress(min(done + at, self._total), self._total)
