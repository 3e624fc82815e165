"""Orders joined with payments, some of them late, and with customers, on a live page.

Orders and payments are streams, customers are a table. An order is paid if its payment is made within an hour. It is unpaid once
that hour and the allowance for late rows have passed. Spark commits each order once; the page shows the state, then each change.

    pip install 'penstock-cdc[spark,server]'     # and Java 17, or the extra jre
    python examples/spark_orders.py              # then open the address that it prints; Ctrl-C ends it
"""

import contextlib
import itertools
import json
import os
import random
import tempfile
import threading
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere
from pyspark.sql.streaming.query import StreamingQuery

from penstock_cdc import ChangeLog, Page, Server, serve
from penstock_cdc.spark import ChangeSink, spark_session

PAGES = Path(__file__).with_name("browser")
CUSTOMERS = """
    SELECT * FROM VALUES (1L, 'Ada', 'London'), (2L, 'Blaise', 'Paris'), (3L, 'Carl', 'Berlin') AS t(customer_id, name, city)
"""
ORDERS = "id BIGINT, customer_id BIGINT, total DECIMAL(10,2), ordered TIMESTAMP"
PAYMENTS = "order_id BIGINT, method STRING, paid TIMESTAMP"
LATE = "15 minutes"  # how far a row's time may lie behind the newest one
NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)


def settled(spark: SparkSession, incoming: Path) -> DataFrame:
    """Returns each order once: when it is paid, or when it is certain that it was not paid within the hour."""
    customers = spark.sql(CUSTOMERS)
    orders = read(spark, incoming / "orders", ORDERS).withWatermark("ordered", LATE)
    payments = read(spark, incoming / "payments", PAYMENTS).withWatermark("paid", LATE)
    in_time = F.expr("id = order_id AND paid BETWEEN ordered AND ordered + INTERVAL 1 HOUR")
    return (
        orders.join(customers, "customer_id", "left")
        .join(payments, in_time, "left_outer")
        .withColumn("state", F.when(F.col("paid").isNull(), "unpaid").otherwise("paid"))
        .drop("customer_id", "order_id")
    )


def read(spark: SparkSession, directory: Path, schema: str) -> DataFrame:
    directory.mkdir(parents=True, exist_ok=True)
    return spark.readStream.schema(schema).json(str(directory))


def start(spark: SparkSession, log: ChangeLog, incoming: Path, checkpoint: Path) -> StreamingQuery:
    sink = ChangeSink(log, entity_type="order", key="id")
    writer = settled(spark, incoming).writeStream.queryName("orders")
    return writer.option("checkpointLocation", str(checkpoint)).foreachBatch(sink).start()


def serve_page(log: ChangeLog, port: int = 8090) -> Server:
    """Serves the page, and the WebSocket that delivers the orders to it."""
    files = {"/orders": "spark_orders.html", "/spark_orders.js": "spark_orders.js"}
    pages = {path: Page.read(PAGES / name) for path, name in files.items()}
    return serve(log, port=port, pages=pages)


def put(directory: Path, rows: Iterable[dict[str, Any]]) -> None:
    """Adds a file to a stream's directory atomically."""
    directory.mkdir(parents=True, exist_ok=True)
    name = f"{sum(1 for _ in directory.iterdir()):06d}.json"
    draft = directory / f".{name}"
    draft.write_text("".join(json.dumps(row, default=str) + "\n" for row in rows))
    os.replace(draft, directory / name)


def sell(incoming: Path, stop: threading.Event) -> None:
    """Simulates a shop, five minutes per second: most orders are paid, and some payments arrive ten minutes late."""
    chance = random.Random(7)  # noqa: S311 - no secret
    told: dict[int, list[dict[str, Any]]] = {}
    for number in itertools.count(1):
        now = NOON + timedelta(minutes=5 * number)
        order = {"id": number, "customer_id": chance.randint(1, 3), "total": f"{chance.randint(5, 99)}.00"}
        put(incoming / "orders", [order | {"ordered": now.isoformat()}])
        if chance.random() < 0.8:
            paid = {"order_id": number, "method": chance.choice(["card", "cash"])}
            later = chance.choice([0, 0, 2])
            told.setdefault(number + later, []).append(
                paid | {"paid": (now + timedelta(minutes=1)).isoformat()}
            )
        if number in told:
            put(incoming / "payments", told.pop(number))
        if stop.wait(1):
            return


def main() -> None:
    stop = threading.Event()
    with tempfile.TemporaryDirectory() as place, ChangeLog.open(Path(place, "log"), state=True) as log:
        incoming = Path(place, "incoming")
        spark = spark_session("orders")
        with serve_page(log) as server:
            query = start(spark, log, incoming, Path(place, "checkpoint"))
            print(f"{server.home_url}orders", flush=True)
            shop = threading.Thread(target=sell, args=(incoming, stop))
            shop.start()
            with contextlib.suppress(KeyboardInterrupt):
                query.awaitTermination()
            stop.set()
            shop.join()
            query.stop()
        spark.stop()


if __name__ == "__main__":
    main()
