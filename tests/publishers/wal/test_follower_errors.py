"""Followers of a log that is damaged, gone or not readable."""

import contextlib
import errno
from unittest import mock
from zlib import crc32

import pytest

from publishers.errors import LogFailed, LogUnreadable, NotALog, WalCorrupted
from publishers.wal import Follower
from publishers.wal.disk.filesystem import RealFileSystem
from publishers.wal.files.head import HEAD_NAME
from publishers.wal.files.segment import DATA_START, segment_name
from publishers.wal.format.frame import HEADER_BYTES, FrameHeader, seal
from publishers.wal.read.catalog import Catalog
from publishers.wal.read.reader import Reader
from tests.harness.failing import failing
from tests.harness.inside import writer_of
from tests.publishers.wal.logs import commit, contents, fill_segments, opened, options
from tests.publishers.wal.test_follower import REAL
from tests.simulation.filesystem import SimulatedFileSystem
from tests.simulation.workload import LOG


def test_a_directory_without_a_log_cannot_be_followed(tmp_path):
    """F50: and it is told why."""
    file = tmp_path / "wal-x.log"
    file.write_text("x")
    (tmp_path / "empty").mkdir()
    for path, why in (
        (tmp_path / "empty", "there is no HEAD in it"),
        (tmp_path / "missing", "there is no such directory"),
        (file, "it is not a directory"),
        (tmp_path, "named like a segment"),
    ):
        with pytest.raises(NotALog, match=why):
            Follower.open(path)


@pytest.mark.parametrize("name", ["listing", "open"])
def test_a_log_that_may_not_be_read_is_not_taken_for_none(monkeypatch, name):
    """F50."""
    system = SimulatedFileSystem()
    opened(system).close()
    failing(monkeypatch, system, name, PermissionError(errno.EACCES, "Permission denied"))
    with pytest.raises(LogUnreadable, match=r"cannot be opened \(Permission denied\)"):
        Follower.open(LOG, filesystem=system)


def test_a_log_whose_creation_was_interrupted_cannot_be_followed():
    for number in range(1, 14):
        system = SimulatedFileSystem(number)
        system.make_directory(LOG)
        system.faults = {number: "EIO"}
        with contextlib.suppress(LogFailed):
            opened(system)
        with pytest.raises(NotALog):
            Follower.open(LOG, filesystem=system)


def test_damage_is_reported_to_followers_too():
    system = SimulatedFileSystem()
    log = opened(system)
    commit(log, b"a" * 100)
    fill_segments(log, 2)
    files = system.snapshot(LOG)
    for name, at in ((HEAD_NAME, None), (segment_name(1), 10), (segment_name(1), 400), (segment_name(2), 10)):
        data = bytearray(files[name])
        if at is None:
            data[20] ^= 1
            data[4096 + 20] ^= 1
        else:
            data[at] ^= 1
        damaged = SimulatedFileSystem.of(LOG, {**files, name: bytes(data), "TAIL": b""})
        with pytest.raises(WalCorrupted):
            contents(Follower.open(LOG, filesystem=damaged))


def test_a_missing_segment_is_reported_to_followers():
    system = SimulatedFileSystem()
    log = opened(system)
    fill_segments(log, 3)
    files = system.snapshot(LOG)
    del files[segment_name(3)]
    with pytest.raises(WalCorrupted, match="segment 3"):
        Follower.open(LOG, filesystem=SimulatedFileSystem.of(LOG, files))


def test_a_head_that_is_half_written_takes_no_segment_from_a_follower():
    """F144: nor one that cannot be read for once; the next look finds what retention has taken."""
    system = SimulatedFileSystem()
    log = opened(system, options(retain_bytes=0))
    fill_segments(log, 4)
    follower = Follower.open(LOG, filesystem=system)
    oldest = follower.oldest
    while log.maintain():
        pass
    head = bytes(system.content(LOG / HEAD_NAME))
    system.content(LOG / HEAD_NAME)[:] = bytes(len(head))
    assert follower.refresh() == log.visible
    with mock.patch.object(follower._head_file, "pread", side_effect=OSError(errno.EIO, "simulated")):
        assert follower.refresh() == log.visible
    assert follower.oldest == oldest
    system.content(LOG / HEAD_NAME)[:] = head
    follower.refresh()
    assert follower.oldest == log.oldest > oldest


