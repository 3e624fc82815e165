"""How a process learns that another one has committed, and that it costs that one nothing."""

import contextlib
import os
import signal
from pathlib import Path

import pytest

from publishers import ChangeLog, upsert
from tests.crash.support import NEVER, Child, acknowledged_by, hearing, judge
from tests.harness.constants import without_bounds
from tests.harness.inside import files_of, notifier_of, peers_of
from tests.harness.missing import skip_without
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
            follower.wait_for("got", 2 * number, timeout=60)
        follower.process.stdin.close()
        assert follower.finish() == 0
        assert os.listdir(path / "readers") == []


def test_a_follower_that_may_write_nothing_is_told_all_the_same(place):
    """F50, F51: another user, for whom the directory is read-only, watches BELL."""
    if os.getuid() != 0:
        skip_without("root, to run a process as another user")
    place.chmod(0o755)
    path = hearing("datagram", place)
    with ChangeLog.open(path, **QUICK, readers="all") as log:
        (path / "readers").chmod(0o755)
        with Child("follow", str(path), NEVER, NOBODY) as follower:
            follower.wait_for("open")
            assert follower.said("open")[0][2] == "inotify"
            for number in range(1, 11):
                commit(log)
                follower.wait_for("got", 2 * number, timeout=60)
            follower.process.stdin.close()
            assert follower.finish() == 0


def test_another_user_that_may_write_into_readers_gets_datagrams(place):
    """F51: the owner may send to the socket of whomever it has let in."""
    if os.getuid() != 0:
        skip_without("root, to run a process as another user")
    place.chmod(0o755)
    path = hearing("datagram", place)
    with (
        ChangeLog.open(path, **QUICK, readers="all") as log,
        Child("follow", str(path), NEVER, NOBODY) as follower,
    ):
        follower.wait_for("open")
        assert follower.said("open")[0][2] == "datagram"
        commit(log)
        follower.wait_for("got", 2, timeout=60)


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
            follower.wait_for("got", 2 * number, timeout=60)


def test_a_follower_that_is_there_before_its_owner_is_told_as_well(place):
    """F51: the owner that comes finds it, rings, and goes on ringing."""
    path = place / "log"
    ChangeLog.open(path, **QUICK).close()
    with Child("follow", str(path), NEVER) as follower:
        follower.wait_for("open")
        for number in range(1, 4):
            with ChangeLog.open(path, **QUICK) as log:
                commit(log)
                follower.wait_for("got", 2 * number, timeout=60)


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
        if kind == "datagram":
            notifier = notifier_of(peers_of(files_of(log)))
            while notifier.pending < 400:  # how many rings a queue takes is the machine's affair
                commit(log)
        last = log.head.version - 1
        follower.kill(signal.SIGCONT)
        follower.wait_for("got", 2 * last)
        commit(log)
        follower.wait_for("got", 2 * (last + 1), timeout=60)
        follower.process.stdin.close()
        assert follower.finish() == 0
        assert [int(line[0]) for line in follower.said("got")] == [
            v for v in range(1, last + 2) for _ in "ab"
        ]
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
        wait_until(
            lambda: notifier_of(peers_of(files_of(log)))._sockets == ()
        )  # housekeeping may be looking there just now


def test_a_follower_that_waits_is_closed_at_once(place):
    """F51: an hour's wait is ended by ``close``."""
    path = Path(place) / "log"
    with ChangeLog.open(path, **QUICK) as log:
        follower = ChangeLog.open(path, read_only=True, **without_bounds(NEVER))
        commit(log)
        wait_until(lambda: follower.head == log.head)
        follower.close()
        assert os.listdir(path / "readers") == []


def test_readers_of_the_live_segment_see_whole_frames_up_to_the_watermark(place):
    """D13, F50, F51: while another process appends, continues transactions over frames, and rolls several times.

    Two readers of frames, and one whose subscriber is left behind by its ring all the time; none sees an error, a
    part of anything, or anything above the watermark, and the writer goes on.
    """
    path = str(place / "log")
    options = {
        "fill_step": 65_536,
        "segment_bytes": 65_536,
        "frame_bytes": 1024,
        "retain_bytes": None,
        "sync": "interval",
        "sync_interval": 0.005,
    }
    with contextlib.ExitStack() as stack:
        writer = stack.enter_context(Child("write", path, options, 2, 0))
        writer.wait_for("open")
        readers = [stack.enter_context(Child("scrutinise", path)) for _ in range(2)]
        laggard = stack.enter_context(Child("follow", path, {**NEVER, "ring_events": 2}))
        while not all(reader.said("read") and int(reader.said("read")[-1][1]) > 3 for reader in readers):
            for child in (writer, *readers, laggard):
                assert child.read(0.01), child.finish() or child.errors()
        writer.kill()
        writer.finish()
        with ChangeLog.open(path, **options) as log:
            judge(log, acknowledged_by(writer))
            last = log.commit([]).version
            for reader in readers:
                while int(reader.said("read")[-1][0]) < last:
                    assert reader.read(1.0), reader.finish() or reader.errors()
                reader.process.stdin.close()
                assert reader.finish() == 0, reader.errors()
                assert reader.said("sound") == [[str(last)]]
            truth = [(str(c.version), str(c.index)) for c in log.history(limit=10**6).changes]
            laggard.wait_for("got", len(truth))
            assert [tuple(line[:2]) for line in laggard.said("got")] == truth
            assert not laggard.said("error")
