"""Two owners of one log: the second is refused; and should it get in all the same, the first writes no more."""

import contextlib
import errno

import pytest

from flow.clock import SystemClock
from publishers.errors import LogBusy, LogFailed
from publishers.wal import Follower, Wal
from publishers.wal.disk.filesystem import RealFileSystem
from publishers.wal.files.directory import LOCK_NAME, LogWriter, writer_of
from publishers.wal.files.head import HEAD_NAME
from publishers.wal.files.tail_page import TAIL_NAME, Tail
from tests.publishers.wal.logs import commit, contents, opened, options, sealed
from tests.simulation.filesystem import SimulatedFileSystem
from tests.simulation.workload import LOG

REAL = RealFileSystem()


class Hand(SystemClock):
    """Goes on by hand."""

    now = 1000.0

    def monotonic(self):
        return self.now


@pytest.fixture(params=["real", "simulated"])
def place(request, tmp_path):
    return (REAL, tmp_path) if request.param == "real" else (SimulatedFileSystem(), LOG)


def bytes_of(system, path):
    found = {}
    for name in system.listing(path):
        if name.startswith("wal-") or name in {HEAD_NAME, TAIL_NAME}:
            file = system.open(path / name, "read")
            found[name] = file.pread(file.size(), 0)
            file.close()
    return found


def stolen(system, path):
    """Two owners: somebody has removed LOCK under the first."""
    first = opened(system, options(head_sync=3600.0), path=path)
    commit(first, b"a")
    with pytest.raises(LogBusy) as caught:
        opened(system, path=path)
    assert caught.value.pid == system.process_id()
    system.unlink(path / LOCK_NAME)
    second = opened(system, path=path)
    assert second.epoch == first.epoch + 1
    return first, second


def test_an_owner_that_was_fenced_off_writes_nothing_more(place):
    """F123: it finds out before its next commit, and fails clearly; the second owner's log stays whole."""
    system, path = place
    first, second = stolen(system, path)
    commit(second, b"b")
    before = bytes_of(system, path)
    with pytest.raises(LogFailed, match="another process has taken the log over") as caught:
        first.append([sealed(b"lost")])
    assert caught.value.outcome == "refused"
    assert first.failed is not None
    for call in (first.sync, lambda: first.vouch(1), lambda: first.append([sealed(b"x")])):
        with pytest.raises(LogFailed):
            call()
    assert not first.maintain()
    first.close()
    assert bytes_of(system, path) == before
    commit(second, b"c")
    assert contents(second) == [(1, [b"a"]), (2, [b"b"]), (3, [b"c"])]
    second.close()
    with contextlib.closing(Follower.open(path, filesystem=system)) as follower:
        assert contents(follower) == [(1, [b"a"]), (2, [b"b"]), (3, [b"c"])]


def test_an_owner_that_was_fenced_off_in_the_middle_of_a_commit_does_not_show_it(place):
    """F123: nobody knows then what is in the log, and TAIL belongs to the second."""
    system, path = place
    first = opened(system, path=path)
    first.append([sealed(b"a")])
    first.sync()
    system.unlink(path / LOCK_NAME)
    second = opened(system, path=path)
    before = bytes_of(system, path)
    with pytest.raises(LogFailed, match="taken the log over") as caught:
        first.publish_tail(1)
    assert caught.value.outcome == "unknown"
    assert bytes_of(system, path) == before
    first.abandon()
    second.close()


def test_head_is_not_written_over_that_of_a_later_owner(place):
    """F123: also where TAIL was removed with LOCK, so that the first owner sees nothing of the second there."""
    system, path = place
    first = opened(system, options(head_sync=3600.0), path=path)
    commit(first, b"a")
    system.unlink(path / LOCK_NAME)
    system.unlink(path / TAIL_NAME)
    second = opened(system, path=path)
    before = bytes_of(system, path)
    with pytest.raises(LogFailed, match="another process has taken the log over"):
        first.close()
    assert bytes_of(system, path)[HEAD_NAME] == before[HEAD_NAME]
    second.close()


def test_an_owner_whose_lock_was_removed_stops_before_anybody_comes(place):
    """F123: housekeeping looks whether LOCK is still the file that is locked."""
    system, path = place
    log = opened(system, path=path)
    commit(log, b"a")
    log.maintain()
    assert log.failed is None
    system.unlink(path / LOCK_NAME)
    log.maintain()
    assert "taken the log over" in log.failed
    with pytest.raises(LogFailed):
        log.append([sealed(b"b")])
    log.close()
    again = opened(system, path=path)
    assert contents(again) == [(1, [b"a"])]
    again.close()


