"""A Spark stream commits micro-batches to a log; a subscriber in the same process follows them and sets Spark's pace.

Run it: python examples/foreach_batch.py  (needs the extra ``spark``, and Java 17 or the extra ``jre``)
"""

import json
import tempfile
import threading
from pathlib import Path

from penstock_cdc import Change, ChangeLog, Content, Criterion, flow
from penstock_cdc.spark import ChangeSink, spark_session


class Totals:
    """Adds up what each customer spent, a few orders at a time."""

    def __init__(self) -> None:
        self.spent: dict[str, int] = {}
        self.finished = threading.Event()

    def on_subscribe(self, subscription: flow.Subscription) -> None:
        self.subscription = subscription
        subscription.request(2)

    def on_next(self, order: Change) -> None:
        body = order.body
        self.spent[body["customer"]] = self.spent.get(body["customer"], 0) + body["amount"]
        self.subscription.request(1)

    def on_error(self, error: Exception) -> None:
        print("failed:", error)
        self.finished.set()

    def on_complete(self) -> None:
        self.finished.set()


def main() -> None:
    with tempfile.TemporaryDirectory() as directory, ChangeLog.open(Path(directory, "log")) as log:
        incoming = Path(directory, "incoming")
        incoming.mkdir()
        for day in range(3):
            orders = [
                {"id": day * 4 + n, "customer": "ann" if n % 2 else "bob", "amount": n + 1} for n in range(4)
            ]
            (incoming / f"{day}.json").write_text("\n".join(map(json.dumps, orders)))

        totals = Totals()
        feed = log.changes(Criterion(areas={"DATA"}, entity_types={"order"}), until=3, content=Content.BODY)
        feed.subscribe(totals, max_lag=100)  # Spark waits rather than get more than 100 changes ahead

        spark = spark_session("orders")
        stream = (
            spark.readStream.schema("id long, customer string, amount long")
            .option("maxFilesPerTrigger", 1)
            .json(str(incoming))
        )
        query = (
            stream.writeStream.foreachBatch(ChangeSink(log, entity_type="order", key="id"))
            .option("checkpointLocation", str(Path(directory, "checkpoint")))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        totals.finished.wait(60)
        print("versions:", log.head.version - 1)
        print("spent:", dict(sorted(totals.spent.items())))
        spark.stop()


if __name__ == "__main__":
    main()
