"""The leases of slots that clients of a server have open."""

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Final

from publishers.criteria.cost import Cost, weigh
from publishers.slots.errors import Fenced
from publishers.slots.slot import Slot
from transports.access.principal import Principal
from transports.codec.slots import SlotRequest
from transports.errors import SlotNotOpen, TooManySlots
from transports.limits import Limits, half
from transports.quotas.pool import Pools
from transports.server.leases import ClientLease, ClientLeases, LeaseHolder, LeaseOpening

if TYPE_CHECKING:
    from publishers.log.changelog import ChangeLog

__all__ = ["SlotLease", "SlotLeases"]

SlotLease = ClientLease[Slot]
"""The lease of an open slot."""

_OWNER: Final = "a client"


class SlotLeases(ClientLeases[Slot]):
    """The slot leases on a server; the key is log and name of the slot.

    Args:
        limits: The limits ``slot_leases`` and ``grace``; clients of one principal have half of the former.
        pools: The thread pools of the server.
        alone: Whether all clients are one principal, which then has no share.
    """

    def __init__(self, limits: Limits, pools: Pools, *, alone: bool = False) -> None:
        most = limits.slot_leases
        super().__init__(
            pools,
            grace=limits.grace,
            most=most,
            share=most if alone else half(most),
            too_many=TooManySlots,
            fenced=lambda slot, current: Fenced(slot.name, slot.generation, current),
        )

    def take(
        self,
        log: "ChangeLog",
        request: SlotRequest,
        principal: Principal,
        holder: LeaseHolder,
        *,
        client: Hashable,
        then: Callable[[Callable[[], SlotLease]], None],
    ) -> None:
        """Opens a slot for a client, or resumes the opening that it had; see `ClientLeases.lease`."""
        owner = request.owner or principal.name or _OWNER

        def make() -> tuple[Slot, Cost]:
            slot = log.slots.open(
                request.name, take_over=request.take_over or False, owner=owner, generation=request.generation
            )
            return slot, weigh(slot.criteria)

        opening = LeaseOpening(request.generation, request.opening, principal.name)
        self.lease((log, request.name), opening, holder, make=make, client=client, then=then)

    def opened(self, log: "ChangeLog", name: str, opening: str, principal: Principal) -> Slot:
        """Returns the slot of an opening, whether its client is connected or within the grace period; from any thread.

        Raises:
            SlotNotOpen: If no client has it open, or another opening has.
        """
        lease = self.find((log, name))
        if lease is None or not lease.resumes(LeaseOpening(None, opening, principal.name)):
            raise SlotNotOpen(name, opening)
        return lease.held
