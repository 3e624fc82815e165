"""A store whose owner is killed at any step of making, renaming and dropping logs."""

import subprocess
import sys
from pathlib import Path

import pytest

from publishers import ChangeStore
from tests.crash.stores import STATES
from tests.harness.scale import SCALE, scaled
from tests.publishers.support import wait_until

pytestmark = pytest.mark.crash

OWNER = """
import itertools, os, sys
sys.path.insert(0, sys.argv[2])
from publishers import ChangeStore, upsert
with ChangeStore.open(sys.argv[1], sync="os", fill_step=0) as store:
    for number in itertools.count():
        name = f"log{os.getpid()}-{number}"
        store.create(name).commit([upsert("order", "1", {})])
        store.rename(name, "re" + name)
        if number % 2:
            store.drop("re" + name)
        print(number, flush=True)
"""


def test_making_renaming_and_dropping_are_whole_or_not_at_all_whenever_the_owner_is_killed(place):
    """E51: kill -9 at every operation on the store's directory, and at a sample of those inside; all with --scale."""
    stride = 1 if SCALE > 1 else 5
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("stores.py")), str(place), str(stride)],
        capture_output=True,
        text=True,
        timeout=250 * max(SCALE, 1),
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    word, steps, kills, states = done.stdout.split()
    assert word == "done"
    assert int(kills) >= int(steps) // stride
    assert int(states) >= len(STATES) - 2, "it was killed in nearly every state"


def test_a_follower_outlives_the_owners_of_a_store(place):
    """F50: each owner is killed at a random moment of its work; the follower has at last what the system log has."""
    with ChangeStore.open(place / "shop"):
        pass
    seen = 0
    with ChangeStore.open(place / "shop", read_only=True) as follower:
        follower.open_all()
        for turn in range(scaled(8)):
            with subprocess.Popen(
                [sys.executable, "-c", OWNER, str(place / "shop"), str(Path(__file__).parents[2])],
                stdout=subprocess.PIPE,
            ) as owner:
                for _ in range(3 + turn):
                    owner.stdout.readline()
                owner.kill()
            with ChangeStore.open(place / "shop", sync="os", fill_step=0) as store:
                wait_until(lambda: follower.names() == store.names())
                wait_until(lambda: sorted(follower.opened()) == store.names())
                assert all(follower[name].log_id == store[name].log_id for name in store)
                assert len(store) > seen
                seen = len(store)
