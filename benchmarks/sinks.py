"""Sinks: transfer of a backlog to each target, beside the target's own bulk client that is fed from a list; and the lag of changes.

Both sides send equal batches, one after the other, to the same server on this machine. The bare side has all changes ready in memory:
it reads no log, stores no position, and signs nothing. The clients of Kafka and of the search engine are called as their users call them.
"""

import contextlib
import itertools
import sqlite3
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from time import perf_counter
from typing import Any, Final

import httpx
import pytest

from benchmarks.harness import Table, Variant, compare, percentile, progress, timed
from publishers import ChangeLog, Criterion, Position, upsert
from tests.harness.missing import PREFIX
from tests.servers.targets import TARGETS, TargetServer
from transports.sinks import Sink, SinkBatch, SinkContext, SinkOptions, SinkRunner
from transports.sinks.formats import FORMATS, WebhookSource
from transports.sinks.webhook import WebhookSink

CHANGES: Final = 20_000
"""Changes of a round."""
BATCH: Final = 100
LATE: Final = 300
"""Commits of one change each, whose lag is measured."""
SERVERS: Final = ("redis", "postgresql", "search", "kafka")
GOAL: Final = 0.8
_BODY: Final = b'{"carrier":"B6","flight":725,"origin":"JFK","dest":"BQN","status":"DEPARTED","delay":-1,"tailnum":"N804JB"}'
_UPSERT: Final = (
    "INSERT INTO {table}(key, body, penstock_version, penstock_index) VALUES ({marks}) ON CONFLICT (key) DO UPDATE SET "
    "body = excluded.body, penstock_version = excluded.penstock_version, penstock_index = excluded.penstock_index"
)
_TABLE: Final = (
    "CREATE TABLE {table}(key TEXT PRIMARY KEY, body {kind}, penstock_version BIGINT, penstock_index BIGINT)"
)

_FLIGHTS: Final = Criterion(entity_types={"flight"})
_LABELS: Final = {
    "redis": "redis-py, pipeline",
    "postgresql": "psycopg, executemany",
    "search": "opensearch-py, helpers.bulk",
    "kafka": "confluent-kafka, produce and flush",
}
_numbers = itertools.count()


def run(directory: Path) -> dict[str, Table]:
    """Each available target, and the lag of all."""
    tables: dict[str, Table] = {}
    late: dict[str, list[float]] = {}
    notes: list[str] = []
    with contextlib.ExitStack() as stack:
        log = stack.enter_context(ChangeLog.open(Path(tempfile.mkdtemp(dir=directory)) / "log", sync="os"))
        for start in range(0, CHANGES, BATCH):
            log.commit([upsert("flight", f"B6/{start + n}", _BODY) for n in range(BATCH)])
        url = stack.enter_context(_hook())
        tables["webhook"] = _webhook(log, url)
        late |= _lags(log, "webhook", lambda: _hook_sink(url))
        tables["sqlite"] = _compare(log, "sqlite", "sqlite3, executemany", *_sqlite(directory))
        late |= _lags(log, "sqlite", _sqlite(directory)[1])
        for name in SERVERS:
            try:
                server = TARGETS[name](Path(tempfile.mkdtemp(dir=directory)) / name)
            except pytest.skip.Exception as error:
                notes.append(f"{name} not measured: no {str(error).removeprefix(PREFIX)}")
                continue
            with contextlib.closing(server):
                tables[name] = _compare(log, name, _LABELS[name], *_PEERS[name](server))
                late |= _lags(log, name, _PEERS[name](server)[1])
    tables["lag"] = table = Table(
        "from a commit of one change to its confirmation", "ms", late, f"{LATE} commits, linger=0"
    ).show()
    for text in notes:
        table.note(text)
    return tables


# The runner.


