"""Real processes under kill and stop, and every promise judged from what their callers saw; long: ``python -m tests.history``."""

import pytest

from tests.harness.scale import SCALE
from tests.history.run import Plan, play

SEED = 203
"""Of the draws, of which the first four kills are one of each process; what the processes do meanwhile is never the same twice.
Long runs draw a seed of their own."""
KILLS = 4
CROWD = {"witnesses": 5, "parties": 3, "guests": 2}
"""About half of that of long runs: much of the time is spent on what all of them still have to receive at the end."""


@pytest.mark.crash
def test_no_promise_is_broken_while_processes_are_killed(capsys):
    """T12, F65, F66, F67, F70, F72, F123, E5, E34: writer, tailer and server die with WebSocket subscribers attached."""
    with capsys.disabled():
        report = play(SEED, Plan(seconds=8 * SCALE, kills=KILLS, acknowledged=101, deliveries=1001, **CROWD))
    assert not report.violations, f"seed {SEED}: {report.violations[:5]}"
    counts = report.counts
    assert counts["acknowledged"] > 100
    assert counts["delivered"] > 1000
    assert counts["at rest"] > 10
    assert counts["kills"] >= KILLS
