"""The log of a server as the target of a sink, from the driver of any cluster and from the workers of Spark Connect."""

import asyncio
import threading
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from hashlib import blake2b
from importlib import import_module
from itertools import repeat
from time import monotonic
from typing import Any, Final, Self
from uuid import NAMESPACE_URL, UUID, uuid5

import flow
from publishers.commits.pending import Commit
from publishers.criteria.criteria import Criterion
from publishers.errors import AdmissionStopped, InvalidOption, LogReadOnly, PenstockError
from publishers.log.changelog import ChangeLog
from publishers.model.change import Area, Operation
from publishers.mutations.mutation import Mutation, expire, remove, truncate, upsert
from publishers.options import LogOptions
from publishers.spark.errors import BatchChanged, CheckpointLost
from publishers.views.view import Content
from publishers.wal.format.columns import Columns

__all__ = ["ServerLog", "target_of"]

_RIGHT: Final = (
    "a ChangeLog that is open for writing in this process, or the address of a server: 'ws://host:8090/ws'"
)
_FIRST_DELAY: Final = 0.1
_LAST_DELAY: Final = 2.0
_LOST_MOST: Final = 8  # connections
_MASK: Final = 2**64 - 1
_PRUNED: Final = "HISTORY_PRUNED"
_CONFLICT: Final = "PRODUCER_CONFLICT"


class ServerLog:
    """Commits batches through a server; each batch uses a connection of its own and is retried until the server answers.

    A retry has the same producer and number, so a batch whose answer was lost is written only once. A batch that exceeds one
    message is sent in parts; memory holds the whole batch.

    Args:
        url: Address of the server, as for ``transports.connect``.
        token: Access token for the server, or None.
        name: Name of the log; None if the server has only one.

    Raises:
        InvalidOption: If ``url`` is not a WebSocket address.
        ExtraMissing: If the client is not installed (``pip install 'penstock-cdc[server]'``).
    """

    def __init__(self, url: str, token: str | None, name: str | None) -> None:
        if not url.startswith(("ws://", "wss://")):
            raise InvalidOption("log", url, _RIGHT)
        # Imported dynamically: publishers must not depend on transports, and only programs that use a server need the client.
        self._connect = import_module("transports").connect
        self.url = url
        self.options: LogOptions = LogOptions()
        self.log_id: UUID = uuid5(NAMESPACE_URL, url)
        self._token = token
        self._name = name
        self._waiting = threading.local()

    def produced(self, _producer: object) -> None:
        """Returns None: the server's answer to a batch says whether it has the batch already."""

    @property
    def serving(self) -> Self:
        """Itself, which has ``admit`` as the port of a log has."""
        return self

    def admit(self, stopped: threading.Event, stall_timeout: float) -> None:
        """Sets the stop event and the timeout in seconds for this thread's waits for the server."""
        self._waiting.stopped, self._waiting.seconds = stopped, stall_timeout

    def commit_columns(
        self,
        columns: Iterable[Columns],
        *,
        meta: Mapping[str, Any],
        producer: tuple[str | UUID, int],
        durable: bool,
        trust: bool,
    ) -> "Commit":
        """Commits a batch as one transaction; if the server already has its number, compares the contents.

        Raises:
            CheckpointLost: If the server has a later batch of the producer.
            BatchChanged: If the server has other rows under the number.
            TransactionTooLarge: If the batch exceeds the server's limit, or one row exceeds the limit of a message.
            AdmissionStopped: If the query is stopped while the server does not answer.
            RemoteError, ConnectionLost: If the server refuses the batch, or does not answer in time.
        """
        assert durable  # the client commits durably by default
        mutations = [mutation for part in columns for mutation in _mutations(part)]
        name, number = str(producer[0]), producer[1]
        content = _content(mutations)
        meta_with_content = {**meta, "spark": {**meta["spark"], "content": content}}
        stopped, patience = self._waiting.stopped, _Patience(self._waiting.seconds)
        while True:
            try:
                # asyncio.run needs a thread without a running event loop, and this thread may have one.
                with ThreadPoolExecutor(1) as thread:
                    return thread.submit(
                        asyncio.run, self._send(mutations, meta_with_content, name, number, content, patience)
                    ).result()
            except PenstockError as error:
                if not getattr(error, "retryable", False) or not patience.lasts():
                    raise
            if stopped.wait(patience.delay):
                raise AdmissionStopped

    async def _send(
        self,
        mutations: list[Mutation],
        meta: Mapping[str, Any],
        producer: str,
        number: int,
        content: str,
        patience: "_Patience",
    ) -> "Commit":
        async with self._connect(self.url, token=self._token) as remote:
            with patience.connected():
                # On a thread, since encoding a large batch would keep the loop from answering the server's pings.
                try:
                    commit: Commit = await asyncio.to_thread(
                        remote.commit, mutations, meta=meta, producer=(producer, number), log=self._name
                    )
                except PenstockError as error:
                    if getattr(error, "code", None) != _CONFLICT:
                        raise
                    # Perhaps the same rows in another order, which is for the checksum to say.
                    commit = Commit(error.data["version"], duplicate=True, changes=0, committed_at=0)  # type: ignore[attr-defined]  # of a RemoteError
            if commit.duplicate:
                if not commit.version:
                    raise CheckpointLost(producer, number, None)
                if await self._stored(remote, commit.version) not in (content, None):
                    raise BatchChanged(producer, number, commit.version)
            return commit

    async def _stored(self, remote: Any, version: int) -> str | None:
        """Returns the checksum in the annotations of a version; None if retention has deleted the version."""
        criterion = Criterion(areas={Area.INFRASTRUCTURE})
        feed = remote.changes(criterion, since=version, until=version, content=Content.BODY, log=self._name)
        try:
            async with flow.aiter(feed, prefetch=1) as changes:
                async for change in changes:
                    found = (change.meta or {}).get("spark", {}).get("content")
                    return str(found)
        except PenstockError as error:
            if getattr(error, "code", None) != _PRUNED:
                raise
        return None


