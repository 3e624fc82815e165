import contextlib
import errno
import subprocess
import sys
from unittest import mock

import pytest

from publishers.errors import HistoryPruned, LogFailed, LogReplaced, LogUnreadable, NotALog, WalCorrupted
from publishers.wal import Follower, Location
from publishers.wal.disk.filesystem import RealFileSystem
from publishers.wal.files.head import HEAD_NAME
from publishers.wal.files.segment import segment_name
from publishers.wal.read.catalog import Catalog
from publishers.wal.read.reader import Reader
from tests.publishers.wal.logs import commit, contents, fill_segments, opened, options, sealed
from tests.simulation.filesystem import SimulatedFileSystem
from tests.simulation.workload import LOG

REAL = RealFileSystem()


def test_a_follower_sees_what_was_published_and_no_more(tmp_path):
    log = opened(REAL, path=tmp_path)
    follower = Follower.open(tmp_path)
    assert (follower.visible, follower.oldest, follower.log_id, follower.epoch) == (0, 0, log.log_id, 1)
    commit(log, b"a")
    assert contents(follower) == []
    assert follower.refresh() == 1
    assert contents(follower) == [(1, [b"a"])]
    log.append([sealed(b"b")])
    log.sync()
    assert follower.refresh() == 1
    log.publish_tail(2)
    log.append([sealed(b"c")])
    assert follower.refresh() == 2
    assert contents(follower) == [(1, [b"a"]), (2, [b"b"])]
    assert follower.oldest == 1
    follower.close()
    log.close()


def test_a_visible_version_below_the_durable_one_is_published_with_its_own_end(tmp_path):
    log = opened(REAL, path=tmp_path)
    log.append([sealed(b"%d" % number) for number in range(10)])
    log.sync()
    log.publish_tail(4)
    follower = Follower.open(tmp_path)
    assert [version for version, _ in contents(follower)] == [1, 2, 3, 4]
    log.publish_tail(7)
    assert follower.refresh() == 7
    assert [version for version, _ in contents(follower)] == list(range(1, 8))
    log._writer.ends.clear()
    log.append([sealed(b"more")])
    log._writer.ends.clear()
    log.publish_tail(9)
    assert follower.refresh() == 9
    assert [version for version, _ in contents(follower)] == list(range(1, 10))
    follower.close()
    log.close()


def test_a_follower_goes_through_rolls_and_reopenings(tmp_path):
    log = opened(REAL, path=tmp_path)
    follower = Follower.open(tmp_path)
    fill_segments(log, 3)
    assert follower.refresh() == log.durable
    assert contents(follower) == contents(log)
    log.close()
    log = opened(REAL, path=tmp_path)
    commit(log, b"again")
    assert follower.refresh() == log.durable
    assert follower.epoch == 2
    assert follower.epochs == log.epochs
    assert contents(follower) == contents(log)
    follower.close()
    log.close()