class _Counted:
    """Counts the changes that a sink has confirmed, and wakes the waiter after the last one.

    Args:
        sink: The sink; its ``write`` is wrapped.
        count: The number of changes to wait for.
        when: Whether to note the time of each confirmation.
    """

    def __init__(self, sink: Sink, count: int, *, when: bool = False) -> None:
        self._when = when
        self.done, self.at = threading.Event(), dict[Position, float]()
        self._left, self._write = count, sink.write
        sink.write = self._look  # type: ignore[method-assign]  # for this object

    def _look(self, batch: SinkBatch) -> Any:
        answer = self._write(batch)
        assert not answer
        if self._when:
            now = perf_counter()
            self.at.update((one.position, now) for one in batch.changes)
        self._left -= len(batch)
        if self._left <= 0:
            self.done.set()
        return answer


def _carried(log: ChangeLog, sink: Sink) -> int:
    counted = _Counted(sink, CHANGES)
    options = SinkOptions(criteria=_FLIGHTS, since="earliest", batch_changes=BATCH, linger=0.0)
    with SinkRunner(log, f"s{next(_numbers)}", sink, options) as runner:
        assert counted.done.wait(120), runner.statistics()
    return CHANGES


def _lags(log: ChangeLog, name: str, make: Callable[[], Sink]) -> dict[str, list[float]]:
    """The milliseconds within which 50 % and 99 % of the commits are confirmed."""
    sink = make()
    counted, began = _Counted(sink, LATE, when=True), dict[Position, float]()
    with SinkRunner(log, f"s{next(_numbers)}", sink, SinkOptions(criteria=_FLIGHTS, linger=0.0)) as runner:
        for number in range(LATE):
            now = perf_counter()
            place = Position(log.commit([upsert("flight", f"late/{number}", _BODY)]).version, 1)
            began[place] = now
            end = now + 60
            while place not in counted.at and perf_counter() < end:
                counted.done.wait(0.0002)
        assert counted.done.wait(60), runner.statistics()
        progress()
    found = [(counted.at[place] - now) * 1000 for place, now in began.items()]
    return {
        f"{name}, half within": [percentile(found, 0.5)],
        f"{name}, 99 of 100 within": [percentile(found, 0.99)],
    }


def _compare(
    log: ChangeLog, name: str, peer: str, bare: Callable[[], int], make: Callable[[], Sink]
) -> Table:
    return compare(
        f"a backlog to {name}",
        "changes/s",
        [
            Variant(peer, lambda: timed(bare)),
            Variant("penstock", lambda: timed(lambda: _carried(log, make()))),
        ],
        sizes=f"{CHANGES:,} changes, {BATCH} a batch",
    )


# Webhooks.


@contextlib.contextmanager
def _hook() -> Iterator[str]:
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.hook_process"], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{int(process.stdout.readline())}/hook"
    finally:
        process.kill()
        process.communicate()


def _hook_sink(url: str) -> Sink:
    return WebhookSink(url, allow=["127.0.0.0/8"])


class _Bodies:
    """A sink that stores the bodies that it would send to a webhook."""

    stores_position = idempotent = partial = False
    ordered = True
    images = None

    def __init__(self) -> None:
        self.kept: list[bytes] = []

    def open(self, context: SinkContext) -> None:
        self._context = context

    def write(self, batch: SinkBatch) -> None:
        self.kept.append(FORMATS["native"].encode(batch, self._context, WebhookSource()))

    def flush(self) -> None: ...
    def move(self, position: Position) -> None: ...
    def close(self) -> None: ...
    def alive(self) -> bool:
        return True


def _webhook(log: ChangeLog, url: str) -> Table:
    bodies = _Bodies()
    _carried(log, bodies)

    def bare() -> int:
        with httpx.Client(trust_env=False) as client:
            for body in bodies.kept:
                answer = client.post(url, content=body, headers={"content-type": "application/json"})
                assert answer.status_code == 200
        return CHANGES

    table = compare(
        "a backlog to a webhook, one connection",
        "changes/s",
        [
            Variant("httpx, bodies ready in memory", lambda: timed(bare)),
            Variant("penstock", lambda: timed(lambda: _carried(log, _hook_sink(url)))),
        ],
        sizes=f"{CHANGES:,} changes, {BATCH} a request, {sum(map(len, bodies.kept)) // len(bodies.kept):,} bytes each",
    )
    table.reach("penstock", ">=", GOAL, "httpx, bodies ready in memory")
    return table


