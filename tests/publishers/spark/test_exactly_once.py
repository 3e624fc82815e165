import os
import shutil
import signal
import subprocess
import sys
import textwrap
import traceback
from pathlib import Path
from threading import Event, Thread
from time import monotonic

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

from publishers import ChangeLog, upsert
from publishers.spark import BatchChanged, ChangeSink, CheckpointLost

ROOT = Path(__file__).parents[3]
pytestmark = pytest.mark.timeout(900)


def deadline(condition, seconds=180):
    """Waits until something holds."""
    ends = monotonic() + seconds
    while not condition():
        if monotonic() > ends:
            return False
        Event().wait(0.01)
    return True


def ids(log, stored):
    return [int(change.key) for change in stored(log)]


def test_a_batch_that_runs_again_in_another_order_costs_no_job_and_writes_nothing(source, log, stored):
    source.add_numbers(3, 5)
    source.run(ChangeSink(log, entity_type="n", key="id"))
    assert source.forget_newest_commit() == 2
    source.add_numbers(1, 1)
    again = ChangeSink(log, entity_type="n", key="id")

    def other_order(frame, batch):
        if batch == 2:
            frame = frame.orderBy(F.rand()).withColumn("name", F.raise_error(F.lit("a job ran")))
        again(frame, batch)

    source.run(other_order)
    assert ids(log, stored) == [*range(15), 0]
    assert (again.statistics().repeated, again.statistics().batches) == (1, 1)


def test_two_sinks_of_two_names_run_again_each_for_itself(source, log, stored):
    source.add_numbers(1, 2)
    first = ChangeSink(log, entity_type="n", key="id")
    second = ChangeSink(log, entity_type="n", key="id", name="second")

    def fail_between(frame, batch):
        first(frame, batch)
        raise RuntimeError("between the sinks")

    with pytest.raises(StreamingQueryException, match="between the sinks"):
        source.run(fail_between)

    def both(frame, batch):
        first(frame, batch)
        second(frame, batch)

    source.run(both)
    assert ids(log, stored) == [0, 1, 0, 1]
    assert (first.statistics().repeated, second.statistics().repeated) == (1, 0)


def test_the_log_remembers_when_it_is_opened_again(source, tmp_path, stored):
    source.add_numbers(2, 3)
    with ChangeLog.open(tmp_path / "kept") as log:
        source.run(ChangeSink(log, entity_type="n", key="id"))
    source.forget_newest_commit()
    with ChangeLog.open(tmp_path / "kept") as log:
        sink = ChangeSink(log, entity_type="n", key="id")
        source.run(sink)
        assert sink.statistics().repeated == 1
        assert ids(log, stored) == list(range(6))


def test_a_query_with_a_new_checkpoint_is_another_producer(source, log, stored, tmp_path):
    source.add_numbers(1, 2)
    source.run(ChangeSink(log, entity_type="n", key="id"))
    source.checkpoint = tmp_path / "another"
    source.run(ChangeSink(log, entity_type="n", key="id"))
    assert ids(log, stored) == [0, 1, 0, 1]


def test_an_older_copy_of_a_checkpoint_is_told_and_drops_no_rows(source, log, stored, tmp_path):
    """Batches below the last one may have other rows than before: one has what came as two."""
    source.add_numbers(1, 2)
    source.run(ChangeSink(log, entity_type="n", key="id"))
    shutil.copytree(source.checkpoint, tmp_path / "copy")
    source.add_numbers(2, 3)
    source.run(ChangeSink(log, entity_type="n", key="id"))
    committed = ids(log, stored)
    source.checkpoint = tmp_path / "copy"
    sink = ChangeSink(log, entity_type="n", key="id")
    query = source.start(sink)
    with pytest.raises(StreamingQueryException, match=r"batch 1 came under producer='n of query .* is 2"):
        query.awaitTermination(180)
    assert isinstance(sink.error, CheckpointLost)
    assert ids(log, stored) == committed


