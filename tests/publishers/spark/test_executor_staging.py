"""Batches that executors seal and the driver commits; the whole way with killed executors is in ``test_whole_way``."""

import logging

import pytest
from pyspark.errors import StreamingQueryException

from penstock_cdc.errors import InvalidChange, InvalidOption
from penstock_cdc.mutations import schema
from publishers import ChangeLog, Content, Criterion, upsert
from publishers.log.staging import Staged
from publishers.mutations.mutation import columns_of
from publishers.spark import ChangeSink, StagingLost
from publishers.spark.errors import RowRefused

pytestmark = pytest.mark.timeout(600)


def staged_files(log):
    return sorted(path.name for path in log.path.glob("staged-*"))


def test_a_batch_of_many_partitions_is_one_version_in_their_order(source, log, stored):
    source.add(*({"id": number, "name": f"n{number}"} for number in range(40)))
    source.add({"id": 7, "name": "again"})
    sink = ChangeSink(log, entity_type="n", key="id", staging="executors")
    source.run(lambda frame, batch: sink(frame.repartitionByRange(4, "id").sortWithinPartitions("id"), batch))
    first = [(1, index + 2, 42, str(index), {"id": index, "name": f"n{index}"}) for index in range(40)]
    rows = [(c.version, c.index, c.count, c.key, c.body) for c in stored(log)]
    assert rows == [
        *((2, index - 1, 41, key, body) for _, index, _, key, body in first),
        (3, 1, 2, "7", {"id": 7, "name": "again"}),
    ]
    figures = sink.statistics()
    assert (figures.batches, figures.rows, figures.batch_rows, figures.version) == (2, 41, 1, 3)
    assert figures.encode_seconds > 0
    assert staged_files(log) == []


def test_order_by_orders_the_rows_of_all_partitions_and_nulls_come_first(source, log, stored):
    source.add(*({"id": row * 7 % 20, "name": None if row == 5 else f"{row:02}"} for row in range(20)))
    sink = ChangeSink(log, entity_type="n", key="id", order_by="name", body=["id"], staging="executors")
    source.run(lambda frame, batch: sink(frame.repartition(3), batch))
    expected = [5, *(row for row in range(20) if row != 5)]
    assert [change.key for change in stored(log)] == [str(row * 7 % 20) for row in expected]


def test_a_batch_that_runs_again_is_committed_once_and_one_without_rows_not_at_all(source, log, stored):
    source.add({"id": 1})
    source.add({"id": 2})
    sink = ChangeSink(log, entity_type="n", key="id", staging="executors", tell_schema=False)

    def one_of_two(frame, batch):
        sink(frame.where("id = 2"), batch)

    source.run(one_of_two)
    source.forget_newest_commit()
    source.run(one_of_two)
    assert [(c.version, c.key, c.schema_version) for c in stored(log)] == [(1, "2", None)]
    figures = sink.statistics()
    assert (figures.batches, figures.repeated, figures.rows) == (1, 1, 1)
    told = log.history(None, limit=1, content=Content.BODY).changes[0].meta["spark"]
    assert (told["sink"], told["batch"], set(told)) == ("n", 1, {"sink", "batch", "query_id"})


def test_operations_and_images_before_are_staged_and_verified_like_others(spark, log, stored):
    was = "named_struct('id', id, 'name', was)"
    found = "VALUES (1, 'u', 'old'), (2, 'd', 'gone') AS (id, op, was)"
    rows = spark.sql(f"SELECT id, op, {was} AS was, 'new' AS name FROM {found}")
    sink = ChangeSink(
        log, entity_type="n", key="id", operation_column="op", operations={"u": "upsert", "d": "remove"}, before="was",
        order_by=(), producer="nightly", staging="executors",
    )  # fmt: skip
    sink(rows, 0)
    sink(rows, 0)  # compared, as it comes under a name
    assert [(c.operation.name, c.key, c.body, c.before, c.schema_version) for c in stored(log)] == [
        ("UPSERT", "1", {"id": 1, "name": "new"}, {"id": 1, "name": "old"}, 1),
        ("REMOVE", "2", None, {"id": 2, "name": "gone"}, 1),
    ]
    assert sink.statistics().repeated == 1


