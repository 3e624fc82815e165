import contextlib
import errno
from unittest import mock

import pytest

from publishers.errors import HistoryPruned, LogReplaced, WalCorrupted
from publishers.wal import Follower, Location
from publishers.wal.disk.filesystem import RealFileSystem
from publishers.wal.files.segment import segment_name
from tests.harness.inside import writer_of
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
    writer_of(log).ends.clear()
    log.append([sealed(b"more")])
    writer_of(log).ends.clear()
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


def test_what_a_follower_sees_never_moves_back(tmp_path):
    """F50: HEAD, which is read where TAIL is gone, covers less than TAIL has told."""
    log = opened(REAL, path=tmp_path)
    follower = Follower.open(tmp_path)
    commit(log, b"a")
    commit(log, b"b")
    assert follower.refresh() == 2
    (tmp_path / "TAIL").unlink()
    assert [follower.refresh(), follower.refresh()] == [2, 2]
    assert contents(follower) == [(1, [b"a"]), (2, [b"b"])]
    with contextlib.closing(Follower.open(tmp_path)) as other:
        assert other.refresh() < 2
    follower.close()
    log.close()


def test_a_follower_in_another_process_reads_the_same(tmp_path, script):
    log = opened(REAL, path=tmp_path)
    commit(log, b"a", b"b")
    code = (
        "from publishers.wal import Follower\n"
        f"follower = Follower.open({str(tmp_path)!r})\n"
        "frame = follower.reader.read(follower.reader.locate(1))\n"
        "print(follower.visible, list(frame.columns.body))"
    )
    with script(code) as follower:
        assert follower.communicate() == ("1 [b'a', b'b']\n", "")
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
    system.boot += 1
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
    system.boot += 1
    late = Follower.open(LOG, filesystem=system)
    assert (late.shown, late.visible) == (2, 2)
