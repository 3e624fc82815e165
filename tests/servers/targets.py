"""Targets of sinks as tests see them: the server, the sink that goes there, and what the target holds."""

import json
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

from tests.servers.faulty import FaultyProxy
from tests.servers.kafka_broker import KafkaBroker
from tests.servers.postgres import Postgres
from tests.servers.program import Program
from tests.servers.redis_server import RedisServer
from tests.servers.search_node import SearchNode

KINDS = ("orders", "bills")
State = dict[tuple[str, str], Any]


class TargetServer(ABC):
    """A server, and how to look into it.

    Attributes:
        program: The server; None for one that is none.
        port: Where it is asked by sinks, which a proxy may stand before.
    """

    def __init__(self, program: Program | None) -> None:
        self.program = program
        self.port = 0 if program is None else program.port
        self.proxy: FaultyProxy | None = None  # through which it has to be asked

    def close(self) -> None:
        """Ends it."""
        if self.program is not None:
            self.program.kill()
        if self.proxy is not None:
            self.proxy.__exit__()

    @abstractmethod
    def address(self, name: str, port: int | None = None) -> str:
        """What `carrier` makes a sink of, for a target of its own of that name."""

    @abstractmethod
    def held(self, name: str) -> State:
        """What the target of that name holds."""


def _parsed(body: Any) -> Any:
    return json.loads(body) if isinstance(body, str | bytes) else body


class SqliteTarget(TargetServer):
    """A file."""

    def __init__(self, folder: Path) -> None:
        super().__init__(None)
        self._folder = folder

    def address(self, name: str, port: int | None = None) -> str:
        """See `TargetServer.address`."""
        return f"sql=sqlite:///{self._folder / name}.db"

    def held(self, name: str) -> State:
        """See `TargetServer.held`."""
        return _rows(self.address(name).removeprefix("sql="), "")


class PostgresTarget(TargetServer):
    """A schema of a database."""

    program: Postgres

    def __init__(self, folder: Path) -> None:
        super().__init__(Postgres(folder / "postgresql").start())

    def address(self, name: str, port: int | None = None) -> str:
        """See `TargetServer.address`."""
        import psycopg

        with psycopg.connect(self.program.url) as connection:
            connection.execute(f'CREATE SCHEMA IF NOT EXISTS "{name}"')
        url = self.program.through(port or self.port)
        return f"sql={url}?options=-csearch_path%3D{name}"

    def held(self, name: str) -> State:
        """See `TargetServer.held`."""
        return _rows(self.program.url.replace("postgresql:", "postgresql+psycopg:"), f"{name}.")


def _rows(url: str, schema: str) -> State:
    import sqlalchemy as sa

    engine = sa.create_engine(url, poolclass=sa.NullPool)
    with engine.connect() as connection:
        present = sa.inspect(connection).get_table_names(schema=schema.rstrip(".") or None)
        return {
            (kind, key): _parsed(body)
            for kind in KINDS
            if kind in present
            for key, body in connection.execute(sa.text(f'SELECT key, body FROM {schema}"{kind}"'))
        }


class RedisTarget(TargetServer):
    """A database of its own number for each name."""

    def __init__(self, folder: Path) -> None:
        super().__init__(RedisServer(folder / "redis").start())
        self._numbers: dict[str, int] = {}

    def address(self, name: str, port: int | None = None) -> str:
        """See `TargetServer.address`."""
        number = self._numbers.setdefault(name, len(self._numbers))
        return f"redis=redis://127.0.0.1:{port or self.port}/{number}"

    def held(self, name: str) -> State:
        """See `TargetServer.held`."""
        import redis

        with redis.Redis.from_url(self.address(name).removeprefix("redis=")) as client:
            keys = list(client.scan_iter(count=1000))
            return {
                tuple(key.decode().split(":", 1)): _parsed(client.get(key))  # type: ignore[misc]  # two parts
                for key in keys
            }


class KafkaTarget(TargetServer):
    """Topics whose names begin alike; a broker tells clients to come through its proxy."""

    kind = "kafka"

    def __init__(self, folder: Path) -> None:
        proxy = FaultyProxy()
        broker = KafkaBroker(folder / "kafka", advertised=proxy.port)
        proxy.target = broker.port
        super().__init__(broker)
        self.proxy = proxy.__enter__()
        broker.start()

    def address(self, name: str, port: int | None = None) -> str:
        """See `TargetServer.address`."""
        assert self.proxy is not None
        return f"{self.kind}=127.0.0.1:{self.proxy.port}/{name}"

    def held(self, name: str) -> State:
        """See `TargetServer.held`: partition by partition, the last record of a key."""
        import confluent_kafka

        assert self.proxy is not None
        told = {"bootstrap.servers": f"127.0.0.1:{self.proxy.port}", "group.id": "tests", "log_level": 0}
        told |= {"isolation.level": "read_committed", "enable.partition.eof": True}
        reader = confluent_kafka.Consumer(told)
        topics = [f"{name}.{kind}" for kind in KINDS]
        places = [
            (one, at) for one in topics for at in reader.list_topics(one, timeout=30).topics[one].partitions
        ]
        reader.assign([confluent_kafka.TopicPartition(one, at, 0) for one, at in places])
        states: dict[tuple[str, int], State] = {place: {} for place in places}
        seen: list[Any] = []
        ended = 0
        while ended < len(places):
            record = reader.poll(30)
            assert record is not None
            if record.error() is not None:
                ended += 1
                continue
            state = states[record.topic(), record.partition()]
            kind, key = json.loads(record.key())
            headers = dict(record.headers())
            seen.append((record.topic(), record.partition(), headers["penstock-id"], record.value() is None))
            if key is None:
                state.clear()
            elif record.value() is None or headers["penstock-operation"] == b"REMOVE":
                state.pop((kind, key), None)
            else:
                state[kind, key] = json.loads(record.value())["body"]
        reader.close()
        self.judge(seen)
        return {one: body for state in states.values() for one, body in state.items()}

    def judge(self, seen: list[Any]) -> None:
        """What came may have come more than once."""


class ExactlyOnceKafkaTarget(KafkaTarget):
    """The same, whose committed records are there once."""

    kind = "kafka_once"

    def judge(self, seen: list[Any]) -> None:
        """See `KafkaTarget.judge`."""
        assert len(seen) == len(set(seen))


class SearchTarget(TargetServer):
    """Indices whose names begin alike."""

    program: SearchNode

    def __init__(self, folder: Path) -> None:
        super().__init__(SearchNode(folder / "search").start())

    def address(self, name: str, port: int | None = None) -> str:
        """See `TargetServer.address`."""
        return f"search=http://127.0.0.1:{port or self.port}/{name}"

    def held(self, name: str) -> State:
        """See `TargetServer.held`."""
        import opensearchpy

        state: State = {}
        client = opensearchpy.OpenSearch(self.program.url)
        for kind in KINDS:
            index = f"{name}-{kind}"
            if client.indices.exists(index=index):
                client.indices.refresh(index=index)
                hits = client.search(index=index, body={"size": 1000})["hits"]["hits"]
                state |= {(kind, one["_id"]): one["_source"] for one in hits}
        client.close()
        return state


TARGETS = {
    "search": SearchTarget,
    "kafka": KafkaTarget,
    "kafka exactly once": ExactlyOnceKafkaTarget,
    "sqlite": SqliteTarget,
    "postgresql": PostgresTarget,
    "redis": RedisTarget,
}