def test_a_row_that_is_refused_fails_the_batch_once_by_its_own_error(source, log):
    source.add({"id": 1}, {"name": "no key"})
    sink = ChangeSink(log, entity_type="n", key="id", staging="executors")
    with pytest.raises(StreamingQueryException, match="is null in 1 of 2 rows"):
        source.run(sink)
    assert isinstance(sink.error, RowRefused)
    assert log.head.version == 1
    assert staged_files(log) == []


def test_a_schema_is_told_ahead_of_staged_rows_and_again_where_another_writer_was_faster(spark, log, monkeypatch):  # fmt: skip
    sink = ChangeSink(log, entity_type="n", key="id", producer="a", staging="executors")
    staging = sink._staging
    parts = staging._parts
    telling = ChangeSink(log, entity_type="n", key="id", producer="b")
    attempts = []

    def overtaken(frame, *given):
        made = parts(frame, *given)
        if not attempts:
            telling(frame, 0)
        attempts.append(given[1])
        return made

    monkeypatch.setattr(staging, "_parts", overtaken)
    sink(spark.range(1), 0)
    assert attempts == [{"n": 1}, {"n": 1}]
    versions = [
        (c.version, c.area.name, c.schema_version)
        for c in log.history(Criterion(entity_types={"n"}), limit=9).changes
    ]
    assert versions == [(1, "SCHEMA", 1), (1, "DATA", 1), (2, "DATA", 1)]


def test_a_schema_that_cannot_be_told_now_fails_the_batch(spark, log):
    log.commit([schema("n", {"fields": []})], visible=False)
    sink = ChangeSink(log, entity_type="n", key="id", producer="a", staging="executors")
    with pytest.raises(InvalidChange, match="above 1, the newest schema of 'n'"):
        sink(spark.range(1), 0)


def test_what_tasks_have_left_is_removed_and_counted(spark, log, caplog):
    late = []

    def stage(staging):
        late.append(staging)
        return Staged([], {})

    log.serving.commit_staged(stage)
    late[0].seal([columns_of([upsert("n", "1", {})])], "0-0", {})
    sink = ChangeSink(log, entity_type="n", key="id", producer="a", staging="executors")
    with caplog.at_level(logging.WARNING, "penstock.housekeeping"):
        sink(spark.range(3), 0)
    assert sink.statistics().abandoned == 1
    assert staged_files(log) == []


def test_files_that_the_driver_does_not_find_fail_the_batch_and_say_what_is_needed(spark, log, monkeypatch):
    sink = ChangeSink(log, entity_type="n", key="id", producer="a", staging="executors")
    staging = sink._staging
    parts = staging._parts

    def elsewhere(*given):
        made = parts(*given)
        for name in staged_files(log):
            (log.path / name).unlink()
        return made

    monkeypatch.setattr(staging, "_parts", elsewhere)
    with pytest.raises(StagingLost, match="every executor and the driver see under the same path"):
        sink(spark.range(2), 0)
    monkeypatch.undo()
    sink(spark.range(2), 0)
    assert sink.statistics().rows == 2


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"staging": "workers"}, "'driver' or 'executors'"),
        ({"entity_type": None, "entity_type_column": "kind", "name": "n"}, "in place of a column"),
        ({"on_bad_row": "skip"}, "'fail' with staging='executors'"),
        ({"compare": True}, "False with staging='executors'"),
        ({"log": "ws://127.0.0.1:1/ws"}, "as executors write nothing beside a server's log"),
    ],
)
def test_what_executors_cannot_do_is_refused_at_once(tmp_path, given, text):
    with ChangeLog.open(tmp_path / "log", state=True) as log:
        options = {"log": log, "entity_type": "n", "key": "id", "staging": "executors"} | given
        with pytest.raises(InvalidOption, match=text):
            ChangeSink(options.pop("log"), **options)
