"""Envelopes of Debezium in a real broker, by Spark's own source for Kafka, to a log: each change once, over kills of all of them."""

import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from penstock_cdc.errors import NotALog
from publishers import Area, ChangeLog, Content, Operation
from tests.publishers.support import wait_until
from tests.servers.kafka_broker import KafkaBroker
from tests.servers.program import jars

pytest.importorskip("pyspark")
confluent_kafka = pytest.importorskip("confluent_kafka", reason="the extra kafka is not installed")

ROOT = Path(__file__).parents[2]
TOPIC = "shop.public.orders"
KEYS = 60


class Table:
    """A table as Debezium tells of it: envelopes by key, and what has to come out for each key."""

    def __init__(self, broker):
        self._producer = confluent_kafka.Producer({"bootstrap.servers": broker.servers, "log_level": 0})
        self._rows = {}
        self.told = defaultdict(list)

    def upsert(self, op, key, total):
        row = {"id": key, "customer": f"c{key % 7}", "total": total}
        before = self._rows.get(key)
        self._send(key, {"op": op, "before": before, "after": row})
        self._rows[key] = row
        self.told[str(key)].append((Operation.UPSERT, row, before))

    def delete(self, key):
        before = self._rows.pop(key)
        self._send(key, {"op": "d", "before": before, "after": None})
        self._send(key, None)  # the tombstone
        self.told[str(key)].append((Operation.REMOVE, None, before))

    def message(self):
        self._send("message", {"op": "m", "message": {"prefix": "audit", "content": "aGVsbG8="}})

    def rubbish(self):
        self._producer.produce(TOPIC, b"no envelope", key=b"rubbish")

    def flush(self):
        assert self._producer.flush(60) == 0

    def _send(self, key, told):
        if told is not None:
            source = {"connector": "postgresql", "db": "shop", "table": "orders"}
            told = {"schema": {"type": "struct"}, "payload": {**told, "source": source, "ts_ms": 1}}
        value = None if told is None else json.dumps(told).encode()
        self._producer.produce(TOPIC, value, key=json.dumps({"id": key}).encode())


def query(broker, tmp_path, out, *more):
    needed = ",".join(map(str, jars("spark")))
    told = [broker.servers, TOPIC, tmp_path / "log", "--most", "40", *more]
    return subprocess.Popen(
        [sys.executable, ROOT / "examples" / "from_debezium.py", *told],
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "PYSPARK_SUBMIT_ARGS": f"--jars {needed} pyspark-shell",
        },
        stdout=out,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


def end(process):
    """It, and the Java that it has started."""
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def versions(path):
    """How many there are, also while the log is being made."""
    with contextlib.suppress(NotALog), ChangeLog.open(path, read_only=True) as log:
        return log.head.version - 1
    return 0


def changes(path):
    with ChangeLog.open(path, read_only=True) as log:
        return [
            one
            for one in log.history(None, limit=100_000, content=Content.BODY).changes
            if one.area is Area.DATA
        ]


@pytest.mark.timeout(600)
def test_each_change_of_a_real_topic_is_in_the_log_once_and_in_order_though_query_and_broker_are_killed(
    tmp_path,
):
    """F152, F153: ``r c u d m``, tombstones and what is no envelope."""
    jars("spark")
    with KafkaBroker(tmp_path / "kafka") as broker, (tmp_path / "printed").open("wb") as out:
        table = Table(broker)
        for key in range(KEYS):
            table.upsert("r", key, "0.00")
        for number, key in itertools.product(range(3), range(KEYS)):
            table.upsert("u", key, f"{number}.10")
        table.message()
        table.rubbish()
        table.flush()
        first = query(broker, tmp_path, out)
        try:
            wait_until(lambda: first.poll() is not None or versions(tmp_path / "log") >= 2, timeout=300)
            assert first.returncode is None, (tmp_path / "printed").read_text()[-4000:]
        finally:
            end(first)
        broker.kill()
        broker.start()
        for key in range(0, KEYS, 2):
            table.delete(key)
        for key in range(KEYS, KEYS + 10):
            table.upsert("c", key, "1.00")
        table.flush()
        second = query(broker, tmp_path, out, "--once")
        try:
            assert second.wait(300) == 0, (tmp_path / "printed").read_text()[-4000:]
        finally:
            if second.returncode is None:
                end(second)
    found = defaultdict(list)
    for one in changes(tmp_path / "log"):
        assert one.entity_type == "orders"
        found[one.key].append((one.operation, one.body, one.before))
    assert found == table.told
    dead = changes(tmp_path / "log.dead")
    assert [one.entity_type for one in dead] == ["bad_row"]
