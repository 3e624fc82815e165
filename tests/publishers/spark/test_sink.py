import json
import pickle
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

from penstock_cdc.errors import InvalidOption, LogReadOnly
from publishers import ChangeLog, Content, Operation
from publishers.spark import ChangeSink, ConnectRefused, SinkFailed, SinkNameTaken
from publishers.spark.errors import RowRefused
from tests.harness.constants import set_bounds

pytestmark = pytest.mark.timeout(600)


def transactions(log):
    return [
        change
        for change in log.history(None, limit=100_000, content=Content.BODY).changes
        if change.index == 0
    ]


def test_each_micro_batch_becomes_one_version(source, log, stored):
    source.add({"id": 1, "name": "a"}, {"id": 2})
    source.add({"id": 1, "name": "b"})
    sink = ChangeSink(log, entity_type="person", key="id")
    source.run(sink, name="people")
    assert [
        (c.version, c.index, c.count, c.entity_type, c.key, c.operation, c.body_bytes) for c in stored(log)
    ] == [
        (1, 2, 4, "person", "1", Operation.UPSERT, b'{"id":1,"name":"a"}'),
        (1, 3, 4, "person", "2", Operation.UPSERT, b'{"id":2,"name":null}'),
        (2, 1, 2, "person", "1", Operation.UPSERT, b'{"id":1,"name":"b"}'),
    ]
    figures = sink.statistics()
    assert (figures.batches, figures.rows, figures.batch_id, figures.batch_rows, figures.version) == (
        2,
        3,
        1,
        1,
        2,
    )
    assert figures.encode_seconds > 0
    assert sink.error is None


def test_annotations_tell_query_batch_rows_and_digest(source, log):
    source.add_numbers(2, 3)
    source.run(ChangeSink(log, entity_type="number", key="id", name="numbers"), name="counting")
    told = [change.meta["spark"] for change in transactions(log)]
    assert [(t["query"], t["sink"], t["batch"], t["rows"]) for t in told] == [
        ("counting", "numbers", 0, 3),
        ("counting", "numbers", 1, 3),
    ]
    assert len({t["query_id"] for t in told}) == 1
    assert len({t["digest"] for t in told}) == 2


def test_an_unnamed_query_has_no_name_in_the_annotations(source, log):
    source.add_numbers(1, 1)
    source.run(ChangeSink(log, entity_type="number", key="id"))
    assert "query" not in transactions(log)[0].meta["spark"]


def test_a_batch_without_rows_commits_nothing(source, log, stored):
    source.add_numbers(3, 2)
    sink = ChangeSink(log, entity_type="number", key="id")
    source.run(lambda frame, batch: sink(frame.where("id < 2 OR id > 3"), batch))
    assert [(c.version, c.key) for c in stored(log)] == [(1, "0"), (1, "1"), (2, "4"), (2, "5")]
    assert sink.statistics().batches == 2


def test_order_by_orders_the_rows_of_a_batch(source, log, stored):
    source.add(*({"id": (row * 7) % 50, "name": "x"} for row in range(50)))
    sink = ChangeSink(log, entity_type="number", key="id", order_by="id", body=["id"])
    source.run(lambda frame, batch: sink(frame.repartition(3), batch))
    assert [change.body for change in stored(log)] == [{"id": number} for number in range(50)]


def test_operations_come_from_a_column(source, log, stored):
    source.add({"id": 1, "op": "INSERT"}, {"id": 2, "op": "update"}, {"id": 1, "op": "delete"})
    source.run(
        ChangeSink(log, entity_type="n", key="id", operation_column="op", order_by=()), "id BIGINT, op STRING"
    )
    assert [(c.key, c.operation, c.body) for c in stored(log)] == [
        ("1", Operation.UPSERT, {"id": 1}),
        ("2", Operation.UPSERT, {"id": 2}),
        ("1", Operation.REMOVE, None),
    ]


