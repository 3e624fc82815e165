"""What follows where a target refuses for good: the sink waits for people, starts again by itself, or ends its process."""

import pytest

from tests.transports.sinks.targets import rigged
from transports.sinks import RetryPolicy, SinkState, TargetRefused, TargetUnavailable


def test_a_sink_may_start_again_by_itself_from_the_stored_place(tmp_path):
    """F124: self-healing: it opens its target anew after the longest wait, as often as it takes."""
    with rigged(tmp_path, on_failure="restart") as rig:
        rig.commit(1)
        rig.drained()
        rig.target.plan = [TargetRefused("no such table")] * 3
        rig.commit(2)
        for opens in (2, 3, 4):
            rig.until(lambda: rig.runner.state is SinkState.RETRYING)
            status = rig.runner.statistics()
            assert (status.last_error, status.retry_in) == ("no such table", 30.0)
            rig.later(31.0)
            rig.until(lambda opens=opens: rig.target.opens == opens)
        rig.drained()
        assert rig.target.keys == ["1", "2"]
        assert rig.runner.statistics().attempt == 0


def test_attempts_that_are_used_up_are_a_failure_too(tmp_path):
    """F124."""
    policy = RetryPolicy(attempts=2, jitter=lambda: 1.0)
    with rigged(tmp_path, on_failure="restart", retry=policy) as rig:
        rig.target.plan = [TargetUnavailable("down")] * 2
        rig.commit(1)
        rig.until(lambda: rig.runner.state is SinkState.RETRYING)
        rig.later(2.0)
        rig.until(lambda: rig.runner.counters.given_up == 1)
        assert rig.runner.state is SinkState.RETRYING
        rig.later(31.0)
        rig.drained()
        assert rig.target.keys == ["1"]


def test_a_sink_may_stop_at_once_and_says_that_it_has_failed(tmp_path):
    """F124: fail-fast: what the target has is stored, so that the next process goes on behind it."""
    with rigged(tmp_path, on_failure="stop") as rig:
        rig.commit(1)
        rig.drained()
        rig.target.plan = [TargetRefused("no such table")]
        place = rig.log.head
        rig.commit(2)
        rig.until(lambda: rig.runner.state is SinkState.STOPPED)
        assert (rig.runner.failed, rig.runner.statistics().reason) == (True, "no such table")
        assert rig.log.slots.info("stock").position == place
        assert rig.target.closes == 1
        rig.again()
        rig.drained()
        assert rig.target.keys == ["1", "2"]
        assert not rig.runner.failed


def test_one_that_was_closed_has_not_failed(tmp_path):
    """F124."""
    with rigged(tmp_path, on_failure="stop") as rig:
        rig.commit(1)
        rig.drained()
        rig.runner.close()
        assert (rig.runner.state, rig.runner.failed) == (SinkState.STOPPED, False)


@pytest.mark.parametrize("stage", ["opening", "plan", "flushing"])
@pytest.mark.parametrize("error", [TargetUnavailable("down"), TargetRefused("no")], ids=["later", "never"])
@pytest.mark.parametrize("times", [1, 3])
def test_the_log_has_one_line_when_a_sink_works_again_and_none_before(tmp_path, caplog, stage, error, times):
    """F124: whatever fails, and whether the sink tries again by itself or an operator resumes it."""
    with rigged(tmp_path) as rig:
        if stage != "opening":
            rig.commit(1)
            rig.drained()
        failing = getattr(rig.target, stage)
        failing.extend([error] * times)

        def over() -> bool:
            if failing:
                assert not _recovered(caplog)
            if rig.runner.state is SinkState.PAUSED:
                rig.runner.resume()
            rig.later(31.0)
            return not failing

        rig.commit(2)
        rig.until(over)
        rig.commit(3)
        rig.until(lambda: over() and _recovered(caplog))
        rig.drained()
        rig.stored()
        assert [one.partition(", in ")[0] for one in _recovered(caplog)] == [
            f"sink stock works again; attempts that failed: {times}"
        ]


def _recovered(caplog):
    return [one.getMessage() for one in caplog.records if "works again" in one.getMessage()]
