"""The consumers of groups that one connection has, whatever its protocol."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from flow.contracts import Subscription
from publishers.criteria.cost import Cost
from publishers.criteria.criteria import Criteria
from publishers.groups import GroupDelivery
from publishers.slots.errors import Fenced
from transports.access.grant import Grant
from transports.access.principal import Principal
from transports.codec.groups import JoinWish
from transports.errors import Forbidden
from transports.protocol.connection import WireEntry
from transports.quotas.pool import Pools
from transports.server.member_leases import MemberLease, MemberLeases
from transports.server.outbound import Lane
from transports.server.outcomes import raising

if TYPE_CHECKING:
    from publishers.log.changelog import ChangeLog

__all__ = ["HeldMembers", "MemberSubscriber"]

_CHANGED: Final = "joined again: what may be done with the group is not what it was"


_Entry = TypeVar("_Entry", bound=WireEntry)


class MemberSubscriber(Generic[_Entry]):
    """The subscriber behind one consumer of a connection.

    Args:
        members: Those of the connection.
        entry: Of its subscription.
        wish: As what it joins.
        lane: Its executor.
        name: What the client knows the log by.
        log: The log.

    Attributes:
        entry: Likewise.
        wish: Likewise.
        lane: Likewise.
        name: Likewise.
        log: Likewise.
        lease: What it has joined as; None before that.
        gone: Whether it has ended, with the connection or not, before all was done that it said; None while it has not.
    """

    def __init__(
        self,
        members: "HeldMembers[Any]",
        entry: _Entry,
        wish: JoinWish,
        lane: Lane,
        name: str,
        log: "ChangeLog",
    ) -> None:
        self.entry = entry
        self.wish = wish
        self.lane = lane
        self.name = name
        self.log = log
        self.lease: MemberLease | None = None
        self.gone: bool | None = None
        self._members = members
        self._credits = wish.credits

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
        self._members.deliver(self, deliveries)
        self.lane.settle()

    def on_error(self, error: Exception, /) -> None:
        """It can have nothing any more."""
        self._members.ended(self, error)

    def on_complete(self) -> None:
        """It has left."""
        self._members.ended(self, None)


_Subscriber = TypeVar("_Subscriber", bound=MemberSubscriber[Any])


class HeldMembers(ABC, Generic[_Subscriber]):
    """The consumers of groups of one connection, on its event loop.

    Args:
        leases: The consumers of the server.
        pools: Threads of the server.
        client: Whose share of the threads it takes.
        lane: Makes the executor of a consumer.
        weigh: Counts what the criteria of a group weigh.
        on_joined: Called when one has joined, or it is known why not.

    Attributes:
        joining: How many are about to join.
    """

    def __init__(
        self,
        leases: MemberLeases,
        *,
        pools: Pools,
        client: Hashable,
        lane: Callable[[], Lane],
        weigh: Callable[[WireEntry, str, Criteria, Cost], None],
        on_joined: Callable[[], object] | None = None,
    ) -> None:
        self.joining = 0
        self._on_joined = on_joined
        self._leases = leases
        self._pools = pools
        self._client = client
        self._lane = lane
        self._weigh = weigh
        self._consumers: dict[WireEntry, _Subscriber] = {}

    # What a protocol adds.

    @abstractmethod
    def ended(self, consumer: _Subscriber, error: Exception | None) -> None:
        """Writes the last message."""

    @abstractmethod
    def _begin(self, consumer: _Subscriber, lease: MemberLease) -> None:
        """Gives deliveries to one that has joined."""

    @abstractmethod
    def _write(self, consumer: _Subscriber, lease: MemberLease, deliveries: Sequence[GroupDelivery]) -> None:
        """Writes some deliveries; raises if they cannot be encoded."""

    # What is the same for all.

    def join(self, consumer: _Subscriber, principal: Principal, *, lost: Callable[[], bool]) -> None:
        """Has a consumer join.

        Args:
            consumer: Its subscriber.
            principal: Whose client it is.
            lost: Whether the connection is gone, if the subscription has ended.
        """
        self._consumers[consumer.entry] = consumer
        self.joining += 1

        def joined(result: Callable[[], MemberLease]) -> None:
            self.joining -= 1
            join(result)
            if self._on_joined is not None:
                self._on_joined()

        def join(result: Callable[[], MemberLease]) -> None:
            try:
                lease = consumer.lease = result()
                if consumer.entry.ended:
                    self._leases.leave(lease, consumer, lost=lost())
                    return
                self._weigh(consumer.entry, consumer.name, lease.held.group.book.criteria, lease.cost)
                self._begin(consumer, lease)
            except Exception as error:  # noqa: BLE001 - whatever it was, it concerns this consumer only
                self.ended(consumer, error)

        self._leases.join(consumer.log, consumer.wish, principal, consumer, client=self._client, then=joined)

    def left(self, entry: WireEntry, *, lost: bool) -> None:
        """A consumer has ended, with the connection or not; what it said is done first."""
        consumer = self._consumers.pop(entry, None)
        if consumer is not None:
            consumer.gone = lost
            if consumer.lease is not None:
                consumer.lease.held.cancel()
            self._let_go(consumer)

    def request(self, entry: WireEntry, n: int) -> bool:
        """The client of a consumer takes so many more; answers whether there is such a consumer."""
        consumer = self._consumers.get(entry)
        if consumer is not None:
            consumer.request(n)
        return consumer is not None

    def review(self, granted: Callable[[str], Grant | None]) -> None:
        """Ends what may not be had any more; ``granted`` tells what a log allows to consumers now, by its name."""
        for consumer in list(self._consumers.values()):
            now = granted(consumer.name)
            try:
                if now is None:
                    raise Forbidden("log", _CHANGED)
                now.check_group(consumer.wish.group)
            except Forbidden:
                self.ended(consumer, Forbidden("group", _CHANGED))

    def deliver(self, consumer: _Subscriber, deliveries: Sequence[GroupDelivery]) -> None:
        """Writes deliveries; what nobody waits for any more goes back."""
        lease = consumer.lease
        assert lease is not None
        if consumer.entry.ended or lease.holder is not consumer:
            lease.held.member.give_back(deliveries)
            return
        try:
            self._write(consumer, lease, deliveries)
        except Exception as error:  # noqa: BLE001 - what cannot be encoded ends this consumer, and is told
            self.ended(consumer, error)

    def _let_go(self, consumer: _Subscriber) -> None:
        """Gives back what has ended."""
        if consumer.gone is not None and consumer.lease is not None:
            self._leases.leave(consumer.lease, consumer, lost=consumer.gone)

    def _on_thread(self, work: Callable[[], Any], then: Callable[[Callable[[], Any]], None]) -> None:
        try:
            turn = self._pools.scanning.submit(self._client, lambda _: work())
        except Exception as error:  # noqa: BLE001 - as where the server stops
            then(raising(error))
            return

        def told(done: "asyncio.Future[Any]") -> None:
            if not done.cancelled():
                done.exception()  # looked at, so that it is not reported as forgotten
            then(done.result)

        asyncio.wrap_future(turn.result).add_done_callback(told)
