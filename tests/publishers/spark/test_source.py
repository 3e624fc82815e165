"""F152: logs as Spark reads and writes them, through its own processes."""

import json
import zlib
from datetime import UTC, date, datetime
from decimal import Decimal
from threading import Event

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere
from pyspark.sql.types import StructType

import transports
from publishers import Area, ChangeLog, Content, Criterion, Position, remove, upsert
from publishers.spark import ChangeSink, ProgressListener, QueryState, register
from tests.harness.inside import house_step_of
from tests.harness.ports import free_port

pytestmark = pytest.mark.timeout(600)


def load(reader, path, **options):
    return reader.format("penstock").options(**options).load(str(path))


def fill(log, versions=6):
    for version in range(versions):
        rows = 1 if version % 2 else 400
        orders = (upsert("order", f"{version}/{n}", {"n": n, "ñ": "é" * (n % 9)}) for n in range(rows))
        log.commit([*orders, remove("flight", f"f{version}")], meta={"version": version})


def told(log):
    return [
        (change.version, change.index, change.key, change.body_bytes and change.body_bytes.decode())
        for change in log.history(limit=100_000, content=Content.BODY).changes
    ]


def rows_of(frame):
    return [(row["version"], row["index"], row["key"], row["body"]) for row in frame.collect()]


def digest(rows):
    return len(rows), zlib.crc32(repr(rows).encode())


def test_a_batch_query_reads_the_history_and_filters_are_handed_down(spark, log):
    """F152: the digest of the log's own history, found without a word to the session, and then by one."""
    fill(log)
    frame = load(spark.read, log.path, partitionBytes="20000")
    assert digest(sorted(rows_of(frame))) == digest(told(log))
    register(spark)
    wanted = "version >= 3 and version < 6 and entity_type = 'order' and key like '4/1%'"
    want = [row for row in told(log) if 3 <= row[0] < 6 and row[2] is not None and row[2].startswith("4/1")]
    assert len(want) == 111
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        frame = load(spark.read, log.path).where(wanted)
        assert sorted(rows_of(frame)) == want
        assert " Filter (" not in frame._jdf.queryExecution().executedPlan().toString()
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_a_stream_goes_on_where_it_was_after_failures_and_stops(spark, log, tmp_path):
    """F152: each version once in the batches that Spark kept, whenever the query ended, and whoever wrote meanwhile."""
    fill(log)
    batches = {}
    frame = load(spark.readStream, log.path, since="earliest", maxVersionsPerBatch="2", area="DATA")

    def keep(batch, number):
        batches[number] = rows_of(batch)
        if number == 1 and len(batches) == 2 and not again:
            again.append(number)
            raise RuntimeError("between the job and Spark's commit")

    def run():
        writer = frame.writeStream.foreachBatch(keep).option(
            "checkpointLocation", str(tmp_path / "checkpoint")
        )
        return writer.trigger(availableNow=True).start()

    again = []
    with pytest.raises(StreamingQueryException, match="between the job"):
        run().awaitTermination(300)
    fill(log, versions=3)
    ended = Event()
    listener = ProgressListener(lambda told: told.state is QueryState.STOPPED and ended.set())
    spark.streams.addListener(listener)
    query = run()
    assert query.awaitTermination(300)
    assert ended.wait(60)
    spark.streams.removeListener(listener)
    assert listener.queries()[0].behind == 0  # known, as the log tells Spark its end
    end = json.loads(query.lastProgress.json)["sources"][0]["endOffset"]
    assert end == {"position": str(log.token(log.head))}
    assert sorted(batches) == [0, 1, 2, 3, 4]
    assert [{row[0] for row in batches[number]} for number in sorted(batches)] == [
        {1, 2},
        {3, 4},
        {5, 6},
        {7, 8},
        {9},
    ]
    found = [row for number in sorted(batches) for row in sorted(batches[number])]
    assert digest(found) == digest([row for row in told(log) if row[1]])


