"""Readers of a server's log: tasks run on any host, and each uses a subscription of its own with a start and an end."""

import asyncio
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any, Final

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxFiles,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

import flow
from publishers.criteria.criteria import Criterion
from publishers.model.change import Area, Change
from publishers.model.position import Position, PositionToken, Start
from publishers.mutations.arguments import meta_again
from publishers.spark.source_arrow import array_of, chosen_schema
from publishers.spark.source_entities import CHANGE_COLUMNS, TypedBatches
from publishers.spark.source_log import TokenPrefixes
from publishers.spark.source_options import ServerAddress, SourceOptions
from publishers.spark.task_garbage import spare_what_is_loaded
from publishers.views.view import Content

__all__ = ["ServerRange", "ServerReader", "ServerStreamReader", "newest_schema"]

_POSITION: Final = "position"
_ATTEMPTS: Final = 20  # consecutive attempts to connect before a task or planner fails and Spark retries it
_LONGEST_WAIT: Final = 5.0
_STEP: Final = 0.002  # seconds between a planner's checks for the server's answer
_WINDOW: Final = 1024  # changes in flight to a task
_ROWS: Final = 8192
_BYTES: Final = 4 * 1024 * 1024


@dataclass(frozen=True)
class ServerRange(InputPartition):
    """The range of the log that one task reads.

    Attributes:
        start: Token of the first position.
        until: The last version.
    """

    start: str
    until: int


class ServerReader(DataSourceReader):
    """Batch reader: reads a server's log up to its end at planning time."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        """Splits the log into ranges."""
        with _Planning.of(self._options) as log:
            begin, head = log.place(self._options.since or Start.EARLIEST)
            return log.ranges(begin, log.end(head).position)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Reads one range; if there are no ranges, Spark passes a placeholder, which has no rows."""
        if isinstance(partition, ServerRange):
            yield from _read(self._options, self._schema, partition)


class ServerStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Stream reader: follows a server's log. Offsets are tokens of positions between transactions.

    No connection is open between two micro-batches, so the server may restart meanwhile.
    """

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._target: PositionToken | None = None

    def initialOffset(self) -> dict[str, str]:  # noqa: N802 - Spark's name
        """Returns the start offset of a query without a checkpoint."""
        with _Planning.of(self._options) as log:
            return _offset(log.place(self._options.since or Start.LATEST)[0])

    def latestOffset(self, start: dict[str, str] | None = None, limit: Any = None) -> dict[str, str]:  # noqa: N802 - Spark's name
        """Returns the end offset of the next micro-batch; that of the log without a start."""
        with _Planning.of(self._options) as log:
            begin, head = log.place(Start.LATEST if start is None else start[_POSITION])
            end = log.end(head, self._target)
            if start is None:
                return _offset(end)
            if end.position <= begin.position:
                return start
            most = self._options.max_versions
            if most is not None and not isinstance(limit, ReadAllAvailable):
                bound = begin.position.version + most
                if bound < end.position.version:
                    end = log.place(bound)[0]
            return _offset(end)

    def getDefaultReadLimit(self) -> "ReadLimit":  # noqa: N802 - Spark's name
        """Returns a limit if the options set one, so that Spark asks for limited batches; `latestOffset` applies the options."""
        most = self._options.max_versions
        return ReadAllAvailable() if most is None else ReadMaxFiles(most)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Fixes the current end of the log as the end of the query."""
        self._target = self._end()

    def reportLatestOffset(self) -> dict[str, str]:  # noqa: N802 - Spark's name
        """Returns the end of the log, from which Spark reports how far behind the query is."""
        return _offset(self._end())

    def partitions(self, start: dict[str, str], end: dict[str, str]) -> Sequence[InputPartition]:
        """Splits a micro-batch into ranges."""
        with _Planning.of(self._options) as log:
            begin, _ = log.place(start[_POSITION])
            until, _ = log.place(end[_POSITION])
            return log.ranges(begin, until.position)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Reads one range of a micro-batch."""
        assert isinstance(partition, ServerRange)
        return _read(self._options, self._schema, partition)

    def _end(self) -> PositionToken:
        with _Planning.of(self._options) as log:
            return log.end(log.place(Start.LATEST)[1], self._target)


def newest_schema(options: SourceOptions) -> Any:
    """Returns the newest schema of the entity type in the options, parsed; None if the log has none."""
    with _connected(_address(options)) as remote:
        return _schema(remote, options)


def _schema(remote: Any, options: SourceOptions, version: int | None = None) -> Any:
    asked = remote.schema(options.entity, version, log=_address(options).log_name)
    found = asyncio.run_coroutine_threadsafe(asked, remote.loop).result()
    return None if found is None else found.body


class _Planning:
    """A planner's connection to the log of a server."""

    def __init__(self, options: SourceOptions, remote: Any) -> None:
        self._options = options
        self._remote = remote

    @classmethod
    @contextmanager
    def of(cls, options: SourceOptions) -> "Iterator[_Planning]":
        """Connects to the server, and disconnects on exit."""
        with _connected(_address(options)) as remote:
            yield cls(options, remote)

    def place(self, since: str | int) -> tuple[PositionToken, PositionToken]:
        """Returns the token that the server resolves a start position to, and the token of the end of the log.

        Raises:
            RemoteError: If the position cannot be read from; the code is ``HISTORY_PRUNED`` if retention has deleted it.
            ConnectionLost: If the server does not answer.
        """
        if isinstance(since, str) and since.isascii() and since.isdigit():
            since = int(since)
        asked = _Confirmation()
        name = _address(self._options).log_name
        self._remote.changes(Criterion(areas={Area.INFRASTRUCTURE}), since=since, log=name).subscribe(asked)
        while not asked.ended.wait(_STEP):
            found = asked.subscription
            if found is not None and found.head is not None:
                cursor, head = found.cursor, found.head
                found.cancel()
                return PositionToken.parse(cursor), PositionToken.parse(head)
        assert asked.error is not None  # a subscription without an end never completes
        raise asked.error

    def end(self, head: PositionToken, target: PositionToken | None = None) -> PositionToken:
        """Returns the end to read to: the earliest of ``until``, the query's fixed end (``target``), and the head."""
        end = head if target is None or head.position < target.position else target
        until = self._options.until
        return end if until is None or until + 1 >= end.position.version else self.place(until + 1)[0]

    def ranges(self, begin: PositionToken, end: Position) -> list[ServerRange]:
        """Splits the log between two positions into at most ``partitions`` ranges, each with about as many versions."""
        versions = range(begin.position.version, end.version)
        step = max(1, -(-len(versions) // _address(self._options).partitions))
        return [
            ServerRange(
                str(begin if first == versions[0] else self.place(first)[0]),
                min(first + step, end.version) - 1,
            )
            for first in versions[::step]
        ]


class _Confirmation:
    """A subscriber that waits only for the server's confirmation and requests no changes."""

    def __init__(self) -> None:
        self.ended = threading.Event()
        self.error: Exception | None = None
        self.subscription: Any = None

    def on_subscribe(self, subscription: flow.Subscription) -> None:
        self.subscription = subscription

    def on_next(self, _change: Change) -> None: ...

    def on_error(self, error: Exception) -> None:
        self.error = error
        self.ended.set()

    def on_complete(self) -> None: ...


def _address(options: SourceOptions) -> ServerAddress:
    assert options.server is not None  # the source uses these readers only with a server
    return options.server


@contextmanager
def _connected(address: ServerAddress) -> Iterator[Any]:
    """Connects a ``RemoteLog`` on an event loop in a thread of its own, since the calling thread blocks in Spark."""
    # Imported dynamically: publishers must not depend on transports, and only programs that use a server need the client.
    transports = import_module("transports")
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="penstock-source", daemon=True)
    thread.start()
    try:
        patience = transports.Backoff(attempts=_ATTEMPTS, limit=_LONGEST_WAIT)
        opening = asyncio.run_coroutine_threadsafe(_opened(transports, address, patience), loop)
        remote = opening.result()
        try:
            yield remote
        finally:
            asyncio.run_coroutine_threadsafe(remote.__aexit__(None, None, None), loop).result()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _opened(transports: Any, address: ServerAddress, patience: Any) -> Any:
    """Connects; a server that is away is tried again, as one whose connection is lost later, because it may be restarting."""
    attempt = 0
    while True:
        remote = transports.connect(address.url, token=address.token, reconnect=patience)
        try:
            return await remote.__aenter__()
        except transports.ConnectionLost as error:
            wait = patience.delay(attempt) if error.retryable else None
            if wait is None:
                raise
        await asyncio.sleep(wait)
        attempt += 1


def _offset(token: PositionToken) -> dict[str, str]:
    return {_POSITION: str(token)}


def _read(options: SourceOptions, schema: StructType, found: ServerRange) -> Iterator[pa.RecordBatch]:
    """Yields the record batches of a range, in the process of a task."""
    spare_what_is_loaded()
    whole = options.entity is not None
    rows = _Rows(chosen_schema(CHANGE_COLUMNS) if whole else schema, options.content, found.start)
    with _connected(_address(options)) as remote:
        told = partial(_schema, remote, options)
        entities = TypedBatches(schema, TokenPrefixes(), told) if whole else None
        feed = remote.changes(
            options.criteria,
            since=found.start,
            until=found.until,
            content=options.content,
            log=_address(options).log_name,
            window=_WINDOW,
        )
        with flow.iter_blocking(feed, prefetch=_WINDOW) as changes:
            for batch in rows.of(changes, whole=whole):
                yield batch if entities is None else entities.typed(batch)


class _Rows:
    """Converts changes from a server to record batches."""

    def __init__(self, schema: StructType, content: Content, start: str) -> None:
        self._names = schema.names
        self._schema: pa.Schema = to_arrow_schema(chosen_schema(schema.names), timezone="UTC")
        self._images = content is Content.BODY
        self._prefix = start.rsplit(":", 2)[0]

    def of(self, changes: Iterator[Any], *, whole: bool) -> Iterator[pa.RecordBatch]:
        """Yields the record batches; ``whole`` skips field-level changes, which accompany a change of the whole entity."""
        found: list[list[Any]] = []
        weight = 0
        for change in changes:
            if not (whole and change.field is not None):
                found.append([self._value(change, name) for name in self._names])
                weight += len(change.body_bytes or b"") + len(change.before_bytes or b"")
            self._prefix = change.cursor.rsplit(":", 2)[0]
            if len(found) >= _ROWS or weight >= _BYTES:
                yield self._batch(found)
                found, weight = [], 0
        if found:
            yield self._batch(found)

    def _batch(self, found: list[list[Any]]) -> pa.RecordBatch:
        columns = zip(*found, strict=True)
        arrays = [array_of(list(values), field) for values, field in zip(columns, self._schema, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _value(self, change: Any, name: str) -> Any:
        match name:
            case "area" | "operation":
                return getattr(change, name).name
            case "key":
                return None if change.key is None else change.key.encode("utf-8", "surrogateescape")
            case "body" | "before":
                return getattr(change, f"{name}_bytes") if self._images else None
            case "changed":
                return None if change.changed is None else msgspec.json.encode(change.changed)
            case "attached":
                return _attached(change)
            case "position":
                # A token names the epoch of the change before it, so index 0 needs the epoch of the previous version.
                prefix = change.cursor.rsplit(":", 2)[0] if change.index else self._prefix
                return f"{prefix}:{change.version}:{change.index}"
            case _:
                return getattr(change, name)


def _attached(change: Change) -> bytes | None:
    """Returns the remaining properties of a change as JSON, in the form in which the log stores them."""
    if not change.index:
        # The transaction id is only in the body, which a server omits with HEADER.
        named = {} if change.body is None else {"id": change.body["id"]}
        noted = {} if change.meta_bytes is None else {"meta": msgspec.Raw(change.meta_bytes)}
        return msgspec.json.encode(named | noted) if named or noted else None
    # That of an entity is by default its version, which the log does not store.
    return meta_again(change, change.origin, implied=change.area is not Area.DATA)
