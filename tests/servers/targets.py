"""Targets of sinks as tests see them: the server, the sink that goes there, and what the target holds."""

import contextlib
import json
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

from tests.publishers.support import wait_until
from tests.servers.faulty import FaultyProxy
from tests.servers.hook_receiver import HookReceiver
from tests.servers.kafka_broker import KafkaBroker
from tests.servers.postgres import Postgres
from tests.servers.program import Program
from tests.servers.redis_server import RedisServer
from tests.servers.search_node import SearchNode

KINDS = ("orders", "bills")
State = dict[tuple[str, str], Any]
Place = tuple[int, int]


class TargetServer(ABC):
    """A server, and how to look into it.

    Attributes:
        program: The server; None for one that is none.
        port: Where it is asked by sinks, which a proxy may stand before.
        once: Whether each change is to be there once.
        kinds: Entity types that it may hold.
    """

    kinds: tuple[str, ...] = KINDS
    once = False

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

    @abstractmethod
    def emptied(self, name: str) -> None:
        """Empties it as docs/backup.md says, so that places at the target stay."""

    def gaps(self, name: str) -> list[Any] | None:
        """What it was told that it will never get; None where there is no place for that."""
        return None

    def streams(self, name: str) -> list[list[Place]]:
        """Where it keeps all that it was sent: the positions, in each of its streams in the order in which they came."""
        return []


def _parsed(body: Any) -> Any:
    return json.loads(body) if isinstance(body, str | bytes) else body


class SqliteTarget(TargetServer):
    """A file."""

    def __init__(self, folder: Path) -> None:
        super().__init__(None)
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def address(self, name: str, port: int | None = None) -> str:
        """See `TargetServer.address`."""
        return f"sql=sqlite:///{self._folder / name}.db"

    def held(self, name: str) -> State:
        """See `TargetServer.held`."""
        return _rows(self.address(name).removeprefix("sql="), "", self.kinds)

    def emptied(self, name: str) -> None:
        """See `TargetServer.emptied`."""
        _empty(self.address(name).removeprefix("sql="), "", self.kinds)

    def gaps(self, name: str) -> list[Any]:
        """See `TargetServer.gaps`."""
        return _gap_rows(self.address(name).removeprefix("sql="), "")


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
        return _rows(self._engine_url, f"{name}.", self.kinds)

    def emptied(self, name: str) -> None:
        """See `TargetServer.emptied`."""
        _empty(self._engine_url, f"{name}.", self.kinds)

    def gaps(self, name: str) -> list[Any]:
        """See `TargetServer.gaps`."""
        return _gap_rows(self._engine_url, f"{name}.")

    @property
    def _engine_url(self) -> str:
        return self.program.url.replace("postgresql:", "postgresql+psycopg:")


def _rows(url: str, schema: str, kinds: tuple[str, ...]) -> State:
    import sqlalchemy as sa

    engine = sa.create_engine(url, poolclass=sa.NullPool)
    with engine.connect() as connection:
        return {
            (kind, key): _parsed(body)
            for kind in _present(connection, schema, kinds)
            for key, body in connection.execute(sa.text(f'SELECT key, body FROM {schema}"{kind}"'))
        }


def _empty(url: str, schema: str, kinds: tuple[str, ...]) -> None:
    import sqlalchemy as sa

    with sa.create_engine(url, poolclass=sa.NullPool).begin() as connection:
        for kind in _present(connection, schema, kinds):
            connection.execute(sa.text(f'DELETE FROM {schema}"{kind}"'))


def _present(connection: Any, schema: str, kinds: tuple[str, ...]) -> list[str]:
    import sqlalchemy as sa

    tables = sa.inspect(connection).get_table_names(schema=schema.rstrip(".") or None)
    return [kind for kind in kinds if kind in tables]


def _gap_rows(url: str, schema: str) -> list[Any]:
    import sqlalchemy as sa

    engine = sa.create_engine(url, poolclass=sa.NullPool)
    with engine.connect() as connection:
        return [
            tuple(row)
            for row in connection.execute(sa.text(f"SELECT first, next FROM {schema}penstock_gaps"))
        ]


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
            keys = self._keys(client)
            values = client.mget(keys) if keys else []
            return {
                tuple(key.decode().split(":", 1)): _parsed(value)  # type: ignore[misc]  # two parts
                for key, value in zip(keys, values, strict=True)
            }

    def emptied(self, name: str) -> None:
        """See `TargetServer.emptied`."""
        import redis

        with redis.Redis.from_url(self.address(name).removeprefix("redis=")) as client:
            client.delete(*self._keys(client))

    def _keys(self, client: Any) -> list[bytes]:
        return [key for key in client.scan_iter(count=1000) if not key.startswith(b"penstock:place:")]


