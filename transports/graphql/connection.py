"""Binds the machine of one ``graphql-transport-ws`` connection to operations, a link and a clock."""

import asyncio
import logging
import math
import uuid
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from publishers.batch import Batch
from transports.errors import CloseCode, describe
from transports.graphql.errors import RequestRefused, graphql_error, problem_of
from transports.graphql.execution import Engine, Operation, encode_response
from transports.graphql.messages import Request
from transports.graphql.outlet import Outlet
from transports.graphql.session import (
    Authenticate,
    Cancel,
    Close,
    Demand,
    Effect,
    Entry,
    GraphQLSession,
    Open,
    Phase,
    Resume,
    Send,
)
from transports.limits import Limits
from transports.websocket.connection import Authenticator
from transports.websocket.link import Link
from transports.websocket.strand import Strand

__all__ = ["GraphQLConnection"]

_LOG: Final = logging.getLogger("penstock.transports")
_BATCH_EVENTS: Final = 32


class GraphQLConnection:
    """One connection, on the event loop of its link.

    Args:
        engine: Executes the operations.
        link: The accepted WebSocket.
        limits: Bounds of the connection.
        loop: The event loop, whose clock is the connection's.
        authenticate: Judges the client's token; None lets everybody in.
        token: The token that came with the upgrade.
        on_lost: Called once when the connection is gone.
    """

    def __init__(
        self,
        engine: Engine,
        link: Link,
        *,
        limits: Limits,
        loop: asyncio.AbstractEventLoop,
        authenticate: Authenticator | None = None,
        token: str | None = None,
        on_lost: "Callable[[GraphQLConnection], None]" = lambda _: None,
    ) -> None:
        self._engine = engine
        self._link = link
        self._limits = limits
        self._loop = loop
        self._authenticate = authenticate
        self._token = token
        self._on_lost = on_lost
        self._session = GraphQLSession(limits, now=loop.time())
        self._strand = Strand(loop, _Gate(link, self._session), limits)
        self._outlets: dict[Entry, Outlet] = {}
        self._queries: deque[tuple[Entry, Operation]] = deque()
        self._lane = self._strand.lane(1, 0)
        self._querying = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = math.inf
        self._arm()

    # What the link tells.

    def received(self, text: bytes | str) -> None:
        """One message from the client."""
        try:
            self._perform(self._session.receive(text, self._loop.time()))
        except Exception:  # noqa: BLE001 - one connection fails, with an id, and the server goes on
            error_id = uuid.uuid4().hex[:12]
            _LOG.exception("connection failed, id %s", error_id)
            self._perform(self._session.close(CloseCode.INTERNAL, f"internal error {error_id}"))
        self._link.flush()

    def drained(self) -> None:
        """The link is writable again."""
        self._strand.run()

    def lost(self) -> None:
        """The connection is gone: every operation ends here."""
        if self._timer is not None:
            self._timer.cancel()
        self._perform(self._session.lost())
        self._queries.clear()
        self._strand.close()
        self._on_lost(self)

    def goaway(self, deadline: float, reason: str) -> None:
        """Nothing: the protocol has no word for it, and ``stop`` will follow."""

    def stop(self) -> None:
        """Closes with 1012, after which clients connect again."""
        self._perform(self._session.stop())

    # What the machine wants done.

    def _perform(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            match effect:
                case Send(data):
                    self._link.write(data)
                case Resume():
                    self._strand.run()
                case Open(entry, request):
                    self._open(entry, request)
                case Demand(entry, n):
                    outlet = self._outlets.get(entry)
                    if outlet is not None:
                        outlet.request(n)
                case Cancel(entry):
                    outlet = self._outlets.pop(entry, None)
                    if outlet is not None:
                        outlet.cancel()
                case Authenticate(payload):
                    self._judge(payload.get("token"))
                case Close(code, reason):
                    self._link.close(code, reason)

    def _judge(self, token: object) -> None:
        given = token if isinstance(token, str) else self._token
        if self._authenticate is None or self._authenticate(given):
            self._perform(self._session.acknowledge())
        else:
            self._perform(self._session.refuse("the token is missing or wrong"))

    def _open(self, entry: Entry, request: Request) -> None:
        try:
            operation = self._engine.prepare(request.query, request.operation_name, request.variables)
            if operation.kind == "subscription":
                self._subscribe(entry, operation)
            else:
                self._queries.append((entry, operation))
                self._lane.submit(self._query)
        except RequestRefused as refused:
            self._perform(self._session.failed(entry, refused.errors))
        except Exception as error:  # noqa: BLE001 - whatever it was, it concerns this operation only
            self._perform(self._session.failed(entry, [graphql_error(describe(error))]))

    # Subscriptions.

    def _subscribe(self, entry: Entry, operation: Operation) -> None:
        source = operation.open()
        feed = source.log.changes(
            source.criteria, since=source.since, until=source.until, content=operation.content
        )
        outlet = self._outlets[entry] = Outlet(self, entry, operation)
        feed.subscribe(
            outlet,
            executor=self._strand.lane(self._limits.batch_bytes, 0),
            batch_events=min(_BATCH_EVENTS, self._limits.fence_events),
            batch_bytes=self._limits.batch_bytes,
        )

    def deliver(self, outlet: Outlet, batch: Batch) -> None:
        """Writes a ``next`` for each event."""
        try:
            payloads = outlet.operation.payloads(batch.slices)
        except Exception as error:  # noqa: BLE001 - what cannot be executed ends this operation, and is told
            self.ended(outlet, error)
            return
        for message in self._session.next(outlet.entry, payloads, self._loop.time()):
            self._link.write(message)
        self._arm()

    def ended(self, outlet: Outlet, error: Exception | None) -> None:
        """Writes the terminal message."""
        entry, log = outlet.entry, outlet.operation.source.log
        if entry.ended:
            return
        if error is None:
            self._perform(self._session.completed(entry))
            return
        told = graphql_error(problem_of(error, log))
        if outlet.subscription is not None:
            told["extensions"].setdefault("cursor", str(log.token(outlet.subscription.position)))
        self._perform(self._session.failed(entry, [told]))

    # Queries: one at a time, off the loop, and the next only when the link takes its result.

    def _query(self) -> None:
        if self._querying or not self._queries or self._session.phase is Phase.CLOSED:
            return
        entry, operation = self._queries.popleft()
        if entry.ended:
            self._query()
            return
        self._querying = True
        work = self._loop.run_in_executor(None, lambda: encode_response(operation.run()))
        work.add_done_callback(lambda done: self._queried(entry, done))

    def _queried(self, entry: Entry, done: "asyncio.Future[bytes]") -> None:
        self._querying = False
        if done.cancelled():
            return
        error = done.exception()
        if error is None:
            self._perform(self._session.result(entry, done.result()))
        else:
            self._perform(self._session.failed(entry, [graphql_error(describe(error))]))
        self._link.flush()
        self._lane.submit(self._query)

    # What the time brings.

    def _arm(self) -> None:
        """Sets the one timer, unless it goes off earlier anyhow."""
        due = self._session.due
        if due >= self._timer_at:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = max(due, self._loop.time())
        self._timer = self._loop.call_at(self._timer_at, self._tick)

    def _tick(self) -> None:
        self._timer, self._timer_at = None, math.inf
        self._perform(self._session.tick(self._loop.time()))
        self._link.flush()
        self._arm()


class _Gate:
    """The link as the strand sees it: paused also while the client has not answered."""

    def __init__(self, link: Link, session: GraphQLSession) -> None:
        self._link = link
        self._session = session
        self.flush = link.flush
        self.write = link.write
        self.close = link.close
        self.abort = link.abort

    @property
    def paused(self) -> bool:
        return self._link.paused or self._session.blocked

    @property
    def unsent(self) -> int:
        return self._link.unsent
