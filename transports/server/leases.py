"""What clients of a server have opened, such as slots, and what waits for clients whose connections were lost.

A lease outlives the connection of its client by a time of grace: a client that comes back meanwhile goes on with the opening that it
had, so that no other one gets what it has, and what it acknowledges counts. The client is known by the generation of the opening, or
by the text that it has called the opening, if the answer with the generation was lost.
"""

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Hashable
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from publishers.criteria.cost import Cost
from publishers.errors import PenstockError
from publishers.slots.errors import Fenced
from transports.errors import GoingAway
from transports.quotas.pool import Pools
from transports.server.outcomes import raising

__all__ = ["ClientLease", "ClientLeases", "LeaseHolder", "LeaseOpening", "Leased"]


class Leased(Protocol):
    """What is opened for a client."""

    @property
    def generation(self) -> int:
        """Of the opening."""
        ...

    def cancel(self) -> None:
        """Ends what is given to the client, and keeps it open."""
        ...

    def close(self) -> None:
        """Gives it back."""
        ...


_T = TypeVar("_T", bound=Leased)


class LeaseHolder(Protocol):
    """The subscription of a connection that has a lease."""

    def fenced(self, error: Fenced, /) -> None:
        """It has the lease no longer; on the event loop."""
        ...


class LeaseOpening(NamedTuple):
    """Which opening a client means.

    Attributes:
        generation: Of the one that is to go on; None for a new one.
        name: What the client calls it; None for nothing.
        principal: The name of whose client it is.
    """

    generation: int | None
    name: str | None
    principal: str


class ClientLease(Generic[_T]):
    """Something that is open for a client.

    Attributes:
        key: What it is known by.
        held: What is open.
        cost: Of its criteria.
        opening: Who has opened it.
        holder: The subscription that has it; None while its client is away.
        timer: Goes off when the client was away for too long.
    """

    def __init__(self, key: Hashable, held: _T, cost: Cost, opening: LeaseOpening) -> None:
        self.key = key
        self.held = held
        self.cost = cost
        self.opening = opening
        self.holder: LeaseHolder | None = None
        self.timer: asyncio.TimerHandle | None = None

    def resumes(self, wanted: LeaseOpening) -> bool:
        """Whether a client means this opening."""
        if wanted.principal != self.opening.principal:
            return False
        named = wanted.name is not None and wanted.name == self.opening.name
        return named or wanted.generation == self.held.generation