class _Patience:
    """The retry budget of one batch: how long the server may be unreachable or refuse.

    A large batch takes long to send, so each lost connection restarts the time. The number of lost connections is bounded,
    because the batch itself may be what breaks the connection each time.

    Args:
        seconds: Time for retries, from the start or from the last lost connection.
    """

    def __init__(self, seconds: float) -> None:
        self.delay = 0.0
        self._seconds = seconds
        self._ends = monotonic() + seconds
        self._lost = 0

    def lasts(self) -> bool:
        """Doubles ``delay`` up to its limit, and returns whether the budget allows a retry after it."""
        self.delay = min(2 * self.delay or _FIRST_DELAY, _LAST_DELAY)
        return self._lost < _LOST_MOST and monotonic() + self.delay <= self._ends

    @contextmanager
    def connected(self) -> Iterator[None]:
        """Wraps the use of a connection; if the connection is lost, restarts the time and counts the loss."""
        try:
            yield
        except PenstockError as error:
            if getattr(error, "code", None) is None:  # no error code: the server did not answer
                self._lost += 1
                self.delay, self._ends = 0.0, monotonic() + self._seconds
            raise


def target_of(
    log: ChangeLog | str, token: str | None, name: str | None, *, tell_schema: bool, on_bad_row: str
) -> ChangeLog | ServerLog:
    """Returns the target of a sink: the log itself, or a `ServerLog` for an address.

    Raises:
        InvalidOption: If ``log`` is neither a log nor an address, or does not support another option.
        LogReadOnly: If the log was opened read-only.
    """
    if isinstance(log, str):
        if tell_schema:
            raise InvalidOption("tell_schema", True, "False, as no schemas are told to the log of a server")
        if on_bad_row == "dead_letter":
            raise InvalidOption("on_bad_row", on_bad_row, "'fail' or 'skip', as there is no other log beside that of a server")  # fmt: skip
        return ServerLog(log, token, name)
    if not isinstance(log, ChangeLog):
        raise InvalidOption("log", log, _RIGHT)
    for option, value in (("token", token), ("log_name", name)):
        if value is not None:
            raise InvalidOption(option, value, "left out, as the log is open in this process")
    if log.read_only:
        raise LogReadOnly(log.path)
    return log


def _mutations(part: Columns) -> Iterable[Mutation]:
    types = repeat(0, part.count) if part.type_ids is None else part.type_ids.tolist()
    bodies = repeat(None, part.count) if part.body is None else part.body
    before = repeat(None, part.count) if part.before is None else part.before
    for kind, number, key, body, old in zip(
        part.kinds.tobytes(), types, part.key, bodies, before, strict=False
    ):
        name, key_text = part.entity_types[number], (key or b"").decode("utf-8", "surrogateescape")
        match kind % 16:
            case Operation.UPSERT:
                assert body is not None  # the JSON of a struct is never null
                yield upsert(name, key_text, body, before=old)
            case Operation.REMOVE:
                yield remove(name, key_text, before=old)
            case Operation.EXPIRE:
                yield expire(name, key_text, before=old)
            case _:
                yield truncate(name)


def _content(mutations: Iterable[Mutation]) -> str:
    """Returns count and checksum of changes, independent of their order, as text."""
    count = total = 0
    for one in mutations:
        count += 1
        row = blake2b(
            repr((one.operation, one.entity_type, one.key, one.body, one.before)).encode(), digest_size=8
        )
        total += int.from_bytes(row.digest())
    return f"{count}:{total & _MASK:016x}"
