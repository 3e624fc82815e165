"""Owners of groups that die with all their consumers: what was acknowledged durably never comes again, and all the rest does."""

import random
import signal
from collections import defaultdict

import pytest

from publishers import ChangeLog
from tests.crash.support import Child
from tests.harness.scale import scaled

pytestmark = [pytest.mark.crash, pytest.mark.timeout(1200)]

GROUPS = ["g0", "g1", "g2"]
CONSUMERS = 4


def drained(path, options):
    """What the groups still give to one consumer each, after the last death, as lines such as a life says them."""
    with ChangeLog.open(path, **options) as log:
        for name in GROUPS:
            with log.groups.join(name, "last") as member:
                while found := member.read(wait=0):
                    for one in found:
                        yield ["did", name, one.change.key, str(one.change.version)]
                    member.ack(*found, durable=True)
            assert log.groups.info(name).floor == log.head


def test_killed_consumers_of_a_group_go_on_behind_what_they_acknowledged_durably(place):
    """T8, F85, F75, F83: kill -9 at random moments; nothing durable comes again, nothing is left out, and keys stay in order."""
    chance = random.Random(86)
    path = str(place / "log")
    options = {"fill_step": 65_536, "sync": "os", "ack_sync": 0.005}
    lives = []
    for _ in range(scaled(4)):
        with Child("share", path, options, CONSUMERS) as child:
            child.wait_for("sure")
            child.run_for(chance.expovariate(20))
            child.kill()
            assert child.finish() == -signal.SIGKILL
            lives.append([line for line in child.lines if line[0] in ("did", "sure")])
    lives.append(list(drained(path, options)))
    sure = defaultdict(set)
    done = defaultdict(set)
    for life in lives:
        before = {name: set(found) for name, found in sure.items()}
        newest = {}
        for what, name, key, text in life:
            version = int(text)
            if what == "sure":
                sure[name].add(version)
                continue
            assert version not in before.get(name, ()), "what was acknowledged durably comes again"
            assert version > newest.get((name, key), 0), "a key is out of order"
            newest[name, key] = version
            if version > 5:  # of five keys in turn
                assert version - 5 in done[name], "the one before of its key was left out"
            done[name].add(version)
    with ChangeLog.open(path) as log:
        for name in GROUPS:
            assert done[name] == set(range(1, log.head.version))