def test_a_batch_that_runs_again_with_other_rows_is_told_if_that_is_asked_for(source, log, stored):
    source.add_numbers(2, 5)
    source.run(ChangeSink(log, entity_type="n", key="id"))
    source.forget_newest_commit()
    sink = ChangeSink(log, entity_type="n", key="id", on_rerun="verify")
    query = source.start(lambda frame, batch: sink(frame.withColumn("name", F.lit("other")), batch))
    with pytest.raises(StreamingQueryException, match=r"batch 1 of producer='n of query .* than version 2"):
        query.awaitTermination(180)
    assert isinstance(sink.error, BatchChanged)
    source.run(sink)
    assert (sink.error, sink.statistics().repeated) == (None, 1)
    assert ids(log, stored) == list(range(10))


def test_a_named_producer_survives_a_lost_checkpoint(source, log, stored, tmp_path):
    source.add_numbers(1, 2)
    source.run(ChangeSink(log, entity_type="n", key="id", producer="numbers"))
    source.checkpoint = tmp_path / "another"
    source.run(ChangeSink(log, entity_type="n", key="id", producer="numbers"))
    assert ids(log, stored) == [0, 1]


def test_rows_under_a_number_of_a_lost_checkpoint_are_refused_and_not_dropped(spark, log, stored):
    sink = ChangeSink(log, entity_type="n", key="id", producer="numbers")
    for batch in (0, 1, 1):
        sink(spark.range(2 * batch, 2 * batch + 2), batch)
    assert sink.statistics().repeated == 1
    with pytest.raises(
        CheckpointLost, match=r"batch 0 came under producer='numbers', whose last .* is 1"
    ) as lost:
        sink(spark.range(4, 6), 0)
    assert (lost.value.producer, lost.value.batch_id, lost.value.last) == ("numbers", 0, 1)
    ChangeSink(log, entity_type="n", key="id", producer="numbers again")(spark.range(4, 6), 0)
    assert ids(log, stored) == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("collect_bytes", [1, 64 << 20])
def test_the_last_batch_of_a_named_producer_is_repeated_only_with_its_own_rows(
    spark, log, stored, collect_bytes
):
    def commit(frame):
        named = {
            "operation_column": "op",
            "order_by": (),
            "before": "old",
            "producer": "p",
            "collect_bytes": collect_bytes,
        }
        ChangeSink(log, entity_type="n", key="id", **named)(frame, 3)

    schema = "id INT, op STRING, name STRING, old STRUCT<id: INT, name: STRING>"
    rows = [(1, "upsert", "a", None), (2, "remove", None, (2, "b")), (3, "upsert", "c", (3, "d"))]
    commit(spark.createDataFrame(rows, schema))
    commit(spark.createDataFrame(rows, schema).repartition(3))
    assert [change.key for change in stored(log)] == ["1", "2", "3"]
    others = [
        rows[:2],
        rows + rows[:1],
        [*rows[:2], (3, "upsert", "c", None)],
        [*rows[:2], (3, "remove", "c", (3, "d"))],
    ]
    for other in others:
        with pytest.raises(BatchChanged, match="batch 3 of producer='p' has other rows than version 1"):
            commit(spark.createDataFrame(other, schema))
    assert len(stored(log)) == 3


def test_a_repeated_batch_whose_version_is_no_longer_kept_counts_as_repeated(spark, tmp_path):
    options = {"segment_bytes": 1 << 20, "retain_bytes": 1 << 20}
    with ChangeLog.open(tmp_path / "short", **options) as short:
        sink = ChangeSink(short, entity_type="n", key="id", producer="p")
        sink(spark.range(3), 0)
        number = 0
        while short.oldest.version <= 1:
            number += 1
            short.commit([upsert("filler", str(number), {"text": "x" * 100_000})])
        sink(spark.range(3), 0)
        assert sink.statistics().repeated == 1


