"""How a process learns that another one has committed, and that it costs that one nothing."""

import os
import signal
from pathlib import Path

import pytest

from publishers import ChangeLog, upsert
from tests.crash.support import NEVER, Child, hearing, judge
from tests.publishers.support import wait_until

pytestmark = pytest.mark.crash

QUICK = {"sync": "os", "fill_step": 65_536}
NOBODY = 65_534


def commit(log, count=1):
    for number in range(count):
        log.commit([upsert("a", f"{log.head.version}/0/1", {"n": number})], producer=("a", log.head.version))


@pytest.mark.parametrize("kind", ["datagram", "inotify"])
def test_a_follower_that_looks_once_a_minute_is_told_at_once(place, kind):
    """F51, F50: by a datagram to its socket, or by inotify where its path would be too long for one."""
    path = hearing(kind, place)
    with ChangeLog.open(path, **QUICK) as log, Child("follow", str(path), NEVER) as follower:
        follower.wait_for("open")
        assert follower.said("open")[0][2] == kind
        for number in range(1, 51):
            commit(log)
            follower.wait_for("got", 2 * number, timeout=20)
        follower.process.stdin.close()
        assert follower.finish() == 0
        assert os.listdir(path / "readers") == []


def test_a_follower_that_may_write_nothing_is_told_all_the_same(place):
    """F50, F51: another user, for whom the directory is read-only, watches BELL."""
    if os.getuid() != 0:
        pytest.skip("only root can run a process as another user")
    place.chmod(0o755)
    path = hearing("datagram", place)
    with ChangeLog.open(path, **QUICK) as log, Child("follow", str(path), NEVER, NOBODY) as follower:
        follower.wait_for("open")
        assert follower.said("open")[0][2] == "inotify"
        for number in range(1, 11):
            commit(log)
            follower.wait_for("got", 2 * number, timeout=20)
        follower.process.stdin.close()
        assert follower.finish() == 0


def test_another_user_that_may_write_into_readers_gets_datagrams(place):
    """F51: the owner may send to the socket of whomever it has let in."""
    if os.getuid() != 0:
        pytest.skip("only root can run a process as another user")
    place.chmod(0o755)
    path = hearing("datagram", place)
    with ChangeLog.open(path, **QUICK) as log:
        (path / "readers").chmod(0o777)
        with Child("follow", str(path), NEVER, NOBODY) as follower:
            follower.wait_for("open")
            assert follower.said("open")[0][2] == "datagram"
            commit(log)
            follower.wait_for("got", 2, timeout=20)


def test_where_there_is_neither_a_follower_polls(place):
    """F50: a log whose owner could make neither ``readers/`` nor BELL."""
    path = place / "log"
    ChangeLog.open(path, **QUICK).close()
    (path / "readers").rmdir()
    (path / "BELL").unlink()
    (path / "readers").write_text("in the way")
    with (
        ChangeLog.open(path, **QUICK) as log,
        Child("follow", str(path), {"tail_poll": 0.001, "tail_idle": 3600.0}) as follower,
    ):
        follower.wait_for("open")
        assert follower.said("open")[0][2] == "poll"
        for number in range(1, 11):
            commit(log)
            follower.wait_for("got", 2 * number, timeout=20)


def test_a_follower_that_is_there_before_its_owner_is_told_as_well(place):
    """F51: the owner that comes finds it, rings, and goes on ringing."""
    path = place / "log"
    ChangeLog.open(path, **QUICK).close()
    with Child("follow", str(path), NEVER) as follower:
        follower.wait_for("open")
        for number in range(1, 4):
            with ChangeLog.open(path, **QUICK) as log:
                commit(log)
                follower.wait_for("got", 2 * number, timeout=20)


@pytest.mark.parametrize("kind", ["datagram", "inotify"])
def test_a_stopped_follower_holds_nobody_up_and_catches_up(place, kind):
    """F50, F120: its queue of rings gets full, which costs the owner nothing but the try."""
    path = hearing(kind, place)
    with ChangeLog.open(path, **QUICK) as log, Child("follow", str(path), NEVER) as follower:
        follower.wait_for("open")
        commit(log)
        follower.wait_for("got", 2)
        follower.kill(signal.SIGSTOP)
        commit(log, 500)
        assert log.head.version == 502
        if kind == "datagram":
            bell = log._files._neighbours._bell
            assert bell.pending > 400
        follower.kill(signal.SIGCONT)
        follower.wait_for("got", 2 * 501)
        commit(log)
        follower.wait_for("got", 2 * 502, timeout=20)
        follower.process.stdin.close()
        assert follower.finish() == 0
        assert [int(line[0]) for line in follower.said("got")] == [v for v in range(1, 503) for _ in "ab"]
        judge(log, {})


def test_the_sockets_of_killed_followers_are_removed(place):
    """F50, F120: at the next commit, without an error and without a trace of them in the owner."""
    path = place / "log"
    with ChangeLog.open(path, **QUICK) as log:
        for _ in range(3):
            with Child("follow", str(path), NEVER) as follower:
                follower.wait_for("open")
                commit(log)
                follower.wait_for("got", 2 * (log.head.version - 1))
                follower.kill()
                follower.finish()
        commit(log)
        wait_until(lambda: os.listdir(path / "readers") == [])
        assert log._files._neighbours._bell._sockets == ()


def test_a_follower_that_waits_is_closed_at_once(place):
    """F51: an hour's wait is ended by ``close``."""
    path = Path(place) / "log"
    with ChangeLog.open(path, **QUICK) as log:
        follower = ChangeLog.open(path, read_only=True, **NEVER)
        commit(log)
        wait_until(lambda: follower.head == log.head)
        follower.close()
        assert os.listdir(path / "readers") == []
