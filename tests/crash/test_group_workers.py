"""Workers in processes of their own that die while others go on: what they had comes again, and nothing that they acknowledged."""

import random
import signal
import time
from collections import defaultdict
from contextlib import ExitStack

import pytest

from publishers import ChangeLog, upsert
from tests.crash.support import Child
from tests.harness.scale import scaled
from transports import Grant, Limits, LogAction, serve

pytestmark = [pytest.mark.crash, pytest.mark.timeout(600)]

GROUPS = ["g0", "g1", "g2"]
WORKERS = 4
KEYS = 5
DEADLINE = 240.0
ALLOWED = Grant({LogAction.CONSUME}, groups=["g*"])


def test_killed_workers_leave_what_they_had_to_the_others(place):
    """T8, F75, F83, F84: kill -9 of two of four, in three groups: all is acknowledged once, and keys stay in order."""
    chance = random.Random(84)
    count = scaled(150)
    with ChangeLog.open(place / "log", sync="os") as log, ExitStack() as stack:
        groups = [log.groups.create(name, since="earliest", ack_wait=3_600.0) for name in GROUPS]
        server = stack.enter_context(
            serve(log, port=0, authorise=ALLOWED, limits=Limits(grace=0.2, stall_timeout=60.0))
        )
        workers = [
            stack.enter_context(Child("labour", server.url, f"worker {number}", GROUPS))
            for number in range(WORKERS)
        ]
        for number in range(count):
            log.commit([upsert("order", str(number % KEYS), {})])
        end = time.monotonic() + DEADLINE
        # Which of them are given something is for the group to say: the first two that have had five are killed.
        while len(busy := [worker for worker in workers if len(worker.said("did")) >= 5]) < 2:
            assert time.monotonic() < end, [len(worker.said("did")) for worker in workers]
            if all(group.info().floor == log.head for group in groups):
                log.commit([upsert("order", str(count % KEYS), {})])
                count += 1
            for worker in workers:
                assert worker.read(0.002), f"it ended: {worker.lines[-5:]}"
        for worker in busy[:2]:
            worker.run_for(chance.expovariate(100))
            worker.kill()
        left = [worker for worker in workers if worker not in busy[:2]]
        while any(group.info().floor != log.head for group in groups):
            assert time.monotonic() < end, [group.info() for group in groups]
            for worker in left:
                worker.read(0.01)
        assert [group.info().pending for group in groups] == [0, 0, 0]
        for worker in left:
            worker.kill()
        assert {worker.finish() for worker in workers} == {-signal.SIGKILL}
    judge(workers, count)


def judge(workers, count):
    """Checks that each change was begun, in the order of its key, and acknowledged once at most."""
    began = {}
    acked = defaultdict(int)
    for worker in workers:
        for when, group, _, version, _ in worker.said("did"):
            where = group, int(version)
            began[where] = min(int(when), began.get(where, int(when)))
        for group, version in worker.said("acked"):
            acked[group, int(version)] += 1
    assert set(began) == {(name, version) for name in GROUPS for version in range(1, count + 1)}
    assert max(acked.values()) == 1, "something was acknowledged twice"
    for (group, version), when in began.items():
        assert when > began.get((group, version - KEYS), 0), "a key is out of order"
