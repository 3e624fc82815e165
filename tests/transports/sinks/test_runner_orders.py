"""Orders to the runner of a sink: pause, resume, seek and stop; and a sink that has lost its history."""

import pytest

from penstock_cdc.errors import PositionAhead
from publishers import ChangeLog, Position, upsert
from tests.publishers.support import wait_until
from tests.transports.sinks.targets import QUICK, Target, rigged
from tests.transports.sinks.test_runner import ORDERS
from transports.sinks import (
    SinkState,
    SinkStopped,
    TargetRefused,
    TargetUnavailable,
)


class TestOrders:
    def test_a_paused_sink_carries_nothing_over_restarts_too(self, tmp_path):
        with rigged(tmp_path / "log", criteria=ORDERS) as rig:
            rig.until(lambda: rig.runner.state is SinkState.STREAMING)
            paused = rig.runner.pause()
            rig.commit("a")
            rig.runner.step()
            assert paused.result() is None
            assert rig.runner.statistics().reason == "paused by an operator"
            rig.again()
            rig.runner.step()
            rig.runner.step()
            assert rig.runner.state is SinkState.PAUSED
            assert rig.target.tried == []
            rig.runner.resume()
            rig.drained()
            assert rig.target.keys == ["a"]

    def test_a_pause_may_come_before_the_slot_is_there(self, tmp_path):
        with rigged(tmp_path / "log", criteria=ORDERS) as rig:
            rig.commit("a")
            paused = rig.runner.pause()
            rig.runner.step()
            paused.result(0)
            rig.again()
            rig.runner.step()
            assert rig.runner.state is SinkState.PAUSED
            rig.runner.resume()
            rig.drained()
            assert rig.target.keys == ["a"]

    def test_a_seek_may_come_before_the_slot_is_there(self, tmp_path):
        with rigged(tmp_path / "log", criteria=ORDERS) as rig:
            for key in "abc":
                rig.commit(key)
            ahead = rig.runner.seek(Position(77, 0))
            rig.runner.step()
            assert isinstance(ahead.exception(), PositionAhead)
            rig.runner.close()
            rig.runner = rig.made()
            moved = rig.runner.seek(2)
            rig.runner.close()
            assert moved.result() == Position(2, 0)
            rig.again()
            rig.drained()
            assert rig.target.keys == ["b", "c"]

    def test_a_seek_before_the_slot_is_there_goes_over_the_rows_of_a_start(self, tmp_path):
        with rigged(tmp_path / "log", snapshot="initial", log={"state": True}) as rig:
            for key in "ab":
                rig.commit(key)
            rig.runner.seek(2)
            rig.drained()
            assert [one.operation.name for batch in rig.target.taken for one in batch.changes] == [
                "TRANSACTION",
                "UPSERT",
            ]

    def test_a_sink_goes_on_elsewhere_and_drops_what_it_had(self, tmp_path):
        with rigged(tmp_path / "log", criteria=ORDERS) as rig:
            for key in "abc":
                rig.commit(key)
            rig.drained()
            moved = rig.runner.seek(2)
            rig.runner.step()
            assert moved.result() == Position(2, 0)
            rig.drained()
            assert rig.target.keys == ["a", "b", "c", "b", "c"]
            ahead = rig.runner.seek(Position(77, 0))
            rig.runner.step()
            assert isinstance(ahead.exception(), PositionAhead)

    def test_a_seek_goes_over_poison(self, tmp_path):
        with rigged(tmp_path / "log", criteria=ORDERS, batch_changes=1) as rig:
            rig.target.plan = [TargetRefused("bad")]
            rig.commit("a")
            rig.commit("b")
            rig.until(lambda: rig.runner.state is SinkState.PAUSED)
            rig.runner.seek(2)
            rig.runner.resume()
            rig.drained()
            assert rig.target.keys == ["b"]

    def test_a_resume_does_not_wait_for_the_next_attempt(self, tmp_path):
        with rigged(tmp_path / "log", criteria=ORDERS) as rig:
            rig.target.plan = [TargetUnavailable("down", retry_after=3000)]
            rig.commit("a")
            rig.until(lambda: rig.runner.state is SinkState.RETRYING)
            rig.runner.resume()
            rig.drained()
            assert rig.target.keys == ["a"]

    def test_a_sink_that_has_stopped_takes_no_order(self, tmp_path):
        with rigged(tmp_path / "log") as rig:
            rig.runner.close()
            rig.runner.close()
            assert rig.runner.state is SinkState.STOPPED
            assert isinstance(rig.runner.pause().exception(), SinkStopped)
            assert rig.runner.step() == 0.0
            assert rig.runner.statistics().position is None

    def test_a_sink_whose_slot_is_taken_over_stops_and_one_whose_slot_is_busy_waits(self, tmp_path):
        with rigged(tmp_path / "log", criteria=ORDERS) as rig:
            rig.until(lambda: rig.runner.state is SinkState.STREAMING)
            other = rig.made(Target())
            other.step()
            assert other.state is SinkState.RETRYING
            assert "open by sink stock" in other.statistics().last_error
            with rig.log.slots.open("stock", take_over=True):
                rig.later(1.1)
                rig.until(lambda: rig.runner.state is SinkState.STOPPED)
            assert "generation 1" in rig.runner.statistics().reason
            other.close()

    def test_a_sink_takes_its_slot_over_if_it_is_told_to(self, tmp_path):
        with rigged(tmp_path / "log", criteria=ORDERS, take_over=True) as rig:
            rig.log.slots.create("stock", ORDERS, since="earliest")
            with rig.log.slots.open("stock"):
                rig.commit("a")
                rig.drained()
            assert rig.target.keys == ["a"]

    def test_the_end_of_the_log_stops_it(self, tmp_path):
        with rigged(tmp_path / "log", criteria=ORDERS) as rig:
            rig.until(lambda: rig.runner.state is SinkState.STREAMING)
            rig.log.close()
            rig.until(lambda: rig.runner.state is SinkState.STOPPED)
            assert "closed" in rig.runner.statistics().reason

    def test_a_paused_sink_notices_the_end_of_the_log(self, tmp_path):
        with rigged(tmp_path / "log", criteria=ORDERS) as rig:
            rig.until(lambda: rig.runner.state is SinkState.STREAMING)
            rig.runner.pause()
            rig.runner.step()
            rig.log.close()
            rig.later(1.1)
            rig.until(lambda: rig.runner.state is SinkState.STOPPED)