def test_a_stream_that_was_down_too_long_says_that_history_is_pruned(spark, tmp_path):
    """F152."""
    with ChangeLog.open(tmp_path / "log", segment_bytes=64 * 1024, retain_bytes=1, retain_age=None) as log:
        log.commit([upsert("order", "1", {})])
        frame = load(spark.readStream, log.path, since=str(log.token(Position(1))))
        while log.oldest == Position(1):
            log.commit(upsert("order", f"{n}", {"text": "x" * 1000}) for n in range(50))
            house_step_of(log)()
        query = (
            frame.writeStream.format("noop")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .start()
        )
        with pytest.raises(StreamingQueryException, match="HistoryPruned"):
            query.awaitTermination(300)


def test_what_cannot_be_loaded_is_refused_at_once(spark):
    """F152."""
    with pytest.raises(PySparkException, match="must be the directory of a log on this machine"):
        load(spark.read, "https://host/log")


def test_executors_read_the_log_of_a_server_and_go_on_behind_its_restart(spark, tmp_path):
    """F152: nothing but an address is shared with the process that has the log."""
    files = tmp_path / "log"
    port = free_port()
    with ChangeLog.open(files) as log, transports.serve(log, port=port) as server:
        url = server.url
        fill(log)
        assert digest(sorted(rows_of(load(spark.read, url, partitions="3")))) == digest(told(log))
    frame = load(spark.readStream, url, since="earliest", maxVersionsPerBatch="4")
    batches = {}

    def run():
        writer = frame.writeStream.foreachBatch(
            lambda batch, number: batches.__setitem__(number, rows_of(batch))
        )
        checkpoint = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        assert checkpoint.trigger(availableNow=True).start().awaitTermination(300)

    for versions in (0, 1):
        with ChangeLog.open(files) as log, transports.serve(log, port=port):
            fill(log, versions)
            run()
            want = told(log)
    assert [{row[0] for row in batches[number]} for number in sorted(batches)] == [{1, 2, 3, 4}, {5, 6}, {7}]
    assert digest([row for number in sorted(batches) for row in sorted(batches[number])]) == digest(want)


def test_a_batch_job_writes_what_a_sink_would_write(spark, tmp_path):
    """F152: the same keys, operations and values, in one version; bodies are read back by the schema that was told."""
    frame = spark.createDataFrame(
        [
            (
                "a/b",
                1,
                Decimal("1.10"),
                datetime(2024, 2, 29, 1, 2, 3, 4, UTC),
                date(2024, 1, 2),
                {"k": 1},
                [1.5],
                "UPDATE",
                (1,),
            ),
            ("c%", 2, Decimal("0.00"), datetime(2024, 1, 1, tzinfo=UTC), None, None, [], "insert", None),
            ("d", 2**53 + 1, None, None, None, {}, None, "Delete", (2,)),
        ],
        "name string, n long, price decimal(10,2), at timestamp, day date, parts map<string,int>, list array<double>, "
        "op string, old struct<n: long>",
    )
    options = {"entity_type": "order", "operation_column": "op", "before": "old"}
    (
        frame.write.format("penstock")
        .mode("append")
        .options(**options, key="name, n", tell_schema="true")
        .save(str(tmp_path / "job"))
    )
    with ChangeLog.open(tmp_path / "sink") as log:
        ChangeSink(log, key=["name", "n"], producer="p", tell_schema=True, order_by=(), **options)(frame, 0)
    found = []
    for name in ("job", "sink"):
        with ChangeLog.open(tmp_path / name) as log:
            assert log.head == Position(2)
            read = log.schema("order").reader()
            changes = log.history(Criterion(areas={Area.DATA}), content=Content.BODY).changes
            found.append(
                {c.key: (c.operation, None if c.body is None else read(c.body), c.before) for c in changes}
            )
            told = StructType.fromJson(log.schema("order").body)
    assert found[0] == found[1]
    assert set(found[0]) == {"a%2Fb/1", "c%25/2", f"d/{2**53 + 1}"}
    assert [path.name for path in tmp_path.iterdir() if "staged" in path.name] == []
    typed = (
        load(spark.read, tmp_path / "job", operation="UPSERT", area="DATA")
        .select(F.from_json("body", told).alias("of"))
        .select("of.*")
    )
    assert sorted(typed.collect()) == sorted(frame.where("op <> 'Delete'").drop("op", "old").collect())


