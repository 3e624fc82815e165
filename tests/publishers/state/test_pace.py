"""How much of a writer's time the compacted state takes: counted, by a clock that the test moves."""

from itertools import count
from types import SimpleNamespace

import pytest

from publishers import ChangeLog, Position
from publishers.state import compacted_state
from publishers.state.pace import Pace
from tests.harness.constants import set_constant, without_bounds
from tests.publishers.support import QUICK, fill, wait_until

BUSY = {"state": True, "state_interval": 0.0, "state_share": 0.001}


@pytest.fixture
def clock(monkeypatch):
    """Each look at the thread's clock is one second later than the one before."""
    seconds = count()
    monkeypatch.setattr(
        "publishers.state.pace.time", SimpleNamespace(thread_time=lambda: float(next(seconds)))
    )


@pytest.fixture
def behind(tmp_path, monkeypatch):
    """A log with 20 versions of which its state has the first one; a writer that pauses is not noticed for an hour."""
    set_constant(monkeypatch, compacted_state, "_LOOK", 3600.0)
    path = tmp_path / "log"
    with ChangeLog.open(path, **without_bounds({**QUICK, **BUSY})) as log:
        fill(log, 1)
        log.state.wait(1, timeout=60)
    with ChangeLog.open(path, **QUICK) as log:
        fill(log, 19)
    return path


def resting(log):
    wait_until(lambda: log.state._resting)
    return log.state


@pytest.mark.usefixtures("clock")
def test_a_piece_of_work_ends_when_its_time_is_over_and_is_rested_from():
    """F126, F146."""
    pace = Pace(0.05)
    pace.begin(bounded=True)
    assert pace.spent
    assert pace.rest == pytest.approx(2 * 19)
    pace.begin(bounded=False)
    assert not pace.spent
    assert pace.rest == 0


def test_the_whole_time_knows_no_rest():
    pace = Pace(1.0)
    pace.begin(bounded=True)
    assert not pace.spent
    assert pace.rest == 0


@pytest.mark.usefixtures("clock")
def test_while_commits_come_it_takes_one_piece_and_leaves_the_rest_to_the_writer(behind):
    """F126, F146: a piece is one version here, as the clock has it, and the rest after it half an hour."""
    with ChangeLog.open(behind, **without_bounds({**QUICK, **BUSY})) as log:
        state = resting(log)
        fill(log, 100)
        told = log.statistics().state
        assert (told.position, told.batches) == (Position(3), 1)
        assert told.behind.versions == 118
        state.wait(log.visible, timeout=60)
        assert state.position == log.head


@pytest.mark.usefixtures("clock")
def test_whoever_reads_it_ends_its_rest(behind):
    """F146: what is read is a moment behind, and not for as long as commits come."""
    with ChangeLog.open(behind, **without_bounds({**QUICK, **BUSY})) as log:
        state = resting(log)
        assert state.position == Position(3)
        assert state.page("order").place >= Position(3)
        wait_until(lambda: state.position == log.head)


@pytest.mark.usefixtures("clock")
def test_it_catches_up_when_the_writer_pauses(behind, monkeypatch):
    """F146."""
    set_constant(monkeypatch, compacted_state, "_LOOK", 0.001)
    with ChangeLog.open(behind, **without_bounds({**QUICK, **BUSY})) as log:
        wait_until(lambda: log.statistics().state.position == log.head)


@pytest.mark.usefixtures("clock")
@pytest.mark.parametrize(
    "options",
    [
        {"state_behind_bytes": 0},
        {"slot_keep_bytes": 1},
        {"slot_keep_age": 1e-6},
        {"state_share": 1.0},
    ],
    ids=["behind", "cap in bytes", "cap in age", "no share"],
)
def test_above_its_bounds_it_follows_as_fast_as_it_can(behind, options):
    """F92, F146: what waits for retention is no reason to be lost."""
    with ChangeLog.open(behind, **without_bounds({**QUICK, **BUSY, **options})) as log:
        wait_until(lambda: log.statistics().state.position == log.head)
        assert log.statistics().state.batches <= 2


@pytest.mark.usefixtures("clock")
def test_closing_the_log_does_not_wait_for_its_rest(behind):
    """F146: what it has not stored, it stores at the next opening."""
    with ChangeLog.open(behind, **without_bounds({**QUICK, **BUSY})) as log:
        resting(log)
    with ChangeLog.open(behind, **without_bounds({**QUICK, **BUSY})) as log:
        assert log.statistics().state.rebuilds == 0
        log.state.wait(log.visible, timeout=60)
        assert log.state.position == log.head