def lose(rig):
    """Writes until the history that the sink holds is above its cap, and retention has taken it."""

    def gone():
        rig.log.commit([upsert("bill", str(n), {"text": "x" * 2000}) for n in range(20)])
        rig.later(1.1)
        rig.runner.step()
        return rig.runner.state is SinkState.LOST

    wait_until(gone)


LOSING = {"segment_bytes": 65536, "retain_bytes": 65536, "retain_age": None, "slot_keep_bytes": 65536}


@pytest.mark.parametrize("paused", [False, True])
def test_a_sink_that_has_lost_its_history_says_so_and_is_good_again_after_a_seek(tmp_path, paused):
    with rigged(tmp_path / "log", criteria=ORDERS) as rig:
        rig.log.close()
        rig.log = ChangeLog.open(rig.path, **QUICK, **LOSING)
        rig.runner = rig.made()
        rig.target.plan = [TargetRefused("no") if paused else TargetUnavailable("down", retry_after=3000.0)]
        rig.commit("a")
        rig.until(lambda: rig.runner.state in (SinkState.PAUSED, SinkState.RETRYING))
        lose(rig)
        assert "is lost" in rig.runner.statistics().reason
        moved = rig.runner.seek("latest")
        rig.runner.step()
        assert moved.result().version > 1
        rig.commit("b")
        rig.drained()
        assert rig.target.keys == ["b"]
        assert rig.runner.state is SinkState.STREAMING
