"""A consumer in a process of its own that must not depend on how long its owner keeps segments."""

import random
import signal

import pytest

from publishers import ChangeLog
from tests.crash.support import NEVER, Child, acknowledged_by, judge
from tests.harness.scale import scaled
from tests.publishers.support import wait_until

pytestmark = pytest.mark.crash

FORGETFUL = {
    "sync": "os",
    "fill_step": 65_536,
    "segment_bytes": 65_536,
    "frame_bytes": 1024,
    "retain_bytes": 0,
    "head_sync": 0.01,
}


def test_a_linked_consumer_reads_to_the_end_what_its_owner_has_deleted(place):
    """F46, F50: the owner writes and deletes, is killed and comes again; the consumer reads everything afterwards.

    It is killed as well, keeps its own position, and goes on there; what it has released is gone from the disk.
    """
    chance = random.Random(46)
    path = place / "log"
    with ChangeLog.open(path, **FORGETFUL) as log:
        log.links.add("spark")
    acknowledged: dict[tuple[str, int], int] = {}
    for _ in range(scaled(4)):
        with Child("write", str(path), FORGETFUL, 2, 0) as writer:
            writer.wait_for("done", 400)
            writer.run_for(chance.uniform(0, 0.05))
            writer.kill()
            assert writer.finish() == -signal.SIGKILL
            acknowledged |= acknowledged_by(writer)
    with ChangeLog.open(path, **FORGETFUL) as owner:
        wait_until(lambda: owner.oldest.version > 300)  # retention has deleted
        with ChangeLog.open(path, read_only=True, consumer="spark") as consumer:
            assert consumer.oldest.version == 1
            judge(consumer, acknowledged)
        next_version = 1
        for _ in range(scaled(3)):
            before = set((path / "held" / "spark").glob("wal-*.log"))
            with Child("consume", str(path), "spark", next_version) as child:
                child.wait_for("released", 2)
                child.kill()
                child.finish()
            next_version = int(child.said("at")[-1][0])  # which it told before it released anything
            assert set((path / "held" / "spark").glob("wal-*.log")) < before
        with Child("consume", str(path), "spark", next_version) as child:
            child.wait_for("at", 1)
            while int(child.said("at")[-1][0]) < owner.head.version:
                child.wait_for("at", len(child.said("at")) + 1)
            owner.commit([])
            while int(child.said("at")[-1][0]) < owner.head.version:
                child.wait_for("at", len(child.said("at")) + 1)
            # It tells where it is, and releases then.
            wait_until(lambda: len(list((path / "held" / "spark").glob("wal-*.log"))) == 1)
            child.process.stdin.close()
            assert child.finish() == 0


def test_a_consumer_is_one_process_and_is_freed_by_its_death(place):
    """F123, F46: the second one is refused with the number of the first, and let in after kill -9."""
    path = str(place / "log")
    with ChangeLog.open(path, **FORGETFUL) as owner:
        owner.links.add("spark")
        with Child("consume", path, "spark", 1) as first:
            first.wait_for("open")
            with Child("consume", path, "spark", 1) as second:
                second.wait_for("refused")
                assert second.said("refused") == [["ConsumerBusy", str(first.process.pid)]]
                second.process.stdin.close()
                second.finish()
            first.kill()
            first.finish()
            with Child("consume", path, "spark", 1) as third:
                third.wait_for("open")
                third.process.stdin.close()
                assert third.finish() == 0


def test_a_second_owner_is_refused_with_the_number_of_the_first(place):
    """F123: and is let in after kill -9."""
    path = str(place / "log")
    with Child("write", path, FORGETFUL, 1, 0) as first:
        first.wait_for("done")
        with Child("own", path, FORGETFUL) as second:
            second.wait_for("refused")
            assert second.said("refused") == [["LogBusy", str(first.process.pid)]]
            second.process.stdin.close()
            second.finish()
        first.kill()
        first.finish()
    with Child("own", path, {**FORGETFUL, **NEVER}) as third:
        third.wait_for("open")
        third.process.stdin.close()
        assert third.finish() == 0
