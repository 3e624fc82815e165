"""Binds the protocol machine of one connection to subscriptions, a link and a clock."""

import asyncio
from collections.abc import Callable, Hashable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

from flow.errors import Lagged
from publishers.criteria.cost import Cost
from publishers.criteria.criteria import Criteria
from publishers.errors import HistoryPruned, PenstockError
from publishers.fanout.batch import Batch
from publishers.fanout.gap import Gap, OnGap
from publishers.fanout.state import State
from publishers.log.feed import ChangeFeed
from publishers.log.start import Since
from publishers.model.position import Position
from publishers.schemas.registry import SchemaVersion
from publishers.views.view import View
from transports.access.policy import Caller, Policy, check_schemas, find_log, narrow
from transports.access.tokens import Authenticator
from transports.codec.events import EventEncoder
from transports.codec.messages import Wish, check_weight
from transports.codec.schemas import SchemaQuestion, schema_json
from transports.codec.starts import explained, reads_disk
from transports.errors import Problem, describe
from transports.limits import Limits
from transports.protocol.connection import Effect
from transports.protocol.server import LookUp, Open, SchemaEntry, ServerSession, SubscriptionEntry
from transports.protocol.states import Stage
from transports.quotas.pool import Pools
from transports.quotas.weight import ServerWeight
from transports.server.driver import Driver
from transports.server.link import Link
from transports.server.subscriber import ChangeSubscriber

if TYPE_CHECKING:
    from publishers.log.changelog import ChangeLog

__all__ = ["ChangeDriver"]

_WITH_CURSOR: Final = frozenset({"LAGGED", "LOG_CLOSED", "SLOW_CONSUMER", "GOING_AWAY"})


