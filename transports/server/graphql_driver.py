"""Drives the machine of one ``graphql-transport-ws`` connection."""

import asyncio
import contextlib
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, Unpack

import msgspec

from publishers.errors import HistoryPruned, LogDropped, PenstockError
from publishers.fanout.batch import Batch
from publishers.fanout.gap import Gap
from publishers.model.change import Change
from publishers.slots.errors import Fenced
from publishers.snapshots import ChunkEnd, SnapshotBegin, SnapshotCursor, SnapshotEnd
from transports.access.grant import Grant, LogAction, narrow
from transports.access.principal import Principal
from transports.appends import payer_of
from transports.codec.again import AgainRequest
from transports.codec.graphql_ws import GraphQLRequest, graphql_error
from transports.errors import TooManySnapshots
from transports.graphql.cost import is_light
from transports.graphql.errors import RequestRefused, problem_of
from transports.graphql.execution import Engine, GraphQLOperation
from transports.problems import describe
from transports.protocol.connection import Effect, WireEntry
from transports.protocol.fence import FENCE_EVENTS
from transports.protocol.graphql_ws import AskMore, Execute, GraphQLSession, OperationEntry, Resume
from transports.protocol.states import ConnectionPhase
from transports.quotas.pool import Turn
from transports.quotas.shared_bytes import Charges, SharedBytes
from transports.server.connection_slots import HeldSlots
from transports.server.driver import Driver, DriverOptions
from transports.server.graphql_members import OperationMembers
from transports.server.link import SocketLink
from transports.server.member_leases import MemberLeases
from transports.server.outbound import Lane
from transports.server.slot_leases import SlotLease, SlotLeases
from transports.server.subscriber import WireSubscriber
from transports.telemetry.latency import Latency

if TYPE_CHECKING:
    from flow.contracts import Subscription
    from publishers.log.changelog import ChangeLog

__all__ = ["GraphQLDriver", "OperationSubscriber"]

_BATCH_EVENTS: Final = 32


class OperationSubscriber(WireSubscriber[OperationEntry, "GraphQLDriver"]):
    """The subscriber behind one subscription of a connection.

    The protocol has no message for demand, so the subscriber requests everything unless the client has granted credits. The
    lane holds deliveries back: it runs them only while the socket and the ping fence allow.

    Attributes:
        operation: The GraphQL operation that runs for each event.
        gap: Missing history that no event has reported yet.
        latency: Records the latency of the deliveries.
        place: Within a snapshot, the cursor at which the client would resume; None outside.
        snapshots: Beginnings and ends of snapshots that no event has reported yet; bounded by ``forget_empty``.
    """

    __slots__ = ("gap", "latency", "operation", "place", "snapshots")

    def __init__(
        self,
        driver: "GraphQLDriver",
        entry: OperationEntry,
        lane: Lane,
        operation: GraphQLOperation,
        *,
        batch_events: int,
        latency: Latency,
    ) -> None:
        source = operation.source
        super().__init__(
            driver,
            entry,
            lane,
            batch_events=batch_events,
            demand=entry.credits,
            name=source.name,
            grant=source.grant,
            stated=source.stated,
        )
        self.operation: GraphQLOperation = operation
        self.latency: Latency = latency
        self.gap: Gap | None = None
        self.place: str | None = None
        self.snapshots: list[dict[str, object]] = []

    @property
    def slot(self) -> str | None:
        """The name of the slot that it opens; None without one."""
        request = self.operation.source.slot
        return None if request is None else request.name

    @property
    def log(self) -> "ChangeLog":
        """The log that it reads."""
        return self.operation.source.log

    def fenced(self, error: Fenced, /) -> None:
        """Ends the subscription because another connection has opened its slot."""
        self.on_error(error)
        self.lane.settle()

    def with_extensions(self, payloads: list[bytes]) -> list[bytes]:
        """Returns the payloads; the first one reports a gap and snapshots before it in ``extensions``."""
        if not payloads or not (self.gap or self.snapshots):
            return payloads
        fields: dict[str, object] = {}
        if (gap := self.gap) is not None:
            token = self.operation.source.log.token
            fields["gap"] = {"begin": str(token(gap.begin)), "end": str(token(gap.end))}
        if self.snapshots:
            fields["snapshot"] = self.snapshots
        self.gap, self.snapshots = None, []
        return [b'%s,"extensions":%s}' % (payloads[0][:-1], msgspec.json.encode(fields)), *payloads[1:]]

    def forget_empty(self, most: int) -> None:
        """Forgets the oldest snapshot without rows, if there are more than ``most`` that no event has reported.

        A ping has reported it. On an idle log no event would ever free the list.
        """
        oldest = (
            1 if "end" in self.snapshots[0] else 0
        )  # the end of a snapshot whose beginning an event has reported
        if len(self.snapshots) - oldest > 2 * most:
            del self.snapshots[oldest : oldest + 2]

    def ask_rows(self, payload: object) -> None:
        """Requests more rows, as the payload of a ping asks.

        Raises:
            PenstockError: If the request is refused.
        """
        request, limits = AgainRequest.of_types(payload), self._driver.limits
        self.again(request, self.operation.view, limits)

    # Signals beside those of Reactive Streams, on the lane.

    def on_gap(self, gap: Gap, /) -> None:
        """Records missing history; merges it with an earlier gap that no event has reported yet."""
        self.gap = Gap(gap.begin if self.gap is None else self.gap.begin, gap.end)

    def on_snapshot(self, signal: ChunkEnd | SnapshotBegin | SnapshotEnd, /) -> None:
        """Records that a snapshot begins or ends."""
        self._driver.snapshot(self, signal)

    def on_following(self, subscription: "Subscription", /) -> None:
        """Reports that changes follow, behind rows or from the beginning."""
        super().on_following(subscription)
        if self.subscription is subscription:
            self.place = None

    def _rows(self, batch: "Sequence[Change]") -> None:
        self._driver.rows(self, batch)