class ClientLeases(Generic[_T]):
    """The leases of one kind that a server has, on its event loop.

    Args:
        pools: Threads of the server.
        grace: How long one is kept for a client that is away, in seconds.
        most: Most of them.
        too_many: What a client is told beyond that.
        fenced: What a client is told if a newer opening, of which it is told the generation, has what it had.
    """

    def __init__(
        self,
        pools: Pools,
        *,
        grace: float,
        most: int,
        too_many: PenstockError,
        fenced: Callable[[_T, int], Fenced],
    ) -> None:
        self._pools = pools
        self._grace = grace
        self._most = most
        self._too_many = too_many
        self._fenced = fenced
        self._leases: dict[Hashable, ClientLease[_T]] = {}
        self._opening = 0
        self._turns: dict[Hashable, deque[asyncio.Future[None]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._lock = threading.Lock()  # for what threads open and close, and the end
        self._open: set[_T] = set()
        self._closed = False

    @property
    def away(self) -> int:
        """How many wait for their clients."""
        return sum(lease.holder is None for lease in self._leases.values())

    def __len__(self) -> int:
        return len(self._leases)

    def figures(self) -> dict[str, int]:
        """How many there are: held, and kept for clients that are away."""
        away = self.away
        return {"held": len(self) - away, "away": away}

    def lease(
        self,
        key: Hashable,
        opening: LeaseOpening,
        holder: LeaseHolder,
        *,
        make: Callable[[], tuple[_T, Cost]],
        client: Hashable,
        then: Callable[[Callable[[], ClientLease[_T]]], None],
    ) -> None:
        """Opens something for a client, or goes on with the opening that it had.

        Args:
            key: What it is known by.
            opening: Which opening the client means.
            holder: The subscription that gets it; one that had it before is told that it has not any more.
            make: Opens it, and tells what its criteria cost; on a thread.
            client: Whose share of the threads it takes.
            then: Called with what answers with the lease or raises why there is none. It must not raise.
        """

        async def taken() -> None:
            try:
                lease = await self._take(key, opening, make, client)
            except Exception as error:  # noqa: BLE001 - whatever it was, it concerns this subscription only
                then(raising(error))
            else:
                self._attach(lease, holder)
                then(lambda: lease)

        self._spawn(taken())

    def find(self, key: Hashable) -> ClientLease[_T] | None:
        """What is open under a key."""
        return self._leases.get(key)

    def leave(self, lease: ClientLease[_T], holder: LeaseHolder, *, lost: bool) -> None:
        """A subscription has ended: gives its lease back, or keeps it for a while if its connection was lost."""
        if lease.holder is not holder:
            return
        lease.holder = None
        lease.held.cancel()
        if not lost or self._closed:
            self._release(lease)
            return
        self._leases[lease.key] = self._leases.pop(lease.key)  # the one that was left first makes room first
        lease.timer = asyncio.get_running_loop().call_later(self._grace, self._release, lease)

    def close(self) -> None:
        """Gives everything back, and opens nothing any more; on the event loop, which is about to end."""
        with self._lock:
            self._closed = True
            held, self._open = self._open, set()
        for one in held:
            with contextlib.suppress(PenstockError):  # it is given back all the same
                one.close()
        for lease in self._leases.values():
            if lease.timer is not None:
                lease.timer.cancel()
        self._leases.clear()

    # Within.

    async def _take(
        self, key: Hashable, opening: LeaseOpening, make: Callable[[], tuple[_T, Cost]], client: Hashable
    ) -> ClientLease[_T]:
        async with self._turn(key):
            lease = self._leases.get(key)
            if lease is not None and lease.resumes(opening):
                return lease
            if lease is None:
                self._make_room()
            self._opening += 1
            try:
                turn = self._pools.scanning.submit(client, lambda _: self._made(make))
                held, cost = await asyncio.wrap_future(turn.result)
            finally:
                self._opening -= 1
            before = self._leases.pop(key, None)
            if before is not None:
                self._fence(before, held.generation)
            made = self._leases[key] = ClientLease(key, held, cost, opening)
            return made

    def _made(self, make: Callable[[], tuple[_T, Cost]]) -> tuple[_T, Cost]:
        """Opens it, on a thread."""
        held, cost = make()
        with self._lock:
            if not self._closed:
                self._open.add(held)
                return held, cost
        held.close()
        raise GoingAway

    def _attach(self, lease: ClientLease[_T], holder: LeaseHolder) -> None:
        before, lease.holder = lease.holder, holder
        if lease.timer is not None:
            lease.timer.cancel()
            lease.timer = None
        if before is not None:
            lease.held.cancel()
            before.fenced(self._fenced(lease.held, lease.held.generation))

    def _fence(self, lease: ClientLease[_T], generation: int) -> None:
        """Another opening has taken it over."""
        if lease.timer is not None:
            lease.timer.cancel()
        holder, lease.holder = lease.holder, None
        with self._lock:
            self._open.discard(lease.held)
        if holder is not None:
            holder.fenced(self._fenced(lease.held, generation))

    def _make_room(self) -> None:
        """Lets go of the one whose client is away for longest, if there are too many.

        Raises:
            PenstockError: If the clients of all are there.
        """
        if len(self._leases) + self._opening < self._most:
            return
        lease = next((one for one in self._leases.values() if one.holder is None), None)
        if lease is None:
            raise self._too_many
        self._release(lease)

    def _release(self, lease: ClientLease[_T]) -> None:
        if lease.timer is not None:
            lease.timer.cancel()
        if self._leases.get(lease.key) is lease:
            del self._leases[lease.key]
        self._spawn(self._close(lease))

    async def _close(self, lease: ClientLease[_T]) -> None:
        """Gives it back on a thread, as that writes; before it is opened again."""
        async with self._turn(lease.key):
            try:
                turn = self._pools.scanning.submit(self, lambda _: self._given(lease.held))
                await asyncio.wrap_future(turn.result)
            except (PenstockError, RuntimeError):
                self._given(
                    lease.held
                )  # no thread does it, or the disk has no room, which is said by the log

    def _given(self, held: _T) -> None:
        with self._lock:
            mine = held in self._open
            self._open.discard(held)
        if mine:
            held.close()

    @contextlib.asynccontextmanager
    async def _turn(self, key: Hashable) -> AsyncIterator[None]:
        """One after the other for a key, in the order in which they came."""
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