def test_a_fixed_removal_removes(source, log, stored):
    source.add({"id": 1})
    source.run(ChangeSink(log, entity_type="n", key="id", operation="remove"))
    assert [(c.key, c.operation, c.body) for c in stored(log)] == [("1", Operation.REMOVE, None)]


def test_entity_types_come_from_a_column(source, log, stored):
    source.add({"id": 1, "kind": "a"}, {"id": 2, "kind": "b"}, {"id": 3, "kind": "a"})
    sink = ChangeSink(log, entity_type_column="kind", key="id", name="mixed")
    source.run(sink, "id BIGINT, kind STRING")
    assert [(c.entity_type, c.key, c.body) for c in stored(log)] == [
        ("a", "1", {"id": 1}),
        ("b", "2", {"id": 2}),
        ("a", "3", {"id": 3}),
    ]


@pytest.mark.parametrize(("partitions", "collect_bytes"), [(40, 30_000), (1, 30_000), (40, 12_000)])
def test_a_batch_in_many_windows_is_one_version_in_order(source, tmp_path, stored, partitions, collect_bytes):
    source.add(*({"id": row, "name": "x" * 100} for row in range(1500)))
    with ChangeLog.open(tmp_path / "small", frame_bytes=4096, spool_bytes=20_000) as log:
        sink = ChangeSink(log, entity_type="n", key="id", collect_bytes=collect_bytes)

        def spread(frame, batch):
            sink(frame.repartitionByRange(partitions, "id").sortWithinPartitions("id"), batch)

        source.run(spread)
        assert [(c.version, c.key) for c in stored(log)] == [(1, str(row)) for row in range(1500)]
        assert {c.count for c in stored(log)} == {1502}
        assert ("rows" in transactions(log)[0].meta["spark"]) == (
            partitions == 1
        )  # which brings it as one record batch
        assert sink.statistics().rows == 1500
        assert not list(log.path.glob("*.tmp"))


def test_an_ordered_batch_larger_than_what_is_collected_is_one_version_in_order(source, log, stored):
    source.add(*({"id": (row * 7) % 1000, "name": "x" * 100} for row in range(1000)))
    sink = ChangeSink(
        log, entity_type="n", key="id", order_by="id", collect_bytes=20_000, body=["id", "name"]
    )
    source.run(sink)
    assert [(c.version, c.key) for c in stored(log)] == [(1, str(row)) for row in range(1000)]


def test_a_batch_that_is_larger_than_the_one_before_told_is_brought_all_the_same(spark, log, stored):
    sink = ChangeSink(log, entity_type="n", key="id", producer="p", collect_bytes=20_000)
    for batch, rows in enumerate((300, 2000, 300)):
        sink(spark.range(0, rows, 1, 1), batch)
    want = [(version, str(row)) for version, rows in ((1, 300), (2, 2000), (3, 300)) for row in range(rows)]
    assert [(change.version, change.key) for change in stored(log)] == want


def test_a_refused_row_in_a_late_window_leaves_nothing_behind(source, tmp_path):
    source.add(*({"id": row if row < 1400 else None, "name": "x" * 100} for row in range(1500)))
    with ChangeLog.open(tmp_path / "small", frame_bytes=4096, spool_bytes=20_000) as log:
        sink = ChangeSink(log, entity_type="n", key="id", collect_bytes=20_000)
        assert "'id' is null in" in failing(source, sink)
        assert log.head.version == 1
        assert not list(log.path.glob("*.tmp"))


def failing(source, sink, schema="id BIGINT, name STRING"):
    query = source.start(sink, schema)
    with pytest.raises(StreamingQueryException) as raised:
        query.awaitTermination(180)
    assert not query.isActive
    return str(raised.value)


def test_a_null_key_fails_the_query_and_says_which_column(source, log):
    source.add({"id": 1}, {"name": "nobody"})
    sink = ChangeSink(log, entity_type="n", key="id")
    text = failing(source, sink)
    assert "column 'id' is null in 1 of 2 rows, which thus have no key; filter them out or fill them" in text
    assert isinstance(sink.error, RowRefused)
    assert log.head.version == 1


