"""The group consumers of one connection, for every protocol."""

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
from transports.codec.groups import JoinRequest
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
    """The subscriber of one consumer of a connection.

    Args:
        members: The consumers of the connection.
        entry: The entry of the subscription in the protocol machine.
        join_request: The group and the name to join as.
        lane: The executor of the consumer.
        name: The name of the log, as the client knows it.
        log: The log.

    Attributes:
        entry, join_request, lane, name, log: The arguments.
        lease: The lease of the joined consumer; None before it has joined.
        gone: Whether the connection was lost, once the consumer has ended; None before. The lease is released when the
            acknowledgements that arrived before the end are done.
    """

    def __init__(
        self,
        members: "HeldMembers[Any]",
        entry: _Entry,
        request: JoinRequest,
        lane: Lane,
        name: str,
        log: "ChangeLog",
    ) -> None:
        self.entry = entry
        self.join_request = request
        self.lane = lane
        self.name = name
        self.log = log
        self.lease: MemberLease | None = None
        self.gone: bool | None = None
        self._members = members
        self._credits = request.credits

    def request(self, n: int) -> None:
        """Requests ``n`` more deliveries."""
        subscription = None if self.lease is None else self.lease.held.subscription
        if subscription is None:
            self._credits += n
        else:
            subscription.request(n)

    def fenced(self, error: Fenced, /) -> None:
        """Ends the consumer: another connection has joined under its name."""
        self.on_error(error)
        self.lane.settle()

    # Signals, on the lane.

    def on_subscribe(self, subscription: Subscription, /) -> None:
        """Stores the subscription, and requests the credits that arrived before it."""
        if self.entry.ended or self.lease is None:
            subscription.cancel()
            return
        self.lease.held.subscription = subscription
        if self._credits:
            subscription.request(self._credits)

    def on_next(self, delivery: GroupDelivery, /) -> None:
        """Delivers one delivery."""
        self.on_next_batch([delivery])

    def on_next_batch(self, deliveries: Sequence[GroupDelivery], /) -> None:
        """Delivers several deliveries."""
        self._members.deliver(self, deliveries)
        self.lane.settle()

    def on_error(self, error: Exception, /) -> None:
        """Ends the consumer with an error."""
        self._members.ended(self, error)

    def on_complete(self) -> None:
        """Ends the consumer: it has left its group."""
        self._members.ended(self, None)


_Subscriber = TypeVar("_Subscriber", bound=MemberSubscriber[Any])


class HeldMembers(ABC, Generic[_Subscriber]):
    """The group consumers of one connection; on its event loop.

    Args:
        leases: The consumer leases of the server.
        pools: The thread pools of the server.
        client: The key of the client in the fair thread pools.
        lane: Makes the executor of a consumer.
        weigh: Charges the cost of the group's criteria to a subscription.
        on_joined: Called when a consumer has joined or has failed to join.

    Attributes:
        joining: How many consumers are joining.
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
        self.joining: int = 0
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
        """Ends a consumer: writes its last message."""

    @abstractmethod
    def _begin(self, consumer: _Subscriber, lease: MemberLease) -> None:
        """Starts the deliveries of a consumer that has joined."""

    @abstractmethod
    def _write(self, consumer: _Subscriber, lease: MemberLease, deliveries: Sequence[GroupDelivery]) -> None:
        """Writes deliveries; raises if they cannot be encoded."""

    # What every protocol shares.

    def join(self, consumer: _Subscriber, principal: Principal, *, lost: Callable[[], bool]) -> None:
        """Joins a consumer to its group.

        Args:
            consumer: The subscriber of the consumer.
            principal: The principal of the client.
            lost: Returns whether the connection is lost; asked if the subscription has ended meanwhile.
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
            except Exception as error:  # noqa: BLE001 - any error concerns only this consumer
                self.ended(consumer, error)

        self._leases.join(
            consumer.log, consumer.join_request, principal, consumer, client=self._client, then=joined
        )

    def left(self, entry: WireEntry, *, lost: bool) -> None:
        """Ends a consumer; ``lost`` says whether its connection was lost. Acknowledgements that have arrived are done first."""
        consumer = self._consumers.pop(entry, None)
        if consumer is not None:
            consumer.gone = lost
            if consumer.lease is not None:
                consumer.lease.held.cancel()
            self._let_go(consumer)

    def request(self, entry: WireEntry, n: int) -> bool:
        """Requests ``n`` more deliveries for a consumer; returns False if there is no such consumer."""
        consumer = self._consumers.get(entry)
        if consumer is not None:
            consumer.request(n)
        return consumer is not None

    def review(self, granted: Callable[[str], Grant | None]) -> None:
        """Ends each consumer that is not authorised any more; ``granted`` returns the grant for a log by its name, or None."""
        for consumer in list(self._consumers.values()):
            now = granted(consumer.name)
            try:
                if now is None:
                    raise Forbidden("log", _CHANGED)
                now.check_group(consumer.join_request.group)
            except Forbidden:
                self.ended(consumer, Forbidden("group", _CHANGED))

    def deliver(self, consumer: _Subscriber, deliveries: Sequence[GroupDelivery]) -> None:
        """Writes deliveries; returns them to the group if the consumer has ended or has lost its lease."""
        lease = consumer.lease
        assert lease is not None
        if consumer.entry.ended or lease.holder is not consumer:
            lease.held.member.give_back(deliveries)
            return
        try:
            self._write(consumer, lease, deliveries)
        except Exception as error:  # noqa: BLE001 - a delivery that cannot be encoded ends this consumer with the error
            self.ended(consumer, error)

    def _let_go(self, consumer: _Subscriber) -> None:
        """Releases the lease of a consumer that has ended."""
        if consumer.gone is not None and consumer.lease is not None:
            self._leases.leave(consumer.lease, consumer, lost=consumer.gone)

    def _on_thread(
        self, consumer: _Subscriber, work: Callable[[], Any], then: Callable[[Callable[[], Any]], None]
    ) -> None:
        try:
            payer = consumer.lane.payer
            turn = self._pools.scanning.submit(self._client, lambda _: work(), payer=payer)
        except Exception as error:  # noqa: BLE001 - such as while the server stops
            then(raising(error))
            return

        def finished(done: "asyncio.Future[Any]") -> None:
            if not done.cancelled():
                done.exception()  # read, so that asyncio does not report it as never retrieved
            then(done.result)

        asyncio.wrap_future(turn.result).add_done_callback(finished)