# Targets, each with its own bulk client and with a sink.


def _batches() -> Iterator[list[tuple[str, int, int]]]:
    """Keys, versions and indices, as in the log."""
    for version, start in enumerate(range(0, CHANGES, BATCH), 1):
        yield [(f"B6/{start + n}", version, n + 1) for n in range(BATCH)]


_Sides = tuple[Callable[[], int], Callable[[], Sink]]


def _sqlite(directory: Path) -> _Sides:
    from transports.sinks.sql import SqlSink

    def bare() -> int:
        database = sqlite3.connect(directory / f"bare{next(_numbers)}.db", isolation_level=None)
        database.execute(_TABLE.format(table="flight", kind="TEXT"))
        statement, body = _UPSERT.format(table="flight", marks="?, ?, ?, ?"), _BODY.decode()
        for batch in _batches():
            database.execute("BEGIN")
            database.executemany(statement, [(key, body, version, index) for key, version, index in batch])
            database.execute("COMMIT")
        database.close()
        return CHANGES

    return bare, lambda: SqlSink(f"sqlite:///{directory}/sink{next(_numbers)}.db", create_tables=True)


def _postgresql(server: TargetServer) -> _Sides:
    import psycopg

    from transports.sinks.sql import SqlSink

    def url() -> str:
        return server.address(f"b{next(_numbers)}").removeprefix("sql=")

    def bare() -> int:
        statement, body = _UPSERT.format(table="flight", marks="%s, %s, %s, %s"), _BODY.decode()
        with psycopg.connect(url()) as connection, connection.cursor() as cursor:
            cursor.execute(_TABLE.format(table="flight", kind="JSONB"))
            for batch in _batches():
                cursor.executemany(statement, [(key, body, version, index) for key, version, index in batch])
                connection.commit()
        return CHANGES

    return bare, lambda: SqlSink(url(), create_tables=True)


def _redis(server: TargetServer) -> _Sides:
    import redis

    from transports.sinks.cache import CacheSink

    url = server.address("bench").removeprefix("redis=")

    def bare() -> int:
        with redis.Redis.from_url(url) as client:
            for batch in _batches():
                pipeline = client.pipeline(transaction=False)
                for key, _, _ in batch:
                    pipeline.set(f"flight:{key}", _BODY)
                pipeline.execute()
        return CHANGES

    return bare, lambda: CacheSink(url, values=True)


def _search(server: TargetServer) -> _Sides:
    import opensearchpy

    from transports.sinks.search import SearchSink

    url, _, name = server.address("bench").removeprefix("search=").rpartition("/")
    body = _BODY.decode()

    def bare() -> int:
        actions = (
            {
                "_index": index,
                "_id": key,
                "_source": body,
                "version": (version << 20) + at,
                "version_type": "external",
            }
            for index in (f"{name}-bare{next(_numbers)}",)
            for batch in _batches()
            for key, version, at in batch
        )
        with contextlib.closing(opensearchpy.OpenSearch(url)) as client:
            opensearchpy.helpers.bulk(client, actions, chunk_size=BATCH)
        return CHANGES

    return bare, lambda: SearchSink(url, f"{name}-sink{next(_numbers)}-{{entity_type}}")


def _kafka(server: TargetServer) -> _Sides:
    import confluent_kafka

    from transports.sinks.kafka import KafkaSink

    servers, _, name = server.address("bench").removeprefix("kafka=").partition("/")

    def bare() -> int:
        told = {
            "bootstrap.servers": servers,
            "enable.idempotence": True,
            "compression.type": "zstd",
            "linger.ms": 5,
        }
        producer = confluent_kafka.Producer(told)
        for batch in _batches():
            for key, _, _ in batch:
                producer.produce(f"{name}.bare", _BODY, f'["flight","{key}"]')
            assert producer.flush(60) == 0
        return CHANGES

    return bare, lambda: KafkaSink(servers, f"{name}.{{entity_type}}")


_PEERS: Final[dict[str, Callable[[TargetServer], _Sides]]] = {
    "redis": _redis,
    "postgresql": _postgresql,
    "search": _search,
    "kafka": _kafka,
}
