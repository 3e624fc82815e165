"""Room that is kept back: on a full disk a log is shown, forgotten, closed and opened all the same."""

import contextlib
import errno

import pytest

from publishers.errors import InvalidOption, LogFailed, LogFull
from publishers.options import LogOptions
from publishers.wal.disk.filesystem import SyncError
from publishers.wal.disk.reserve import RESERVE_NAME, Reserve
from tests.publishers.wal.logs import LOG, OPTIONS, commit, contents, opened, options, sealed
from tests.simulation.filesystem import SimulatedFile, SimulatedFileSystem

WANTED = 4096
SMALL = options(segment_bytes=65536, fill_step=0, retain_bytes=None, retain_age=None)


class GreedyFileSystem(SimulatedFileSystem):
    """A disk that somebody else fills at once, whatever becomes free; only what the reserve gives back is left alone."""

    greedy = False

    def room(self):
        used = sum(len(inode.current) for names in self._names.values() for inode in names.values())
        if self.greedy:
            reserve = len(self.content(LOG / RESERVE_NAME)) if self._reserve() else 0
            self.capacity = min(self.capacity, used + max(self.spent - reserve, 0))
        return max(self.capacity - used, 0)

    def fill(self):
        """From now on there is no room."""
        self.greedy, self.spent = True, len(self.content(LOG / RESERVE_NAME)) if self._reserve() else 0
        self.capacity = sum(len(inode.current) for names in self._names.values() for inode in names.values())

    def free(self):
        self.greedy, self.capacity = False, 1 << 39

    def _reserve(self):
        return RESERVE_NAME in self.names(LOG)


def reserve_of(system):
    return len(system.content(LOG / RESERVE_NAME))


def test_a_log_keeps_room_back_from_its_opening_on():
    """F43, F68: a named option, and at most a sixteenth of a segment; the bytes are there, and no zeros."""
    system = SimulatedFileSystem()
    log = opened(system)
    assert reserve_of(system) == log.reserve_bytes == WANTED == OPTIONS.segment_bytes // 16
    assert 0 not in system.content(LOG / RESERVE_NAME)[:8]
    log.close()
    system = SimulatedFileSystem()
    log = opened(system, options(reserve_bytes=100))
    assert reserve_of(system) == log.reserve_bytes == 100
    log.close()
    system = SimulatedFileSystem()
    log = opened(system, options(reserve_bytes=0))
    assert RESERVE_NAME not in system.snapshot(LOG)
    log.close()
    assert LogOptions().reserve_bytes == 1 << 20
    with pytest.raises(InvalidOption):
        LogOptions(reserve_bytes=-1)


def test_what_is_withheld_is_shown_and_forgotten_on_a_full_disk():
    """F43, T18: each opening, showing, forgetting and closing needs a little room, and somebody else takes what is freed."""
    system = GreedyFileSystem()
    log = opened(system, SMALL)
    commit(log, b"kept")
    log.show(1)
    for body in (b"shown", b"gone" * 900):
        commit(log, body)
    system.fill()
    with pytest.raises(LogFull):
        log.append([sealed(b"x" * 9000)])
    log.show(2)
    log.publish_tail(2)
    log.forget_after(2)
    assert log.failed is None
    assert contents(log) == [(1, [b"kept"]), (2, [b"shown"])]
    assert log.reserve_bytes < WANTED
    with pytest.raises(LogFull) as caught:
        log.append([sealed(b"y")])
    assert caught.value.needed == WANTED - log.reserve_bytes
    log.close()
    system.power_cut()
    log = opened(system, SMALL)
    assert contents(log) == [(1, [b"kept"]), (2, [b"shown"])]
    with pytest.raises(LogFull):
        log.append([sealed(b"y")])
    system.free()
    assert commit(log, b"on") == 3
    assert log.reserve_bytes == WANTED
    log.close()


