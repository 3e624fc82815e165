"""A process that has no descriptor or no memory left, or whose disk is read-only, at any opening of a file; and for as long as it likes."""

import contextlib
import errno
from dataclasses import dataclass, field
from functools import partial

import pytest

from publishers.errors import LogExhausted, LogFailed, LogFull
from publishers.wal import Follower, Wal, wal
from publishers.wal.append import active_segment
from publishers.wal.append.active_segment import ActiveSegment
from tests.harness.failing import failing
from tests.harness.inside import catalog_of
from tests.publishers.wal.logs import commit, contents, opened, options
from tests.simulation.filesystem import SimulatedFile, SimulatedFileSystem
from tests.simulation.workload import LOG

SMALL = options(retain_bytes=100_000)
LACKS = {
    errno.EMFILE: "descriptors",
    errno.ENFILE: "descriptors",
    errno.ENOMEM: "memory",
    errno.EROFS: "disk",
}


class Scarce(SimulatedFileSystem):
    """Refuses the openings of some numbers.

    Attributes:
        openings: How many there were: of files, and of directories to list or to sync them.
        refused: The numbers that are refused.
        number: The error.
    """

    openings = 0
    refused = range(0)
    number = 0

    def _open(self, *, writing: bool = True) -> None:
        self.openings += 1
        if self.openings in self.refused and (writing or self.number != errno.EROFS):
            raise OSError(self.number, "simulated")

    def open(self, path, mode, /):
        self._open(writing=mode != "read")
        return super().open(path, mode)

    def listing(self, path, /):
        self._open(writing=False)
        return super().listing(path)

    @contextlib.contextmanager
    def opened_directory(self, path, /):
        self._open(writing=False)
        with super().opened_directory(path) as sync:
            yield sync


@dataclass
class Life:
    """Commits over several segments, housekeeping and retention, by somebody who repeats what is refused."""

    system: Scarce
    log: Wal
    given: dict[int, bytes] = field(default_factory=dict)
    refusals: list[LogFull] = field(default_factory=list)

    def live(self) -> None:
        for number in range(9):
            body = b"%06d" % number * 4000
            while True:
                try:
                    version = commit(self.log, body)
                    break
                except LogFull as error:
                    self.refusals.append(error)
                    self.log.maintain()
            self.given[version] = body
            for _ in range(2):
                self.log.maintain()
                assert self.log.failed is None
        while self.log.maintain() or self.log.space_low:
            pass


def life(number: int = 0, refused: range = range(0)) -> Life:
    system = Scarce()
    made = Life(system, opened(system, SMALL))
    commit(made.log, b"first")
    system.openings, system.number, system.refused = 0, number, refused
    made.live()
    system.refused = range(0)
    return made


@pytest.mark.parametrize("number", LACKS)
def test_whatever_cannot_be_opened_is_refused_and_done_later(number, quiet):
    most = life().system.openings
    assert most > 30
    told = 0
    for first in range(1, most + 1):
        for length in (1, 5):
            lived = life(number, range(first, first + length))
            log = lived.log
            assert (log.failed, log.lacks, log.space_low) == (None, None, False)
            assert {error.resource for error in lived.refusals} <= {LACKS[number]}
            told += len(lived.refusals)
            kept = dict(contents(log))
            assert {
                version: body for version, (body,) in kept.items() if version > 1
            }.items() <= lived.given.items()
            assert max(kept) == log.durable == 10
            assert log.oldest > 1, "retention has gone on as well"
            log.abandon()
            lived.system.power_cut()
            again = opened(lived.system, SMALL)
            assert dict(contents(again)) == kept
            again.abandon()
    assert told


def test_what_was_refused_is_told_until_the_housekeeping_has_found_enough(caplog):
    system = Scarce()
    log = opened(system, SMALL)
    system.number, system.refused = errno.EMFILE, range(1, 10**6)
    for number in range(4):
        with contextlib.suppress(LogFull):
            commit(log, b"%06d" % number * 4000)
        log.maintain()
    assert isinstance(log.lacks, LogExhausted)
    assert log.lacks.resource == "descriptors"
    assert log.space_low
    system.refused = range(0)
    log.maintain()
    assert (log.lacks, log.space_low) == (None, False)
    lines = [line.getMessage() for line in caplog.records if "room" in line.getMessage()]
    assert len(lines) == 2, lines
    log.abandon()


def test_a_full_disk_is_told_until_it_has_room_for_the_commit_that_was_refused():
    system = SimulatedFileSystem(capacity=200_000)
    log = opened(system, options(fill_step=0, reserve_bytes=0))
    commit(log, b"small")
    with pytest.raises(LogFull):
        commit(log, b"x" * 300_000)
    for _ in range(3):
        log.maintain()
        assert type(log.lacks) is LogFull, "a small commit would fit, but not that one"
    commit(log, b"small")
    system.capacity = 10**6
    log.maintain()
    assert log.lacks is None
    commit(log, b"x" * 300_000)
    log.abandon()