def test_a_log_that_is_open_is_not_written_by_a_batch_job(spark, log):
    """F152: in one line, before anything is computed."""
    frame = spark.range(3).select(F.raise_error(F.lit("a job ran")).cast("string").alias("id"))
    with pytest.raises(PySparkException, match=r"LogBusy.*is being written by"):
        frame.write.format("penstock").mode("append").options(entity_type="n", key="id").save(str(log.path))


def test_rows_of_an_entity_are_typed_in_batches_and_streams(spark, log, tmp_path):
    """F152: what a sink took comes back equal, with the columns of a change feed, through every micro-batch and a restart."""
    frame = spark.createDataFrame(
        [(n, f"n{n}", Decimal(n) / 100, datetime(2024, 1, 2, 3, 4, 5, n, UTC), [n]) for n in range(60)],
        "id long, name string, price decimal(10,2), at timestamp, many array<int>",
    )
    sink = ChangeSink(log, entity_type="order", key="id", producer="p", tell_schema=True)
    for batch in range(3):
        sink(frame.where(f"id % 3 = {batch}"), batch)
    entity = {"schema": "entity", "entity_type": "order"}
    rows = load(spark.read, log.path, **entity)
    want = sorted(frame.collect())
    assert sorted(rows.select(frame.columns).collect()) == want
    assert sorted(rows.groupBy("_commit_version", "_change_type").count().collect()) == [
        (version, "update_postimage", 20) for version in (1, 2, 3)
    ]
    chosen = load(spark.read.schema("id int, _key string"), log.path, **entity)
    assert sorted(chosen.collect()) == sorted((row.id, str(row.id)) for row in want)
    found = []

    def keep(batch, _):
        found.append(batch.select(frame.columns).collect())
        if len(found) == 2:
            raise RuntimeError("once")

    def run():
        stream = load(spark.readStream, log.path, **entity, since="earliest", maxVersionsPerBatch="1")
        writer = stream.writeStream.foreachBatch(keep).option(
            "checkpointLocation", str(tmp_path / "checkpoint")
        )
        return writer.trigger(availableNow=True).start()

    with pytest.raises(StreamingQueryException, match="once"):
        run().awaitTermination(300)
    assert run().awaitTermination(300)
    assert sorted(row for batch in (found[0], *found[2:]) for row in batch) == want


def test_a_running_stream_does_not_cut_what_comes_with_another_type(spark, log, tmp_path):
    """F192: the query fails and says which column and value; a restart fails as well, and nothing wrong is written."""
    sink = ChangeSink(log, entity_type="order", key="id", producer="p")
    sink(spark.sql("SELECT 1 id, CAST(1 AS BIGINT) v"), 0)
    written = tmp_path / "written"
    for attempt in range(2):
        stream = load(spark.readStream.schema("v BIGINT"), log.path, schema="entity", entity_type="order", since="earliest", maxVersionsPerBatch="1")  # fmt: skip
        query = (
            stream.writeStream.format("json")
            .option("checkpointLocation", str(tmp_path / "cp"))
            .start(str(written))
        )
        if not attempt:
            query.processAllAvailable()
            sink(spark.sql("SELECT 2 id, CAST(1.5 AS DOUBLE) v"), 1)
        with pytest.raises(
            StreamingQueryException, match=r"column 'v' is 1\.5, which cannot be read as long"
        ):
            query.processAllAvailable()
        query.stop()
    assert [row.v for row in spark.read.json(str(written)).collect()] == [1]
    newest = load(spark.read, log.path, schema="entity", entity_type="order")
    assert [row.v for row in newest.orderBy("_commit_version").collect()] == [1.0, 1.5]


