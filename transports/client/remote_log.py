"""The Python client: a remote log, whose feeds are publishers."""

import asyncio
import contextlib
import enum
import itertools
import ssl as ssl_module
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Any, Literal, Self, TypedDict, Unpack, overload
from uuid import uuid4

from flow import forks, hooks
from flow.executors import loop_executor
from publishers.commits.builder import TransactionBuilder
from publishers.commits.expectation import Expect, expected
from publishers.commits.label import check_mutations
from publishers.commits.submission import Wait
from publishers.criteria.criteria import Criteria, Criterion
from publishers.errors import InvalidOption, InvalidTransactionState, LogForked
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
from transports.client.reconnect import Reconnection
from transports.client.remote_feed import RemoteFeed, RemoteSubscription
from transports.client.remote_group import RemoteMember
from transports.client.remote_groups import RemoteGroups
from transports.client.remote_questions import RemoteQuestions
from transports.client.remote_slot import RemoteSlot
from transports.client.remote_slots import RemoteSlots
from transports.codec.appends import expect_json
from transports.codec.changes import changes_json
from transports.codec.messages import view_json
from transports.codec.replies import RemoteCommit, RemoteModelChange
from transports.codec.starts import start_json
from transports.errors import ConnectionLost, RemoteError
from transports.limits import CREDITS_MAX
from transports.protocol.client import (
    Acked,
    Answered,
    ClientSession,
    Deliver,
    Ended,
    Progress,
    Retry,
)
from transports.protocol.client_appends import AppendAnswered, ClientAppend, ResumeAppends
from transports.protocol.client_consumers import Called, ClientConsumer
from transports.protocol.client_slots import ClientSlot
from transports.protocol.client_subscription import ClientSubscription
from transports.protocol.connection import Effect, Send

__all__ = ["RemoteLog", "connect"]

OnWait = Callable[[ConnectionLost | RemoteError, float], object]
"""Takes what interrupted a connection or a subscription, and the seconds until it is made again."""


class _Place(enum.Enum):
    LOOP = "would be committed on the thread of its event loop, which would wait for itself"


class RemoteReading(TypedDict, total=False):
    """From where, how far and how changes are read; see ``RemoteLog.changes``."""

    since: Since
    start: Since
    until: int | None
    content: Content
    images: Images
    fields: Collection[str] | None
    mask: Mapping[str, Rule | str] | None
    integers: Integers
    log: str | None
    window: int
    batch_events: int | None
    linger_ms: int
    on_lag: Literal["resync", "fail"]
    on_gap: OnGap
    whole: bool
    snapshot: SnapshotMode | None
    heartbeat_ms: int | None


class RemoteCommitting(TypedDict, total=False):
    """How a transaction is committed, and how far it is waited for; see ``RemoteLog.commit_async``."""

    meta: Mapping[str, Any] | None
    producer: tuple[str, int] | None
    expect: Expect | None
    wait: Wait
    log: str | None


