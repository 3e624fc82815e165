from dataclasses import replace
from types import SimpleNamespace

import pytest

pytest.importorskip("pyspark")

from penstock_flights import run as module
from penstock_flights.plan import SUBSCRIBERS, DemoPlan
from penstock_flights.progress import DemoProgress, ProgressRow
from penstock_flights.run import DemoFailed, Run
from publishers.spark import SinkStatistics

MOST = module._STALLED
ROWS = tuple(ProgressRow(one.title, one.wants, 0, 0.0, 0, 0, 0, "LIVE", 0) for one in SUBSCRIBERS)
PROGRESS = DemoProgress(100, 0, 0.0, 0, 12, 0, SinkStatistics(), None, "Spark starts", ROWS)


@pytest.fixture
def clock(monkeypatch):
    clock = SimpleNamespace(now=1000.0)
    monkeypatch.setattr(module, "monotonic", lambda: clock.now)
    return clock


@pytest.fixture
def step(tmp_path, clock, monkeypatch):
    """Lets some seconds go by, and looks at what is there then."""
    pipeline = SimpleNamespace(error=None, version=None, expected={}, streamed=SimpleNamespace(is_set=bool))
    front = SimpleNamespace(said=[])
    front.say = front.said.append
    run = Run(DemoPlan(100, tmp_path), tmp_path, pipeline, SimpleNamespace(show=lambda _: None), front)
    run._resident = SimpleNamespace(error=None)

    def step(seconds, progress, version="4.x"):
        clock.now += seconds
        pipeline.version = version
        monkeypatch.setattr(run, "_observe", lambda: progress)
        run._step()
        return front.said[-1]

    return step


def test_spark_may_take_any_time_until_its_first_batch_of_this_run(step):
    resumed = replace(PROGRESS, batch=7)
    step(0, resumed, version=None)
    step(10 * MOST, resumed, version=None)
    streams = replace(resumed, doing="Spark streams")
    step(1, streams)
    step(10 * MOST, streams)
    first = replace(streams, batch=8, sink=SinkStatistics(batches=1))
    step(1, first)
    step(MOST, first)


def test_what_does_not_move_for_minutes_is_told(step):
    streams = replace(PROGRESS, doing="Spark streams", batch=1, sink=SinkStatistics(batches=1))
    step(0, streams)
    with pytest.raises(DemoFailed, match=r"nothing has moved for 180 s, while Spark streams"):
        step(MOST + 1, streams)


def test_the_board_is_told_what_is_done(step):
    assert step(0, PROGRESS, version=None) == "Spark is starting. The first flights come in some seconds."
    streams = replace(PROGRESS, doing="Spark streams")
    assert step(1, streams) == "Spark streams the first flights."
    assert step(1, replace(streams, doing="the last ones catch up")) == "the last ones catch up."
