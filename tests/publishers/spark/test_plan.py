import gc
import threading

import pytest
from py4j.java_gateway import GatewayClient
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

from publishers.spark import ChangeSink, SchemaRefused
from publishers.spark.plan import plan_of
from publishers.spark.schema import Encoding

pytestmark = pytest.mark.timeout(600)
COMMANDS = 40


@pytest.fixture
def commands(monkeypatch):
    """Counts the commands that this thread sends to the JVM, but for those that only say what Python has collected."""
    sent = []
    send, ours = GatewayClient.send_command, threading.get_ident()

    def counted(client, command, *args, **named):
        if threading.get_ident() == ours and not command.startswith("m\n"):
            sent.append(command)
        return send(client, command, *args, **named)

    monkeypatch.setattr(GatewayClient, "send_command", counted)
    gc.collect()
    return sent


def rows_of(spark, rows, partitions, columns):
    return spark.range(0, rows, 1, partitions).select(
        "id", *(F.lit("x").alias(f"column_{n}") for n in range(columns))
    )


def test_a_batch_costs_the_same_few_commands_whatever_its_columns_rows_and_partitions(spark, log, commands):
    """As many of any shape; those of many partitions come in two jobs."""
    counts = []
    for rows, partitions, columns in ((1, 1, 1), (20_000, 2, 1), (10, 2, 40), (100, 200, 1)):
        sink = ChangeSink(log, entity_type="number", key="id", producer=f"{rows}/{partitions}/{columns}")
        for batch in (0, 1):  # of which the first one is stored
            sink(rows_of(spark, rows, partitions, columns), batch)
        frame = rows_of(spark, rows, partitions, columns)
        commands.clear()
        sink(frame, 2)
        assert sink.statistics().batch_rows == rows
        counts.append(len(commands))
    assert 0 < counts[0] == counts[1] == counts[2] <= counts[3] <= COMMANDS


def test_a_plan_is_made_once_for_each_schema_and_encoding(spark):
    by_id = Encoding(key=("id",))
    plan = plan_of(by_id, rows_of(spark, 1, 1, 2))
    assert plan_of(Encoding(key=("id",)), rows_of(spark, 9, 3, 2)) is plan
    assert plan_of(by_id, rows_of(spark, 1, 1, 3)) is not plan
    assert plan_of(Encoding(key=("column_0",)), rows_of(spark, 1, 1, 2)) is not plan
    with pytest.raises(SchemaRefused, match="'name' is not in the batch"):
        plan_of(Encoding(key=("name",)), rows_of(spark, 1, 1, 2))


def test_columns_named_as_ours_are_in_nobodys_way(spark, log, stored):
    frame = spark.range(3).select(
        "id", F.lit("a").alias("row"), F.lit("b").alias("ROW_"), F.lit("c").alias("most")
    )
    ChangeSink(log, entity_type="number", key="id", producer="names")(frame, 0)
    assert [change.body_bytes for change in stored(log)] == [
        b'{"id":%d,"row":"a","ROW_":"b","most":"c"}' % number for number in range(3)
    ]
