"""The leases of group consumers that clients of a server have joined as."""

from collections import deque
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING

from publishers.criteria.cost import Cost, weigh
from publishers.groups import ConsumerGroup, GroupDelivery, GroupMember
from publishers.groups.errors import ConsumerFenced
from publishers.slots.errors import Fenced
from transports.access.principal import Principal
from transports.codec.groups import JoinRequest
from transports.errors import ConsumerNotJoined, TooManyMembers
from transports.limits import Limits, half
from transports.quotas.pool import Pools
from transports.server.leases import ClientLease, ClientLeases, LeaseHolder, LeaseOpening

if TYPE_CHECKING:
    from flow.contracts import Subscription
    from publishers.log.changelog import ChangeLog

__all__ = ["HeldMember", "MemberLease", "MemberLeases"]


class HeldMember:
    """A consumer that a client has joined as.

    Attributes:
        group: The group of the consumer.
        member: The consumer.
        subscription: The subscription to its deliveries on the current connection; None before it subscribes.
        sent: How many deliveries were sent to the client over all its connections; for clients that report how many they received.
        begun: Whether deliveries were sent to a client that does not report that.
    """

    def __init__(self, group: ConsumerGroup, member: GroupMember) -> None:
        self.group = group
        self.member = member
        self.subscription: Subscription | None = None
        self.sent: int = 0
        self.begun = False
        # The deliveries that the client may not have received; a consumer never has more pending than this holds.
        self._last: deque[GroupDelivery] = deque(maxlen=group.book.record.settings.max_consumer_pending)

    @property
    def generation(self) -> int:
        """The generation of the joining."""
        return self.member.generation

    def note(self, deliveries: Sequence[GroupDelivery]) -> None:
        """Records deliveries that were sent."""
        self.sent += len(deliveries)
        self._last.extend(GroupDelivery(one.position, (), one.count, one.generation) for one in deliveries)

    def missing(self, received: int) -> list[GroupDelivery]:
        """Returns the deliveries that were sent and did not arrive at a client that ``received`` so many."""
        count = min(max(self.sent - received, 0), len(self._last))
        self.sent = min(self.sent, received)
        return [self._last.pop() for _ in range(count)]

    def cancel(self) -> None:
        """Ends its deliveries; the consumer stays joined."""
        subscription, self.subscription = self.subscription, None
        if subscription is not None:
            subscription.cancel()

    def close(self) -> None:
        """Leaves the group, which redelivers what the consumer has pending at once."""
        self.cancel()
        self.member.leave()


MemberLease = ClientLease[HeldMember]
"""The lease of a joined consumer."""


class MemberLeases(ClientLeases[HeldMember]):
    """The leases of the group consumers on a server; the key is log, group and name of the consumer.

    Args:
        limits: The limits ``group_members`` and ``grace``; clients of one principal have half of the former.
        pools: The thread pools of the server.
        alone: Whether all clients are one principal, which then has no share.
    """

    def __init__(self, limits: Limits, pools: Pools, *, alone: bool = False) -> None:
        most = limits.group_members
        super().__init__(
            pools,
            grace=limits.grace,
            most=most,
            share=most if alone else half(most),
            too_many=TooManyMembers,
            fenced=_fenced,
        )

    def join(
        self,
        log: "ChangeLog",
        request: JoinRequest,
        principal: Principal,
        holder: LeaseHolder,
        *,
        client: Hashable,
        then: Callable[[Callable[[], MemberLease]], None],
    ) -> None:
        """Joins a consumer for a client, or resumes its earlier joining; see `ClientLeases.lease`.

        A new joining under a name that another client has joined as takes the name over, and fences that client.
        """

        def make() -> tuple[HeldMember, Cost]:
            group = log.groups.open(request.group)
            held = HeldMember(group, group.join(request.consumer))
            return held, weigh(group.book.criteria)

        opening = LeaseOpening(request.generation, request.opening, principal.name)
        key = (log, request.group, request.consumer)
        self.lease(key, opening, holder, make=make, client=client, then=then)

    def joined(self, log: "ChangeLog", request: JoinRequest, principal: Principal) -> GroupMember:
        """Returns the consumer of an opening, whether its client is connected or within the grace period; from any thread.

        Raises:
            ConsumerNotJoined: If there is no such consumer, or another opening has joined under its name.
        """
        lease = self.find((log, request.group, request.consumer))
        if lease is None or not lease.resumes(LeaseOpening(None, request.opening, principal.name)):
            raise ConsumerNotJoined(request.group, request.consumer, request.opening or "")
        return lease.held.member


def _fenced(held: HeldMember, current: int) -> Fenced:
    member = held.member
    why = "another connection has joined under its name"
    return ConsumerFenced(held.group.name, member.generation, current, member.name, why)
