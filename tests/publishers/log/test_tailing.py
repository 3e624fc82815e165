"""When a read-only opening looks, and what it publishes; two processes do it in tests/crash/test_wakeup.py."""

import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from flow.clock import SYSTEM_CLOCK
from publishers import ChangeLog
from publishers.errors import LogGone, WalCorrupted
from publishers.log.tailing import FollowerThread, Following
from publishers.options import LogOptions
from publishers.wal.disk.filesystem import RealFileSystem
from tests.harness.constants import set_bounds, without_bounds
from tests.harness.inside import files_of, following_of, housekeeping_of, notifier_of, peers_of
from tests.publishers.support import QUICK, Probe, fill, scratch, wait_until


class Listener:
    """Notes for how long it was waited at, and says that it was notified when it is told to."""

    def __init__(self, kind="datagram"):
        self.kind = kind
        self.waits = []
        self.notified = []
        self.closed = False

    def wait(self, timeout):
        self.waits.append(timeout)
        return self.notified.pop(0) if self.notified else False

    def wake(self):
        raise AssertionError

    def close(self):
        self.closed = True


class Files:
    def __init__(self):
        self.visible = 0
        self.errors = []

    def refresh(self):
        error = self.errors.pop(0) if self.errors else None
        if error is not None:
            raise error
        return self.visible


class Room:
    """What stands in for subscribers and the publish gate."""

    def __init__(self, **options):
        self.options = LogOptions(**options)
        self.clock = SYSTEM_CLOCK
        self.watermark = SimpleNamespace(visible=0)
        self.registry = SimpleNamespace(publishers=list)
        self.gate = threading.Lock()
        self.lost = []

    def publish(self, transactions):
        self.watermark.visible = transactions[-1].version
        return []


def following(listener, **options):
    files, room = Files(), Room(**without_bounds(options))
    return Following(files, room, room, listener, room.lost.append), files


def look(one, listener):
    one.wait()
    return listener.waits[-1], one.step()


def test_a_follower_that_is_notified_looks_at_tail_only_now_and_then():
    """F51: a writer notifies each new reader, so a second without a notification means that there is no writer."""
    listener = Listener()
    one, _ = following(listener, tail_poll=0.1, tail_idle=7.0)
    assert [look(one, listener)[0] for _ in range(12)] == [0.1] * 10 + [7.0] * 2
    listener = Listener()
    one, _ = following(listener, tail_poll=0.1, tail_idle=7.0)
    listener.notified = [False, True]
    assert [look(one, listener)[0] for _ in range(4)] == [0.1, 0.1, 7.0, 7.0]


def test_who_finds_what_he_was_not_told_of_looks_often_for_a_while():
    """F51: a lost notification costs one `TAIL_IDLE`, a writer that cannot notify one for each pause of a second."""
    listener = Listener()
    one, files = following(listener, tail_poll=0.5, tail_idle=7.0)
    listener.notified = [True]
    assert look(one, listener) == (0.5, False)
    files.visible = 1
    assert look(one, listener) == (7.0, True)
    assert [look(one, listener)[0] for _ in range(3)] == [0.5, 0.5, 7.0]
    files.visible = 2
    listener.notified = [True]
    assert look(one, listener) == (7.0, True)
    assert look(one, listener) == (7.0, False)


def test_who_cannot_hear_looks_often_for_ever():
    """F51."""
    listener = Listener("poll")
    one, _ = following(listener, tail_poll=0.5, tail_idle=7.0)
    assert {look(one, listener)[0] for _ in range(50)} == {0.5}


def test_a_long_poll_is_never_shortened_by_the_idle_one():
    listener = Listener()
    one, _ = following(listener, tail_poll=60.0, tail_idle=1.0)
    assert {look(one, listener)[0] for _ in range(5)} == {60.0}


GONE = LogGone(Path("/var/shop"))