def test_a_follower_in_another_process_reads_the_same(tmp_path):
    log = opened(REAL, path=tmp_path)
    commit(log, b"a", b"b")
    code = (
        "from publishers.wal import Follower\n"
        f"follower = Follower.open({str(tmp_path)!r})\n"
        "frame = follower.reader.read(follower.reader.locate(1))\n"
        "print(follower.visible, list(frame.columns.body))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "1 [b'a', b'b']\n"
    log.close()


def test_after_a_reboot_head_counts_and_not_the_tail():
    system = SimulatedFileSystem()
    log = opened(system, options(head_sync=3600.0))
    commit(log, b"a")
    log.vouch(1)
    commit(log, b"b")
    assert Follower.open(LOG, filesystem=system).visible == 2
    system.power_cut()
    follower = Follower.open(LOG, filesystem=system)
    assert follower.visible == 1
    assert contents(follower) == [(1, [b"a"])]
    opened(system)
    assert follower.refresh() == 2


def test_a_follower_writes_nothing_and_takes_no_lock(tmp_path):
    log = opened(REAL, path=tmp_path)
    commit(log, b"a")
    log.close()
    before = {path.name for path in tmp_path.rglob("*")}
    follower = Follower.open(tmp_path)
    contents(follower)
    log = opened(REAL, path=tmp_path)
    log.abandon()
    follower.close()
    follower = Follower.open(tmp_path)
    follower.refresh()
    follower.close()
    assert before == {path.name for path in tmp_path.rglob("*")}
    system = SimulatedFileSystem()
    opened(system).abandon()
    operations = system.operations
    contents(Follower.open(LOG, filesystem=system))
    assert system.operations == operations


def test_a_follower_learns_of_retention_when_it_refreshes(tmp_path):
    """E37: it needs not read what is gone to find out, not even where nothing new is to be seen."""
    log = opened(REAL, options(retain_bytes=None), path=tmp_path)
    fill_segments(log, 4)
    commit(log, b"last")
    follower = Follower.open(tmp_path)
    assert follower.oldest == 1
    log.retention._options = options(retain_bytes=0)
    while log.maintain():
        pass
    assert log.oldest > 1
    assert follower.oldest == 1
    visible = follower.visible
    assert follower.refresh() == visible
    assert follower.oldest == log.oldest
    assert contents(follower) == contents(log)
    follower.close()
    log.close()


def test_a_follower_whose_place_was_pruned_is_told(tmp_path):
    log = opened(REAL, options(retain_bytes=0), path=tmp_path)
    fill_segments(log, 2)
    follower = Follower.open(tmp_path)
    location = Location(1, 64)
    old = Follower.open(tmp_path)
    fill_segments(log, 4)
    while log.maintain():
        pass
    with pytest.raises(HistoryPruned) as caught:
        follower.reader.read(location)
    assert caught.value.oldest.version > 1
    follower.refresh()
    with pytest.raises(HistoryPruned):
        follower.reader.locate(1)
    assert contents(follower) == contents(log)
    with pytest.raises(HistoryPruned):
        old.reader.locate(1)
    follower.close()
    old.close()
    log.close()


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

    def refuse(*_):
        raise PermissionError(errno.EACCES, "Permission denied")

    system = SimulatedFileSystem()
    opened(system).close()
    monkeypatch.setattr(system, name, refuse)
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


def test_epochs_are_read_again_when_the_writer_changes():
    system = SimulatedFileSystem()
    log = opened(system)
    commit(log, b"a")
    follower = Follower.open(LOG, filesystem=system)
    assert follower.epochs == log.epochs
    assert follower.opening == log.epochs[-1][::2]
    log.close()
    log = opened(system)
    follower.refresh()
    assert follower.epochs == log.epochs
    assert [epoch[:2] for epoch in log.epochs] == [(1, 1), (2, 2)]


@pytest.mark.parametrize("has_tail", [True, False])
def test_epochs_of_a_writer_are_known_before_the_follower_goes_there(has_tail):
    """F144: a token may name an epoch that began after the last look; segments are read once for each such epoch."""
    system = SimulatedFileSystem()
    log = opened(system)
    commit(log, b"a")
    follower = Follower.open(LOG, filesystem=system)
    if not has_tail:
        follower._tail = None
    assert follower.epochs_anew() == (follower.opening, log.epochs)
    for _ in range(2):
        log.close()
        log = opened(system)
        commit(log, b"b")
        log.vouch(log.durable)
        assert follower.epochs_anew() == (log.epochs[-1][::2], log.epochs)
        with mock.patch.object(follower, "_read_newest", side_effect=AssertionError("read again")):
            assert follower.epochs_anew() == (log.epochs[-1][::2], log.epochs)
    assert follower.visible == 1


def test_epochs_are_those_of_the_oldest_segment_where_retention_passed_the_place_that_was_read():
    """F144: what was told a moment ago is deleted; what is missing without retention is damage."""
    system = SimulatedFileSystem()
    log = opened(system, options(retain_bytes=0))
    commit(log, b"a")
    follower = Follower.open(LOG, filesystem=system)
    log.close()
    log = opened(system, options(retain_bytes=0))
    passed = follower._look()
    fill_segments(log, 4)
    while log.maintain():
        pass
    assert log.oldest > passed[1].version
    with mock.patch.object(follower, "_look", return_value=passed):
        assert follower.epochs_anew() == (passed[0], log.epochs)
    follower._anew = (follower.opening, ())
    number = follower._look()[1].segment
    system.unlink(LOG / segment_name(number))
    with pytest.raises(WalCorrupted):
        follower.epochs_anew()
    system.replace(LOG / segment_name(number), b"damaged")
    with pytest.raises(WalCorrupted):
        follower.epochs_anew()


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
        stale = Reader(Catalog(system, LOG, log.log_id), lambda: log._writer.limit, refresh=True)
        with pytest.raises(WalCorrupted, match="the directory cannot be read"):
            stale.read(location)


def test_without_a_tail_head_counts():
    system = SimulatedFileSystem()
    log = opened(system)
    commit(log, b"a")
    log.vouch(1)
    system.unlink(LOG / "TAIL")
    follower = Follower.open(LOG, filesystem=system)
    assert follower.visible == 1
    follower.close()


def test_what_a_follower_shows_never_moves_back():
    """F144: an owner shows nothing less than before, so somebody has put an older copy there."""
    system = SimulatedFileSystem()
    log = opened(system)
    commit(log, b"a")
    commit(log, b"b")
    follower = Follower.open(LOG, filesystem=system)
    log.publish_tail(1)
    with pytest.raises(LogReplaced, match="an older copy of it"):
        follower.refresh()
    assert follower.visible == 2
    assert len(contents(follower)) == 2


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


def withheld_after_a_reboot():
    """Two versions that are shown, some that are not, and no TAIL that counts."""
    system = SimulatedFileSystem()
    log = opened(system)
    commit(log, b"one")
    commit(log, b"two")
    log.show(2)
    fill_segments(log, 2)
    log.vouch(log.durable)
    log.close()
    system._boot += 1
    return system


def test_after_a_reboot_a_follower_looks_for_the_end_of_what_is_shown_once():
    """F28: HEAD tells a version and not where it ends."""
    system = withheld_after_a_reboot()
    follower = Follower.open(LOG, filesystem=system)
    assert contents(follower) == [(1, [b"one"]), (2, [b"two"])]
    with mock.patch.object(system, "listing", side_effect=AssertionError("looked again")):
        assert [follower.refresh() for _ in range(3)] == [2, 2, 2]
    assert contents(follower) == [(1, [b"one"]), (2, [b"two"])]


def test_a_follower_that_cannot_look_for_the_end_of_what_is_shown_says_so():
    """F28, F50."""
    system = withheld_after_a_reboot()
    listing, calls = system.listing, []

    def failing(path):
        calls.append(path)
        if len(calls) == 2:
            raise OSError(errno.EIO, "simulated")
        return listing(path)

    with mock.patch.object(system, "listing", failing), pytest.raises(WalCorrupted, match="cannot be read"):
        Follower.open(LOG, filesystem=system)
    assert len(calls) == 2
    assert Follower.open(LOG, filesystem=system).visible == 2


def test_a_follower_can_ask_how_far_the_owner_is_without_going_there():
    """F50: from TAIL, or from HEAD where TAIL does not count; never below what it has taken up."""
    system = SimulatedFileSystem()
    log = opened(system, options(head_sync=3600.0))
    commit(log, b"a")
    follower = Follower.open(LOG, filesystem=system)
    commit(log, b"b")
    assert (follower.shown, follower.visible) == (2, 1)
    assert follower.refresh() == 2 == follower.shown
    log.vouch(1)
    tail, follower._tail = follower._tail, None
    assert follower.shown == 2
    follower._tail = tail
    log.close()
    system._boot += 1
    late = Follower.open(LOG, filesystem=system)
    assert (late.shown, late.visible) == (2, 2)


def test_a_directory_that_the_disk_cannot_read_is_no_log_and_the_error_is_told(tmp_path):
    opened(REAL, path=tmp_path).close()
    broken = OSError(errno.EIO, "Input/output error")
    with (
        mock.patch.object(RealFileSystem, "listing", side_effect=broken),
        pytest.raises(NotALog, match=r"cannot be read \(Input/output error\)"),
    ):
        Follower.open(tmp_path)
