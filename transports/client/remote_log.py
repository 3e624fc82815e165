"""The Python client: a remote log, whose feeds are publishers."""

import asyncio
import enum
import ssl as ssl_module
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Literal, Self, TypedDict, TypeVar, Unpack, overload

from flow.executors import running_loop
from flow.misuse import names_arguments
from publishers.commits.builder import TransactionBuilder
from publishers.commits.commit_threads import CommitThreads
from publishers.commits.expectation import Expect, expected
from publishers.commits.label import check_mutations
from publishers.commits.submission import Wait
from publishers.criteria.criteria import Criteria, Criterion
from publishers.errors import InvalidOption, InvalidTransactionState
from publishers.fanout.gap import OnGap
from publishers.log.feed import ModelFeed
from publishers.log.start import Since
from publishers.mutations.rows import Mutation
from publishers.schemas.registry import SchemaVersion
from publishers.snapshots import SnapshotMode
from publishers.views.entities import M, Models
from publishers.views.masking import Rule
from publishers.views.view import Content, Images, Integers, View
from transports.client.backoff import Backoff
from transports.client.link import RemoteLink
from transports.client.reconnect import OnWait, Token
from transports.client.remote_feed import RemoteFeed
from transports.client.remote_groups import RemoteGroups, RemoteMember
from transports.client.remote_slots import RemoteSlot, RemoteSlots
from transports.client.urls import check_websocket_url
from transports.codec.appends import expect_json
from transports.codec.changes import changes_json
from transports.codec.messages import milliseconds, view_json
from transports.codec.replies import RemoteCommit, RemoteModelChange
from transports.codec.starts import start_json
from transports.limits import CREDITS_MAX
from transports.operations.operation import LogOperation
from transports.operations.schemas import SchemaLookup

__all__ = ["RemoteLog", "connect"]

_A = TypeVar("_A")


class _Place(enum.Enum):
    LOOP = "would be committed on the thread of its event loop, which would wait for itself"


class RemoteReading(TypedDict, total=False):
    """Start, end and form of the changes to read; see ``RemoteLog.changes``."""

    since: Since
    until: int | None
    content: Content
    images: Images
    fields: Collection[str] | None
    mask: Mapping[str, Rule | str] | None
    integers: Integers
    log: str | None
    window: int
    batch_events: int | None
    linger: float
    on_lag: Literal["resync", "fail"]
    on_gap: OnGap
    whole: bool
    snapshot: SnapshotMode | None
    heartbeat: float | None


class RemoteCommitting(TypedDict, total=False):
    """Options of a commit; see ``RemoteLog.commit_async``."""

    meta: Mapping[str, Any] | None
    producer: tuple[str, int] | None
    expect: Expect | None
    wait: Wait
    log: str | None