def test_a_lock_that_was_replaced_is_noticed_too(tmp_path):
    log = opened(REAL, path=tmp_path)
    (tmp_path / "other").write_text("1 x 1\n")
    (tmp_path / "other").replace(tmp_path / LOCK_NAME)
    log.maintain()
    assert log.failed is not None
    log.close()


def test_an_opening_that_fails_frees_the_lock(place):
    system, path = place
    opened(system, path=path).close()
    system.unlink(path / HEAD_NAME)
    for _ in range(2):
        with pytest.raises(Exception, match="HEAD") as caught:
            opened(system, path=path)
        assert not isinstance(caught.value, LogBusy)


def test_owners_one_after_the_other_are_no_strangers(place):
    """Each raises the number of the fence, and that disturbs nobody."""
    system, path = place
    for number in range(1, 5):
        log = opened(system, path=path)
        assert isinstance(log, Wal)
        assert commit(log, b"a") == number
        log.maintain()
        assert log.failed is None
        (log.close if number % 2 else log.abandon)()


def test_what_is_wrong_with_a_lock_is_told_as_not_known(monkeypatch):
    system = SimulatedFileSystem()
    assert writer_of(system, LOG) == LogWriter(alive=False)
    wal = opened(system)
    assert writer_of(system, LOG) == LogWriter(alive=True, pid=system.process_id())

    def refuse(*_, **__):
        raise PermissionError(errno.EACCES, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(type(system.open(LOG / LOCK_NAME, "read")), "lock", refuse)
        assert writer_of(system, LOG) == LogWriter(alive=None)
        patch.setattr(system, "open", refuse)
        assert writer_of(system, LOG) == LogWriter(alive=None)
    wal.close()
    assert writer_of(system, LOG) == LogWriter(alive=False)


def test_a_lock_that_may_not_be_opened_leaves_the_word_to_tail(monkeypatch):
    """None is not known: an older version has opened the log, which says nothing, or there is no TAIL."""
    system = SimulatedFileSystem()
    wal = opened(system)
    plain = system.open

    def refused(path, mode, /):
        if path.name == LOCK_NAME:
            raise PermissionError(errno.EACCES, "Permission denied")
        return plain(path, mode)

    monkeypatch.setattr(system, "open", refused)
    tail = Tail.create(system, LOG)
    tail.claim()
    for until, expected in ((2**62, LogWriter(alive=True, pid=7)), (0, LogWriter(alive=False))):
        tail.live(until, 7)
        assert writer_of(system, LOG) == expected
    tail.live(2**62, 7)
    Tail.create(system, LOG).claim()  # as an older version opens it
    assert writer_of(system, LOG) == LogWriter(alive=None)
    system.unlink(LOG / TAIL_NAME)
    assert writer_of(system, LOG) == LogWriter(alive=None)
    monkeypatch.undo()
    wal.abandon()


def test_who_looks_for_a_writer_keeps_none_from_coming(tmp_path, monkeypatch):
    """The lock is held for an instant; a writer that comes then tries again, as long as a busy machine needs to run who looks."""
    Wal.open(tmp_path, filesystem=REAL).close()
    looking = REAL.open(tmp_path / LOCK_NAME, "read")
    assert looking.lock(shared=True)
    assert writer_of(REAL, tmp_path) == LogWriter(alive=False), "who looks is no writer"
    with pytest.raises(LogBusy):
        Wal.open(tmp_path, filesystem=REAL)
    pauses = []

    def pause(seconds):
        pauses.append(seconds)
        if sum(pauses) > 0.1:
            looking.close()

    monkeypatch.setattr("time.sleep", pause)
    Wal.open(tmp_path, filesystem=REAL).close()
    assert 0.1 < sum(pauses) < 0.2


def test_the_writer_of_an_idle_log_is_believed_to_live_although_a_step_is_late():
    """F161: two steps of an idle log are five seconds apart. Followers of other users know of it by TAIL alone."""
    system, clock = SimulatedFileSystem(), Hand()
    wal = opened(system, clock=clock)
    tail = Tail.create(system, LOG)
    for late in (0.0, 0.0, 2.0, 0.0, 4.0, 0.0):
        wal.maintain()
        clock.now += 5.0 + late
        life = tail.life()
        assert life is not None
        assert life[0] / 1e6 >= clock.now
    wal.close()