class GraphQLDriver(Driver[GraphQLSession, OperationSubscriber]):
    """Drives one connection of ``graphql-transport-ws``, on the event loop of its link.

    Args:
        engine: Executes the operations.
        link: The accepted WebSocket.
        leases: The slots that clients of the server have open; by default those of this connection alone.
        members: The group consumers that clients of the server have joined; by default those of this connection alone.
        requests: The bytes of requests that clients of the server wait for, beside appends; by default those of this connection alone.
        **serving: See ``DriverOptions``.
    """

    protocol = "graphql-transport-ws"

    def __init__(
        self,
        engine: Engine,
        link: SocketLink,
        *,
        leases: SlotLeases | None = None,
        members: MemberLeases | None = None,
        requests: SharedBytes | None = None,
        **serving: Unpack[DriverOptions],
    ) -> None:
        self._engine = engine
        self._queries: dict[OperationEntry, GraphQLOperation] = {}
        self._preparing: set[OperationEntry] = set()  # on threads
        self._charges = Charges()  # of operations that have neither begun as subscriptions nor been answered
        self._asked = False
        self._asking: OperationEntry | None = None
        self._turn: Turn[bytes] | None = None
        limits = serving["limits"]
        self._requests = requests or SharedBytes("body_bytes", limits.body_bytes, "bytes of requests")
        session = GraphQLSession(limits, now=serving["loop"].time())
        super().__init__(session, link, blocked=lambda: session.blocked, **serving)
        self._lane = self._outbound.lane(1, 0)
        self._slots = HeldSlots(
            SlotLeases(self._limits, self._pools) if leases is None else leases,
            self._client,
            on_opened=self._ask,
        )
        self._groups = OperationMembers(
            MemberLeases(self._limits, self._pools) if members is None else members,
            write=self._send,
            end=self._end,
            pools=self._pools,
            client=self._client,
            lane=lambda: self._outbound.lane(self._limits.batch_bytes, 0),
            weigh=self._weight.take,
            on_joined=self._ask,
        )

    # Events of the link.

    def lost(self) -> None:
        """Ends every operation, because the connection is gone."""
        self._charges.close()
        self._queries.clear()
        if self._turn is not None:
            self._turn.cancel()
            self._turn.release()
        super().lost()

    def drained(self) -> None:
        """Resumes, because the link is writable again: the client has taken the answer to its query."""
        self._give_back()
        super().drained()

    def review(self, granted: Callable[[Principal, str, LogAction], Grant | None]) -> None:
        """Reviews the connection as every driver does, and ends group consumers that the client may no longer run."""
        super().review(granted)
        self._groups.review(lambda log: granted(self._principal, log, LogAction.CONSUME))
        self._link.flush()

    def goaway(self, deadline: float, reason: str) -> None:
        """Does nothing: the protocol has no such message, and ``stop`` follows."""

    def stop(self) -> None:
        """Closes with 1012, after which clients reconnect."""
        self._perform(self._session.stop())

    # Effects of the machine.

    def _do(self, effect: Effect) -> None:
        match effect:
            case Execute(call, request):
                self._open(call, request)
            case Resume():
                self._outbound.run()
            case AskMore(asking, payload):
                self._ask_rows(asking, payload)
            case _:
                raise TypeError(f"{effect!r} is no effect of this protocol")

    def _ask_rows(self, entry: OperationEntry, payload: object) -> None:
        subscriber = self._subscribers.get(entry)
        try:
            if subscriber is not None and subscriber.begun:
                subscriber.ask_rows(payload)
            elif len(entry.asked) < self._limits.snapshots:
                # Kept until the subscription begins, because no message tells the client when that is.
                entry.asked.append(payload)
            else:
                raise TooManySnapshots(self._limits.snapshots)
        except PenstockError as error:
            self._perform(self._session.failed(entry, [graphql_error(describe(error))]))

    def _open(self, entry: OperationEntry, request: GraphQLRequest) -> None:
        try:
            self._charges.take(entry, self._requests, self._payer, entry.nbytes)
        except PenstockError as error:
            self._perform(self._session.failed(entry, [graphql_error(describe(error))]))
            return
        prepare, prepared = partial(self._prepare, request, self._principal), partial(self._prepared, entry)
        if is_light(request.query or "", request.variables):
            prepared(prepare)
        else:
            self._preparing.add(entry)
            self._jobs.send(self._pools.preparing, entry, prepare, prepared)

    def _prepare(self, request: GraphQLRequest, principal: Principal) -> GraphQLOperation:
        """Parses, validates and opens an operation; from any thread."""
        operation = self._engine.prepare(
            request.query, request.operation_name, request.variables, principal=principal
        )
        if operation.kind == "subscription":
            operation.open()
        return operation

    def _prepared(self, entry: OperationEntry, result: Callable[[], GraphQLOperation]) -> None:
        """Starts an operation that was prepared, or fails it with the error."""
        self._preparing.discard(entry)
        try:
            operation = result()
            if operation.kind == "subscription":
                self._charges.give(entry)
                self._start(entry, operation)
            else:
                if operation.kind == "mutation":
                    unanswered = self._engine.appending.unanswered
                    self._charges.take(entry, unanswered, self._payer, entry.nbytes)
                self._queries[entry] = operation
        except RequestRefused as refused:
            self._charges.give(entry)
            self._perform(self._session.failed(entry, refused.errors))
        except Exception as error:  # noqa: BLE001 - any error concerns only this operation
            self._charges.give(entry)
            self._perform(self._session.failed(entry, [graphql_error(describe(error))]))
        self._ask()
        self._link.flush()

    def _cancel(self, entry: WireEntry) -> None:
        if isinstance(entry, OperationEntry):
            self._preparing.discard(entry)
            self._queries.pop(entry, None)
            if entry is not self._asking:
                self._charges.give(entry)
            elif self._turn is not None:
                self._turn.cancel()
        self._slots.left(entry, lost=self._is_lost())
        self._groups.left(entry, lost=self._is_lost())
        super()._cancel(entry)
        self._ask()

    def _request(self, entry: WireEntry, n: int) -> None:
        if not self._groups.request(entry, n):
            super()._request(entry, n)

    # Subscriptions.

    def _start(self, entry: OperationEntry, operation: GraphQLOperation) -> None:
        source = operation.source
        if source.member is not None:
            self._groups.start(entry, operation, self._principal, lost=self._is_lost)
            return
        if source.stated and (refused := self._crowded()) is not None:
            raise refused
        if source.slot is None:
            self._weight.take(entry, source.log.name, source.criteria, operation.cost)
        lane = self._outbound.lane(self._limits.batch_bytes, 0)
        subscriber = self._subscribers[entry] = OperationSubscriber(
            self,
            entry,
            lane,
            operation,
            batch_events=min(_BATCH_EVENTS, FENCE_EVENTS),
            latency=self._latencies.of(source.log),
        )
        if source.slot is not None:
            admit = partial(self._admit_slot, subscriber)
            self._slots.open(subscriber, source.slot, self._principal, admit, lost=self._is_lost)
            return
        self._subscribe(
            subscriber, operation.cost, partial(source.feed, operation.view), scans=source.reads_disk
        )

    def _admit_slot(self, subscriber: OperationSubscriber, result: Callable[[], SlotLease]) -> None:
        """Counts and subscribes to the slot that was opened, or ends the subscription with the error."""
        operation = subscriber.operation
        try:
            lease = result()
            _, criteria = narrow(subscriber.grant, operation.source.view, lease.held.criteria)
            self._weight.take(subscriber.entry, subscriber.log.name, criteria, lease.cost)
            self._consume(subscriber, lease.held, lease.cost, operation.view)
        except Exception as error:  # noqa: BLE001 - any error concerns only this subscription
            self.ended(subscriber, error)
        self._link.flush()

    def opened(self, subscriber: OperationSubscriber) -> None:
        """Requests the rows that the client asked for before the subscription began.

        The protocol has no message for the beginning itself.
        """
        entry = subscriber.entry
        asked, entry.asked = entry.asked, []
        for payload in asked:
            self._ask_rows(entry, payload)

    def deliver(self, subscriber: OperationSubscriber, batch: Batch) -> None:
        """Writes a ``next`` for each event."""
        try:
            payloads = subscriber.with_extensions(subscriber.operation.payloads(batch.slices))
        except Exception as error:  # noqa: BLE001 - events that cannot be executed end the operation with an error
            self.ended(subscriber, error)
            return
        self._send(subscriber.entry, payloads)
        if subscriber.subscription is not None and subscriber.subscription.cursor.live:
            subscriber.latency.observe(batch.slices[0].block.committed_at)
        if self._delivered is not None:
            self._note(batch, subscriber.operation.source.log.name)

    def rows(self, subscriber: OperationSubscriber, changes: Sequence[Change]) -> None:
        """Writes a ``next`` for each row, and for each change between them."""
        operation = subscriber.operation
        try:
            payloads = subscriber.with_extensions([operation.payload(change) for change in changes])
            subscriber.place = operation.source.cursor(changes[-1])
        except Exception as error:  # noqa: BLE001 - events that cannot be executed end the operation with an error
            self.ended(subscriber, error)
            return
        self._send(subscriber.entry, payloads)

    def _send(self, entry: OperationEntry, payloads: Sequence[bytes]) -> None:
        for message in self._session.next(entry, payloads, self._loop.time()):
            self._link.write(message)
        self._arm(self._session.due)

    def _end(self, entry: OperationEntry, log: "ChangeLog", error: Exception | None) -> None:
        """Writes the last message of a group consumer."""
        if error is None:
            self._perform(self._session.completed(entry))
        else:
            self._perform(self._session.failed(entry, [graphql_error(problem_of(error, log))]))
        self._link.flush()

    def snapshot(
        self, subscriber: OperationSubscriber, signal: ChunkEnd | SnapshotBegin | SnapshotEnd
    ) -> None:
        """Records that a snapshot begins or ends, which the next event reports.

        The end is also reported at once, because the next event may be far off.
        """
        log, notes = subscriber.log, subscriber.snapshots
        match signal:
            case SnapshotBegin(name, position, asked):
                if subscriber.subscription is not None:  # a snapshot that the client asked for later
                    if (refused := self._crowded()) is not None:
                        self.ended(subscriber, refused)
                        return
                    subscriber.subscription, subscriber.stated = None, True
                    begin = SnapshotCursor(name, None, log.token(position))
                    subscriber.place = subscriber.operation.source.text(begin)
                notes.append({"begin": name} if asked is None else {"begin": name, "asked": asked})
            case SnapshotEnd(name, position):
                subscriber.place = str(log.token(position))
                notes.append({"end": name})
                subscriber.forget_empty(self._limits.snapshots)
                if (
                    subscriber.operation.source.snapshot != "initial_only"
                ):  # else the operation completes here
                    self._perform(self._session.snapshot(subscriber.entry, notes))
            case ChunkEnd():
                pass

    def ended(self, subscriber: OperationSubscriber, error: Exception | None) -> None:
        """Writes the terminal message."""
        entry, log = subscriber.entry, subscriber.operation.source.log
        if entry.ended:
            return
        if error is None and subscriber.gap is not None:
            # No event has followed that could have reported the gap.
            error = HistoryPruned(subscriber.gap.end)
        if error is None:
            self._perform(self._session.completed(entry))
            return
        answer = graphql_error(problem_of(error, log))
        if subscriber.place is not None:
            answer["extensions"].setdefault("cursor", subscriber.place)
        elif subscriber.subscription is not None and not isinstance(error, LogDropped):
            with contextlib.suppress(PenstockError):  # the files of a log that has ended may be gone
                answer["extensions"].setdefault("cursor", str(log.token(subscriber.subscription.position)))
        self._perform(self._session.failed(entry, [answer]))

    # Queries: one at a time, off the loop; the next one starts when the link has taken the result.

    def _ask(self) -> None:
        """Queues a query on the lane, unless one is queued already."""
        if self._queries and self._asking is None and not self._asked:
            self._asked = True
            self._lane.submit(self._query)

    def _query(self) -> None:
        self._asked = False
        if self._asking is not None or not self._queries or self._session.phase is ConnectionPhase.CLOSED:
            return
        entry, operation = next(iter(self._queries.items()))
        if operation.kind == "mutation" and (self._preparing or self._slots.opening or self._groups.joining):
            return  # the mutation may be for a slot that is being opened, or a consumer that is still joining
        del self._queries[entry]
        try:
            pool, client = self._pools.scanning, self._client
            if operation.kind == "mutation":
                pool, client = self._pools.appending, self._payer
            turn = pool.submit(
                client, lambda turn: operation.answer(turn.check), payer=self._payer, held=True
            )
        except PenstockError as error:
            self._charges.give(entry)
            self._perform(self._session.failed(entry, [graphql_error(describe(error))]))
            self._ask()
            return
        self._asking, self._turn = entry, turn
        work = asyncio.wrap_future(turn.result, loop=self._loop)
        work.add_done_callback(lambda done: self._queried(entry, done))

    def _queried(self, entry: OperationEntry, done: "asyncio.Future[bytes]") -> None:
        self._asking = None
        self._charges.give(entry)
        error = asyncio.CancelledError() if done.cancelled() else done.exception()
        if error is None:
            self._perform(self._session.result(entry, done.result()))
        else:
            self._perform(self._session.failed(entry, [graphql_error(describe(error))]))
        self._link.flush()
        self._give_back()
        self._ask()

    @property
    def _payer(self) -> Hashable:
        return payer_of(self._principal, self._client)

    def _give_back(self) -> None:
        """Releases the threads' share of the last query once the client has taken its answer."""
        if self._turn is not None and self._asking is None and not self._link.paused:
            self._turn.release()
            self._turn = None

    # Timers.

    def _tick(self, now: float) -> None:
        self._perform(self._session.tick(now))
        self._link.flush()
        self._arm(self._session.due)
