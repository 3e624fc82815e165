"""Real processes under kill and stop, and every promise judged from what their callers saw; long: ``python -m tests.history``."""

import os
import secrets

import pytest

from tests.history.run import Plan, play

SECONDS = 20 * float(os.environ.get("PENSTOCK_TEST_SCALE", "1"))


@pytest.mark.crash
def test_no_promise_is_broken_while_processes_are_killed(capsys):
    """T12, F65, F66, F67, F70, F72, F123, E5, E34: writer, tailer and server die with WebSocket subscribers attached."""
    seed = secrets.randbelow(1 << 32)
    with capsys.disabled():
        report = play(seed, Plan(seconds=SECONDS))
    assert not report.violations, f"seed {seed}: {report.violations[:5]}"
    counts = report.counts
    assert counts["acknowledged"] > 100
    assert counts["delivered"] > 1000
    assert counts["at rest"] > 10
    assert counts["kills"] > 2