def test_a_log_opens_on_a_full_disk_after_a_crash():
    """F43: recovery writes HEAD and an EPOCH frame, for which room is kept back."""
    system = GreedyFileSystem()
    log = opened(system, SMALL)
    commit(log, b"a")
    log.abandon()
    system.kill()
    system.fill()
    log = opened(system, SMALL)
    assert contents(log) == [(1, [b"a"])]
    assert log.reserve_bytes < WANTED
    log.close()


def test_what_an_opening_writes_once_more_finds_no_room_and_is_written_all_the_same():
    """F43: the same bytes at the same place take room where a file system overwrites nothing."""

    def attempt(place):
        system = SimulatedFileSystem(trace=True)
        log = opened(system, SMALL)
        commit(log, b"a")
        log.abandon()
        system.kill()
        start = system.operations
        if place is not None:
            system.faults = {start + place: "ENOSPC"}
        log = opened(system, SMALL)
        assert contents(log) == [(1, [b"a"])]
        log.abandon()
        return [line.split() for line in system.trace][start:]

    did = attempt(None)
    rewritten = [
        place
        for place, (_, what, name, *_) in enumerate(did, 1)
        if what == "pwrite" and name.startswith(("HEAD", "wal-"))
    ]
    assert len(rewritten) >= 4  # HEAD, the end of the log, HEAD of the new epoch, its frame
    for place in rewritten:
        attempt(place)


def test_changes_do_not_live_on_what_is_kept_back():
    """F43: what a control write has freed is not for commits; a large reserve is spent slice by slice."""
    system = GreedyFileSystem()
    settings = options(segment_bytes=1 << 22, fill_step=0)
    log = opened(system, settings)
    assert log.reserve_bytes == 1 << 16
    commit(log, bytes(1 << 18))
    log.maintain()
    whole = log.reserve_bytes
    assert whole == 1 << 18, "as large as what is in the log, and at most a sixteenth of a segment"
    commit(log, b"a")
    log.show(1)
    commit(log, b"b")
    for _ in range(3):
        system.fill()
        log.forget_after(1)
        left = log.reserve_bytes
        assert whole - whole // 16 <= left < whole
        with pytest.raises(LogFull):
            log.append([sealed(b"c")])
        system.free()
        log.show(1)
        assert commit(log, b"c") == 2
        assert log.reserve_bytes == whole
    log.close()


def test_housekeeping_keeps_room_back_again_before_anything_else_gets_it():
    """F43."""
    system = SimulatedFileSystem()
    log = opened(system, options(fill_step=0))
    assert log._reserve.spend()
    assert log.reserve_bytes == 0
    system.capacity = 100
    log.maintain()
    assert log.space_low
    assert log.reserve_bytes == 0
    system.capacity = 1 << 39
    assert log.maintain()
    assert not log.space_low
    assert log.reserve_bytes == WANTED
    log.close()


@pytest.mark.parametrize("name", ["show", "forget_after", "close", "vouch", "insist"])
def test_no_write_of_these_fails_for_lack_of_room_wherever_it_strikes(name):
    """F43, T5: ENOSPC from each write of an operation that must not fail, one after the other."""

    def attempt(fault):
        system = SimulatedFileSystem(trace=True)
        log = opened(system, SMALL)
        commit(log, b"kept")
        log.show(1)
        commit(log, b"gone" * 100)
        start = system.operations
        if fault is not None:
            system.faults = {start + fault: "ENOSPC"}
        if name == "show":
            log.show(2)
        elif name == "forget_after":
            log.forget_after(1)
        elif name == "vouch":
            log.vouch(2)
        elif name == "insist":
            log.insist(lambda: _store(system))
        else:
            log.close()
        assert log.failed is None
        log.abandon()
        system.faults = {}
        found = opened(system, SMALL)
        assert found.visible == {"show": 2}.get(name, 1)
        found.abandon()
        return [line.split()[1] for line in system.trace or ()][start:]

    did = attempt(None)
    writes = [place for place, what in enumerate(did, 1) if what == "pwrite"]
    assert writes
    for place in writes:
        attempt(place)


def _store(system):
    file = system.open(LOG / "place", "create")
    try:
        file.pwrite(b"here", 0)
    finally:
        file.close()


