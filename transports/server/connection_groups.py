"""What the machine of one connection wants done for consumers of groups."""

import asyncio
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from flow.contracts import Subscription
from publishers.criteria.cost import Cost
from publishers.criteria.criteria import Criteria
from publishers.errors import HistoryPruned
from publishers.groups import GroupDelivery
from publishers.model.position import Position, PositionToken
from publishers.slots.errors import Fenced
from publishers.views.view import Integers
from transports.access.access import Access
from transports.access.grant import Grant, LogAction
from transports.access.principal import Principal
from transports.codec.groups import (
    AckCall,
    ClaimCall,
    ConsumerCall,
    InProgressCall,
    MemberReply,
    NackCall,
    PendingCall,
    deliveries_json,
    pending_json,
)
from transports.errors import Forbidden
from transports.problems import describe
from transports.protocol.connection import Effect, WireEntry
from transports.protocol.consumers import CallGroup, DemandDeliveries, JoinGroup
from transports.protocol.server import ServerSession
from transports.quotas.pool import Pools
from transports.server.member_leases import HeldMember, MemberLease, MemberLeases
from transports.server.outbound import Lane

if TYPE_CHECKING:
    from publishers.log.changelog import ChangeLog

__all__ = ["ConnectionGroups"]

_CHANGED: Final = "joined again: what may be done with the group is not what it was"


class _Consumer:
    """The subscriber behind one consumer of the connection.

    Attributes:
        entry: The entry of the session.
        name: What the client knows the log by.
        log: The log.
        group: The name of the group.
        lane: Its executor.
        lease: What it has joined as; None before that.
        calls: What it wants done, in order, with the numbers of its calls.
        busy: Whether a thread does some of that.
        gone: Whether it has ended, with the connection or not, before all was done; None while it has not.
    """

    def __init__(
        self,
        groups: "ConnectionGroups",
        effect: JoinGroup,
        lane: Lane,
        name: str,
        log: "ChangeLog",
    ) -> None:
        self.entry = effect.entry
        self.name = name
        self.log = log
        self.group = effect.wish.group
        self.lane = lane
        self.lease: MemberLease | None = None
        self.calls: deque[CallGroup] = deque()
        self.busy = False
        self.gone: bool | None = None
        self._groups = groups
        self._integers = effect.wish.integers
        self._credits = effect.wish.credits

    @property
    def integers(self) -> Integers:
        """How large whole numbers are told."""
        return self._integers

    def request(self, n: int) -> None:
        """The client takes so many more."""
        subscription = None if self.lease is None else self.lease.held.subscription
        if subscription is None:
            self._credits += n
        else:
            subscription.request(n)

    def fenced(self, error: Fenced, /) -> None:
        """Another connection has joined under its name."""
        self.on_error(error)
        self.lane.settle()

    # Signals, on the lane.

    def on_subscribe(self, subscription: Subscription, /) -> None:
        """Deliveries may come."""
        if self.entry.ended or self.lease is None:
            subscription.cancel()
            return
        self.lease.held.subscription = subscription
        if self._credits:
            subscription.request(self._credits)

    def on_next(self, delivery: GroupDelivery, /) -> None:
        """One delivery."""
        self.on_next_batch([delivery])

    def on_next_batch(self, deliveries: Sequence[GroupDelivery], /) -> None:
        """Some deliveries."""
        self._groups.deliver(self, deliveries)
        self.lane.settle()

    def on_error(self, error: Exception, /) -> None:
        """It can have nothing any more."""
        self._groups.ended(self, error)

    def on_complete(self) -> None:
        """It has left."""
        self._groups.ended(self, None)