def test_an_unknown_operation_fails_the_query_and_is_named(source, log):
    source.add({"id": 1, "op": "merge"})
    text = failing(
        source,
        ChangeSink(log, entity_type="n", key="id", operation_column="op", order_by=()),
        "id BIGINT, op STRING",
    )
    assert "column 'op' names 'merge', but must be one of upsert, insert, update, remove, delete" in text


def test_a_missing_column_fails_the_query_before_any_job(source, log):
    source.add({"id": 1})
    sink = ChangeSink(log, entity_type="n", key="number")
    ran = F.raise_error(F.concat(F.lit("a job"), F.lit(" ran")))
    text = failing(source, lambda frame, batch: sink(frame.withColumn("id", ran), batch))
    assert "column 'number' is not in the batch, which has id, name" in text
    assert "a job ran" not in text


def test_a_failing_job_fails_the_query_with_its_own_message(source, log):
    source.add({"id": 1})
    sink = ChangeSink(log, entity_type="n", key="id")
    text = failing(
        source, lambda frame, batch: sink(frame.withColumn("name", F.raise_error(F.lit("on purpose"))), batch)
    )
    assert "on purpose" in text


def test_a_closed_log_fails_the_query(source, log):
    source.add({"id": 1})
    sink = ChangeSink(log, entity_type="n", key="id")
    log.close()
    assert "the change log is closed" in failing(source, sink)


def test_a_transaction_above_the_bound_fails_the_query_naming_the_option(source, tmp_path):
    source.add(*({"id": row, "name": "x" * 100} for row in range(100)))
    set_bounds(max_transaction_bytes=2048)
    with ChangeLog.open(tmp_path / "small") as log:
        assert "max_transaction_bytes is 2048" in failing(source, ChangeSink(log, entity_type="n", key="id"))
        assert log.head.version == 1


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, GeneratorExit])
def test_what_is_no_exception_fails_the_query_instead_of_hanging_it(source, log, monkeypatch, kind):
    def leave(producer):
        raise kind("leaving")

    monkeypatch.setattr(log, "produced", leave)
    source.add({"id": 1})
    sink = ChangeSink(log, entity_type="n", key="id")
    assert f"batch 0 was ended by {kind.__name__}: leaving" in failing(source, sink)
    assert isinstance(sink.error, kind)


def test_the_error_is_forgotten_when_a_batch_goes_well(source, log, stored):
    source.add({"id": 1})
    sink = ChangeSink(log, entity_type="n", key="id")
    failing(source, lambda frame, batch: sink(frame.drop("id"), batch))
    assert sink.error is not None
    source.run(sink)
    assert sink.error is None
    assert [c.key for c in stored(log)] == ["1"]


def test_two_sinks_of_one_name_in_a_batch_are_refused(source, log):
    source.add({"id": 1})
    first, second = (ChangeSink(log, entity_type="n", key="id") for _ in range(2))

    def both(frame, batch):
        first(frame, batch)
        second(frame, batch)

    assert "another ChangeSink named 'n' takes part in batch 0 of this query" in failing(source, both)
    assert isinstance(second.error, SinkNameTaken)


def test_two_sinks_of_one_name_are_refused_though_each_batch_makes_them_anew(source, log):
    source.add({"id": 1})

    def both(frame, batch):
        for _ in range(2):
            ChangeSink(log, entity_type="n", key="id")(frame, batch)

    assert "another ChangeSink named 'n'" in failing(source, both)


def test_two_sinks_of_one_name_at_the_same_time_are_refused(source, log):
    source.add({"id": 1})
    start = Barrier(2)

    def one(frame, batch):
        sink = ChangeSink(log, entity_type="n", key="id")
        start.wait(60)
        sink(frame, batch)

    def both(frame, batch):
        from pyspark import inheritable_thread_target

        with ThreadPoolExecutor(2) as pool:
            target = inheritable_thread_target(frame.sparkSession)(one)
            for done in [pool.submit(target, frame, batch) for _ in range(2)]:
                done.result()

    assert "another ChangeSink named 'n'" in failing(source, both)