class RemoteLog:
    """A connection to a server, for use on one event loop, made by ``connect``; as a context manager it connects and closes.

    Attributes:
        url: The URL of the server.
    """

    def __init__(self, link: RemoteLink) -> None:
        self.url: str = link.url
        self._link = link
        self._threads = CommitThreads("penstock-remote")

    def __repr__(self) -> str:
        return repr(self._link)

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop of the connection.

        Raises:
            ConnectionLost: If it was not opened.
            LogForked: In a child of ``fork``.
        """
        return self._link.loop

    @overload
    def changes(
        self, *criteria: Criterion | Criteria | None, as_: None = None, **reading: Unpack[RemoteReading]
    ) -> RemoteFeed: ...

    @overload
    def changes(
        self, *criteria: Criterion | Criteria | None, as_: type[M], **reading: Unpack[RemoteReading]
    ) -> ModelFeed[RemoteModelChange[M]]: ...

    @overload
    def changes(
        self,
        *criteria: Criterion | Criteria | None,
        as_: Mapping[str, type[M]],
        **reading: Unpack[RemoteReading],
    ) -> ModelFeed[RemoteModelChange[M]]: ...

    @names_arguments(Criterion)
    def changes(
        self,
        *criteria: Criterion | Criteria | None,
        since: Since = None,
        until: int | None = None,
        content: Content = Content.HEADER,
        images: Images = Images.WRITTEN,
        fields: Collection[str] | None = None,
        mask: Mapping[str, Rule | str] | None = None,
        integers: Integers = Integers.NUMBER,
        log: str | None = None,
        window: int = 256,
        batch_events: int | None = None,
        linger: float = 0.0,
        on_lag: Literal["resync", "fail"] = "resync",
        on_gap: OnGap = "fail",
        whole: bool = False,
        snapshot: SnapshotMode | None = None,
        heartbeat: float | None = None,
        as_: type[Any] | Mapping[str, type[Any]] | None = None,
    ) -> RemoteFeed | ModelFeed[Any]:
        """Makes a publisher of remote changes.

        Args:
            criteria: The criteria; none for everything.
            since: The start, as for ``ChangeLog.changes``: a cursor of a change, a subscription or a log, a version, a time,
                the id of a transaction, ``"earliest"`` or ``"latest"``. None is the next version. ``"state"``: first the
                current entities as rows of operation READ, then every change after them.
            until: The last version, after which the subscription completes.
            content: HEADER or BODY.
            images: The images that BODY includes.
            fields: The paths to show; None for all.
            mask: The replacement value by path.
            integers: Whether whole numbers beyond 2^53 are numbers or text.
            log: The name of the log; may be omitted if the server has one.
            window: The most events in flight or buffered for one subscriber.
            batch_events: The most events in one message.
            linger: Seconds that the server may wait to put more events into one message.
            on_lag: What to do when the log has moved on: read from its history, or end with ``LAGGED``.
            on_gap: What to do where history is missing: end, or resume behind it and call the subscriber's ``on_gap(gap)``,
                or a callable that is given instead; ``gap`` is a ``RemoteGap``.
            whole: Whether a start inside a transaction sends it from its beginning.
            snapshot: When rows are delivered, as for ``ChangeLog.changes``: from the sources that the server names for the
                log, or from the state that it keeps.
            heartbeat: The longest silence in seconds until the server sends the cursor; 0 for never.
            as_: As for ``ChangeLog.changes``: the class of ``body`` and ``before``, or the class by entity type.

        Raises:
            InvalidOption: If ``window`` is out of range, ``since`` is not a start position, or ``fields`` or ``mask`` has
                invalid paths. The server checks the rest.
        """
        if isinstance(window, bool) or not isinstance(window, int) or not 1 <= window <= CREDITS_MAX:
            raise InvalidOption("window", window, f"a whole number from 1 to {CREDITS_MAX}")
        models = None if as_ is None else Models(as_, RemoteModelChange)
        if models is not None:
            content = Content.BODY
        payload: dict[str, Any] = {
            "log": log,
            "criteria": Criteria.of(*criteria).to_json() or [{}],
            **view_json(View.of(content, images, fields=fields, mask=mask, integers=integers)),
            **start_json(since),
            "until": until,
            "batch": {"maxEvents": batch_events, "lingerMs": milliseconds("linger", linger)},
            "onLag": on_lag,
            "onGap": "jump" if callable(on_gap) else on_gap,
            "whole": whole or None,
            "snapshot": snapshot,
            "heartbeatMs": None if heartbeat is None else milliseconds("heartbeat", heartbeat),
        }
        request = {name: value for name, value in payload.items() if value is not None}
        feed = RemoteFeed(self._link, request, window=window, on_gap=on_gap)
        return feed if models is None else ModelFeed(feed, models.change)

    def slot(
        self, name: str, *, take_over: bool = False, owner: str | None = None, log: str | None = None
    ) -> RemoteSlot:
        """A slot of the log. Its user is the slot's one consumer while a subscription to its ``changes()`` runs.

        Args:
            name: The name of the slot, which must exist, and which the server's grant must name.
            take_over: Whether to take the slot over from its current consumer, which is fenced.
            owner: The owner that other consumers see; None for the name of the principal.
            log: The name of the log; may be omitted if the server has one.

        Raises:
            InvalidOption: If an argument is invalid.
        """
        return RemoteSlot(self._link, name, take_over=take_over, owner=owner, of=log)

    def group(
        self,
        name: str,
        consumer: str,
        *,
        history: bool = False,
        integers: Integers = Integers.NUMBER,
        log: str | None = None,
    ) -> RemoteMember:
        """A consumer of a group of the log, which joins with a subscription to its ``deliveries()``.

        Args:
            name: The name of the group, which must exist, and which the server's grant must name.
            consumer: The name of the consumer. Another consumer that joins under this name fences it.
            history: Whether deliveries that an earlier consumer of this name held come first again; that does not count as a
                delivery.
            integers: How large integers are encoded.
            log: The name of the log; may be omitted if the server has one.

        Raises:
            InvalidOption: If an argument is invalid.
        """
        return RemoteMember(self._link, name, consumer, history=history, integers=integers, of=log)

    async def schema(
        self, entity_type: str, version: int | None = None, *, log: str | None = None
    ) -> SchemaVersion | None:
        """Returns a schema by its version, or the newest; None if there is none. On the loop of the connection.

        Every version that a change names is found, even if the change that recorded the schema is no longer kept. A version
        never changes, so the result may be cached.

        Args:
            entity_type: The entity type.
            version: The ``schema_version`` of a change; None for the newest.
            log: The name of the log; may be omitted if the server has one.

        Raises:
            InvalidOption: If an argument is malformed.
            RemoteError: If the server refuses to answer.
            ConnectionLost: If the connection is lost and not re-established.
            LogForked: In a child of ``fork``.
        """
        found = await self._link.ask(SchemaLookup(entity_type=entity_type, version=version, log=log))
        return None if found is None else found.found()

    async def ask(self, operation: LogOperation[_A]) -> _A:
        """Has an operation of ``transports.operations`` carried out, and returns its answer. On the loop of the connection.

        Raises:
            InvalidOption: If a value is malformed.
            RemoteError, ConnectionLost, LogForked: As `schema`.
        """
        return await self._link.ask(operation)

    @property
    def slots(self) -> RemoteSlots:
        """The slots at the server, as far as its grant names them: look-ups and orders."""
        return RemoteSlots(self._link.ask)

    @property
    def groups(self) -> RemoteGroups:
        """What the server does with groups for those who are none of their consumers; those that its grant names."""
        return RemoteGroups(self._link.ask)

    # Writing.

    async def commit_async(
        self,
        mutations: Iterable[Mutation],
        *,
        meta: Mapping[str, Any] | None = None,
        producer: tuple[str, int] | None = None,
        expect: Expect | None = None,
        wait: Wait = Wait.DURABLE,
        log: str | None = None,
    ) -> RemoteCommit:
        """Commits changes as one transaction, on the loop of the connection; transactions commit in the order of the calls.

        Many commits may be in flight, and share the group commits of the server. After a lost connection, with
        ``reconnect``, unanswered transactions are sent again, and written once. Cancelling the wait does not undo the
        commit. A transaction that does not fit in one message is sent in parts, if the server accepts them. Encoding very
        many changes takes time, during which the loop is blocked; ``commit`` encodes on the calling thread instead.

        Args:
            mutations: The results of ``upsert`` and ``remove``.
            meta: The annotations of the transaction.
            producer: Name and sequence, for a program that itself repeats unanswered transactions, also after a restart.
                None for the producer of this connection, which does not outlive the process.
            expect: As for ``ChangeLog.commit``: a cursor behind which no commit may exist, or a cursor and keys.
            wait: How far the transaction must have progressed.
            log: The name of the log; may be omitted if the server has one.

        Raises:
            InvalidChange, InvalidOption, PositionMalformed: If an argument cannot be sent.
            TransactionTooLarge: If the transaction exceeds the server's limit, or one change that of a message.
            RemoteError: If the server refuses, for example with ``EXPECTATION_FAILED``; ``outcome`` says whether the
                transaction may have been written all the same.
            ConnectionLost: If the connection is lost and not re-established; likewise.
            LogForked: In a child of ``fork``.
        """
        return await self._link.append(
            self._append_fields(mutations, meta=meta, producer=producer, expect=expect, wait=wait, log=log)
        )

    def commit(self, mutations: Iterable[Mutation], **committing: Unpack[RemoteCommitting]) -> RemoteCommit:
        """As ``commit_async``, from a thread other than that of the loop, which the wait would block.

        Raises:
            InvalidTransactionState: On the thread of the loop.
        """
        loop = self._link.checked_loop()
        if running_loop() is loop:
            raise InvalidTransactionState(self.url, _Place.LOOP, "await log.commit_async(...) there")
        return asyncio.run_coroutine_threadsafe(
            self._link.append(self._append_fields(mutations, **committing)), loop
        ).result()

    def _append_fields(
        self,
        mutations: Iterable[Mutation],
        *,
        meta: Mapping[str, Any] | None = None,
        producer: tuple[str, int] | None = None,
        expect: Expect | None = None,
        wait: Wait = Wait.DURABLE,
        log: str | None = None,
    ) -> dict[str, Any]:
        """Returns the payload of a transaction, without the connection's own producer; on any thread."""
        self._link.check_here()
        if expect is not None:
            expected(expect)
        payload = {
            "log": log,
            "changes": changes_json(check_mutations(mutations)),
            "producer": None if producer is None else producer[0],
            "sequence": None if producer is None else producer[1],
            "expect": None if expect is None else expect_json(expect),
            "meta": meta,
            "wait": Wait(wait).value,
        }
        return {key: value for key, value in payload.items() if value is not None}

    def transaction(self, **committing: Unpack[RemoteCommitting]) -> TransactionBuilder:
        """A transaction that a block fills, and that commits when the block ends: ``async with`` on the loop, else ``with``."""
        return TransactionBuilder(committing.get("log") or self.url, self.commit, committing, self._threads)

    async def open(self) -> Self:
        """Connects; returns when the server has acknowledged the connection.

        Raises:
            ConnectionLost: If that fails; the first attempt is not retried.
            ExtraMissing: If websockets is not installed.
            LogForked: In a child of ``fork``.
        """
        await self._link.open()
        return self

    async def close(self) -> None:
        """Closes the connection; running subscriptions end with ``ConnectionLost``. Idempotent.

        In a child of ``fork`` it does nothing.
        """
        if self._link.inherited is None:
            await self._link.close()
            self._threads.close()

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(self, *_: object) -> None:
        await self.close()


