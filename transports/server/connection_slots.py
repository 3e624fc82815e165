"""The slots of one connection: opens them, passes acknowledgements on, and releases their leases."""

from collections.abc import Callable, Hashable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from publishers.errors import PenstockError
from transports.access.principal import Principal
from transports.codec.slots import SlotReply, SlotRequest, acknowledged, flush
from transports.problems import describe
from transports.protocol.connection import Effect, WireEntry
from transports.protocol.server import ServerSession
from transports.protocol.subscriptions import AckSlot, SubscriptionEntry
from transports.quotas.pool import Pools
from transports.server.disk_jobs import DiskJobs
from transports.server.leases import LeaseHolder
from transports.server.slot_leases import SlotLease, SlotLeases

if TYPE_CHECKING:
    from publishers.log.changelog import ChangeLog

__all__ = ["ConnectionSlots", "HeldSlots"]


class _Consumer(LeaseHolder, Protocol):
    """The subscriber of a subscription that opens a slot."""

    @property
    def entry(self) -> WireEntry:
        """The entry of the subscription in the protocol machine."""
        ...

    @property
    def log(self) -> "ChangeLog":
        """The log of the slot."""
        ...


class _Held:
    """A slot that a subscription of the connection holds.

    Attributes:
        consumer: The subscriber of that subscription.
        lease: The lease of the slot.
        storing: Whether a thread is making acknowledgements durable.
        waiting: The number of the newest acknowledgement that arrived while the thread was busy; None without one.
    """

    __slots__ = ("consumer", "lease", "storing", "waiting")

    def __init__(self, consumer: _Consumer, lease: SlotLease) -> None:
        self.consumer = consumer
        self.lease = lease
        self.storing = False
        self.waiting: int | None = None

    @property
    def cursor(self) -> str:
        """The cursor of the next change that is not acknowledged."""
        return str(self.consumer.log.token(self.lease.held.position))


class HeldSlots:
    """The slots that one connection has open; on the event loop.

    Args:
        leases: The slot leases of the server.
        client: The key of the client in the fair thread pools.
        on_opened: Called when a slot is open or could not be opened.

    Attributes:
        opening: How many slots are being opened.
    """

    def __init__(
        self, leases: SlotLeases, client: Hashable, *, on_opened: Callable[[], object] | None = None
    ) -> None:
        self.opening: int = 0
        self._leases = leases
        self._client = client
        self._on_opened = on_opened
        self._held: dict[WireEntry, _Held] = {}

    def open(
        self,
        consumer: _Consumer,
        request: SlotRequest,
        principal: Principal,
        then: Callable[[Callable[[], SlotLease]], None],
        *,
        lost: Callable[[], bool],
    ) -> None:
        """Opens a slot for a subscription; ``then`` is not called if the subscription ends before the slot is open.

        Args:
            consumer: The subscriber of the subscription.
            request: The slot, as the client asked for it.
            principal: The principal of the client.
            then: Called with a function that returns the lease or raises the error.
            lost: Returns whether the connection is lost; asked if the subscription has ended meanwhile.
        """

        def taken(result: Callable[[], SlotLease]) -> None:
            self.opening -= 1
            take(result)
            if self._on_opened is not None:
                self._on_opened()

        def take(result: Callable[[], SlotLease]) -> None:
            try:
                lease = result()
            except Exception:  # noqa: BLE001 - any error concerns only this subscription
                if not consumer.entry.ended:
                    then(result)
                return
            if consumer.entry.ended:
                self._leases.leave(lease, consumer, lost=lost())
                return
            self._held[consumer.entry] = _Held(consumer, lease)
            then(lambda: lease)

        self.opening += 1
        self._leases.take(consumer.log, request, principal, consumer, client=self._client, then=taken)

    def left(self, entry: WireEntry, *, lost: bool) -> None:
        """Releases the lease of a subscription that has ended; ``lost`` says whether its connection was lost."""
        held = self._held.pop(entry, None)
        if held is not None:
            self._leases.leave(held.lease, held.consumer, lost=lost)


class ConnectionSlots(HeldSlots):
    """The slots of a connection whose client acknowledges over the same connection.

    Args:
        session: The protocol machine of the connection.
        leases: The slot leases of the server.
        pools: The thread pools of the server.
        jobs: The disk jobs of the connection.
        client: The key of the client in the fair thread pools.
        perform: Performs the effects that the machine returns.
    """

    def __init__(
        self,
        session: ServerSession,
        leases: SlotLeases,
        *,
        pools: Pools,
        jobs: DiskJobs,
        client: Hashable,
        perform: Callable[[Iterable[Effect]], object],
    ) -> None:
        super().__init__(leases, client)
        self._session = session
        self._pools = pools
        self._jobs = jobs
        self._perform = perform

    def slot_field(self, entry: SubscriptionEntry) -> dict[str, Any]:
        """Returns the ``slot`` field of ``subscribed``; empty if the subscription has no slot."""
        held = self._held.get(entry)
        if held is None:
            return {}
        slot = held.lease.held
        return {"slot": SlotReply(slot.name, slot.generation, held.cursor, slot.paused)}

    def acknowledge(self, effect: AckSlot) -> None:
        """Applies an acknowledgement, and replies if the client asked for a reply."""
        held = self._held.get(effect.entry)
        if held is None:
            return  # the slot is not open yet, so no change was delivered
        log, slot = held.consumer.log, held.lease.held
        try:
            slot.ack(acknowledged(log, effect.cursor))
        except PenstockError as error:
            problem = describe(error, lambda position: str(log.token(position)))
            self._perform(self._session.acked(effect.entry, held.cursor, effect.n, problem))
            return
        if effect.durable:
            held.waiting = max(held.waiting or 0, effect.n or 0)
            self._store(effect.entry, held)
        elif effect.n is not None:
            if held.storing or held.waiting is not None:
                held.waiting = max(
                    held.waiting or 0, effect.n
                )  # replied to after the acknowledgements before it
            else:
                self._perform(self._session.acked(effect.entry, held.cursor, effect.n))

    def _store(self, entry: SubscriptionEntry, held: _Held) -> None:
        """Makes acknowledgements durable on a thread; at most one thread per slot."""
        if held.storing or held.waiting is None:
            return
        n, held.waiting, held.storing = held.waiting, None, True

        def done(result: Callable[[], None]) -> None:
            held.storing = False
            problem = None
            try:
                result()
            except Exception as error:  # noqa: BLE001 - any error concerns only this slot
                problem = describe(error)
            self._perform(self._session.acked(entry, held.cursor, n, problem))
            self._store(entry, held)

        self._jobs.send(self._pools.scanning, entry, partial(flush, held.lease.held), done)
