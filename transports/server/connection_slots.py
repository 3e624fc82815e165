"""What the machine of one connection wants done for those who consume slots."""

from collections.abc import Callable, Hashable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from publishers.errors import PenstockError
from transports.access.principal import Principal
from transports.codec.slots import SlotReply, SlotWish, acknowledged, flush
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
        """Of its subscription."""
        ...

    @property
    def log(self) -> "ChangeLog":
        """Whose slot it opens."""
        ...


class _Held:
    """A slot of the connection.

    Attributes:
        consumer: Whose.
        lease: The slot.
        storing: Whether a thread makes what was acknowledged durable.
        waiting: The newest that is to be durable, and came too late for that.
    """

    __slots__ = ("consumer", "lease", "storing", "waiting")

    def __init__(self, consumer: _Consumer, lease: SlotLease) -> None:
        self.consumer = consumer
        self.lease = lease
        self.storing = False
        self.waiting: int | None = None

    @property
    def cursor(self) -> str:
        """The next change that is not acknowledged."""
        return str(self.consumer.log.token(self.lease.held.position))


class HeldSlots:
    """The slots that one connection has open, on its event loop.

    Args:
        leases: The slots of the server.
        client: Whose share of the threads it takes.
    """

    def __init__(self, leases: SlotLeases, client: Hashable) -> None:
        self._leases = leases
        self._client = client
        self._held: dict[WireEntry, _Held] = {}

    def open(
        self,
        consumer: _Consumer,
        wish: SlotWish,
        principal: Principal,
        then: Callable[[Callable[[], SlotLease]], None],
        *,
        lost: Callable[[], bool],
    ) -> None:
        """Opens a slot for a subscription; ``then`` is not called if that has ended meanwhile.

        Args:
            consumer: Its subscriber.
            wish: Which slot.
            principal: Whose client it is.
            then: Called with what answers with the lease, or raises.
            lost: Whether the connection is gone, if the subscription has ended.
        """

        def taken(result: Callable[[], SlotLease]) -> None:
            try:
                lease = result()
            except Exception:  # noqa: BLE001 - whatever it was, it concerns this subscription only
                if not consumer.entry.ended:
                    then(result)
                return
            if consumer.entry.ended:
                self._leases.leave(lease, consumer, lost=lost())
                return
            self._held[consumer.entry] = _Held(consumer, lease)
            then(lambda: lease)

        self._leases.take(consumer.log, wish, principal, consumer, client=self._client, then=taken)

    def left(self, entry: WireEntry, *, lost: bool) -> None:
        """A subscription has ended, with the connection or not."""
        held = self._held.pop(entry, None)
        if held is not None:
            self._leases.leave(held.lease, held.consumer, lost=lost)


class ConnectionSlots(HeldSlots):
    """Those of a connection that acknowledges what they give.

    Args:
        session: Its machine.
        leases: The slots of the server.
        pools: Threads of the server.
        jobs: Those of the connection.
        client: Whose share of the threads it takes.
        perform: Does what the machine answers.
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

    def told(self, entry: SubscriptionEntry) -> dict[str, Any]:
        """What ``subscribed`` says of the slot of a subscription; nothing without one."""
        held = self._held.get(entry)
        if held is None:
            return {}
        slot = held.lease.held
        return {"slot": SlotReply(slot.name, slot.generation, held.cursor, slot.paused)}

    def acknowledge(self, effect: AckSlot) -> None:
        """Takes an acknowledgement, and answers it if it is to be answered."""
        held = self._held.get(effect.entry)
        if held is None:
            return  # the slot is not open yet, so nothing was delivered
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
                held.waiting = max(held.waiting or 0, effect.n)  # answered behind those before it
            else:
                self._perform(self._session.acked(effect.entry, held.cursor, effect.n))

    def _store(self, entry: SubscriptionEntry, held: _Held) -> None:
        """Has what was acknowledged made durable, by one thread at a time."""
        if held.storing or held.waiting is None:
            return
        n, held.waiting, held.storing = held.waiting, None, True

        def done(result: Callable[[], None]) -> None:
            held.storing = False
            problem = None
            try:
                result()
            except Exception as error:  # noqa: BLE001 - whatever it was, it concerns this slot only
                problem = describe(error)
            self._perform(self._session.acked(entry, held.cursor, n, problem))
            self._store(entry, held)

        self._jobs.send(self._pools.scanning, entry, partial(flush, held.lease.held), done)