class RemoteLog:
    """A connection to a server, for use on one event loop, made by ``connect``: entering connects, leaving ends all.

    Attributes:
        url: Of the server.
        inherited: What to raise in a child of ``fork``; None in the process that opened it.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None,
        reconnect: Backoff | None,
        open_timeout: float,
        headers: Mapping[str, str],
        on_wait: OnWait | None,
        tls: ssl_module.SSLContext | None,
        server_name: str | None,
    ) -> None:
        self.url = url
        self._on_wait = on_wait
        self._loop: asyncio.AbstractEventLoop | None = None
        self._session = ClientSession(token, self._delay)
        self._subscriptions: dict[ClientSubscription, RemoteSubscription] = {}
        self._questions = RemoteQuestions(self._session, self._perform)
        self._appends: dict[ClientAppend, asyncio.Future[RemoteCommit]] = {}
        self._producer = f"connection-{uuid4().hex}"
        self._sequences = itertools.count(1)
        self._lost: ConnectionLost | None = None
        self._reconnect = reconnect
        self._connection = Reconnection(
            self._session,
            url,
            perform=self._perform,
            waiting=self._waiting,
            given_up=self._given_up,
            reconnect=reconnect,
            open_timeout=open_timeout,
            headers=headers,
            tls=tls,
            server_name=server_name,
        )
        self.inherited: LogForked | None = None
        forks.register(self)

    def forked(self, pid: int, /) -> None:
        """See ``flow.forks.Forkable``: once opened, everything is refused with ``LogForked``, and to close does nothing."""
        if self._loop is not None:
            self.inherited = LogForked(self.url, pid, "connect here")
            self._connection.let_go()

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop of the connection.

        Raises:
            ConnectionLost: If it was not opened.
            LogForked: In a child of ``fork``.
        """
        self._check_here()
        if self._loop is None:
            raise ConnectionLost(self.url, "it was not opened; use 'async with'", retryable=False)
        return self._loop

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

    def changes(
        self,
        *criteria: Criterion | Criteria | None,
        since: Since = None,
        start: Since = None,
        until: int | None = None,
        content: Content = Content.HEADER,
        images: Images = Images.WRITTEN,
        fields: Collection[str] | None = None,
        mask: Mapping[str, Rule | str] | None = None,
        integers: Integers = Integers.NUMBER,
        log: str | None = None,
        window: int = 256,
        batch_events: int | None = None,
        linger_ms: int = 0,
        on_lag: Literal["resync", "fail"] = "resync",
        on_gap: OnGap = "fail",
        whole: bool = False,
        snapshot: SnapshotMode | None = None,
        heartbeat_ms: int | None = None,
        as_: type[Any] | Mapping[str, type[Any]] | None = None,
    ) -> RemoteFeed | ModelFeed[Any]:
        """A publisher of remote changes.

        Args:
            criteria: Which changes; nothing at all for everything.
            since: Where to begin, as for ``ChangeLog.changes``: a cursor that a change, a subscription or a log gave, a
                version, a time, the id of a transaction, ``"earliest"`` or ``"latest"``. None is the next version. ``"state"``:
                first the entities that there are, as rows of operation READ, then every change after them.
            start: Another name of ``since``, as it is on the wire for what is no cursor.
            until: Last version, after which the subscriber is completed.
            content: HEADER or BODY.
            images: Which images there are with BODY.
            fields: Paths that are shown; None for all.
            mask: Of each path what is shown in place of its value.
            integers: Whether whole numbers beyond 2^53 are numbers or text.
            log: Name of the log; may be left out if the server has one.
            window: Most events under way or buffered for one subscriber.
            batch_events: Most events in one message.
            linger_ms: How long the server may wait to put more events into one message.
            on_lag: What to do when the log has moved on: read on from its history, or end with ``LAGGED``.
            on_gap: End where history is missing, or go on behind it, and tell the subscriber's ``on_gap(gap)``, or a
                callable that is given instead; ``gap`` is a ``RemoteGap``.
            whole: Whether a start inside a transaction sends it again from its beginning.
            snapshot: When there are rows, as for ``ChangeLog.changes``: from the sources that the server names for the log, or
                from the state that it keeps.
            heartbeat_ms: Longest silence until the server tells the cursor; 0 for never.
            as_: As for ``ChangeLog.changes``: the class of which ``body`` and ``before`` are to be, or that of each entity type.

        Raises:
            InvalidOption: If ``window`` is out of its range, ``since`` is no place, or ``fields`` or ``mask`` has no paths. The
                server judges the rest.
        """
        if since is not None and start is not None:
            raise InvalidOption("start", start, "left out where since is given")
        if isinstance(window, bool) or not isinstance(window, int) or not 1 <= window <= CREDITS_MAX:
            raise InvalidOption("window", window, f"a whole number from 1 to {CREDITS_MAX}")
        models = None if as_ is None else Models(as_, RemoteModelChange)
        if models is not None:
            content = Content.BODY
        payload: dict[str, Any] = {
            "log": log,
            "criteria": Criteria.of(*criteria).to_json() or [{}],
            **view_json(View.of(content, images, fields=fields, mask=mask, integers=integers)),
            **start_json(since if start is None else start),
            "until": until,
            "batch": {"maxEvents": batch_events, "lingerMs": linger_ms},
            "onLag": on_lag,
            "onGap": "jump" if callable(on_gap) else on_gap,
            "whole": whole or None,
            "snapshot": snapshot,
            "heartbeatMs": heartbeat_ms,
        }
        wish = {name: value for name, value in payload.items() if value is not None}
        feed = RemoteFeed(self, wish, window=window, on_gap=on_gap)
        return feed if models is None else ModelFeed(feed, models.change)

    def slot(
        self, name: str, *, take_over: bool = False, owner: str | None = None, log: str | None = None
    ) -> RemoteSlot:
        """A slot of the log, of which this is the one consumer as long as there is a subscription to its ``changes()``.

        Args:
            name: Of the slot, which there has to be, and which the grant of the server has to name.
            take_over: Whether to take it from the consumer that has it, which is fenced.
            owner: What another consumer is told that has it; None for the name of the principal.
            log: Name of the log; may be left out if the server has one.

        Raises:
            InvalidOption: If one of them is something else.
        """
        return RemoteSlot(self, name, take_over=take_over, owner=owner, of=log)

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
            name: Of the group, which there has to be, and which the grant of the server has to name.
            consumer: What it is called. Another one that joins under this name fences it.
            history: Whether what a consumer of this name had before it joined again comes first; that counts as no delivery.
            integers: How large whole numbers are given.
            log: Name of the log; may be left out if the server has one.

        Raises:
            InvalidOption: If one of them is something else.
        """
        return RemoteMember(self, name, consumer, history=history, integers=integers, of=log)

    async def schema(
        self, entity_type: str, version: int | None = None, *, log: str | None = None
    ) -> SchemaVersion | None:
        """A schema that was told, by its version, or the newest; None if there is none. On the loop of the connection.

        It answers for every version that a change names, whatever became of the change that told it. What was told never
        changes, so answers to a version may be kept.

        Args:
            entity_type: Of which entities.
            version: The ``schema_version`` of a change; None for the newest.
            log: Name of the log; may be left out if the server has one.

        Raises:
            RemoteError: If the server does not answer that.
            ConnectionLost: If the connection is lost, and not made again.
            LogForked: In a child of ``fork``.
        """
        asked = {"entity_type": entity_type, "version": version, "log": log}
        found: SchemaVersion | None = await self._ask("schema", asked)
        return found

    @property
    def slots(self) -> RemoteSlots:
        """What the server tells of slots, and has done with them; those that its grant names."""
        return RemoteSlots(partial(self._ask, "slot"))

    @property
    def groups(self) -> RemoteGroups:
        """What the server does with groups for those who are none of their consumers; those that its grant names."""
        return RemoteGroups(partial(self._ask, "groups"))

    async def _ask(self, kind: str, asked: dict[str, Any]) -> Any:
        self._check_here()
        if self._lost is not None:
            raise self._lost
        return await self._questions.ask(kind, asked)

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
        """Commits changes as one transaction, on the loop of the connection; they are written in the order of the calls.

        Many may be under way at a time, and share the group commits of the server. After a lost connection, with
        ``reconnect``, what was not answered is sent again, and written once. Cancelling the wait does not undo the commit.
        What does not fit in one message is sent in parts, if the server takes them. To encode a great many changes takes
        its time, in which the loop answers nothing: ``commit`` does it on the thread that calls it.

        Args:
            mutations: What ``upsert`` and ``remove`` made.
            meta: Annotations of the transaction.
            producer: Name and sequence, for a program that repeats by itself what it has not heard of, also after a restart.
                None for those of this connection, which are not repeated after that.
            expect: As for ``ChangeLog.commit``: a cursor behind which nothing may have been committed, or one and keys.
            wait: How far the transaction is to be.
            log: Name of the log; may be left out if the server has one.

        Raises:
            InvalidChange, InvalidOption, PositionMalformed: If something cannot be sent.
            TransactionTooLarge: If it is larger than the server takes, or one change is larger than a message may be.
            RemoteError: If the server refuses it, such as with ``EXPECTATION_FAILED``; ``outcome`` tells whether it may have
                been written all the same.
            ConnectionLost: If the connection is lost, and not made again; likewise.
            LogForked: In a child of ``fork``.
        """
        return await self._commit(
            self._wish(mutations, meta=meta, producer=producer, expect=expect, wait=wait, log=log)
        )

    def commit(self, mutations: Iterable[Mutation], **committing: Unpack[RemoteCommitting]) -> RemoteCommit:
        """``commit_async`` from any other thread than that of the loop, which it would keep from answering.

        Raises:
            InvalidTransactionState: On that thread.
        """
        loop = self.loop
        try:
            here = asyncio.get_running_loop() is loop
        except RuntimeError:
            here = False
        if here:
            raise InvalidTransactionState(self.url, _Place.LOOP, "await log.commit_async(...) there")
        return asyncio.run_coroutine_threadsafe(
            self._commit(self._wish(mutations, **committing)), loop
        ).result()

    def _wish(
        self,
        mutations: Iterable[Mutation],
        *,
        meta: Mapping[str, Any] | None = None,
        producer: tuple[str, int] | None = None,
        expect: Expect | None = None,
        wait: Wait = Wait.DURABLE,
        log: str | None = None,
    ) -> dict[str, Any]:
        """The payload of a transaction, without a producer if that is the connection; on any thread."""
        self._check_here()
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

    async def _commit(self, wish: dict[str, Any]) -> RemoteCommit:
        if self._lost is not None:
            raise self._lost
        answer: asyncio.Future[RemoteCommit] = self.loop.create_future()
        if "producer" not in wish:
            wish |= {"producer": self._producer, "sequence": next(self._sequences)}
        entry = ClientAppend(self._session.name(), wish)
        self._appends[entry] = answer
        self._perform(self._session.appends.append(entry))
        return await asyncio.shield(answer)

    def transaction(self, **committing: Unpack[RemoteCommitting]) -> TransactionBuilder:
        """A transaction that is filled in a block, and committed on leaving it: ``async with`` on the loop, else ``with``."""
        return TransactionBuilder(committing.get("log") or self.url, self.commit, committing)

    async def open(self) -> Self:
        """Connects; returns when the server has acknowledged.

        Raises:
            ConnectionLost: If that fails; the first attempt is never repeated.
            ExtraMissing: If websockets is not installed.
            LogForked: In a child of ``fork``.
        """
        self._check_here()
        self._loop = asyncio.get_running_loop()
        await self._connection.open()
        return self

    async def close(self) -> None:
        """Closes the connection; subscriptions that still run end with ``ConnectionLost``. Idempotent.

        In a child of ``fork`` it does nothing.
        """
        if self.inherited is None:
            await self._connection.close()

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _check_here(self) -> None:
        if self.inherited is not None:
            raise self.inherited

    # What subscriptions want; from any thread.

    def entry(self, payload: Mapping[str, Any], slot: ClientSlot | None = None) -> ClientSubscription:
        """What the machine is to know a subscription by, and the slot that it opens."""
        return ClientSubscription(self._session.name(), payload, slot)

    def acknowledge(self, entry: ClientSubscription) -> None:
        """Sends what was acknowledged of a slot and not sent; on the loop."""
        self._perform(self._session.acknowledge(entry))

    def consumer(self, payload: Mapping[str, Any]) -> ClientConsumer:
        """What the machine is to know a consumer of a group by."""
        return ClientConsumer(self._session.name(), payload)

    def call(self, entry: ClientConsumer) -> None:
        """Sends what a consumer has said and was not sent; on the loop."""
        self._perform(self._session.call(entry))

    def enlist(self, subscription: RemoteSubscription) -> None:
        """Subscribes at the server."""
        loop_executor(self.loop).submit(lambda: self._enlist(subscription))

    def demand(self, subscription: RemoteSubscription) -> None:
        """Requests what the subscription wants."""
        with contextlib.suppress(RuntimeError):  # the loop is closed, and with it the connection
            loop_executor(self.loop).submit(lambda: self._perform(self._session.request(subscription.entry)))

    def ask_rows(self, subscription: RemoteSubscription) -> None:
        """Asks for rows once more."""
        with contextlib.suppress(RuntimeError):
            loop_executor(self.loop).submit(lambda: self._perform(self._session.ask_rows(subscription.entry)))

    def forget(self, subscription: RemoteSubscription) -> None:
        """Ends the subscription at the server."""
        with contextlib.suppress(RuntimeError):
            loop_executor(self.loop).submit(lambda: self._forget(subscription))

    def _enlist(self, subscription: RemoteSubscription) -> None:
        if self._lost is not None:
            subscription.end(self._lost)
        elif not subscription.ended:
            self._subscriptions[subscription.entry] = subscription
            self._subscribe(subscription.entry)

    def _subscribe(self, entry: ClientSubscription) -> None:
        self._perform(self._session.subscribe(entry))

    def _forget(self, subscription: RemoteSubscription) -> None:
        self._subscriptions.pop(subscription.entry, None)
        self._perform(self._session.cancel(subscription.entry))

    # What the machine wants done.

    def _perform(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            match effect:
                case Send(data):
                    self._connection.send(data)
                case Deliver(entry, events, cursor):
                    self._subscriptions[entry].buffer(events, cursor)
                case Progress(entry, item):
                    self._subscriptions[entry].told(item)
                case Acked(entry, n, refused):
                    self._subscriptions[entry].acked(n, refused)
                case Called(consumer, n, result, refused):
                    self._subscriptions[consumer].called(n, result, refused)
                case Ended(entry, error):
                    self._subscriptions.pop(entry).end(error)
                case Answered(question, answer):
                    self._questions.answer(question, answer)
                case AppendAnswered(append, result):
                    self._appended(append, result)
                case ResumeAppends(delay):
                    self.loop.call_later(delay, self._resume_appends)
                case Retry(entry, error, delay):
                    self.loop.call_later(delay, self._subscribe, entry)
                    self._waiting(error, delay)
                case _:
                    raise TypeError(f"{effect!r} is no effect of a client")

    def _appended(self, entry: ClientAppend, result: RemoteCommit | Exception) -> None:
        waiting = self._appends.pop(entry)
        if isinstance(result, Exception):
            waiting.set_exception(result)
            waiting.exception()  # looked at: nobody may wait any more
        else:
            waiting.set_result(result)

    def _resume_appends(self) -> None:
        self._perform(self._session.appends.resume())

    # What its connection tells.

    def _delay(self, attempt: int) -> float | None:
        return self._reconnect.delay(attempt) if self._reconnect else None

    def _waiting(self, lost: ConnectionLost | RemoteError, delay: float) -> None:
        """Tells the program why it has to wait; what its function raises is dropped."""
        if self._on_wait is not None:
            try:
                self._on_wait(lost, delay)
            except Exception as error:  # noqa: BLE001 - the connection is made again all the same
                hooks.report(error, self)

    def _given_up(self, lost: ConnectionLost) -> None:
        """Ends every subscription, and every wait for an answer."""
        self._lost = self._lost or lost
        for entry in self._session.appends.give_up():
            error = ConnectionLost(self.url, lost.why, close_code=lost.close_code, retryable=lost.retryable)
            error.outcome = entry.outcome
            self._appended(entry, error)
        self._perform(self._session.give_up(lost))


def connect(
    url: str,
    *,
    token: str | None = None,
    reconnect: Backoff | bool = False,
    open_timeout: float = 10.0,
    headers: Mapping[str, str] | None = None,
    on_wait: OnWait | None = None,
    ssl: ssl_module.SSLContext | None = None,
    server_name: str | None = None,
) -> RemoteLog:
    """A remote log; connects on entering ``async with``.

    Args:
        url: ``ws://host:port/ws``, as ``Server.url`` tells it.
        token: Progress to the server in ``connection_init``.
        reconnect: Whether, and how patiently, a lost connection is made again; then subscriptions go on behind the last
            change that came, and their subscribers notice nothing.
        open_timeout: Seconds until an attempt to connect has failed.
        headers: Additional headers of the upgrade, such as ``Authorization``.
        on_wait: Called with reconnect before each wait, with what was lost, a ``ConnectionLost`` or, of one subscription, a
            ``RemoteError``, and the seconds until the next attempt; on the event loop of the connection.
        ssl: For ``wss:``, what the client trusts, and the certificate that it shows, such as
            ``ssl.create_default_context(cafile="ca.pem")``; None for the authorities that the machine trusts.
        server_name: For ``wss:``, the name that the certificate of the server has to bear, if it is not that of the URL.

    Raises:
        InvalidOption: If one of the last two is given for a URL without TLS.
    """
    if not url.lower().startswith("wss:") and (ssl is not None or server_name is not None):
        raise InvalidOption("url", url, "a URL that begins with wss:// where ssl or server_name is given")
    return RemoteLog(
        url,
        token=token,
        reconnect=Backoff() if reconnect is True else reconnect or None,
        open_timeout=open_timeout,
        headers=headers or {},
        on_wait=on_wait,
        tls=ssl,
        server_name=server_name,
    )