@names_arguments()
def connect(
    url: str,
    *,
    token: Token = None,
    reconnect: Backoff | bool = False,
    open_timeout: float = 6.0,
    headers: Mapping[str, str] | None = None,
    on_wait: OnWait | None = None,
    ssl: ssl_module.SSLContext | None = None,
    server_name: str | None = None,
) -> RemoteLog:
    """Makes a remote log, which connects on entering ``async with``.

    Args:
        url: ``ws://host:port/ws``, as in ``Server.url``.
        token: The token to send in ``connection_init``; or a function that returns it, called before each connection on its event
            loop: one that waits for a server should be a coroutine function. With ``reconnect`` a connection whose token has expired
            is then renewed with the next one, and an exception of the function is a failed attempt.
        reconnect: Whether to reconnect, or with which delays: up to 3 s by default. Subscriptions then resume behind the last change that arrived,
            and their subscribers notice nothing.
        open_timeout: Seconds that the function of the token has, and then the server to acknowledge the connection.
        headers: Additional headers of the upgrade request, such as ``Authorization``.
        on_wait: With ``reconnect``, called before each wait with the error, a ``ConnectionLost`` or for one subscription a
            ``RemoteError``, and the seconds until the next attempt; on the event loop of the connection.
        ssl: For ``wss:``, the TLS context with the trusted authorities and the client certificate, such as
            ``ssl.create_default_context(cafile="ca.pem")``; None for the machine's trusted authorities.
        server_name: For ``wss:``, the name that the server's certificate must bear, if it is not the host of the URL.

    Raises:
        InvalidOption: If the URL is not one of a WebSocket, or ``ssl`` or ``server_name`` is given for one without TLS.
    """
    check_websocket_url(url, tls=(ssl, server_name) != (None, None))
    link = RemoteLink(
        url,
        token=token,
        reconnect=Backoff() if reconnect is True else reconnect or None,
        open_timeout=open_timeout,
        headers=headers or {},
        on_wait=on_wait,
        tls=ssl,
        server_name=server_name,
    )
    return RemoteLog(link)