@pytest.mark.parametrize(
    ("errors", "lost"),
    [
        ([GONE, None, GONE, None], []),
        ([None, GONE, GONE], [GONE]),
        ([WalCorrupted(0, 0, "HEAD"), GONE], [GONE]),
    ],
    ids=["passing", "gone", "worse"],
)
def test_what_would_end_a_follower_is_looked_at_twice(errors, lost):
    """F144: a name that is being switched, a slot of HEAD that is being written, an error of the disk may pass."""
    listener = Listener()
    one, files = following(listener, tail_poll=0.5, tail_idle=7.0)
    listener.notified = [True]
    assert look(one, listener) == (0.5, False)
    files.errors = list(errors)
    waits = [look(one, listener)[0] for _ in errors]
    assert one._lose.__self__ == lost
    after = [wait for wait, before in zip(waits[1:], errors, strict=False) if before is not None]
    assert set(after) == {0.5}, "the second look comes soon"


class Counting(RealFileSystem):
    """Counts how often a reader was woken."""

    def __init__(self):
        self.waits = 0
        self.listeners = []

    def listen(self, directory, /):
        listener = super().listen(directory)
        wait = listener.wait

        def counted(timeout):
            self.waits += 1
            return wait(timeout)

        self.listeners.append(listener)
        return SimpleNamespace(kind=listener.kind, wait=counted, wake=listener.wake, close=listener.close)


def test_a_caught_up_reader_is_woken_once_for_a_commit_and_not_without_one():
    """F51: counted, not timed."""
    path, files = scratch() / "log", Counting()
    set_bounds(tail_idle=3600.0)
    with (
        ChangeLog.open(path, **QUICK) as owner,
        ChangeLog.open(path, read_only=True, filesystem=files, tail_poll=60.0) as log,
    ):
        probe = Probe(first=10_000)
        log.changes().subscribe(probe)
        fill(owner, 1)
        probe.wait_for(2)
        for number in range(2, 21):
            fill(owner, 1)
            probe.wait_for(2 * number)
        wait_until(lambda: notifier_of(peers_of(files_of(owner))).sent >= 20)
        assert files.waits <= 20 + 3, "the greeting, the first wait, and the one in progress"
        assert probe.clean


def test_closing_frees_what_a_reader_waited_at():
    path, files = scratch() / "log", Counting()
    with ChangeLog.open(path, **QUICK):
        log = ChangeLog.open(path, read_only=True, filesystem=files)
        assert list((path / "readers").iterdir())
        log.close()
        assert not list((path / "readers").iterdir())


def test_a_follower_that_lags_behind_the_rings_is_told_of_the_watermark_only():
    """F28: reading everything into rings would serve nobody; its subscribers read the log."""
    path = scratch() / "log"
    late = {"tail_poll": 60.0, "tail_idle": 3600.0, "ring_bytes": 4096}
    with (
        ChangeLog.open(path, **QUICK) as owner,
        ChangeLog.open(path, read_only=True, **without_bounds(late)) as log,
    ):
        probe = Probe(first=10_000)
        log.changes().subscribe(probe)
        fill(owner, 200, changes=3)
        probe.wait_for(800)
        assert probe.clean
        wait_until(lambda: log.head == owner.head)


def test_a_follower_takes_no_more_at_once_than_a_ring_keeps():
    """F30: many small commits weigh more than their bytes."""
    path = scratch() / "log"
    with (
        ChangeLog.open(path, **QUICK) as owner,
        ChangeLog.open(path, read_only=True, ring_bytes=100_000) as log,
    ):
        housekeeping_of(log).close()
        fill(owner, 200)
        assert files_of(log).refresh() == 200
        assert len(following_of(log)._read(0, 20)) == 20
        assert following_of(log)._read(20, 200) is None


@pytest.mark.parametrize("number", range(3))
def test_the_thread_of_a_follower_ends_whatever_it_waits_for(number):
    listener = RealFileSystem().listen(scratch())
    one = SimpleNamespace(wait=lambda: listener.wait(3600.0), wake=listener.wake)
    house = FollowerThread(lambda: None, one, "house")
    if number:
        house.poke()
    if number > 1:
        house.poke()
    house.close()
    listener.close()
