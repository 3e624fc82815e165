"""Binds the machine of one ``graphql-transport-ws`` connection to operations, a link and a clock."""

import asyncio
import contextlib
from collections.abc import Callable, Hashable
from functools import partial
from typing import Final

from publishers.errors import HistoryPruned, LogDropped, PenstockError
from publishers.fanout.batch import Batch
from publishers.log.feed import ChangeFeed
from transports.access.tokens import Authenticator
from transports.codec.graphql_ws import GraphQLRequest, graphql_error
from transports.errors import describe
from transports.graphql.cost import is_light
from transports.graphql.errors import RequestRefused, problem_of
from transports.graphql.execution import Engine, Operation
from transports.limits import Limits
from transports.protocol.connection import Effect, Entry
from transports.protocol.graphql_ws import Execute, GraphQLSession, OperationEntry, Resume
from transports.protocol.states import Phase
from transports.quotas.pool import Pools, Turn
from transports.quotas.weight import ServerWeight
from transports.server.driver import Driver
from transports.server.graphql_subscriber import OperationSubscriber
from transports.server.link import Link

__all__ = ["GraphQLDriver"]

_BATCH_EVENTS: Final = 32


class GraphQLDriver(Driver[GraphQLSession, OperationSubscriber]):
    """One connection, on the event loop of its link.

    Args:
        engine: Executes the operations.
        link: The accepted WebSocket.
        pools: Threads for what reads the disk; None for some of its own.
        client: Whose share of the threads it takes; None for one of its own.
        limits: Bounds of the connection.
        weight: That of the whole server; None for a server of this connection alone.
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
        pools: Pools | None = None,
        client: Hashable = None,
        limits: Limits,
        loop: asyncio.AbstractEventLoop,
        weight: ServerWeight | None = None,
        authenticate: Authenticator | None = None,
        token: str | None = None,
        on_lost: "Callable[[GraphQLDriver], None]" = lambda _: None,
    ) -> None:
        self._engine = engine
        self._queries: dict[OperationEntry, Operation] = {}
        self._querying = self._asked = False
        self._asking: OperationEntry | None = None
        self._turn: Turn[bytes] | None = None
        session = GraphQLSession(limits, now=loop.time())
        super().__init__(
            session,
            link,
            pools=pools or Pools(limits),
            client=client,
            gate=_Gate(link, session),
            limits=limits,
            weight=weight,
            loop=loop,
            authenticate=authenticate,
            token=token,
            on_lost=on_lost,
        )
        self._lane = self._outbound.lane(1, 0)

    # What the link tells.

    def lost(self) -> None:
        """The connection is gone: every operation ends here."""
        self._queries.clear()
        if self._turn is not None:
            self._turn.cancel()
            self._turn.release()
        super().lost()

    def drained(self) -> None:
        """The link is writable again: the answer to a query was taken."""
        self._give_back()
        super().drained()

    @property
    def unsent(self) -> int:
        """Bytes that were written for it and that the operating system has not taken yet."""
        return self._link.unsent

    def goaway(self, deadline: float, reason: str) -> None:
        """Nothing: the protocol has no word for it, and ``stop`` will follow."""

    def stop(self) -> None:
        """Closes with 1012, after which clients connect again."""
        self._perform(self._session.stop())

    # What the machine wants done.

    def _do(self, effect: Effect) -> None:
        match effect:
            case Execute(call, request):
                self._open(call, request)
            case Resume():
                self._outbound.run()
            case _:
                raise TypeError(f"{effect!r} is no effect of this protocol")

    def _open(self, entry: OperationEntry, request: GraphQLRequest) -> None:
        prepare = partial(self._prepare, request, self._token)
        if not is_light(request.query, request.variables):
            self._jobs.send(self._pools.preparing, entry, prepare, partial(self._prepared, entry))
            return
        try:
            operation = prepare()
        except Exception as error:  # noqa: BLE001 - whatever it was, it concerns this operation only
            self._prepared(entry, None, error)
        else:
            self._prepared(entry, operation, None)

    def _prepare(self, request: GraphQLRequest, token: str | None) -> Operation:
        """What is to be executed; from any thread."""
        operation = self._engine.prepare(
            request.query, request.operation_name, request.variables, token=token
        )
        if operation.kind == "subscription":
            operation.open()
        return operation

    def _prepared(
        self, entry: OperationEntry, operation: Operation | None, error: BaseException | None
    ) -> None:
        """A request was read and checked."""
        if entry.ended:
            return
        if isinstance(error, RequestRefused):
            self._perform(self._session.failed(entry, error.errors))
        elif error is not None or operation is None:
            problem = describe(error or asyncio.CancelledError())
            self._perform(self._session.failed(entry, [graphql_error(problem)]))
        elif operation.kind == "subscription":
            self._subscribe(entry, operation)
        else:
            self._queries[entry] = operation
            self._ask()
        self._link.flush()

    def _cancel(self, entry: Entry) -> None:
        if isinstance(entry, OperationEntry):
            self._queries.pop(entry, None)
            if entry is self._asking and self._turn is not None:
                self._turn.cancel()
        super()._cancel(entry)

    # Subscriptions.

    def _subscribe(self, entry: OperationEntry, operation: Operation) -> None:
        source, cost = operation.source, operation.cost
        try:
            self._weight.take(entry, source.log.name, source.criteria, cost)
        except PenstockError as error:
            self._perform(self._session.failed(entry, [graphql_error(describe(error))]))
            return
        subscriber = self._subscribers[entry] = OperationSubscriber(self, entry, operation)
        heavy = cost.weight > self._limits.inline_weight
        make = partial(source.feed, operation.view, heavy=heavy)
        if heavy or source.reads_disk:
            pool = self._pools.scanning if source.reads_disk else self._pools.preparing
            self._jobs.send(pool, entry, make, partial(self._found, subscriber))
            return
        try:
            feed = make()
        except PenstockError as error:
            self._found(subscriber, None, error)
        else:
            self._found(subscriber, feed, None)

    def _found(
        self, subscriber: OperationSubscriber, feed: ChangeFeed | None, error: BaseException | None
    ) -> None:
        """It is known where a subscription begins, or why it cannot."""
        try:
            if error is not None:
                raise error
            if feed is not None and not subscriber.entry.ended:
                feed.subscribe(
                    subscriber,
                    executor=self._outbound.lane(self._limits.batch_bytes, 0),
                    batch_events=min(_BATCH_EVENTS, self._limits.fence_events),
                    batch_bytes=self._limits.batch_bytes,
                )
        except Exception as failure:  # noqa: BLE001 - whatever it was, it concerns this operation only
            told = graphql_error(problem_of(failure, subscriber.operation.source.log))
            self._perform(self._session.failed(subscriber.entry, [told]))
        self._link.flush()

    def deliver(self, subscriber: OperationSubscriber, batch: Batch) -> None:
        """Writes a ``next`` for each event."""
        try:
            payloads = subscriber.tell_gap(subscriber.operation.payloads(batch.slices))
        except Exception as error:  # noqa: BLE001 - what cannot be executed ends this operation, and is told
            self.ended(subscriber, error)
            return
        for message in self._session.next(subscriber.entry, payloads, self._loop.time()):
            self._link.write(message)
        self._arm(self._session.due)

    def ended(self, subscriber: OperationSubscriber, error: Exception | None) -> None:
        """Writes the terminal message."""
        entry, log = subscriber.entry, subscriber.operation.source.log
        if entry.ended:
            return
        if error is None and subscriber.gap is not None:
            error = HistoryPruned(subscriber.gap.end)  # no event has followed that could have told of it
        if error is None:
            self._perform(self._session.completed(entry))
            return
        told = graphql_error(problem_of(error, log))
        if subscriber.subscription is not None and not isinstance(error, LogDropped):
            with contextlib.suppress(PenstockError):  # the files of one that has ended by itself may be gone
                told["extensions"].setdefault("cursor", str(log.token(subscriber.subscription.position)))
        self._perform(self._session.failed(entry, [told]))

    # Queries: one at a time, off the loop, and the next only when the link takes its result.

    def _ask(self) -> None:
        """Asks the strand for a turn, unless it has been asked."""
        if self._queries and not self._querying and not self._asked:
            self._asked = True
            self._lane.submit(self._query)

    def _query(self) -> None:
        self._asked = False
        if self._querying or not self._queries or self._session.phase is Phase.CLOSED:
            return
        entry = next(iter(self._queries))
        operation = self._queries.pop(entry)
        try:
            turn = self._pools.scanning.submit(
                self._client, lambda turn: operation.answer(turn.check), held=True
            )
        except PenstockError as error:
            self._perform(self._session.failed(entry, [graphql_error(describe(error))]))
            self._ask()
            return
        self._querying, self._asking, self._turn = True, entry, turn
        work = asyncio.wrap_future(turn.result, loop=self._loop)
        work.add_done_callback(lambda done: self._queried(entry, done))

    def _queried(self, entry: OperationEntry, done: "asyncio.Future[bytes]") -> None:
        self._querying, self._asking = False, None
        error = asyncio.CancelledError() if done.cancelled() else done.exception()
        if error is None:
            self._perform(self._session.result(entry, done.result()))
        else:
            self._perform(self._session.failed(entry, [graphql_error(describe(error))]))
        self._link.flush()
        self._give_back()
        self._ask()

    def _give_back(self) -> None:
        """Ends the share that the last query had of the threads, once its answer was taken."""
        if self._turn is not None and not self._querying and not self._link.paused:
            self._turn.release()
            self._turn = None

    # What the time brings.

    def _tick(self, now: float) -> None:
        self._perform(self._session.tick(now))
        self._link.flush()
        self._arm(self._session.due)


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

    @property
    def ending(self) -> str | None:
        return self._link.ending