def test_two_sinks_of_two_names_share_a_batch(source, log, stored):
    source.add({"id": 1, "name": "x"})
    by_id = ChangeSink(log, entity_type="n", key="id")
    by_name = ChangeSink(log, entity_type="n", key="name", name="by name")

    def both(frame, batch):
        by_id(frame, batch)
        by_name(frame, batch)

    source.run(both)
    assert [(c.version, c.key) for c in stored(log)] == [(1, "1"), (2, "x")]


def test_a_frame_of_spark_connect_is_refused_with_the_ways_out(log):
    class Session:
        pass

    class Frame:
        sparkSession = Session()  # noqa: N815 - Spark's name

    Session.__module__ = "pyspark.sql.connect.session"
    sink = ChangeSink(log, entity_type="n", key="id")
    ways = (
        r"^run the query in a classic SparkSession of the process that owns the log.* df\.toLocalIterator\(\)"
    )
    with pytest.raises(ConnectRefused, match=ways + r".*pyspark\.sql\.connect\.session"):
        sink(Frame(), 0)
    with pytest.raises(ConnectRefused, match=ways + ".*pickled sink"):
        pickle.dumps(sink)


def test_outside_of_a_query_a_producer_must_be_named(spark, log, stored):
    frame = spark.createDataFrame([(1,)], "id INT")
    with pytest.raises(
        InvalidOption, match="producer is None, but must be given outside of a streaming query"
    ):
        ChangeSink(log, entity_type="n", key="id")(frame, 0)
    for _ in range(2):
        sink = ChangeSink(log, entity_type="n", key="id", producer="backfill")
        sink(frame, 0)
    assert sink.statistics().repeated == 1
    assert [c.key for c in stored(log)] == ["1"]


def test_what_is_thrown_outside_of_a_query_is_no_base_exception(spark, log, monkeypatch):
    monkeypatch.setattr(log, "produced", lambda _: exec("raise SystemExit(3)"))
    with pytest.raises(SinkFailed, match="SystemExit: 3"):
        ChangeSink(log, entity_type="n", key="id", producer="p")(spark.range(1), 0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"key": "id"}, "entity_type is None, but must be given, or entity_type_column"),
        ({"key": "id", "entity_type": "n", "entity_type_column": "t"}, "entity_type is 'n'"),
        ({"key": "id", "entity_type": ""}, "text of 1 to 1024"),
        ({"key": "id", "entity_type_column": "t"}, "name is None, but must be given if the entity type"),
        ({"key": [], "entity_type": "n"}, r"key is \[\], but must be a column name, or several"),
        ({"key": ["a", "a"], "entity_type": "n"}, "different column names"),
        (
            {"key": "id", "entity_type": "n", "operation": "merge"},
            "operation is 'merge', but must be 'upsert' or 'remove'",
        ),
        (
            {"key": "id", "entity_type": "n", "stall_timeout": -1},
            "stall_timeout is -1, but must be at least 0",
        ),
        ({"key": "id", "entity_type": "n", "collect_bytes": 0}, "collect_bytes is 0"),
    ],
)
def test_arguments_that_contradict_are_refused(log, arguments, message):
    with pytest.raises(InvalidOption, match=message):
        ChangeSink(log, **arguments)


def test_a_log_that_is_followed_is_refused(log):
    with ChangeLog.open(log.path, read_only=True) as followed, pytest.raises(LogReadOnly):
        ChangeSink(followed, entity_type="n", key="id")


def test_bodies_are_valid_json_for_any_text(source, log, stored):
    texts = ['quote " backslash \\ slash /', "line\nbreak\ttab", "žluťoučký 🐎", "\u2028\x7f", " "]
    source.add(*({"id": place, "name": text} for place, text in enumerate(texts)))
    source.run(ChangeSink(log, entity_type="n", key="name", order_by="id", body=["name"]))
    assert [json.loads(c.body_bytes)["name"] for c in stored(log)] == texts
    assert [c.key for c in stored(log)] == texts