class ConnectionGroups:
    """The consumers of groups of one connection, on its event loop.

    Args:
        session: Its machine.
        logs: The logs of the server, by name.
        access: What each principal may do.
        leases: The consumers of the server.
        pools: Threads of the server.
        client: Whose share of the threads it takes.
        lane: Makes the executor of a consumer.
        weigh: Counts what the criteria of a group weigh.
        perform: Does what the machine answers.
    """

    def __init__(
        self,
        session: ServerSession,
        logs: "Mapping[str, ChangeLog]",
        access: Access,
        leases: MemberLeases,
        *,
        pools: Pools,
        client: Hashable,
        lane: Callable[[], Lane],
        weigh: Callable[[WireEntry, str, Criteria, Cost], None],
        perform: Callable[[Iterable[Effect]], object],
    ) -> None:
        self._session = session
        self._logs = logs
        self._access = access
        self._leases = leases
        self._pools = pools
        self._client = client
        self._lane = lane
        self._weigh = weigh
        self._perform = perform
        self._consumers: dict[WireEntry, _Consumer] = {}

    def do(
        self,
        effect: JoinGroup | CallGroup | DemandDeliveries,
        principal: Principal,
        *,
        lost: Callable[[], bool],
    ) -> None:
        """Does what the machine wants.

        Args:
            effect: It.
            principal: Whose client it is.
            lost: Whether the connection is gone.
        """
        if isinstance(effect, JoinGroup):
            self._join(effect, principal, lost)
            return
        consumer = self._consumers[effect.entry]
        if isinstance(effect, CallGroup):
            consumer.calls.append(effect)
            self._work(consumer)
        else:
            consumer.request(effect.n)

    def left(self, entry: WireEntry, *, lost: bool) -> None:
        """A consumer has ended, with the connection or not; what it said is done first."""
        consumer = self._consumers.pop(entry, None)
        if consumer is not None:
            consumer.gone = lost
            if consumer.lease is not None:
                consumer.lease.held.cancel()
            self._let_go(consumer)

    def review(self, granted: Callable[[str], Grant | None]) -> None:
        """Ends what may not be had any more; ``granted`` tells what a log allows to consumers now, by its name."""
        for consumer in list(self._consumers.values()):
            now = granted(consumer.name)
            try:
                if now is None:
                    raise Forbidden("log", _CHANGED)
                _check(now, consumer.group)
            except Forbidden:
                self.ended(consumer, Forbidden("group", _CHANGED))

    # What the consumer is told.

    def deliver(self, consumer: _Consumer, deliveries: Sequence[GroupDelivery]) -> None:
        """Writes ``deliveries``; what nobody waits for any more goes back."""
        lease, log = consumer.lease, consumer.log
        assert lease is not None
        if consumer.entry.ended or lease.holder is not consumer:
            lease.held.member.give_back(deliveries)
            return
        try:
            told = deliveries_json(tuple(deliveries), log.token, consumer.integers)
        except Exception as error:  # noqa: BLE001 - what cannot be encoded ends this consumer, and is told
            self.ended(consumer, error)
            return
        lease.held.note(deliveries)
        self._perform(consumer.entry.delivered(told))

    def ended(self, consumer: _Consumer, error: Exception | None) -> None:
        """Writes the last message."""
        entry = consumer.entry
        if error is None:
            self._perform(self._session.left(entry))
        else:
            problem = describe(error, lambda position: str(consumer.log.token(position)))
            self._perform(self._session.failed(entry, problem))

    # Joining.

    def _join(self, effect: JoinGroup, principal: Principal, lost: Callable[[], bool]) -> None:
        entry, wish = effect.entry, effect.wish
        try:
            name, log, grant = self._access.find(self._logs, wish.log, principal, LogAction.CONSUME)
            _check(grant, wish.group)
        except Exception as error:  # noqa: BLE001 - whatever it was, it concerns this consumer only
            self._perform(self._session.failed(entry, describe(error)))
            return
        consumer = self._consumers[entry] = _Consumer(self, effect, self._lane(), name, log)

        def joined(result: Callable[[], MemberLease]) -> None:
            try:
                lease = consumer.lease = result()
                if entry.ended:
                    self._leases.leave(lease, consumer, lost=lost())
                    return
                self._weigh(entry, name, lease.held.group.book.criteria, lease.cost)
                self._begin(consumer, effect, lease)
            except Exception as error:  # noqa: BLE001 - likewise
                self.ended(consumer, error)

        self._leases.join(log, wish, principal, consumer, client=self._client, then=joined)

    def _begin(self, consumer: _Consumer, effect: JoinGroup, lease: MemberLease) -> None:
        """Tells a consumer that it has joined, and gives it deliveries: those first that it was sent and that have not come."""
        held, entry, wish = lease.held, effect.entry, effect.wish
        reply = MemberReply(held.group.name, held.member.name, held.generation)
        feed = held.member.deliveries(history=wish.history, nbytes=consumer.lane.batch_bytes)
        missing = held.missing(wish.received if wish.generation == held.generation else 0)

        def begin(_: object = None) -> None:
            if not entry.ended:
                self._perform(entry.joined(consumer.name, reply))
                feed.subscribe(consumer, executor=consumer.lane)

        if not missing:
            begin()
            return
        self._on_thread(lambda: held.member.give_back(missing), begin)

    # Calls.

    def _work(self, consumer: _Consumer) -> None:
        """Has what was asked for done by one thread at a time, and answers it."""
        lease = consumer.lease
        if consumer.busy or not consumer.calls or lease is None:
            return
        calls, consumer.calls, consumer.busy = list(consumer.calls), deque(), True
        work = partial(_do_all, consumer.log, lease.held, [call.call for call in calls])

        def done(result: Callable[[], list[object]]) -> None:
            consumer.busy = False
            try:
                answers = result()
            except Exception as error:  # noqa: BLE001 - no thread does it
                answers = [describe(error)] * len(calls)
            for call, answer in zip(calls, answers, strict=True):
                self._perform(consumer.entry.answered(call.n, answer))
            self._work(consumer)
            self._let_go(consumer)

        self._on_thread(work, done)

    def _let_go(self, consumer: _Consumer) -> None:
        """Gives back what has ended, as soon as all is done that it said."""
        if consumer.gone is not None and consumer.lease is not None and not consumer.busy:
            self._leases.leave(consumer.lease, consumer, lost=consumer.gone)

    def _on_thread(self, work: Callable[[], Any], then: Callable[[Callable[[], Any]], None]) -> None:
        try:
            turn = self._pools.scanning.submit(self._client, lambda _: work())
        except Exception as error:  # noqa: BLE001 - as where the server stops
            then(partial(_fail, error))
            return

        def told(done: "asyncio.Future[Any]") -> None:
            if not done.cancelled():
                done.exception()  # looked at, so that it is not reported as forgotten
            then(done.result)

        asyncio.wrap_future(turn.result).add_done_callback(told)