def test_stops_and_restarts_lose_and_repeat_nothing(source, log, stored):
    source.add_numbers(12, 4)
    for wanted in (3, 7, 12):
        sink = ChangeSink(log, entity_type="n", key="id")
        reached, stopping = Event(), Event()

        def commit(frame, batch, sink=sink, wanted=wanted, reached=reached, stopping=stopping):
            sink(frame, batch)
            if batch + 1 == wanted:
                # Stopping waits for this function, so the batch is committed here and not in Spark.
                reached.set()
                assert stopping.wait(180)

        query = source.start(commit)
        assert reached.wait(180)
        stopper = Thread(target=query.stop)
        stopper.start()
        stopping.set()
        stopper.join(180)
        assert not query.isActive
    source.run(ChangeSink(log, entity_type="n", key="id"))
    assert ids(log, stored) == list(range(48))


def test_a_query_stopped_inside_a_job_ends_cleanly_and_loses_nothing(source, log, stored):
    source.add_numbers(2, 200)
    sink = ChangeSink(log, entity_type="n", key="id")
    running = Event()

    def slowly(frame, batch):
        if batch == 1:
            running.set()
            frame = frame.withColumn(
                "id", F.expr("id + length(coalesce(reflect('java.lang.Thread', 'sleep', 500L), ''))")
            )
        sink(frame, batch)

    raised = []

    def noted(frame, batch):
        try:
            slowly(frame, batch)
        except Exception:
            raised.append(traceback.format_exc())
            raise

    query = source.start(noted)
    assert running.wait(180)
    assert deadline(lambda: source.spark.sparkContext.statusTracker().getActiveJobsIds())
    query.stop()
    assert not query.isActive
    assert query.exception() is None
    assert isinstance(sink.error, Py4JJavaError)
    # Spark looks through what follows these words with an expression that needs stack for each character.
    (text,) = raised
    looked_through = text.partition("An error occurred while calling")[2]
    assert "java.lang.InterruptedException" in looked_through
    assert len(looked_through) < 600
    assert log.head.version == 2
    source.run(ChangeSink(log, entity_type="n", key="id"))
    assert ids(log, stored) == list(range(400))


DRIVER = textwrap.dedent(
    """
    import os, sys
    from threading import Barrier
    from publishers import ChangeLog
    from publishers.spark import ChangeSink, spark_session
    directory = sys.argv[1]
    spark = spark_session("driver", cores=1)
    log = ChangeLog.open(directory + "/log")
    both = Barrier(2)
    def die():
        both.wait()
        os.kill(os.getpid(), 9)
    def start(moment):
        sink = ChangeSink(log, entity_type=moment, key="id", order_by="id")
        def commit(frame, batch):
            if batch == 1 and moment == "before":
                die()
            sink(frame, batch)
            if batch == 1:
                die()
        files = spark.readStream.schema("id BIGINT, name STRING").option("maxFilesPerTrigger", 1).json(directory + "/source")
        writer = files.writeStream.foreachBatch(commit).option("checkpointLocation", directory + "/" + moment)
        return writer.trigger(availableNow=True).start()
    for query in [start("before"), start("after")]:
        query.awaitTermination()
    """
)


@pytest.mark.crash
def test_a_driver_killed_before_and_after_its_commit_ends_with_every_row_once(source, tmp_path, stored):
    """One driver with two queries dies before the commit of one and after that of the other."""
    source.add_numbers(3, 100)
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, str(tmp_path)],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    for moment, committed in (("before", 1), ("after", 2)):
        source.checkpoint = tmp_path / moment
        with ChangeLog.open(tmp_path / "log") as log:

            def rows(log=log, moment=moment):
                return [int(change.key) for change in stored(log) if change.entity_type == moment]

            assert rows() == list(range(100 * committed))
            sink = ChangeSink(log, entity_type=moment, key="id", order_by="id")
            source.run(sink)
            assert rows() == list(range(300))
            assert sink.statistics().repeated == committed - 1
