"""The alternatives to a log: SQLite, LMDB and Redis Streams, each configured at its best.

All store entity type, key and body of each change, in order, one transaction at a time. Each comes in two durability classes:
``SYNCED`` (a transaction is on the disk when the call returns) and ``LEFT`` (it is with the operating system).
"""

import contextlib
import importlib
import os
import shutil
import sqlite3
import struct
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from benchmarks.harness import Table
from publishers import Mutation

lmdb: Any = None
redis: Any = None
with contextlib.suppress(ImportError):
    lmdb = importlib.import_module("lmdb")
with contextlib.suppress(ImportError):
    redis = importlib.import_module("redis")

SYNCED = "synced before the call returns"
LEFT = "left to the operating system"
_PLACE = struct.Struct(">QI")


class Peer(Protocol):
    """A store for changes."""

    name: str

    def write(self, rows: Sequence[Mutation], caller: int = 0) -> None:
        """Writes a transaction; callers with different numbers may write concurrently."""

    def read(self) -> int:
        """Reads all changes in order, from the beginning; returns their number."""

    def count(self) -> int:
        """The number of stored changes."""

    def close(self) -> None:
        """Closes connections and servers."""


class Sqlite:
    """A table in WAL mode. One connection, and a lock around it: connections that wait for each other would sleep."""

    def __init__(self, place: Path, *, synced: bool) -> None:
        mode = "FULL" if synced else "OFF"
        self.name = f"SQLite WAL, synchronous={mode}"
        self._lock = threading.Lock()
        self._version = 0
        self._database = sqlite3.connect(place / "rows.db", isolation_level=None, check_same_thread=False)
        self._database.executescript(
            f"PRAGMA journal_mode=WAL; PRAGMA synchronous={mode};"
            "CREATE TABLE changes (version INTEGER, idx INTEGER, type TEXT, key BLOB, body BLOB,"
            " PRIMARY KEY (version, idx)) WITHOUT ROWID;"
        )

    def write(self, rows: Sequence[Mutation], caller: int = 0) -> None:
        with self._lock:
            self._version += 1
            self._database.execute("BEGIN")
            self._database.executemany(
                "INSERT INTO changes VALUES (?, ?, ?, ?, ?)",
                [(self._version, n, row.entity_type, row.key, row.body) for n, row in enumerate(rows)],
            )
            self._database.execute("COMMIT")

    def read(self) -> int:
        found = 0
        rows = self._database.execute(
            "SELECT version, idx, type, key, body FROM changes ORDER BY version, idx"
        )
        for _version, _index, _type, _key, _body in rows:
            found += 1
        return found

    def count(self) -> int:
        return int(self._database.execute("SELECT count(*) FROM changes").fetchone()[0])

    def close(self) -> None:
        self._database.close()


class Lmdb:
    """A database keyed by version and index, so that new keys are appended at the end of its tree."""

    def __init__(self, place: Path, *, synced: bool) -> None:
        self.name = "LMDB" if synced else "LMDB, nosync"
        self._lock = threading.Lock()
        self._version = 0
        self._files = lmdb.open(str(place / "lmdb"), map_size=4 << 30, sync=synced, metasync=synced)

    def write(self, rows: Sequence[Mutation], caller: int = 0) -> None:
        with self._lock, self._files.begin(write=True) as transaction:
            self._version += 1
            put, pack, version = transaction.put, _PLACE.pack, self._version
            for n, row in enumerate(rows):
                kind = row.entity_type.encode()
                value = b"%c%c%b%b%b" % (len(kind), len(row.key), kind, row.key, row.body or b"")
                put(pack(version, n), value, append=True)

    def read(self) -> int:
        found = 0
        with self._files.begin() as transaction:
            for place, value in transaction.cursor():
                _PLACE.unpack(place)
                kind = 2 + value[0]
                _type, _key, _body = value[2:kind], value[kind : kind + value[1]], value[kind + value[1] :]
                found += 1
        return found

    def count(self) -> int:
        return int(self._files.stat()["entries"])

    def close(self) -> None:
        self._files.close()


