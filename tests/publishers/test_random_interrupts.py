"""SIGINT at random moments: of commits, deliveries, replays and openings, whosever handler is in place."""

import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.scale import SCALE, scaled
from tests.publishers.interrupted import SITUATIONS

ROOT = Path(__file__).parents[2]
MOMENTS = 2_500 if SCALE > 1 else scaled(200)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("situation", SITUATIONS)
def test_a_program_that_is_interrupted_at_random_moments_has_a_good_log(situation):
    """Invariant 13, F28: the log goes on, nothing hangs, no handler and no lock is left behind; 10,000 moments in all where ``make prove`` runs it."""
    seed = random.randrange(2**32)
    command = [sys.executable, "-m", "tests.publishers.interrupted", situation, str(MOMENTS), str(seed)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=500, check=False)
    assert done.stdout == f"{MOMENTS} interrupts, and the log went on after each\n", (seed, done.stderr)
