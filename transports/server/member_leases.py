"""The consumers of groups that clients of a server have joined as."""

from collections import deque
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING

from publishers.criteria.cost import Cost, weigh
from publishers.groups import ConsumerGroup, GroupDelivery, GroupMember
from publishers.groups.errors import ConsumerFenced
from publishers.slots.errors import Fenced
from transports.access.principal import Principal
from transports.codec.groups import JoinWish
from transports.errors import ConsumerNotJoined, TooManyMembers
from transports.limits import Limits
from transports.quotas.pool import Pools
from transports.server.leases import ClientLease, ClientLeases, LeaseHolder, LeaseOpening

if TYPE_CHECKING:
    from flow.contracts import Subscription
    from publishers.log.changelog import ChangeLog

__all__ = ["HeldMember", "MemberLease", "MemberLeases"]


class HeldMember:
    """A consumer that a client has joined as.

    Attributes:
        group: Its group.
        member: The consumer.
        subscription: To its deliveries, for the connection that has it; None before that.
        sent: How many deliveries were sent to the client, over all of its connections, where it tells how many have come.
        begun: Whether a client that does not tell that was given some.
    """

    def __init__(self, group: ConsumerGroup, member: GroupMember) -> None:
        self.group = group
        self.member = member
        self.subscription: Subscription | None = None
        self.sent = 0
        self.begun = False
        # What may not have come; what is pending at it is never more than that.
        self._last: deque[GroupDelivery] = deque(maxlen=group.book.record.settings.max_consumer_pending)

    @property
    def generation(self) -> int:
        """Of its joining."""
        return self.member.generation

    def note(self, deliveries: Sequence[GroupDelivery]) -> None:
        """Some deliveries were sent."""
        self.sent += len(deliveries)
        self._last.extend(GroupDelivery(one.position, (), one.count, one.generation) for one in deliveries)

    def missing(self, received: int) -> list[GroupDelivery]:
        """What was sent and has not come, of a client that was told so many deliveries."""
        count = min(max(self.sent - received, 0), len(self._last))
        self.sent = min(self.sent, received)
        return [self._last.pop() for _ in range(count)]

    def cancel(self) -> None:
        """Ends its deliveries; it stays joined."""
        subscription, self.subscription = self.subscription, None
        if subscription is not None:
            subscription.cancel()

    def close(self) -> None:
        """Leaves: what it has pending is due at once."""
        self.cancel()
        self.member.leave()


MemberLease = ClientLease[HeldMember]
"""A consumer that has joined for a client."""


class MemberLeases(ClientLeases[HeldMember]):
    """The consumers of groups that clients of a server have joined as, by log, group and name.

    Args:
        limits: ``group_members`` and ``group_grace``.
        pools: Threads of the server.
    """

    def __init__(self, limits: Limits, pools: Pools) -> None:
        most = limits.group_members
        super().__init__(
            pools, grace=limits.group_grace, most=most, too_many=TooManyMembers(most), fenced=_fenced
        )

    def join(
        self,
        log: "ChangeLog",
        wish: JoinWish,
        principal: Principal,
        holder: LeaseHolder,
        *,
        client: Hashable,
        then: Callable[[Callable[[], MemberLease]], None],
    ) -> None:
        """Has a consumer join for a client, or go on with the joining that it had; see `ClientLeases.lease`.

        One that joins anew under a name that another has here takes its place, which fences it.
        """

        def make() -> tuple[HeldMember, Cost]:
            group = log.groups.open(wish.group)
            held = HeldMember(group, group.join(wish.consumer))
            return held, weigh(group.book.criteria)

        opening = LeaseOpening(wish.generation, wish.opening, principal.name)
        key = (log, wish.group, wish.consumer)
        self.lease(key, opening, holder, make=make, client=client, then=then)

    def joined(self, log: "ChangeLog", wish: JoinWish, principal: Principal) -> GroupMember:
        """The consumer that a client has joined as under what it calls the opening, or had until its connection was lost; from any thread.

        Raises:
            ConsumerNotJoined: If there is none, or another opening has joined under its name.
        """
        lease = self.find((log, wish.group, wish.consumer))
        if lease is None or not lease.resumes(LeaseOpening(None, wish.opening, principal.name)):
            raise ConsumerNotJoined(wish.group, wish.consumer, wish.opening or "")
        return lease.held.member


def _fenced(held: HeldMember, current: int) -> Fenced:
    member = held.member
    why = "another connection has joined under its name"
    return ConsumerFenced(held.group.name, member.name, member.generation, current, why)