class ChangeDriver(Driver[ServerSession, ChangeSubscriber]):
    """One connection of the protocol, on the event loop of its link.

    Args:
        logs: The logs that may be subscribed to, by name.
        link: The accepted WebSocket.
        pools: Threads for what reads the disk; None for some of its own.
        client: Whose share of the threads it takes; None for one of its own.
        limits: Bounds of the connection.
        weight: That of the whole server; None for a server of this connection alone.
        loop: The event loop, whose clock is the connection's.
        server: Name and version, told to the client.
        authenticate: Judges the client's token; None lets everybody in.
        policy: What clients may see; None for everything.
        token: The token that came with the upgrade.
        on_lost: Called once when the connection is gone.
    """

    def __init__(
        self,
        logs: "Mapping[str, ChangeLog]",
        link: Link,
        *,
        pools: Pools | None = None,
        client: Hashable = None,
        limits: Limits,
        loop: asyncio.AbstractEventLoop,
        server: str,
        weight: ServerWeight | None = None,
        authenticate: Authenticator | None = None,
        policy: Policy | None = None,
        token: str | None = None,
        on_lost: "Callable[[ChangeDriver], None]" = lambda _: None,
    ) -> None:
        self._logs = logs
        self._policy = policy
        self._encoders: dict[ChangeLog, EventEncoder] = {}
        super().__init__(
            ServerSession(limits, server=server, now=loop.time()),
            link,
            pools=pools or Pools(limits),
            client=client,
            limits=limits,
            weight=weight,
            loop=loop,
            authenticate=authenticate,
            token=token,
            on_lost=on_lost,
        )

    # What the link tells.

    @property
    def unsent(self) -> int:
        """Bytes that were written for it and that the operating system has not taken yet."""
        return self._link.unsent

    def goaway(self, deadline: float, reason: str) -> None:
        """Announces the end: no new subscriptions, and ``stop`` will follow within ``deadline`` seconds."""
        self._perform(self._session.goaway(deadline, reason))
        self._link.flush()

    def stop(self) -> None:
        """Tells every cursor a last time, ends every subscription with ``GOING_AWAY``, and closes with 1012."""
        if not self._link.paused:
            self._checkpoint(
                [
                    subscriber.entry
                    for subscriber in self._subscribers.values()
                    if subscriber.entry.stage is Stage.ACTIVE
                ]
            )
        self._perform(self._session.stop())

    # What the machine wants done.

    def _do(self, effect: Effect) -> None:
        match effect:
            case Open(entry, wish):
                self._open(entry, wish)
            case LookUp(question, asked):
                self._look_up(question, asked)
            case _:
                raise TypeError(f"{effect!r} is no effect of this protocol")

    def _open(self, entry: SubscriptionEntry, wish: Wish) -> None:
        cursor: Callable[[Position], str] = str
        try:
            name, log = find_log(self._logs, wish.log, self._policy, self._token)
            encoder = self._encoders.setdefault(log, EventEncoder(log.token))
            cursor = encoder.cursor
            lane = self._outbound.lane(wish.batch_bytes, wish.linger)
            kept = wish if wish.wishes is None else wish.bare()
            subscriber = self._subscribers[entry] = ChangeSubscriber(
                self, entry, kept, name=name, log=log, encoder=encoder, lane=lane
            )
            if wish.criteria is None:
                read = partial(self._read, subscriber, wish)
                self._jobs.send(self._pools.preparing, entry, wish.read, read)
            else:
                self._admit(subscriber, wish, *wish.read())
        except Exception as error:  # noqa: BLE001 - whatever it was, it concerns this subscription only
            self._perform(self._session.failed(entry, describe(error, cursor)))

    def _read(
        self,
        subscriber: ChangeSubscriber,
        wish: Wish,
        found: tuple[Criteria, Cost] | None,
        error: BaseException | None,
    ) -> None:
        """It is known what a heavy wish asks for, or what is wrong with it."""
        try:
            if error is not None:
                raise error
            if found is not None:
                self._admit(subscriber, wish, *found)
        except Exception as failure:  # noqa: BLE001 - whatever it was, it concerns this subscription only
            self._perform(
                self._session.failed(subscriber.entry, describe(failure, subscriber.encoder.cursor))
            )
        self._link.flush()

    def _admit(self, subscriber: ChangeSubscriber, wish: Wish, criteria: Criteria, cost: Cost) -> None:
        """Counts what is asked for, and makes its feed, on a thread if that reads the disk or takes long."""
        entry, log = subscriber.entry, subscriber.log
        view = narrow(self._policy, Caller(subscriber.name, self._token), wish.view, criteria)
        check_weight(cost, self._limits)
        self._weight.take(entry, subscriber.name, criteria, cost)
        heavy = cost.weight > self._limits.inline_weight
        make = partial(_feed, log, wish, criteria, view, heavy=heavy)
        scans = reads_disk(wish.start)
        if heavy or scans:
            pool = self._pools.scanning if scans else self._pools.preparing
            self._jobs.send(pool, entry, make, partial(self._found, subscriber))
        else:
            self._found(subscriber, make(), None)

    def _found(
        self, subscriber: ChangeSubscriber, feed: ChangeFeed | None, error: BaseException | None
    ) -> None:
        """It is known where a subscription begins, or why it cannot."""
        wish, entry = subscriber.wish, subscriber.entry
        try:
            if error is not None:
                raise error
            if feed is not None and not entry.ended:
                feed.subscribe(
                    subscriber,
                    executor=subscriber.lane,
                    batch_events=wish.batch_events,
                    batch_bytes=wish.batch_bytes,
                )
        except Exception as failure:  # noqa: BLE001 - whatever it was, it concerns this subscription only
            self._perform(self._session.failed(entry, describe(failure, subscriber.encoder.cursor)))
        self._link.flush()

    # Schemas.

    def _look_up(self, entry: SchemaEntry, asked: SchemaQuestion) -> None:
        try:
            name, log = find_log(self._logs, asked.log, self._policy, self._token)
            check_schemas(self._policy, Caller(name, self._token))
        except Exception as error:  # noqa: BLE001 - whatever it was, it concerns this question only
            self._perform(self._session.failed(entry, describe(error)))
            return

        def told(found: SchemaVersion | None, error: BaseException | None) -> None:
            if error is None:
                self._perform(self._session.answered(entry, schema_json(name, found, log.token)))
            else:
                self._perform(self._session.failed(entry, describe(error)))
            self._link.flush()

        self._jobs.send(
            self._pools.scanning, entry, partial(log.schema, asked.entity_type, asked.version), told
        )

    # What subscriptions tell, on the strand.

    def opened(self, subscriber: ChangeSubscriber) -> None:
        """Answers ``subscribed``."""
        subscription, log, cursor = subscriber.subscription, subscriber.log, subscriber.encoder.cursor
        if subscription is None:
            return
        try:
            effects = self._session.subscribed(
                subscriber.entry,
                resync=subscription.state is State.RESYNC,
                now=self._loop.time(),
                log=subscriber.name,
                epoch=log.epoch,
                cursor=cursor(subscription.position),
                oldest=cursor(log.oldest),
                head=cursor(log.head),
            )
        except Exception as error:  # noqa: BLE001 - the client waits for an answer, and this is it
            self._fail(subscriber, error)
            return
        self._perform(effects)
        self._arm(subscriber.entry.due(self._limits))

    def deliver(self, subscriber: ChangeSubscriber, batch: Batch) -> None:
        """Writes a ``next``."""
        try:
            frame = self._session.next(subscriber.entry, batch, subscriber.encoder, self._loop.time())
        except Exception as error:  # noqa: BLE001 - what cannot be encoded ends this subscription, and is told
            self._fail(subscriber, error)
            return
        if frame is not None:
            self._link.write(frame)
            if subscriber.entry.unsettled:
                self._arm(subscriber.entry.due(self._limits))

    def moved(self, subscriber: ChangeSubscriber, *, resync: bool) -> None:
        """Notes a change of state for the next checkpoint, or ends a subscription that must not lag."""
        entry = subscriber.entry
        if (
            resync
            and subscriber.wish.fail_on_lag
            and not entry.resync
            and subscriber.subscription is not None
        ):
            missed = subscriber.subscription.lag
            self._fail(subscriber, Lagged(0 if missed is None else missed))
            return
        self._session.state(entry, resync=resync)
        self._arm(entry.due(self._limits))

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
        if subscriber.entry.stage is Stage.ENDED:
            return
        problem = describe(error, subscriber.encoder.cursor)
        if problem.code in _WITH_CURSOR and subscriber.subscription is not None:
            problem = Problem(*problem[:3], data={"cursor": subscriber.cursor(), **problem.data})
        self._perform(self._session.failed(subscriber.entry, problem))

    # What the time brings.

    def _tick(self, now: float) -> None:
        self._perform(self._session.tick(now))
        # A paused link gets its checkpoints when it has drained.
        if not self._link.paused:
            self._checkpoint(self._session.overdue(now))
            self._link.flush()
            self._arm(self._session.due)

    def _checkpoint(self, entries: Iterable[SubscriptionEntry]) -> None:
        items = []
        for entry in entries:
            subscriber = self._subscribers[entry]
            if subscriber.subscription is not None:
                at = subscriber.subscription.checkpoint()
                cursor = subscriber.encoder.cursor
                live, resync = at.head.version - 1, at.state is State.RESYNC
                items.append((entry, cursor(at.position), cursor(at.head), live, resync))
        self._perform(self._session.checkpoint(items, self._loop.time()))


def _feed(log: "ChangeLog", wish: Wish, criteria: Criteria, view: View, *, heavy: bool) -> ChangeFeed:
    """What a client subscribes to; may read the disk, see ``reads_disk``, and what is heavy is prepared here."""
    wishes = () if wish.empty else criteria
    gaps: OnGap = "jump" if wish.jump else "fail"
    since = _since(log, wish)
    try:
        feed = log.changes(wishes, since=since, until=wish.until, view=view, whole=wish.whole, on_gap=gaps)
        if heavy:
            feed.prepare()
        return feed
    except PenstockError as error:
        raise explained(error, since) from None


def _since(log: "ChangeLog", wish: Wish) -> Since:
    if wish.since is None and not isinstance(wish.start, Position):
        return wish.start
    if wish.jump:
        return wish.start if wish.since is None else wish.since
    since = wish.start if isinstance(wish.start, Position) else log.position_of(wish.since or "")
    # Asked again by the feed, after registration; here it lets the error be the first answer.
    if since < log.oldest:
        raise HistoryPruned(log.oldest)
    return since