class KafkaTarget(TargetServer):
    """Topics whose names begin alike; a broker tells clients to come through its proxy."""

    kind = "kafka"

    def __init__(self, folder: Path) -> None:
        proxy = FaultyProxy()
        broker = KafkaBroker(folder / "kafka", advertised=proxy.port)
        proxy.target = broker.port
        super().__init__(broker)
        self.proxy = proxy.__enter__()
        self._streams: dict[str, list[list[Place]]] = {}
        self._gaps: dict[str, set[str]] = {}
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
        topics = [f"{name}.{kind}" for kind in self.kinds]
        places = [
            (one, at) for one in topics for at in reader.list_topics(one, timeout=30).topics[one].partitions
        ]
        reader.assign([confluent_kafka.TopicPartition(one, at, 0) for one, at in places])
        states: dict[tuple[str, int], State] = {place: {} for place in places}
        gaps = self._gaps[name] = set()
        streams: dict[tuple[str, int], list[Place]] = {place: [] for place in places}
        tombstones: list[Any] = []
        ended = 0
        while ended < len(places):
            record = reader.poll(30)
            assert record is not None
            if record.error() is not None:
                ended += 1
                continue
            place = record.topic(), record.partition()
            state, headers = states[place], dict(record.headers())
            kind, key = json.loads(record.key())
            version, index = map(int, headers["penstock-position"].split(b":"))
            if "penstock-gap" in headers:
                gaps.add(headers["penstock-gap"].decode())
            if record.value() is None:
                tombstones.append((version, index))
            else:
                streams[place].append((version, index))
            if key is None:
                state.clear()
            elif record.value() is None or headers["penstock-operation"] == b"REMOVE":
                state.pop((kind, key), None)
            else:
                state[kind, key] = json.loads(record.value())["body"]
        reader.close()
        assert not self.once or len(tombstones) == len(set(tombstones))
        self._streams[name] = list(streams.values())
        return {one: body for state in states.values() for one, body in state.items()}

    def emptied(self, name: str) -> None:
        """See `TargetServer.emptied`."""
        from confluent_kafka.admin import AdminClient

        assert isinstance(self.program, KafkaBroker)
        admin = AdminClient({"bootstrap.servers": self.program.servers, "log_level": 0})
        topics = {f"{name}.{kind}" for kind in self.kinds}
        for future in admin.delete_topics(list(topics), operation_timeout=30).values():
            future.result(30)
        wait_until(lambda: not topics & admin.list_topics(timeout=30).topics.keys())

    def gaps(self, name: str) -> list[Any]:
        """See `TargetServer.gaps`."""
        self.held(name)
        return [tuple(one.split()) for one in self._gaps[name]]

    def streams(self, name: str) -> list[list[Place]]:
        """See `TargetServer.streams`: those that `held` has read."""
        return self._streams[name]


class ExactlyOnceKafkaTarget(KafkaTarget):
    """The same, whose committed records are there once."""

    kind = "kafka_once"
    once = True


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
        for kind in self.kinds:
            index = f"{name}-{kind}"
            if client.indices.exists(index=index):
                client.indices.refresh(index=index)
                hits = opensearchpy.helpers.scan(client, index=index, size=1000)
                state |= {(kind, one["_id"]): one["_source"] for one in hits}
        client.close()
        return state

    def emptied(self, name: str) -> None:
        """See `TargetServer.emptied`."""
        import opensearchpy

        with contextlib.closing(opensearchpy.OpenSearch(self.program.url)) as client:
            client.indices.delete(index=[f"{name}-{kind}" for kind in self.kinds], ignore_unavailable=True)

    def gaps(self, name: str) -> list[Any]:
        """See `TargetServer.gaps`."""
        import opensearchpy

        client = opensearchpy.OpenSearch(self.program.url)
        client.indices.refresh(index=f"{name}-penstock-gaps")
        hits = list(opensearchpy.helpers.scan(client, index=f"{name}-penstock-gaps"))
        client.close()
        return [(one["_source"]["first"], one["_source"]["next"]) for one in hits]


