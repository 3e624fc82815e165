"""The log of a server, as a sink writes to it: from the driver of any cluster, and from the workers of Spark Connect."""

import asyncio
import threading
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from hashlib import blake2b
from importlib import import_module
from itertools import repeat
from time import monotonic
from typing import TYPE_CHECKING, Any, Final
from uuid import NAMESPACE_URL, UUID, uuid5

import flow
from publishers.criteria.criteria import Criterion
from publishers.errors import AdmissionStopped, InvalidOption, LogReadOnly, PenstockError
from publishers.log.changelog import ChangeLog
from publishers.model.change import Area, Operation
from publishers.mutations.mutation import Mutation, expire, remove, truncate, upsert
from publishers.options import LogOptions
from publishers.spark.errors import BatchChanged, CheckpointLost
from publishers.views.view import Content
from publishers.wal.format.columns import Columns

if TYPE_CHECKING:
    from publishers.commits.group_commit import Commit

__all__ = ["ServerLog", "target_of"]

_RIGHT: Final = (
    "a ChangeLog that is open for writing in this process, or the address of a server: 'ws://host:8090/ws'"
)
_FIRST_DELAY: Final = 0.1
_LAST_DELAY: Final = 2.0
_LOST_MOST: Final = 8  # connections
_MASK: Final = 2**64 - 1
_PRUNED: Final = "HISTORY_PRUNED"


class ServerLog:
    """Commits batches through a server, each on a connection of its own, and again until they are answered.

    What a server may have written, and has not answered, is sent again under its producer and number, and written once. A batch
    that does not fit in one message is sent in parts; it is held in memory as a whole.

    Args:
        url: Of the server, as ``transports.connect`` takes it.
        token: Shown to the server, or None.
        name: Of the log; None if the server has one.

    Raises:
        InvalidOption: If the address is none.
        ExtraMissing: If there is no client (``pip install 'penstock-cdc[server]'``).
    """

    def __init__(self, url: str, token: str | None, name: str | None) -> None:
        if not url.startswith(("ws://", "wss://")):
            raise InvalidOption("log", url, _RIGHT)
        # The layers of this project are for imports by name: a client is found where one is wanted, and in no other program.
        self._connect = import_module("transports").connect
        self.url = url
        self.options = LogOptions()
        self.log_id: UUID = uuid5(NAMESPACE_URL, url)
        self._token = token
        self._name = name
        self._waiting = threading.local()

    def produced(self, _producer: object) -> None:
        """Nothing: what the server has already is told by its answer to the batch."""

    def admit(self, stopped: threading.Event, stall_timeout: float) -> None:
        """Notes until when, and for how long, this thread may wait for the server."""
        self._waiting.stopped, self._waiting.seconds = stopped, stall_timeout

    def commit_columns(
        self,
        columns: Iterable[Columns],
        *,
        meta: Mapping[str, Any],
        producer: tuple[str | UUID, int],
        durable: bool,
    ) -> "Commit":
        """Commits a batch as one transaction, and compares it with what the server has already under its number.

        Raises:
            CheckpointLost, BatchChanged: If that is something else, or too old to be found.
            TransactionTooLarge: If it is larger than the server takes, or one row is larger than a message may be.
            AdmissionStopped: If the query is being stopped while the server does not answer.
            RemoteError, ConnectionLost: If the server refuses it, or does not answer in time.
        """
        assert durable  # which is what the client asks for, unless told otherwise
        mutations = [mutation for part in columns for mutation in _mutations(part)]
        name, number = str(producer[0]), producer[1]
        content = _content(mutations)
        told = {**meta, "spark": {**meta["spark"], "content": content}}
        stopped, patience = self._waiting.stopped, _Patience(self._waiting.seconds)
        while True:
            try:
                # On a thread of its own, as this one may have a loop already.
                with ThreadPoolExecutor(1) as thread:
                    return thread.submit(
                        asyncio.run, self._send(mutations, told, name, number, content, patience)
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
                # From a thread, as encoding a large batch would keep the loop from answering the server's pings.
                commit: Commit = await asyncio.to_thread(
                    remote.commit, mutations, meta=meta, producer=(producer, number), log=self._name
                )
            if commit.duplicate:
                if not commit.version:
                    raise CheckpointLost(producer, number, None)
                if await self._stored(remote, commit.version) not in (content, None):
                    raise BatchChanged(producer, number, commit.version)
            return commit

    async def _stored(self, remote: Any, version: int) -> str | None:
        """What the annotations of a version say of its content; None if they are no longer kept."""
        wish = Criterion(areas={Area.INFRASTRUCTURE})
        feed = remote.changes(wish, since=version, until=version, content=Content.BODY, log=self._name)
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
    """How long a server may refuse a batch, or be out of reach.

    A large batch takes its time, so a connection that was lost gives all of it again; but not for ever, as the batch may be
    too much for a server that is lost with it each time.

    Args:
        seconds: So long.
    """

    def __init__(self, seconds: float) -> None:
        self.delay = 0.0
        self._seconds = seconds
        self._ends = monotonic() + seconds
        self._lost = 0

    def lasts(self) -> bool:
        """Whether to try again, after ``delay``, which grows."""
        self.delay = min(2 * self.delay or _FIRST_DELAY, _LAST_DELAY)
        return self._lost < _LOST_MOST and monotonic() + self.delay <= self._ends

    @contextmanager
    def connected(self) -> Iterator[None]:
        """While there is a connection."""
        try:
            yield
        except PenstockError as error:
            if getattr(error, "code", None) is None:  # the server has said nothing
                self._lost += 1
                self.delay, self._ends = 0.0, monotonic() + self._seconds
            raise


def target_of(
    log: ChangeLog | str, token: str | None, name: str | None, *, tell_schema: bool, on_bad_row: str
) -> ChangeLog | ServerLog:
    """Where a sink writes to.

    Raises:
        InvalidOption: If it is no such place, or cannot do what was asked for.
        LogReadOnly: If the log was opened to be followed.
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
        name, told = part.entity_types[number], (key or b"").decode("utf-8", "surrogateescape")
        match kind % 16:
            case Operation.UPSERT:
                assert body is not None  # the JSON of a struct is never null
                yield upsert(name, told, body, before=old)
            case Operation.REMOVE:
                yield remove(name, told, before=old)
            case Operation.EXPIRE:
                yield expire(name, told, before=old)
            case _:
                yield truncate(name)


def _content(mutations: Iterable[Mutation]) -> str:
    """Number and checksum of changes, in whatever order they come."""
    count = total = 0
    for one in mutations:
        count += 1
        row = blake2b(
            repr((one.operation, one.entity_type, one.key, one.body, one.before)).encode(), digest_size=8
        )
        total += int.from_bytes(row.digest())
    return f"{count}:{total & _MASK:016x}"
