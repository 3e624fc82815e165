"""Drives the machine of one ``penstock.v1+json`` connection."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, Unpack

from flow.errors import Lagged
from publishers.criteria.cost import Cost
from publishers.criteria.criteria import Criteria
from publishers.errors import PenstockError
from publishers.fanout.batch import Batch
from publishers.fanout.gap import Gap
from publishers.fanout.state import State
from publishers.model.change import Change
from publishers.slots.errors import Fenced
from publishers.snapshots import ChunkEnd, SnapshotBegin, SnapshotChange, SnapshotCursor, SnapshotEnd
from publishers.views.view import Integers, View
from transports.access.grant import Grant, LogAction, narrow
from transports.access.principal import Principal
from transports.appends import Appending
from transports.codec.again import AgainRequest
from transports.codec.events import EventEncoder, encode_change
from transports.codec.messages import SubscribeRequest
from transports.codec.snapshot_places import sealed
from transports.codec.starts import reads_disk
from transports.problems import Problem, describe
from transports.protocol.connection import Effect, WireEntry
from transports.protocol.consumers import CallGroup, DemandDeliveries, JoinGroup
from transports.protocol.server import ServerSession
from transports.protocol.states import EntryStage
from transports.protocol.subscriptions import AckSlot, AskRows, Open, Operate, SubscriptionEntry
from transports.server.connection_appends import APPENDS, ConnectionAppends
from transports.server.connection_groups import ConnectionGroups
from transports.server.connection_operations import ConnectionOperations
from transports.server.connection_slots import ConnectionSlots
from transports.server.driver import Driver, DriverOptions
from transports.server.link import SocketLink
from transports.server.member_leases import MemberLeases
from transports.server.outbound import Lane
from transports.server.requested_feeds import narrowed, requested_feed
from transports.server.slot_leases import SlotLease, SlotLeases
from transports.server.subscriber import WireSubscriber
from transports.telemetry.latency import Latency

if TYPE_CHECKING:
    from flow.contracts import Subscription
    from publishers.log.changelog import ChangeLog

__all__ = ["ChangeDriver", "ChangeSubscriber"]

_WITH_CURSOR: Final = frozenset({"LAGGED", "LOG_CLOSED", "SLOW_CONSUMER", "GOING_AWAY"})


class ChangeSubscriber(WireSubscriber[SubscriptionEntry, "ChangeDriver"]):
    """The subscriber behind one subscription of the connection.

    Attributes:
        subscribe_request: The client's subscribe request.
        log: The log that it reads.
        encoder: Encodes the events of that log.
        latency: Records the latency of the deliveries.
        place: Within a snapshot, the cursor at which the client would resume; None outside.
        integers: How large integers are encoded for the client.
        view: The view in which the client sees changes.
    """

    __slots__ = ("encoder", "integers", "latency", "log", "place", "subscribe_request", "view")

    def __init__(
        self,
        driver: "ChangeDriver",
        entry: SubscriptionEntry,
        lane: Lane,
        request: SubscribeRequest,
        *,
        name: str,
        log: "ChangeLog",
        encoder: EventEncoder,
        grant: Grant,
        latency: Latency,
    ) -> None:
        super().__init__(
            driver,
            entry,
            lane,
            batch_events=request.batch_events,
            demand=request.credits,
            name=name,
            grant=grant,
            stated=request.stated,
        )
        self.subscribe_request: SubscribeRequest = request
        self.log: ChangeLog = log
        self.encoder: EventEncoder = encoder
        self.latency: Latency = latency
        self.place: str | None = None
        self.view: View = request.view
        self.integers: Integers = request.view.integers

    def cursor(self) -> str:
        """The cursor at which the client would resume; empty before the subscription begins."""
        if self.place is not None:
            return self.place
        return "" if self.subscription is None else self.encoder.cursor(self.subscription.position)

    @property
    def slot(self) -> str | None:
        """The name of the slot that it opens; None without one."""
        return None if self.subscribe_request.slot is None else self.subscribe_request.slot.name

    def fenced(self, error: Fenced, /) -> None:
        """Ends the subscription because another connection has opened its slot."""
        self.on_error(error)
        self.lane.settle()

    # Signals beside those of Reactive Streams, on the lane.

    def on_gap(self, gap: Gap, /) -> None:
        """Reports that history is missing at the position where the subscription would read on."""
        self._driver.gap(self, gap)

    def on_state(self, state: State, /) -> None:
        """Reports that the subscription has begun or stopped to read from the WAL."""
        self._driver.moved(self, resync=state is State.RESYNC)

    def on_snapshot(self, signal: ChunkEnd | SnapshotBegin | SnapshotEnd, /) -> None:
        """Reports that a snapshot begins or ends, or that a page of its rows has ended."""
        self._driver.snapshot(self, signal)

    def on_following(self, subscription: "Subscription", /) -> None:
        """Reports that changes follow, behind rows or from the beginning."""
        super().on_following(subscription)
        if self.subscription is subscription:
            self.place = None
            self._driver.followed(self)

    def text(self, cursor: SnapshotCursor | str) -> str:
        """The text of a snapshot cursor for the client; sealed if the grant hides rows."""
        return sealed(cursor) if self.grant.narrow else str(cursor)

    def _rows(self, batch: "Sequence[Change]") -> None:
        self._driver.charge(partial(self._driver.rows, self, batch))


class ChangeDriver(Driver[ServerSession, ChangeSubscriber]):
    """Drives one connection of ``penstock.v1+json``, on the event loop of its link.

    Args:
        logs: The logs that clients may subscribe to, by name.
        link: The accepted WebSocket.
        server: Name and version that the client receives.
        appending: The server's shared state for appends; by default one for this connection alone.
        leases: The slot leases of the server; by default those of this connection alone.
        members: The consumer leases of the server; by default those of this connection alone.
        **serving: See ``DriverOptions``.
    """

    protocol = "penstock.v1+json"

    def __init__(
        self,
        logs: "Mapping[str, ChangeLog]",
        link: SocketLink,
        *,
        server: str,
        appending: Appending | None = None,
        leases: SlotLeases | None = None,
        members: MemberLeases | None = None,
        **serving: Unpack[DriverOptions],
    ) -> None:
        self._logs = logs
        self._encoders: dict[ChangeLog, EventEncoder] = {}
        session = ServerSession(serving["limits"], server=server, now=serving["loop"].time())
        super().__init__(session, link, **serving)
        serves = appending or Appending(logs, self._access, self._limits)
        session.refused = serves.figures.count
        self._appends = ConnectionAppends(
            session,
            serves,
            loop=self._loop,
            pools=self._pools,
            jobs=self._jobs,
            client=self._client,
            perform=self._answer_append,
            accepted=self._forgive,
        )
        self._slots = ConnectionSlots(
            session,
            SlotLeases(self._limits, self._pools) if leases is None else leases,
            pools=self._pools,
            jobs=self._jobs,
            client=self._client,
            perform=self._answer_append,
        )

        self._operations = ConnectionOperations(
            session,
            logs,
            self._access,
            pools=self._pools,
            jobs=self._jobs,
            perform=self._answer_append,
        )
        self._groups = ConnectionGroups(
            session,
            logs,
            self._access,
            MemberLeases(self._limits, self._pools) if members is None else members,
            pools=self._pools,
            client=self._client,
            lane=lambda: self._outbound.lane(self._limits.batch_bytes, 0.0),
            weigh=self._weight.take,
            perform=self._answer_append,
        )

    def review(self, granted: Callable[[Principal, str, LogAction], Grant | None]) -> None:
        """Reviews the connection as every driver does, and ends group consumers that the client may no longer run."""
        super().review(granted)
        self._groups.review(lambda log: granted(self._principal, log, LogAction.CONSUME))
        self._link.flush()

    def lost(self) -> None:
        """Ends everything on the connection, which is gone."""
        super().lost()
        self._appends.close()

    def goaway(self, deadline: float, reason: str) -> None:
        """Announces the shutdown: new subscriptions are refused, and ``stop`` follows within ``deadline`` seconds."""
        self._perform(self._session.goaway(deadline, reason))
        self._link.flush()

    def stop(self) -> None:
        """Sends a last checkpoint, ends every subscription with ``GOING_AWAY``, and closes with 1012."""
        if not self._link.paused:
            entries = [subscriber.entry for subscriber in self._subscribers.values()]
            self._checkpoint([entry for entry in entries if entry.stage is EntryStage.ACTIVE])
        self._perform(self._session.stop())

    # Effects of the machine.

    def _do(self, effect: Effect) -> None:
        match effect:
            case Open(entry, request):
                self._open(entry, request)
            case Operate():
                self._operations.do(effect, self._principal)
            case AckSlot():
                self._slots.acknowledge(effect)
            case AskRows(entry, request):
                self._ask_rows(self._subscribers[entry], request)
            case JoinGroup() | CallGroup() | DemandDeliveries():
                self._groups.do(effect, self._principal, lost=self._is_lost)
            case _ if isinstance(effect, APPENDS):
                self._appends.do(effect, self._principal)
                self._arm(self._session.due)
            case _:
                raise TypeError(f"{effect!r} is no effect of this protocol")

    def _open(self, entry: SubscriptionEntry, request: SubscribeRequest) -> None:
        try:
            action = LogAction.READ if request.slot is None else LogAction.CONSUME
            name, log, grant = self._access.find(self._logs, request.log, self._principal, action)
            if request.slot is not None:
                grant.check_slot(request.slot.name)
        except Exception as error:  # noqa: BLE001 - any error concerns only this subscription
            self._perform(self._session.failed(entry, describe(error)))
            return
        if request.stated and (refused := self._crowded()) is not None:
            self._perform(self._session.failed(entry, describe(refused)))
            return
        encoder = self._encoders.setdefault(log, EventEncoder(log.token))
        lane = self._outbound.lane(request.batch_bytes, request.linger)
        kept = request if request.raw_criteria is None else request.bare()
        subscriber = self._subscribers[entry] = ChangeSubscriber(
            self,
            entry,
            lane,
            kept,
            name=name,
            log=log,
            encoder=encoder,
            grant=grant,
            latency=self._latencies.of(log),
        )
        if request.slot is not None:
            admit_slot = partial(self._admit_slot, subscriber, request)
            self._slots.open(subscriber, request.slot, self._principal, admit_slot, lost=self._is_lost)
            return
        read = partial(narrowed, request, grant, self._limits)
        admit = partial(self._admit, subscriber, request)
        if request.criteria is None:
            self._jobs.send(self._pools.preparing, entry, read, admit)
        else:
            admit(read)

    def _admit(
        self,
        subscriber: ChangeSubscriber,
        request: SubscribeRequest,
        result: Callable[[], tuple[Criteria, View, Cost]],
    ) -> None:
        """Counts a subscription whose criteria are known and makes its feed, or ends it with the error."""
        try:
            criteria, view, cost = result()
            subscriber.view, subscriber.integers = view, view.integers
            self._weight.take(subscriber.entry, subscriber.name, criteria, cost)
            # On the system log an empty list of criteria selects nothing; the criteria of a grant are more specific.
            wanted = () if request.empty and subscriber.grant.criteria is None else criteria
            make = partial(requested_feed, subscriber.log, request, wanted, view)
            self._subscribe(subscriber, cost, make, scans=reads_disk(request.start))
        except Exception as error:  # noqa: BLE001 - any error concerns only this subscription
            self.ended(subscriber, error)
        self._link.flush()

    def _ask_rows(self, subscriber: ChangeSubscriber, request: AgainRequest) -> None:
        try:
            subscriber.again(request, subscriber.view, self._limits)
        except PenstockError as error:
            self._fail(subscriber, error)

    # Slots.

    def _cancel(self, entry: WireEntry) -> None:
        self._slots.left(entry, lost=self._is_lost())
        self._groups.left(entry, lost=self._is_lost())
        super()._cancel(entry)

    def _admit_slot(
        self, subscriber: ChangeSubscriber, request: SubscribeRequest, result: Callable[[], SlotLease]
    ) -> None:
        """Counts and subscribes to the slot that was opened, or ends the subscription with the error."""
        try:
            lease = result()
            slot, cost = lease.held, lease.cost
            view, criteria = narrow(subscriber.grant, request.view, slot.criteria)
            subscriber.integers = view.integers
            self._weight.take(subscriber.entry, subscriber.name, criteria, cost)
            since = None if request.since is None else subscriber.log.position_of(request.since)
            self._consume(subscriber, slot, cost, view, since)
        except Exception as error:  # noqa: BLE001 - any error concerns only this subscription
            self.ended(subscriber, error)
        self._link.flush()

    def _forgive(self) -> None:
        self._link.forgive()

    def _answer_append(self, effects: Iterable[Effect]) -> None:
        self._perform(effects)
        self._outbound.settle()

    # Signals of subscriptions, on their lanes.

    def opened(self, subscriber: ChangeSubscriber) -> None:
        """Answers ``subscribed``."""
        subscriber.lane.eager = False
        subscription, log, cursor = subscriber.subscription, subscriber.log, subscriber.encoder.cursor
        if (snapshot := subscriber.snapshot) is not None and (place := snapshot.cursor) is not None:
            subscriber.place = subscriber.text(place)
        try:
            effects = self._session.subscribed(
                subscriber.entry,
                resync=subscription is None or subscription.state is State.RESYNC,
                now=self._loop.time(),
                log=subscriber.name,
                epoch=log.epoch,
                cursor=subscriber.cursor(),
                oldest=cursor(log.oldest),
                head=cursor(log.head),
                **self._slots.slot_field(subscriber.entry),
            )
        except Exception as error:  # noqa: BLE001 - the client waits for an answer, and the error is one
            self._fail(subscriber, error)
            return
        self._perform(effects)
        self._arm(subscriber.entry.due())

    def deliver(self, subscriber: ChangeSubscriber, batch: Batch) -> None:
        """Writes a ``next``."""
        subscriber.lane.eager = len(batch) >= subscriber.batch_events
        try:
            frame = self._session.next(subscriber.entry, batch, subscriber.encoder, self._loop.time())
        except Exception as error:  # noqa: BLE001 - events that cannot be encoded end the subscription with an error
            self._fail(subscriber, error)
            return
        if frame is not None:
            self._link.write(frame)
            if not subscriber.entry.resync:
                subscriber.latency.observe(batch.slices[0].block.committed_at)
            if self._delivered is not None:
                self._note(batch, subscriber.name)
            if subscriber.entry.unsettled:
                self._arm(subscriber.entry.due())

    def rows(self, subscriber: ChangeSubscriber, changes: Sequence[Change]) -> None:
        """Writes a ``next`` with rows and the changes between them."""
        subscriber.lane.eager = len(changes) >= subscriber.batch_events
        try:
            events = []
            for change in changes:
                assert isinstance(change, SnapshotChange)
                subscriber.place = subscriber.text(change.cursor)
                events.append(encode_change(change, subscriber.place, subscriber.integers))
            now = self._loop.time()
            frame = self._session.rows(subscriber.entry, events, subscriber.cursor(), now)
        except Exception as error:  # noqa: BLE001 - events that cannot be encoded end the subscription with an error
            self._fail(subscriber, error)
            return
        if frame is not None:
            self._link.write(frame)
            self._arm(subscriber.entry.due())

    def snapshot(self, subscriber: ChangeSubscriber, signal: ChunkEnd | SnapshotBegin | SnapshotEnd) -> None:
        """Writes the messages of a snapshot that are not rows."""
        send, entry = self._session.snapshot, subscriber.entry
        match signal:
            case SnapshotBegin(name, position, asked):
                if subscriber.place is None:  # a snapshot that the client asked for later
                    if (refused := self._crowded()) is not None:
                        self._fail(subscriber, refused)
                        return
                    begin = SnapshotCursor(name, None, subscriber.log.token(position))
                    subscriber.subscription, subscriber.stated = None, True
                    subscriber.place = subscriber.text(begin)
                fields = {} if asked is None else {"asked": asked}
                self._perform(send(entry, "snapshot_begin", subscriber.place, snapshot=name, **fields))
            case ChunkEnd(cursor):
                if subscriber.grant.criteria is not None:
                    return  # it would reveal the number of hidden rows
                subscriber.place = subscriber.text(cursor)
                self._perform(send(entry, "chunk_end", subscriber.place))
            case SnapshotEnd(name, position):
                subscriber.place = subscriber.encoder.cursor(position)
                self._perform(send(entry, "snapshot_end", subscriber.place, snapshot=name))

    def followed(self, subscriber: ChangeSubscriber) -> None:
        """Records whether the changes after a snapshot begin LIVE or in RESYNC."""
        subscription = subscriber.subscription
        self._session.state(
            subscriber.entry, resync=subscription is not None and subscription.state is State.RESYNC
        )
        self._arm(subscriber.entry.due())

    def moved(self, subscriber: ChangeSubscriber, *, resync: bool) -> None:
        """Records a change of state for the next checkpoint, or ends a subscription with ``fail_on_lag``."""
        entry = subscriber.entry
        if (
            resync
            and subscriber.subscribe_request.fail_on_lag
            and not entry.resync
            and subscriber.subscription is not None
        ):
            at = subscriber.subscription
            # A grant with criteria hides changes, so their number is hidden as well: only versions are counted.
            missed = at.lag if subscriber.grant.criteria is None else at.behind.versions
            self._fail(subscriber, Lagged(0 if missed is None else missed))
            return
        self._session.state(entry, resync=resync)
        self._arm(entry.due())

    def gap(self, subscriber: ChangeSubscriber, gap: Gap) -> None:
        """Writes a ``gap``."""
        cursor = subscriber.encoder.cursor
        self._perform(self._session.gap(subscriber.entry, cursor(gap.begin), cursor(gap.end)))

    def ended(self, subscriber: ChangeSubscriber, error: Exception | None) -> None:
        """Writes the terminal message."""
        if error is None:
            self._perform(self._session.completed(subscriber.entry, subscriber.cursor()))
        else:
            self._fail(subscriber, error)

    def _fail(self, subscriber: ChangeSubscriber, error: Exception) -> None:
        if subscriber.entry.stage is EntryStage.ENDED:
            return
        problem = describe(error, subscriber.encoder.cursor)
        if problem.code in _WITH_CURSOR and (cursor := subscriber.cursor()):
            problem = Problem(*problem[:3], data={"cursor": cursor, **problem.data})
        self._perform(self._session.failed(subscriber.entry, problem))

    # Timers.

    def _tick(self, now: float) -> None:
        self._perform(self._session.tick(now))
        # A paused link gets its checkpoints once it has drained.
        if not self._link.paused:
            self._checkpoint(self._session.overdue(now))
            self._link.flush()
            self._arm(self._session.due)

    def _checkpoint(self, entries: Iterable[SubscriptionEntry]) -> None:
        items = []
        for entry in entries:
            subscriber = self._subscribers[entry]
            if subscriber.place is not None:
                head = subscriber.log.head
                items.append(
                    (entry, subscriber.place, subscriber.encoder.cursor(head), head.version - 1, True)
                )
            elif subscriber.subscription is not None:
                at = subscriber.subscription.checkpoint()
                cursor = subscriber.encoder.cursor
                live, resync = at.head.version - 1, at.state is State.RESYNC
                items.append((entry, cursor(at.position), cursor(at.head), live, resync))
        self._perform(self._session.checkpoint(items, self._loop.time()))
