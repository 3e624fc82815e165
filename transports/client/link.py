"""The connection of a remote log: what its subscriptions, slots, consumers, appends and requests with one answer do on it."""

import asyncio
import contextlib
import itertools
import ssl as ssl_module
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar
from uuid import uuid4

from flow import forks, hooks
from flow.executors import loop_executor, require_loop
from publishers.errors import LogForked
from transports.client.backoff import Backoff
from transports.client.reconnect import OnWait, Reconnection, Token
from transports.client.remote_feed import RemoteSubscription
from transports.codec.replies import RemoteCommit
from transports.errors import ConnectionLost, RemoteError
from transports.operations.operation import LogOperation
from transports.protocol.client import (
    Acked,
    Answered,
    ClientQuestion,
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

__all__ = ["RemoteLink"]


class RemoteQuestions:
    """The unanswered questions of one connection, on its event loop.

    Args:
        session: The machine of the connection.
        perform: Performs the effects of the machine.
    """

    def __init__(self, session: ClientSession, perform: Callable[[Iterable[Effect]], object]) -> None:
        self._session = session
        self._perform = perform
        self._waiting: dict[ClientQuestion, asyncio.Future[Any]] = {}

    async def ask(self, kind: str, payload: dict[str, Any]) -> Any:
        """Sends the message of an operation and returns the answer; raises the server's error, or the reason why no answer will come."""
        question = ClientQuestion(self._session.name(), payload, kind)
        answer = self._waiting[question] = asyncio.get_running_loop().create_future()
        self._perform(self._session.ask(question))
        try:
            return await answer
        finally:
            if self._waiting.pop(question, None) is not None:
                self._perform(self._session.cancel(question))  # the caller was cancelled

    def answer(self, question: ClientQuestion, answer: object) -> None:
        """Wakes the caller with the answer."""
        waiting = self._waiting.pop(question)
        if waiting.done():
            return
        if isinstance(answer, Exception):
            waiting.set_exception(answer)
        else:
            waiting.set_result(answer)


_A = TypeVar("_A")


class RemoteLink:
    """The connection behind a `RemoteLog`: it drives the machine of the protocol on one event loop.

    Attributes:
        url: The URL of the server.
        inherited: The error to raise in a child of ``fork``; None in the process that opened the connection.
    """

    def __init__(
        self,
        url: str,
        *,
        token: Token,
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
        self._session = ClientSession(self._delay)
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
            token=token,
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

    def __repr__(self) -> str:
        return f"<RemoteLog {self.url}{'' if self._session.ready else ' not connected'}>"

    def forked(self, pid: int, /) -> None:
        """In a child, refuses everything with ``LogForked`` if the connection was open; ``close`` does nothing. See ``flow.forks.Forkable``."""
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
        self.check_here()
        if self._loop is None:
            where = "in a coroutine, or in a shell begun with python -m asyncio"
            why = f"it was not opened; write, {where}: async with connect({self.url!r}) as log"
            raise ConnectionLost(self.url, why, retryable=False)
        return self._loop

    def checked_loop(self) -> asyncio.AbstractEventLoop:
        """The event loop of a connection that was opened and not given up.

        Raises:
            ConnectionLost: If it was not opened, or was given up.
            LogForked: In a child of ``fork``.
        """
        loop = self.loop
        if self._lost is not None:
            raise self._lost
        return loop

    def check_here(self) -> None:
        """Raises ``LogForked`` in a child of ``fork``."""
        if self.inherited is not None:
            raise self.inherited

    async def open(self) -> None:
        """Connects; see `RemoteLog.open`."""
        self.check_here()
        self._loop = require_loop("connect")
        await self._connection.open()

    async def close(self) -> None:
        """Closes the connection; running subscriptions end with ``ConnectionLost``."""
        await self._connection.close()

    async def ask(self, operation: LogOperation[_A]) -> _A:
        """Asks for an operation, and returns the answer; on the loop."""
        payload = operation.payload()  # a wrong argument is told first, also without a connection
        self.checked_loop()
        answer: _A = await self._questions.ask(operation.message, payload)
        return answer

    async def append(self, request: dict[str, Any]) -> RemoteCommit:
        """Sends a transaction, and returns its outcome; on the loop."""
        answer: asyncio.Future[RemoteCommit] = self.checked_loop().create_future()
        if "producer" not in request:
            request |= {"producer": self._producer, "sequence": next(self._sequences)}
        entry = ClientAppend(self._session.name(), request)
        self._appends[entry] = answer
        self._perform(self._session.appends.append(entry))
        return await asyncio.shield(answer)

    # Called by subscriptions, from any thread.

    def entry(self, payload: Mapping[str, Any], slot: ClientSlot | None = None) -> ClientSubscription:
        """Makes the machine's entry of a subscription, and of the slot that it opens."""
        return ClientSubscription(self._session.name(), payload, slot)

    def acknowledge(self, entry: ClientSubscription) -> None:
        """Sends acknowledgements of a slot that are not sent yet; on the loop."""
        self._perform(self._session.acknowledge(entry))

    def consumer(self, payload: Mapping[str, Any]) -> ClientConsumer:
        """Makes the machine's entry of a group consumer."""
        return ClientConsumer(self._session.name(), payload)

    def call(self, entry: ClientConsumer) -> None:
        """Sends calls of a group consumer that are not sent yet; on the loop."""
        self._perform(self._session.call(entry))

    def enlist(self, subscription: RemoteSubscription) -> None:
        """Subscribes at the server."""
        loop_executor(self.loop).submit(lambda: self._enlist(subscription))

    def demand(self, subscription: RemoteSubscription) -> None:
        """Requests the demand of the subscription."""
        with contextlib.suppress(RuntimeError):  # the loop is closed, and with it the connection
            loop_executor(self.loop).submit(lambda: self._perform(self._session.request(subscription.entry)))

    def ask_rows(self, subscription: RemoteSubscription) -> None:
        """Sends requests for more rows."""
        with contextlib.suppress(RuntimeError):
            loop_executor(self.loop).submit(lambda: self._perform(self._session.ask_rows(subscription.entry)))

    def forget(self, subscription: RemoteSubscription) -> None:
        """Cancels the subscription at the server."""
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

    # Effects of the machine.

    def _perform(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            match effect:
                case Send(data):
                    self._connection.send(data)
                case Deliver(entry, events, cursor):
                    self._subscriptions[entry].buffer(events, cursor)
                case Progress(entry, item):
                    self._subscriptions[entry].confirm(item)
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
            waiting.exception()  # retrieved: the caller may have stopped waiting
        else:
            waiting.set_result(result)

    def _resume_appends(self) -> None:
        self._perform(self._session.appends.resume())

    # Called by the connection.

    def _delay(self, attempt: int) -> float | None:
        return self._reconnect.delay(attempt) if self._reconnect else None

    def _waiting(self, lost: ConnectionLost | RemoteError, delay: float) -> None:
        """Calls ``on_wait``; reports and drops its exceptions."""
        if self._on_wait is not None:
            try:
                self._on_wait(lost, delay)
            except Exception as error:  # noqa: BLE001 - reconnection goes on all the same
                hooks.report(error, self)

    def _given_up(self, lost: ConnectionLost) -> None:
        """Ends every subscription, append and question."""
        self._lost = self._lost or lost
        for entry in self._session.appends.give_up():
            error = ConnectionLost(self.url, lost.why, close_code=lost.close_code, retryable=lost.retryable)
            error.outcome = entry.outcome
            self._appended(entry, error)
        self._perform(self._session.give_up(lost))
