"""A store whose owner is killed at any step of making, renaming and dropping logs."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.crash.stores import STATES
from tests.crash.support import SCALE

pytestmark = pytest.mark.crash


def test_making_renaming_and_dropping_are_whole_or_not_at_all_whenever_the_owner_is_killed(place):
    """E51: kill -9 at every operation on the store's directory, and at a sample of those inside; all with --scale."""
    stride = 1 if SCALE > 1 else 11
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
    assert int(kills) > int(steps) // stride
    assert int(states) >= len(STATES) - 2, "it was killed in nearly every state"