def test_a_follower_whose_files_cannot_be_read_says_so():
    system = SimulatedFileSystem()
    log = opened(system)
    commit(log, b"a")
    for number in (1, 2):
        system.read_faults = {system.reads + number}
        with pytest.raises(WalCorrupted, match="cannot be read"):
            Follower.open(LOG, filesystem=system)
    follower = Follower.open(LOG, filesystem=system)
    fill_segments(log, 2)
    with mock.patch.object(system, "listing", side_effect=OSError("gone")):
        with pytest.raises(WalCorrupted, match="the directory cannot be read"):
            follower.refresh()
        location = follower.reader.locate(1)
        system.unlink(LOG / segment_name(1))
        stale = Reader(Catalog(system, LOG, log.log_id), lambda: writer_of(log).limit, refresh=True)
        with pytest.raises(WalCorrupted, match="the directory cannot be read"):
            stale.read(location)


def test_a_segment_that_goes_while_the_directory_is_listed_is_no_damage():
    system = SimulatedFileSystem()
    log = opened(system, options(retain_bytes=0))
    fill_segments(log, 4)
    names = system.listing(LOG)
    while log.maintain():
        pass
    with mock.patch.object(system, "listing", return_value=names):
        follower = Follower.open(LOG, filesystem=system)
    assert contents(follower) == contents(log)


def test_a_segment_of_another_log_is_reported_to_followers():
    system, other = SimulatedFileSystem(), SimulatedFileSystem(1)
    opened(system)
    opened(other)
    system.replace(LOG / segment_name(1), bytes(other.content(LOG / segment_name(1))))
    with pytest.raises(WalCorrupted, match="the header is of segment 1 of log"):
        Follower.open(LOG, filesystem=system)


def test_damaged_control_frames_are_reported_to_followers():
    for damage in (
        lambda content: content.__setitem__(64 + 90, content[64 + 90] ^ 1),
        lambda content: content.__setitem__(slice(64, 68), bytes(4)),
        lambda content: content.__delitem__(slice(100, None)),
    ):
        system = SimulatedFileSystem()
        opened(system)
        follower = Follower.open(LOG, filesystem=system)
        assert follower.epochs is follower.epochs
        damage(system.content(LOG / segment_name(1)))
        again = Follower.open(LOG, filesystem=system)
        with pytest.raises(WalCorrupted):
            _ = again.epochs
    system = SimulatedFileSystem()
    opened(system)
    follower = Follower.open(LOG, filesystem=system)
    system.read_faults = {system.reads + 1}
    with pytest.raises(WalCorrupted, match="simulated"):
        _ = follower.epochs


def test_a_control_frame_whose_crc_is_right_and_whose_payload_is_not_is_reported_to_followers():
    system = SimulatedFileSystem()
    opened(system)
    content = system.content(LOG / segment_name(1))
    frame = FrameHeader.unpack(content, DATA_START)
    payload = bytes(content[DATA_START + HEADER_BYTES :][: frame.length - 1])  # a byte is missing
    content[DATA_START : DATA_START + HEADER_BYTES], _ = seal(len(payload), crc32(payload), *frame[2:])
    follower = Follower.open(LOG, filesystem=system)
    with pytest.raises(WalCorrupted, match="a checkpoint of") as caught:
        _ = follower.epochs
    assert (caught.value.segment, caught.value.offset) == (1, DATA_START)


def test_an_empty_directory_is_no_history():
    system = SimulatedFileSystem()
    log = opened(system)
    fill_segments(log, 2)
    follower = Follower.open(LOG, filesystem=system)
    fill_segments(log, 3)
    with (
        mock.patch.object(system, "listing", return_value=[]),
        pytest.raises(WalCorrupted, match="segment 3"),
    ):
        follower.refresh()


def test_a_head_that_cannot_be_read_for_once_keeps_no_follower_from_going_on():
    """F50: it is asked for what retention deletes, and there is a next time."""
    system = SimulatedFileSystem()
    log = opened(system, options(retain_bytes=1))
    fill_segments(log, 3)
    follower = Follower.open(LOG, filesystem=system)
    while log.maintain():
        pass
    commit(log, b"more")
    with mock.patch.object(follower._head_file, "pread", side_effect=OSError(errno.EIO, "simulated")):
        assert follower.refresh() == log.visible
    assert follower.oldest == 1
    assert follower.refresh() == log.visible
    assert follower.oldest == log.oldest > 1
    follower.close()
    log.close()


def test_a_directory_that_the_disk_cannot_read_is_no_log_and_the_error_is_told(tmp_path):
    opened(REAL, path=tmp_path).close()
    broken = OSError(errno.EIO, "Input/output error")
    with (
        mock.patch.object(RealFileSystem, "listing", side_effect=broken),
        pytest.raises(NotALog, match=r"cannot be read \(Input/output error\)"),
    ):
        Follower.open(tmp_path)