class RedisStream:
    """A stream of a server of its own, on a local socket; a transaction of several changes is a MULTI."""

    def __init__(self, place: Path, *, synced: bool, callers: int = 1, left: str = "no") -> None:
        mode = "always" if synced else left
        self.name = f"Redis Streams, appendfsync={mode}"
        directory = place / "redis"
        directory.mkdir()
        # The path of a socket may have 107 bytes; a directory of tests has more.
        self._short = tempfile.TemporaryDirectory(prefix="redis-")
        self.socket = path = str(Path(self._short.name, "redis.sock"))
        self._server = subprocess.Popen(
            [
                *(str(shutil.which("redis-server")), "--port", "0", "--unixsocket", path),
                *("--dir", str(directory), "--save", "", "--appendonly", "yes", "--appendfsync", mode),
                *("--auto-aof-rewrite-percentage", "0", "--daemonize", "no", "--loglevel", "warning"),
            ],
            stdout=subprocess.DEVNULL,
        )
        pause = threading.Event()
        for _ in range(1000):
            if os.path.exists(path) or self._server.poll() is not None:
                break
            pause.wait(0.01)
        self._clients: list[Any] = [
            redis.Redis(unix_socket_path=path, single_connection_client=True) for _ in range(callers)
        ]

    def write(self, rows: Sequence[Mutation], caller: int = 0) -> None:
        client = self._clients[caller]
        if len(rows) == 1:
            client.xadd("changes", {"type": rows[0].entity_type, "key": rows[0].key, "body": rows[0].body})
            return
        pipeline = client.pipeline(transaction=True)
        for row in rows:
            pipeline.xadd("changes", {"type": row.entity_type, "key": row.key, "body": row.body})
        pipeline.execute()

    def read(self) -> int:
        found, last = 0, b"0-0"
        while answer := self._clients[0].xread({"changes": last}, count=1000):
            entries = answer[0][1] if isinstance(answer, list) else next(iter(answer.values()))
            if entries and isinstance(entries[0], list):  # by the newer protocol, in one more list
                (entries,) = entries
            found += len(entries)
            last = entries[-1][0]
        return found

    def count(self) -> int:
        return int(self._clients[0].xlen("changes"))

    def share(self, group: str, most: int) -> int:
        """Reads and acknowledges all changes with a consumer of a new group, ``most`` at a time; returns their number."""
        client, done = self._clients[0], 0
        client.xgroup_create("changes", group, id="0")
        while answer := client.xreadgroup(group, "one", {"changes": ">"}, count=most):
            entries = answer[0][1] if isinstance(answer, list) else next(iter(answer.values()))
            if entries and isinstance(entries[0], list):
                (entries,) = entries
            done += client.xack("changes", group, *[entry[0] for entry in entries])
        client.xgroup_destroy("changes", group)
        return done

    def close(self) -> None:
        for client in self._clients:
            with contextlib.suppress(redis.ConnectionError):
                client.close()
        self._server.terminate()
        self._server.wait(30)
        self._short.cleanup()


def peers(place: Path, *, synced: bool, callers: int = 1) -> list[Peer]:
    """The peers that are installed on this machine."""
    found: list[Peer] = [Sqlite(place, synced=synced)]
    if lmdb is not None:
        found.append(Lmdb(place, synced=synced))
    if redis is not None and shutil.which("redis-server"):
        found.append(RedisStream(place, synced=synced, callers=callers))
    return found


def redis_stream(place: Path, *, synced: bool) -> RedisStream | None:
    """A stream that is synced at every change, or every second, if this machine has Redis."""
    if redis is None or not shutil.which("redis-server"):
        return None
    return RedisStream(place, synced=synced, left="everysec")


def missing() -> list[str]:
    """A sentence for each peer that is not installed on this machine."""
    found = []
    if lmdb is None:
        found.append("LMDB not measured: no package lmdb")
    if redis is None:
        found.append("Redis Streams not measured: no package redis")
    elif not shutil.which("redis-server"):
        found.append("Redis Streams not measured: no redis-server")
    return found


def tell_missing(table: Table) -> None:
    """Adds a note to a table for each missing peer."""
    for text in missing():
        table.note(text)