def test_values_of_every_type_come_back_from_spark_through_a_log_to_spark(spark, log):
    """F192: also those that Python lacks, such as the last evening of the year 9999 in New York, and values of any type."""
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", "America/New_York")
    frame = session.sql(
        """SELECT 1 id, timestamp'9999-12-31 23:59:59' late, timestamp'-0044-03-15 12:00:00' early, date'+12345-01-01' day,
        timestamp_ntz'+10000-01-01 00:00:00' local, array(timestamp'9999-12-31 23:59:59') many,
        parse_json('{"a": [1, 1.5, 1e300, "x", null, true], "b": {}}') any, map(1, parse_json('7')) named,
        CAST('NaN' AS DOUBLE) nan, time'10:11:12.123456' clock"""
    )
    ChangeSink(log, entity_type="order", key="id", producer="p")(frame, 0)
    told = load(session.read, log.path, schema="entity", entity_type="order").select(*frame.columns)
    assert told.schema.simpleString() == frame.schema.simpleString()
    texts = [f"to_json(struct({name}))" for name in frame.columns if name != "id"]
    assert told.selectExpr(*texts).collect() == frame.selectExpr(*texts).collect()


def test_what_was_written_as_text_is_no_number_although_it_looks_like_one(spark, log):
    """F192: a change is read by the schema that it is stamped with."""
    sink = ChangeSink(log, entity_type="order", key="id", producer="p")
    sink(spark.sql("SELECT 1 id, '10.00' v"), 0)
    sink(spark.sql("SELECT 2 id, CAST(10 AS DECIMAL(10,2)) v"), 1)
    for since, until, kind in (
        ("1", "1", "string"),
        ("2", "2", "decimal(12,2)"),
        ("2", "2", "double"),
        ("2", "2", "int"),
    ):
        rows = load(
            spark.read.schema(f"v {kind}"),
            log.path,
            schema="entity",
            entity_type="order",
            since=since,
            until=until,
        )
        assert [row.v for row in rows.collect()] == ["10.00" if kind == "string" else 10]
    for since, until, kind in (
        ("1", "1", "decimal(10,2)"),
        ("2", "2", "string"),
        ("1", "2", "decimal(10,2)"),
    ):
        rows = load(
            spark.read.schema(f"v {kind}"),
            log.path,
            schema="entity",
            entity_type="order",
            since=since,
            until=until,
        )
        with pytest.raises(PySparkException, match=r"column 'v' is '10\.00', which cannot be read as"):
            rows.collect()


def test_what_spark_offers_and_a_log_is_not_is_refused_with_the_way_that_works(spark, log, tmp_path):
    """F152: a table of the catalog, a stream written by the format; a view works."""
    log.commit([upsert("order", "1", {"id": 1})])
    register(spark)
    with pytest.raises(PySparkException, match="a catalog cannot hold a log; CREATE TEMPORARY VIEW"):
        spark.sql(f"CREATE TABLE orders USING penstock OPTIONS (path '{log.path}')")
    spark.sql(f"CREATE TEMPORARY VIEW orders USING penstock OPTIONS (path '{log.path}', entity_type 'order')")
    assert [row.key for row in spark.sql("SELECT * FROM orders").collect()] == ["1"]
    spark.catalog.dropTempView("orders")
    writing = spark.readStream.format("rate").load().writeStream.format("penstock")
    query = writing.option("checkpointLocation", str(tmp_path / "cp")).start(str(tmp_path / "other"))
    with pytest.raises(StreamingQueryException, match="left out of writeStream: foreachBatch"):
        query.awaitTermination(300)