def _check(grant: Grant, group: str) -> None:
    """Refuses a group that may not be used.

    Raises:
        Forbidden: If it may not.
    """
    grant.check_group(group)
    if grant.view is not None:
        raise Forbidden("group", "used by those who may see the whole of each change")


# On a thread.


def _do_all(log: "ChangeLog", held: HeldMember, calls: Sequence[ConsumerCall]) -> list[object]:
    """Does what a consumer asks for, in order; answers with results and problems. What is to be durable is, when all is."""

    def token(position: Position) -> str:
        return str(log.token(position))

    answers: list[object] = []
    for call in calls:
        try:
            answers.append(_do(log, held, call, token))
        except Exception as error:  # noqa: BLE001 - whatever it was, it concerns this call only
            answers.append(describe(error, token))
    durable = [at for at, call in enumerate(calls) if isinstance(call, AckCall) and call.durable]
    if durable:
        try:
            held.member.ack(durable=True)
        except Exception as error:  # noqa: BLE001 - likewise
            problem = describe(error, token)
            for at in durable:
                answers[at] = problem
    return answers


def _do(
    log: "ChangeLog", held: HeldMember, call: ConsumerCall, token: Callable[[Position], str]
) -> Mapping[str, object]:
    member = held.member
    if isinstance(call, PendingCall):
        start = None if call.start is None else _place(log, call.start)
        rows = held.group.pending_rows(
            start, consumer=call.consumer, min_idle=call.min_idle, limit=call.limit
        )
        return {"total": held.group.pending().total, "rows": pending_json(rows, token)}
    if isinstance(call, ClaimCall):
        return _claim(log, held, call, token)
    places = sorted({_place(log, one) for one in call.places}, reverse=True)
    if isinstance(call, AckCall):
        return {"count": member.ack_upto(places[0]) if call.upto else member.ack(*places)}
    if isinstance(call, NackCall):  # the last of a key first: it goes back with those before it
        found = [member.nack(one, call.delay, count=call.count, error=call.error) for one in places]
    elif isinstance(call, InProgressCall):
        found = [member.in_progress(one) for one in places]
    else:
        found = [member.term(one, call.reason) for one in reversed(places)]
    return {"count": sum(found)}


def _claim(
    log: "ChangeLog", held: HeldMember, call: ClaimCall, token: Callable[[Position], str]
) -> Mapping[str, object]:
    claimed = held.member.claim(
        call.min_idle,
        None if call.places is None else [_place(log, one) for one in call.places],
        start=None if call.start is None else _place(log, call.start),
        limit=call.limit,
        only_ids=call.only_ids,
    )
    try:
        told = deliveries_json(claimed.deliveries, log.token, Integers.NUMBER)
    except BaseException:
        held.member.give_back(claimed.deliveries)
        raise
    return {
        "deliveries": msgspec.Raw(told),
        "next": None if claimed.next is None else token(claimed.next),
        "lost": [token(one) for one in claimed.lost],
    }


def _place(log: "ChangeLog", text: str) -> Position:
    """Where a delivery lies.

    Raises:
        PositionError: If it is not one of this history of the log.
    """
    try:
        return log.position_of(text)
    except HistoryPruned:  # what was not done of that is lost, which a claim tells
        return PositionToken.parse(text).position


def _fail(error: Exception) -> Any:
    raise error
