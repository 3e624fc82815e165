"""Consumers of slots that die: what was acknowledged durably never comes again."""

import random
import signal

import pytest

from publishers import ChangeLog
from tests.crash.support import Child
from tests.harness.scale import scaled

pytestmark = [pytest.mark.crash, pytest.mark.timeout(1200)]


def test_a_killed_consumer_goes_on_behind_what_it_acknowledged_durably(place):
    """T8, F85, F74, F123: kill -9 at random moments; nothing durable comes again, nothing is left out, and the slot is free at once."""
    chance = random.Random(18)
    path = str(place / "log")
    options = {"fill_step": 65_536, "sync": "os", "ack_sync": 0.005}
    sure = latest = 1
    generation = 0
    for _ in range(scaled(12)):
        with Child("acknowledge", path, options, 7) as child:
            child.wait_for("durable")
            child.run_for(chance.expovariate(40))
            child.kill()
            assert child.finish() == -signal.SIGKILL
            told = [line for line in child.lines if len(line) > 1]
        (opened,) = (line for line in told if line[0] == "open")
        assert int(opened[1]) == generation + 1
        assert sure <= int(opened[2]) <= latest
        generation += 1
        seen = [int(line[1]) for line in told if line[0] in ("acked", "durable")]
        assert seen == list(range(int(opened[2]) + 1, int(opened[2]) + 1 + len(seen)))
        sure = max(int(line[1]) for line in told if line[0] == "durable")
        latest = max(seen) + 1  # what was acknowledged last may not have been told
    with ChangeLog.open(path) as log:
        found = log.slots.info("stock")
        assert sure <= found.position.version <= latest
        assert found.generation == generation
