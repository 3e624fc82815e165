"""Files that are there and cannot be opened: FIFOs, directories, symlink loops, sockets, and what may not be opened."""

import errno
import os
import socket

import pytest

import flow
from penstock_cdc.errors import LogFailed, LogUnreadable
from publishers import ChangeLog
from publishers.wal import Follower, RealFileSystem
from publishers.wal.checks import Verdict, dump, repair, verify
from publishers.wal.checks.dump import Dumped, DumpGap
from publishers.wal.files.segment import segment_name
from tests.harness.failing import failing
from tests.publishers.support import QUICK, Probe, fill, wait_until
from tests.publishers.wal.checks.damage import make_log, opened_really, snapshot
from tests.publishers.wal.logs import contents, fill_segments, opened
from tests.simulation.filesystem import SimulatedFileSystem
from tests.simulation.workload import LOG
from transports.cli.program import main

FILES = ("HEAD", "TAIL", segment_name(1), segment_name(3))


def fifo(path):
    os.mkfifo(path)


def loop(path):
    path.symlink_to(path.name)


def plug(path):
    here = os.getcwd()
    os.chdir(path.parent)  # a name of a socket may have 107 bytes
    try:
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(path.name)
    finally:
        os.chdir(here)


KINDS = {
    "it is a FIFO, not a file": fifo,
    "s a directory": lambda path: path.mkdir(),
    "Too many levels of symbolic links": loop,
    "No such device or address": plug,
}
"""By what is said of them; POSIX has the system refuse some by itself."""


@pytest.fixture
def log(tmp_path):
    make_log(tmp_path / "log")
    return tmp_path / "log"


def put(path, make):
    path.unlink()
    make(path)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("why", KINDS)
def test_what_is_no_file_is_named_at_once_by_everything_that_opens_a_log(log, name, why, capsys):
    """E7, F49: for writing, to be followed, and by the commands; nothing hangs, and nothing is called damaged."""
    put(log / name, KINDS[why])
    for opening in (lambda: opened_really(log), lambda: Follower.open(log)):
        with pytest.raises(LogUnreadable, match=why) as caught:
            opening()
        assert caught.value.path == log / name
        assert "commit" not in str(caught.value)
        assert "damaged" not in str(caught.value)
    report = verify(log)
    assert report.verdict is Verdict.UNREADABLE
    assert {one.name for one in report.findings if one.verdict is Verdict.UNREADABLE} == {name}
    for command, code in (("verify", 3), ("dump", 3), ("repair", 3), ("stats", 1)):
        assert main([command, str(log)]) == code
        told = capsys.readouterr()
        assert why in told.out + told.err
        assert name in told.out + told.err
        assert "Errno" not in told.out + told.err
        if command == "stats":
            assert len(told.err.splitlines()) == 1


def test_what_is_intact_beside_a_file_that_cannot_be_opened_is_dumped(log):
    """F49."""
    put(log / segment_name(2), fifo)
    report = verify(log)
    kept = [one.name for one in dump(report)]
    assert set(kept) == {segment_name(1)}
    salvaged = list(dump(report, salvage=True))
    assert [one for one in salvaged if isinstance(one, DumpGap)] == [
        DumpGap(segment_name(2), 0, "unreadable", "it cannot be read (it is a FIFO, not a file)")
    ]
    assert {one.name for one in salvaged if isinstance(one, Dumped)} == {segment_name(1), segment_name(3)}


def test_a_repair_leaves_what_cannot_be_opened_as_it_is(log):
    """F49."""
    (log / segment_name(2)).rename(log.parent / "kept")
    loop(log / segment_name(2))
    before = sorted(path.name for path in log.iterdir())
    assert repair(log, write=True).refused is not None
    assert sorted(path.name for path in log.iterdir()) == before
    (log / segment_name(2)).unlink()
    (log.parent / "kept").rename(log / segment_name(2))
    files = snapshot(log)
    assert verify(log).verdict is Verdict.SOUND
    assert snapshot(log) == files


def test_a_reader_that_comes_to_a_fifo_is_told_and_goes_on_when_the_file_is_back(tmp_path):
    """E7: the owner and a follower that had the log open before."""
    options = {**QUICK, "segment_bytes": 65_536, "retain_bytes": None, "retain_age": None, "ring_events": 4}
    path = tmp_path / "log"
    with (
        ChangeLog.open(path, **options) as owner,
        ChangeLog.open(path, read_only=True, **options) as follower,
    ):
        fill(owner, 1)
        wait_until(lambda: follower.head == owner.head)
        number = 2
        place = path / segment_name(number)
        while not place.exists():
            fill(owner, 20)
        wait_until(lambda: follower.head == owner.head)
    kept = tmp_path / "kept"
    with ChangeLog.open(path, read_only=True, **options) as follower:
        place.rename(kept)
        fifo(place)
        probe = Probe(first=1_000_000)
        follower.changes(since="earliest").subscribe(probe, executor=flow.INLINE)
        wait_until(lambda: probe.error is not None)
        assert isinstance(probe.error, LogUnreadable)
        assert probe.error.path == place
        place.unlink()
        kept.rename(place)
        again = Probe(first=1_000_000)
        follower.changes(since="earliest").subscribe(again, executor=flow.INLINE)
        wait_until(lambda: again.subscription.position == follower.head)


def test_a_new_segment_that_a_follower_cannot_open_is_named_to_its_reader(tmp_path):
    """E7: what comes behind it is not shown meanwhile, and all of it afterwards."""
    system = RealFileSystem()
    wal = opened(system, path=tmp_path / "log")
    with pytest.MonkeyPatch.context() as patch:
        wal.close()
        follower = Follower.open(tmp_path / "log")
        wal = opened(system, path=tmp_path / "log")
        fill_segments(wal, 3)
        plain = RealFileSystem.open

        def refused(self, path, mode):
            if path.name == segment_name(2):
                raise PermissionError(errno.EACCES, "Permission denied")
            return plain(self, path, mode)

        patch.setattr(RealFileSystem, "open", refused)
        assert follower.refresh() == wal.visible
        with pytest.raises(LogUnreadable, match="Permission denied"):
            contents(follower, 1)
        patch.undo()
        follower.refresh()
        assert contents(follower, 1) == contents(wal, 1)
    follower.close()
    wal.close()


@pytest.mark.parametrize("name", ["HEAD", "LOCK", "TAIL", segment_name(1)])
def test_what_this_process_may_not_open_is_neither_damaged_nor_a_commit(name, monkeypatch):
    """E7."""
    system = SimulatedFileSystem()
    opened(system).close()
    plain = system.open

    def refused(path, mode):
        if path.name == name:
            raise PermissionError(errno.EACCES, "Permission denied")
        return plain(path, mode)

    monkeypatch.setattr(system, "open", refused)
    with pytest.raises(LogUnreadable, match=f"{name} cannot be opened .Permission denied"):
        opened(system)
    if name != "LOCK":
        with pytest.raises(LogUnreadable, match=f"{name} cannot be opened"):
            Follower.open(LOG, filesystem=system)


def test_a_disk_that_fails_at_an_opening_is_not_told_as_a_commit(monkeypatch):
    """E7."""
    system = SimulatedFileSystem()

    failing(monkeypatch, system, "sync_directory", OSError(errno.EIO, "Input/output error"))
    with pytest.raises(LogFailed, match="could not be opened") as caught:
        opened(system)
    assert caught.value.outcome == "refused"
    assert "commit" not in str(caught.value)