class FilesTarget(TargetServer):
    """A directory."""

    once = True

    def __init__(self, folder: Path) -> None:
        super().__init__(None)
        self._folder = folder

    def address(self, name: str, port: int | None = None) -> str:
        """See `TargetServer.address`."""
        return f"files={self._folder / name}"

    def held(self, name: str) -> State:
        """See `TargetServer.held`."""
        return _folded(self._changes(name))

    def streams(self, name: str) -> list[list[Place]]:
        """See `TargetServer.streams`."""
        return [_places(self._changes(name))]

    def emptied(self, name: str) -> None:
        """See `TargetServer.emptied`."""
        for path in (self._folder / name).glob("changes-*"):
            path.unlink()

    def gaps(self, name: str) -> list[Any]:
        """See `TargetServer.gaps`."""
        return [(one["gap"]["first"], one["gap"]["next"]) for one in self._lines(name) if "gap" in one]

    def _changes(self, name: str) -> list[Any]:
        return [one for one in self._lines(name) if "gap" not in one]

    def _lines(self, name: str) -> list[Any]:
        """The lines that count: of the last file those up to what the sidecar tells."""
        found: list[Any] = []
        told = json.loads((self._folder / name / "changes.place").read_bytes())
        for path in sorted((self._folder / name).glob("changes-*")):
            data = path.read_bytes()
            counts = data[: told["nbytes"]] if path.suffix == ".tmp" else data
            found += map(json.loads, counts.splitlines())
        return found


class HookTarget(TargetServer):
    """A receiver that keeps what it is sent in a file a name, synced."""

    def __init__(self, folder: Path) -> None:
        super().__init__(HookReceiver(folder / "hook").start())

    def address(self, name: str, port: int | None = None) -> str:
        """See `TargetServer.address`."""
        return f"hook=http://127.0.0.1:{port or self.port}/{name}"

    def held(self, name: str) -> State:
        """See `TargetServer.held`."""
        return _folded(self._changes(name))

    def streams(self, name: str) -> list[list[Place]]:
        """See `TargetServer.streams`: a change has the same id whenever it comes, and no other one has."""
        changes = self._changes(name)
        ids = {(one["version"], one["index"]): one["id"] for one in changes}
        assert all(ids[one["version"], one["index"]] == one["id"] for one in changes)
        assert len(set(ids.values())) == len(ids)
        return [_places(changes)]

    def emptied(self, name: str) -> None:
        """See `TargetServer.emptied`."""
        assert self.program is not None
        (self.program.folder / f"{name}.jsonl").unlink()

    def gaps(self, name: str) -> list[Any]:
        """See `TargetServer.gaps`."""
        told = [one["gap"] for one in self._batches(name) if "gap" in one]
        return list({(one["first"], one["next"]) for one in told})

    def _changes(self, name: str) -> list[Any]:
        return [change for batch in self._batches(name) for change in batch["changes"]]

    def _batches(self, name: str) -> list[Any]:
        assert self.program is not None
        lines = (self.program.folder / f"{name}.jsonl").read_bytes().splitlines(keepends=True)
        whole = [one for one in lines if one.endswith(b"\n")]  # the last one may have been cut by a kill
        return [json.loads(line) for line in whole]


def _places(changes: list[Any]) -> list[Place]:
    return [(one["version"], one["index"]) for one in changes if one["area"] == "DATA"]


def _folded(changes: list[Any]) -> State:
    """The newest body of each entity, where what comes again is left out; what has several keys may come in any order."""
    state: State = {}
    reached: dict[tuple[Any, Any], Place] = {}  # of each entity, and without a key of all of a type
    for one in changes:
        kind, key, place = one.get("entity_type"), one.get("key"), (one["version"], one["index"])
        if one["area"] != "DATA" or place <= max(reached.get((kind, at), (0, 0)) for at in (key, None)):
            continue
        reached[kind, key] = place
        if one["operation"] == "TRUNCATE":
            state = {at: body for at, body in state.items() if at[0] != kind}
        elif one["operation"] == "REMOVE":
            state.pop((kind, key), None)
        else:
            state[kind, key] = one["body"]
    return state


TARGETS = {
    "files": FilesTarget,
    "webhook": HookTarget,
    "search": SearchTarget,
    "kafka": KafkaTarget,
    "kafka exactly once": ExactlyOnceKafkaTarget,
    "sqlite": SqliteTarget,
    "postgresql": PostgresTarget,
    "redis": RedisTarget,
}