def test_when_nothing_is_left_to_be_given_back_the_error_is_told():
    """F43: the reserve is bounded, and never gives twice what it has."""
    system = GreedyFileSystem()
    log = opened(system, SMALL)
    commit(log, b"a")
    system.fill()
    tries = []

    def fail():
        tries.append(log.reserve_bytes)
        raise OSError(errno.ENOSPC, "full")

    with pytest.raises(OSError, match="full"):
        log.insist(fail)
    assert tries == [WANTED, 0]
    with pytest.raises(OSError, match="full"):
        log.insist(fail)
    assert len(tries) == 3
    log.abandon()


def test_an_error_that_is_no_lack_of_room_costs_no_room():
    system = SimulatedFileSystem()
    log = opened(system)

    def fail():
        raise OSError(errno.EIO, "broken")

    with pytest.raises(OSError, match="broken"):
        log.insist(fail)
    assert log.reserve_bytes == WANTED
    log.close()


def test_a_reserve_that_cannot_be_given_back_changes_nothing():
    """The file has been taken away: what found no room says so."""
    system = SimulatedFileSystem()
    log = opened(system)
    system.unlink(LOG / RESERVE_NAME)
    with pytest.raises(OSError, match="simulated"):
        log.insist(lambda: system.strike("ENOSPC"))
    log.close()


def test_a_disk_that_fails_when_room_is_kept_back_fails_the_log():
    """A sync that raises may have taken the error of another write with it."""
    system = SimulatedFileSystem()
    log = opened(system)
    log._reserve.spend()
    system.faults = {system.operations + 2: "EIO"}
    with pytest.raises(LogFailed):
        log.append([sealed(b"a")])
    assert log.failed
    log.abandon()
    system.faults = {}
    for kind in ("EIO", "ENOSPC"):
        system = SimulatedFileSystem()
        opened(system).close()
        system.replace(LOG / RESERVE_NAME, b"x")
        with contextlib.ExitStack() as stack:
            monkey = stack.enter_context(pytest.MonkeyPatch.context())
            monkey.setattr(SimulatedFile, "sync", _broken(SimulatedFile.sync, kind))
            stack.enter_context(pytest.raises(LogFailed))
            opened(system)


def _broken(sync, kind):
    def broken(file):
        if file._path.name == RESERVE_NAME:
            raise OSError(getattr(errno, kind), "of the reserve")
        sync(file)

    return broken


def test_a_file_that_was_left_is_taken_as_it_is():
    """An opening without room to spare keeps what there is; a larger one than wanted stays."""
    system = SimulatedFileSystem()
    system.make_directory(LOG)
    settings = options()
    system.replace(LOG / RESERVE_NAME, bytes(9000))
    reserve = Reserve(system, LOG, settings)
    assert (reserve.low, reserve.nbytes, reserve.lacking, reserve.fill()) == (False, WANTED, 0, False)
    system.replace(LOG / RESERVE_NAME, bytes(96))
    reserve = Reserve(system, LOG, settings)
    assert (reserve.low, reserve.nbytes, reserve.lacking) == (True, 96, WANTED - 96)
    system.capacity = 1000
    with pytest.raises(OSError, match="full"):
        reserve.fill()
    assert reserve.nbytes == 1000
    assert reserve.low
    system.capacity = 1 << 39
    system.faults = {system.operations + 2: "EIO"}
    with pytest.raises(SyncError):
        reserve.fill()


def test_a_log_that_grows_is_never_told_as_one_on_a_full_disk():
    """F43, F161: the alert compares the reserve with what it is to be, which is little for a small log."""
    system = GreedyFileSystem()
    log = opened(system, options(segment_bytes=1 << 22, fill_step=0))
    for nbytes, least in ((10, 1 << 16), (1 << 17, 1 << 17), (1 << 19, 1 << 18)):
        commit(log, bytes(nbytes))
        log.maintain()
        assert log.reserve_bytes == log.reserve_target_bytes >= least
    log.close()
