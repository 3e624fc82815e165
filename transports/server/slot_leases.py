"""The slots that clients of a server have open, and those that wait for clients whose connections were lost.

A lease outlives the connection of its client by ``slot_grace``: a client that comes back meanwhile goes on with the opening that it
had, so that nobody else gets the slot, and what it acknowledges counts. The client is known by the generation of the opening, or
by the text that it has called the opening, if the answer with the generation was lost.
"""

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Hashable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from publishers.criteria.cost import Cost, weigh
from publishers.errors import PenstockError
from publishers.slots.errors import Fenced
from publishers.slots.slot import Slot
from transports.access.principal import Principal
from transports.codec.slots import SlotWish
from transports.errors import GoingAway, TooManySlots
from transports.limits import Limits
from transports.quotas.pool import Pools

if TYPE_CHECKING:
    from publishers.log.changelog import ChangeLog

__all__ = ["SlotHolder", "SlotLease", "SlotLeases"]

_Key = tuple["ChangeLog", str]
_OWNER: Final = "a client"


class SlotHolder(Protocol):
    """The subscription of a connection that has a slot open."""

    def fenced(self, error: Fenced, /) -> None:
        """It has the slot no longer; on the event loop."""
        ...


class SlotLease:
    """A slot that is open for a client.

    Attributes:
        key: Its log, and its name when it was opened.
        slot: The opening.
        cost: Of its criteria.
        principal: The name of whose client it is.
        opening: What the client calls the opening; None for nothing.
        holder: The subscription that has it; None while its client is away.
        timer: Goes off when the client was away for too long.
    """

    def __init__(self, key: _Key, slot: Slot, cost: Cost, principal: str, opening: str | None) -> None:
        self.key = key
        self.slot = slot
        self.cost = cost
        self.principal = principal
        self.opening = opening
        self.holder: SlotHolder | None = None
        self.timer: asyncio.TimerHandle | None = None

    def resumes(self, wish: SlotWish, principal: str) -> bool:
        """Whether a client means this opening."""
        if principal != self.principal:
            return False
        return wish.generation == self.slot.generation or (
            wish.opening is not None and wish.opening == self.opening
        )