def test_memory_that_is_lacking_before_a_frame_is_written_leaves_the_log_good(monkeypatch):
    log = opened(SimulatedFileSystem())
    commit(log, b"one")
    for body in (b"x", b"y" * 300_000):  # in one piece, and in several
        with monkeypatch.context() as patched:
            failing(patched, ActiveSegment, "put", MemoryError)
            with pytest.raises(LogExhausted) as caught:
                commit(log, body)
        assert caught.value.resource == "memory"
        assert log.failed is None
    assert commit(log, b"two") == 2
    assert contents(log) == [(1, [b"one"]), (2, [b"two"])]
    log.abandon()


def test_a_disk_that_becomes_read_only_takes_nothing_back(monkeypatch):
    system = SimulatedFileSystem()
    log = opened(system)
    commit(log, b"one")

    with monkeypatch.context() as patched:
        for name in ("pwrite", "truncate"):
            failing(patched, SimulatedFile, name, OSError(errno.EROFS, "Read-only file system"))
        for _ in range(3):
            with pytest.raises(LogExhausted, match="read-only"):
                commit(log, b"two")
            log.maintain()
        assert log.failed is None
        assert log.lacks is not None
    assert commit(log, b"two") == 2
    log.maintain()
    assert log.lacks is None
    log.abandon()
    system.power_cut()
    assert contents(opened(system)) == [(1, [b"one"]), (2, [b"two"])]


def test_a_follower_that_can_open_nothing_stays_where_it_is_and_goes_on():
    system = Scarce()
    log = opened(system)
    commit(log, b"one")
    follower = Follower.open(LOG, filesystem=system)
    for number in range(5):
        commit(log, b"%06d" % number * 5000)
    for number in (errno.EMFILE, errno.ENOMEM):
        system.openings, system.number, system.refused = 0, number, range(1, 100)
        for _ in range(3):
            with pytest.raises(LogExhausted):
                follower.refresh()
        assert follower.visible == 1
    system.refused = range(0)
    assert follower.refresh() == 6
    assert contents(follower) == contents(log)
    system.openings, system.refused = 0, range(1, 100)
    catalog_of(follower).close()
    follower.reader._blocks.clear()
    follower.reader._recent = type(follower.reader._recent)(0, 0, b"")
    with pytest.raises(LogExhausted):
        contents(follower)  # and not: the log is damaged
    system.refused = range(0)
    assert contents(follower) == contents(log)
    follower.close()
    log.abandon()


def test_an_opening_that_lacks_a_descriptor_says_so_and_can_be_repeated(quiet):
    system = Scarce()
    log = opened(system)
    commit(log, b"one")
    log.abandon()
    start = system.openings
    system.kill()
    opened(system).abandon()
    most = system.openings - start
    for number in range(1, most + 1):
        system.kill()
        system.openings, system.number, system.refused = 0, errno.EMFILE, range(number, number + 1)
        with contextlib.suppress(LogExhausted):
            opened(system).abandon()
        system.kill()
        system.refused = range(0)
        log = opened(system)
        assert contents(log) == [(1, [b"one"])]
        log.abandon()


def test_memory_that_ends_behind_the_rename_of_a_segment_fails_the_log(monkeypatch):
    """F147: the segment has its name, so the log cannot go on as if nothing had been done."""
    log = opened(SimulatedFileSystem(), options(segment_bytes=65_536))
    commit(log, b"one")

    failing(monkeypatch, active_segment, "link_segment", MemoryError)
    bodies = [b"%06d" % number * 4000 for number in range(9)]
    with pytest.raises(LogFailed):
        list(map(partial(commit, log), bodies))
    assert log.failed is not None
    log.abandon()


def test_a_second_writer_is_refused_while_one_is_writing():
    """F191: the last line of defence."""
    log = opened(SimulatedFileSystem())
    pen = log._pen.pop()
    with pytest.raises(LogFailed, match="two threads"):
        commit(log, b"two")
    log._pen.append(pen)
    assert (commit(log, b"one"), log.failed) == (1, None)
    log.abandon()


def test_a_commit_that_lacks_something_before_it_is_appended_is_refused_by_name():
    log = opened(SimulatedFileSystem())
    found = log.refuse(OSError(errno.EMFILE, "no descriptor is free"), 10)
    assert (type(found), log.lacks) == (LogExhausted, found)
    log.abandon()


def test_a_step_of_the_housekeeping_that_is_refused_is_noted(monkeypatch):
    """F147: also where the disk cannot say how much is free."""
    system = SimulatedFileSystem()
    log = opened(system)

    failing(monkeypatch, log, "_write_index", LogExhausted("threads"))
    log.maintain()
    assert isinstance(log.lacks, LogExhausted)

    failing(monkeypatch, system, "free_bytes", OSError(errno.EIO, "it does not say"))
    failing(monkeypatch, log, "_write_index", OSError(errno.ENOSPC, "no room"))
    log.maintain()
    assert (type(log.lacks), log.failed) == (LogFull, None)
    log.abandon()


def test_an_opening_that_finds_no_memory_is_refused_by_name(monkeypatch):

    failing(monkeypatch, wal, "Peers", MemoryError)
    with pytest.raises(LogExhausted):
        opened(SimulatedFileSystem())
