"""Processes that die while they write. The page cache survives them; the death of a machine is simulated elsewhere."""

import random
import signal

import pytest

from publishers import ChangeLog
from tests.crash.support import NEVER, Child, acknowledged_by, hearing, judge
from tests.harness.scale import scaled

pytestmark = [pytest.mark.crash, pytest.mark.timeout(1200)]  # hundreds of processes start, each on its own

SMALL = {"fill_step": 65_536, "segment_bytes": 65_536, "head_sync": 0.01, "frame_bytes": 1024}


def test_nothing_acknowledged_is_lost_over_many_kills(place):
    """T8, F13, F36, F123: kill -9 at random moments; whole transactions, contiguous versions, nothing twice.

    The producers go on where the log says they were, and repeat what they do not know.
    """
    chance = random.Random(8)
    path = str(place / "log")
    acknowledged: dict[tuple[str, int], int] = {}
    rounds, checked = scaled(50), 1
    options = {**SMALL, "retain_bytes": None, "retain_age": None}
    for number in range(rounds):
        policy = ["always", "os", "interval"][number % 3]
        with Child("write", path, {**options, "sync": policy, "sync_interval": 0.005}, 3, 0) as child:
            if number % 10:
                child.wait_for("open")
                if number % 2:
                    child.wait_for("done", 6)  # however slow the machine; three may be repeats
                child.run_for(chance.expovariate(60))
            else:
                child.run_for(chance.uniform(0, 0.2))  # perhaps while it still recovers
            child.kill()
            assert child.finish() == -signal.SIGKILL
            for key, version in acknowledged_by(child).items():
                assert acknowledged.get(key, version) == version, f"{key}: a retry became another version"
                acknowledged[key] = version
        if number % 5 == 4 or number == rounds - 1:
            with ChangeLog.open(path, **options) as log:
                judge(log, acknowledged, since=checked)
                checked = max(1, log.head.version - 50)
    with ChangeLog.open(path, read_only=True) as log:
        found = judge(log, acknowledged)
        for name in {producer for producer, _ in found}:
            sequences = sorted(sequence for producer, sequence in found if producer == name)
            assert sequences == list(range(len(sequences))), f"{name} has a gap"
    assert len(acknowledged) > rounds


def test_a_killed_owner_leaves_the_log_free(place):
    """F123: the lock goes with the process."""
    path = str(place / "log")
    with Child("write", path, SMALL, 1, 0) as child:
        child.wait_for("done", 3)
        child.kill()
        child.finish()
    with ChangeLog.open(path) as log:
        assert log.head.version > 3
        assert log.epoch == 2


@pytest.mark.parametrize("spool_bytes", [10**9, 20_000])
def test_a_transaction_killed_between_its_frames_is_there_wholly_or_not_at_all(place, spool_bytes):
    """F117: continued over hundreds of frames, from memory and from a spool file, which is cleared away."""
    chance = random.Random(spool_bytes)
    for number in range(scaled(12)):
        path = place / f"log{number}"
        options = {
            **SMALL,
            "segment_bytes": 10**7,
            "spool_bytes": spool_bytes,
            "sync": "os",
            "retain_bytes": None,
        }
        with Child("large", str(path), options, 700, 500) as child:
            child.wait_for("begin")
            child.run_for(chance.uniform(0, 0.12))
            child.kill()
            child.finish()
            acknowledged = acknowledged_by(child)
            begun = len(child.said("begin"))
        with ChangeLog.open(path) as log:
            found = judge(log, acknowledged)
            assert len(found) - 1 in (len(acknowledged) - 1, len(acknowledged))
            assert begun >= len(found) - 1
            assert not list(path.glob("spool*")), "what the dead process spooled is gone"
            assert log.commit([]).version == len(found) + 1


def test_a_hundred_interrupts_leave_a_log_that_opens(place):
    """Invariant 13: SIGINT at random moments, committers on four threads, nothing installed for it.

    Nobody hangs, the log closes and opens again, and what was acknowledged is there.
    """
    chance = random.Random(13)
    lives, interrupts = scaled(10), 10
    options = {**SMALL, "sync": "always", "retain_bytes": None}
    for number in range(lives):
        path = str(place / f"log{number}")
        with Child("interrupted", path, options, interrupts) as child:
            for life in range(1, interrupts + 1):
                child.wait_for("open", life)
                child.run_for(chance.uniform(0, 0.03))
                child.kill(signal.SIGINT)
                child.wait_for("closed", life)
                assert not child.said("hangs")
                child.process.stdin.write(b"\n")
                child.process.stdin.flush()
            assert child.finish() == 0, (child.lines[-5:], child.errors())
            assert len(child.said("interrupted")) == interrupts
            with ChangeLog.open(path) as log:
                found = judge(log, acknowledged_by(child))
                # What nobody acknowledged is at most the commit in progress on each thread.
                assert len(found) <= len(child.said("done")) + 4 * interrupts


@pytest.mark.parametrize("kind", ["datagram", "inotify"])
def test_a_follower_survives_its_writer_and_sees_an_unbroken_prefix(place, kind):
    """F50, F51, F120: one process tails while writers are killed and begin again; it sees what is acknowledged, once.

    It never looks by itself: each new owner finds it, and rings.
    """
    chance = random.Random(50)
    path = str(hearing(kind, place))
    options = {**SMALL, "sync": "always", "retain_bytes": None, "retain_age": None}
    acknowledged: dict[tuple[str, int], int] = {}
    with Child("write", path, options, 1, 0) as first:
        first.wait_for("done", 5)
        with Child("follow", path, {**NEVER, "ring_events": 50}) as follower:
            follower.wait_for("open")
            assert follower.said("open")[0][2] == kind
            writer = first
            for _ in range(scaled(6)):
                writer.run_for(chance.uniform(0.0, 0.1))
                follower.read()
                writer.kill()
                writer.finish()
                acknowledged |= acknowledged_by(writer)
                writer = Child("write", path, options, 2, 0)
                writer.wait_for("done", 3)
            writer.kill()
            writer.finish()
            acknowledged |= acknowledged_by(writer)
            with ChangeLog.open(path, **options) as log:
                judge(log, acknowledged)
                truth = [(c.version, c.index) for c in log.history(limit=10**6).changes]
                for _ in range(3):
                    log.commit([])
                truth += [(log.head.version - back, 0) for back in (3, 2, 1)]
                follower.wait_for("got", len(truth))
                follower.process.stdin.close()
                assert follower.finish() == 0
            got = [(int(version), int(index)) for version, index, *_ in follower.said("got")]
            assert got == truth
            assert not follower.said("error")
            assert follower.said("complete") == [[]]


@pytest.mark.parametrize("kind", ["datagram", "inotify"])
def test_a_follower_is_killed_without_harm_to_the_writer(place, kind):
    """F50, F120: kill -9 of either."""
    path = str(hearing(kind, place))
    with Child("write", path, {**SMALL, "sync": "os", "retain_bytes": None}, 2, 0) as writer:
        writer.wait_for("done", 3)
        for _ in range(scaled(5)):
            with Child("follow", path, NEVER) as follower:
                follower.wait_for("got", 5)
                follower.kill()
                follower.finish()
        before = len(writer.said("done"))
        writer.wait_for("done", before + 20)
        writer.kill()
        writer.finish()
        with ChangeLog.open(path) as log:
            judge(log, acknowledged_by(writer))