class SlotLeases:
    """The leases of a server, on its event loop.

    Args:
        limits: ``slot_leases`` and ``slot_grace``.
        pools: Threads of the server.
    """

    def __init__(self, limits: Limits, pools: Pools) -> None:
        self._limits = limits
        self._pools = pools
        self._leases: dict[_Key, SlotLease] = {}
        self._opening = 0
        self._turns: dict[_Key, deque[asyncio.Future[None]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._lock = threading.Lock()  # for what threads open and close, and the end
        self._open: set[Slot] = set()
        self._closed = False

    @property
    def away(self) -> int:
        """How many wait for their clients."""
        return sum(lease.holder is None for lease in self._leases.values())

    def __len__(self) -> int:
        return len(self._leases)

    def take(
        self,
        log: "ChangeLog",
        wish: SlotWish,
        principal: Principal,
        holder: SlotHolder,
        *,
        client: Hashable,
        then: Callable[[Callable[[], SlotLease]], None],
    ) -> None:
        """Opens a slot for a client, or goes on with the opening that it had.

        Args:
            log: Whose slot.
            wish: Which one, and how.
            principal: Whose client it is.
            holder: The subscription that gets it; one that had it before is told that it has not any more.
            client: Whose share of the threads it takes.
            then: Called with what answers with the lease or raises why there is none. It must not raise.
        """

        async def taken() -> None:
            try:
                lease = await self._take((log, wish.name), wish, principal.name, client)
            except Exception as error:  # noqa: BLE001 - whatever it was, it concerns this subscription only
                then(partial(_fail, error))
            else:
                self._attach(lease, holder)
                then(lambda: lease)

        self._spawn(taken())

    def leave(self, lease: SlotLease, holder: SlotHolder, *, lost: bool) -> None:
        """A subscription has ended: gives its slot back, or keeps it for a while if its connection was lost."""
        if lease.holder is not holder:
            return
        lease.holder = None
        lease.slot.cancel()
        if not lost or self._closed:
            self._release(lease)
            return
        self._leases[lease.key] = self._leases.pop(lease.key)  # the one that was left first makes room first
        lease.timer = asyncio.get_running_loop().call_later(self._limits.slot_grace, self._release, lease)

    def close(self) -> None:
        """Gives every slot back, and opens none any more; on the event loop, which is about to end."""
        with self._lock:
            self._closed = True
            slots, self._open = self._open, set()
        for slot in slots:
            with contextlib.suppress(PenstockError):  # it is given back all the same
                slot.close()
        for lease in self._leases.values():
            if lease.timer is not None:
                lease.timer.cancel()
        self._leases.clear()

    # Within.

    async def _take(self, key: _Key, wish: SlotWish, principal: str, client: Hashable) -> SlotLease:
        async with self._turn(key):
            lease = self._leases.get(key)
            if lease is not None and lease.resumes(wish, principal):
                return lease
            if lease is None:
                self._make_room()
            self._opening += 1
            try:
                turn = self._pools.scanning.submit(
                    client, lambda _: self._opened(key[0], wish, wish.owner or principal or _OWNER)
                )
                slot, cost = await asyncio.wrap_future(turn.result)
            finally:
                self._opening -= 1
            before = self._leases.pop(key, None)
            if before is not None:
                self._fence(before, slot.generation)
            made = self._leases[key] = SlotLease(key, slot, cost, principal, wish.opening)
            return made

    def _opened(self, log: "ChangeLog", wish: SlotWish, owner: str) -> tuple[Slot, Cost]:
        """Opens it, on a thread."""
        slot = log.slots.open(wish.name, take_over=wish.take_over, owner=owner, generation=wish.generation)
        with self._lock:
            if not self._closed:
                self._open.add(slot)
                return slot, weigh(slot.criteria)
        slot.close()
        raise GoingAway

    def _attach(self, lease: SlotLease, holder: SlotHolder) -> None:
        before, lease.holder = lease.holder, holder
        if lease.timer is not None:
            lease.timer.cancel()
            lease.timer = None
        if before is not None:
            lease.slot.cancel()
            generation = lease.slot.generation
            before.fenced(Fenced(lease.slot.name, generation, generation))

    def _fence(self, lease: SlotLease, generation: int) -> None:
        """Another opening has taken its slot over."""
        if lease.timer is not None:
            lease.timer.cancel()
        holder, lease.holder = lease.holder, None
        with self._lock:
            self._open.discard(lease.slot)
        if holder is not None:
            holder.fenced(Fenced(lease.slot.name, lease.slot.generation, generation))

    def _make_room(self) -> None:
        """Lets go of the one whose client is away for longest, if there are too many.

        Raises:
            TooManySlots: If the clients of all are there.
        """
        if len(self._leases) + self._opening < self._limits.slot_leases:
            return
        lease = next((one for one in self._leases.values() if one.holder is None), None)
        if lease is None:
            raise TooManySlots(self._limits.slot_leases)
        self._release(lease)

    def _release(self, lease: SlotLease) -> None:
        if lease.timer is not None:
            lease.timer.cancel()
        if self._leases.get(lease.key) is lease:
            del self._leases[lease.key]
        self._spawn(self._close(lease))

    async def _close(self, lease: SlotLease) -> None:
        """Gives a slot back on a thread, as that writes; before it is opened again."""
        async with self._turn(lease.key):
            try:
                turn = self._pools.scanning.submit(self, lambda _: self._given(lease.slot))
                await asyncio.wrap_future(turn.result)
            except (PenstockError, RuntimeError):
                self._given(
                    lease.slot
                )  # no thread does it, or the disk has no room, which is said by the log

    def _given(self, slot: Slot) -> None:
        with self._lock:
            mine = slot in self._open
            self._open.discard(slot)
        if mine:
            slot.close()

    @contextlib.asynccontextmanager
    async def _turn(self, key: _Key) -> AsyncIterator[None]:
        """One after the other for a slot, in the order in which they came."""
        waiting = self._turns.get(key)
        if waiting is None:
            waiting = self._turns[key] = deque()
        else:
            mine = asyncio.get_running_loop().create_future()
            waiting.append(mine)
            await mine
        try:
            yield
        finally:
            if waiting:
                waiting.popleft().set_result(None)
            else:
                del self._turns[key]

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _fail(error: Exception) -> SlotLease:
    raise error
