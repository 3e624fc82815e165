"""Leases: what clients of a server have open, such as slots, also while their connections are lost.

A lease outlives the connection of its client by a grace period. A client that reconnects within it resumes its opening: no other
client gets what the lease holds, and the client's acknowledgements stay valid. The client names its opening by the generation, or
by the id that it chose for the opening if the reply with the generation was lost.
"""

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Hashable, Iterable
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from publishers.criteria.cost import Cost
from publishers.errors import PenstockError
from publishers.slots.errors import Fenced
from transports.access.principal import ANONYMOUS
from transports.errors import GoingAway
from transports.quotas.pool import Pools
from transports.server.outcomes import raising

__all__ = ["ClientLease", "ClientLeases", "LeaseHolder", "LeaseOpening", "Leased"]


class Leased(Protocol):
    """What a lease holds open, such as a slot."""

    @property
    def generation(self) -> int:
        """The generation of the opening."""
        ...

    def cancel(self) -> None:
        """Ends the deliveries to the client, and keeps the lease open."""
        ...

    def close(self) -> None:
        """Closes it, so that another client can open it."""
        ...


_T = TypeVar("_T", bound=Leased)


class LeaseHolder(Protocol):
    """The subscription that holds a lease."""

    def fenced(self, error: Fenced, /) -> None:
        """Ends the subscription, because another one has the lease; called on the event loop."""
        ...


class LeaseOpening(NamedTuple):
    """The opening that a client asks for.

    Attributes:
        generation: The generation of the opening to resume; None for a new opening.
        name: The id that the client chose for the opening; None without one.
        principal: The name of the client's principal.
    """

    generation: int | None
    name: str | None
    principal: str


class ClientLease(Generic[_T]):
    """One lease of a client.

    Attributes:
        key: The key of the lease.
        held: What the lease holds open.
        cost: The cost of its criteria.
        opening: The opening that created it.
        holder: The subscription that holds it; None while its client is away.
        timer: Releases the lease when the grace period ends; None while the client is connected.
    """

    def __init__(self, key: Hashable, held: _T, cost: Cost, opening: LeaseOpening) -> None:
        self.key = key
        self.held = held
        self.cost = cost
        self.opening = opening
        self.holder: LeaseHolder | None = None
        self.timer: asyncio.TimerHandle | None = None

    def resumes(self, wanted: LeaseOpening) -> bool:
        """Returns whether ``wanted`` means the opening of this lease."""
        if wanted.principal != self.opening.principal:
            return False
        named = wanted.name is not None and wanted.name == self.opening.name
        return named or wanted.generation == self.held.generation


class ClientLeases(Generic[_T]):
    """The leases of one kind on a server; on its event loop.

    Args:
        pools: The thread pools of the server.
        grace: How long a lease is kept for a client that is away, in seconds.
        most: The most leases.
        share: The most leases of one principal.
        too_many: Makes the error for a client beyond a bound, of the bound and whether it is that of a principal.
        fenced: Makes the error for a client whose lease a newer opening has taken over, from that opening's generation.
    """

    def __init__(
        self,
        pools: Pools,
        *,
        grace: float,
        most: int,
        share: int,
        too_many: Callable[[int, bool], PenstockError],
        fenced: Callable[[_T, int], Fenced],
    ) -> None:
        self._pools = pools
        self._grace = grace
        self._most = most
        self._share = share
        self._too_many = too_many
        self._fenced = fenced
        self._leases: dict[Hashable, ClientLease[_T]] = {}
        self._opening: dict[Hashable, str] = {}  # for which principal a lease is being opened
        self._turns: dict[Hashable, deque[asyncio.Future[None]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._lock = (
            threading.Lock()
        )  # guards _open and _closed, which threads that open and close read and write
        self._open: set[_T] = set()
        self._closed = False

    @property
    def away(self) -> int:
        """How many leases are kept for clients that are away."""
        return sum(lease.holder is None for lease in self._leases.values())

    def __len__(self) -> int:
        return len(self._leases)

    def figures(self) -> dict[str, int]:
        """Returns the number of leases: ``held`` by clients, and kept for clients that are ``away``."""
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
        """Opens a lease for a client, or resumes the opening that it had.

        Args:
            key: The key of the lease.
            opening: The opening that the client asks for.
            holder: The subscription to hold the lease; a previous holder is fenced.
            make: Opens it, and returns it with the cost of its criteria; called on a thread.
            client: The key of the client in the fair thread pools.
            then: Called with a function that returns the lease or raises the error. It must not raise.
        """

        async def taken() -> None:
            try:
                lease = await self._take(key, opening, make, client)
            except Exception as error:  # noqa: BLE001 - any error concerns only this subscription
                then(raising(error))
            else:
                self._attach(lease, holder)
                then(lambda: lease)

        self._spawn(taken())

    def find(self, key: Hashable) -> ClientLease[_T] | None:
        """Returns the lease with a key; None without one."""
        return self._leases.get(key)

    def leave(self, lease: ClientLease[_T], holder: LeaseHolder, *, lost: bool) -> None:
        """Ends a subscription's hold: releases the lease, or keeps it for the grace period if the connection was ``lost``."""
        if lease.holder is not holder:
            return
        lease.holder = None
        lease.held.cancel()
        if not lost or self._closed:
            self._release(lease)
            return
        self._leases[lease.key] = self._leases.pop(
            lease.key
        )  # moved to the end: `_make_room` releases the longest away first
        lease.timer = asyncio.get_running_loop().call_later(self._grace, self._release, lease)

    def close(self) -> None:
        """Closes all leases and refuses new ones; called on the event loop, which is about to end."""
        with self._lock:
            self._closed = True
            held, self._open = self._open, set()
        for one in held:
            with contextlib.suppress(PenstockError):  # an error leaves it closed all the same
                one.close()
        for lease in self._leases.values():
            if lease.timer is not None:
                lease.timer.cancel()
        self._leases.clear()

    # Internals.

    async def _take(
        self, key: Hashable, opening: LeaseOpening, make: Callable[[], tuple[_T, Cost]], client: Hashable
    ) -> ClientLease[_T]:
        async with self._turn(key):
            lease = self._leases.get(key)
            if lease is not None and lease.resumes(opening):
                return lease
            self._make_room(key, opening.principal)
            self._opening[key] = opening.principal
            try:
                payer = (client,) if opening.principal == ANONYMOUS.name else opening.principal
                turn = self._pools.scanning.submit(client, lambda _: self._made(make), payer=payer)
                held, cost = await asyncio.wrap_future(turn.result)
            finally:
                del self._opening[key]
            before = self._leases.pop(key, None)
            if before is not None:
                self._fence(before, held.generation)
            made = self._leases[key] = ClientLease(key, held, cost, opening)
            return made

    def _made(self, make: Callable[[], tuple[_T, Cost]]) -> tuple[_T, Cost]:
        """Opens it, on a thread; raises if the leases were closed meanwhile."""
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
        """Ends the holder of a lease that another opening has taken over."""
        if lease.timer is not None:
            lease.timer.cancel()
        holder, lease.holder = lease.holder, None
        with self._lock:
            self._open.discard(lease.held)
        if holder is not None:
            holder.fenced(self._fenced(lease.held, generation))

    def _make_room(self, key: Hashable, principal: str) -> None:
        """Releases the lease whose client is away longest, of the principal, or of all, if its bound would be passed.

        A lease that is being taken over counts for both principals, because that may fail; and it makes no room.

        Raises:
            PenstockError: If every client is connected.
        """
        owners = {one.key: one.opening.principal for one in self._leases.values() if one.key != key}
        mine = [
            one for one, owner in (owners | self._opening).items() if principal in (owner, owners.get(one))
        ]
        if len(mine) >= self._share:
            self._release_one(mine, self._too_many(self._share, True))
        elif len(owners | self._opening) >= self._most:
            self._release_one(owners, self._too_many(self._most, False))

    def _release_one(self, keys: Iterable[Hashable], error: PenstockError) -> None:
        for key in keys:
            lease = self._leases.get(key)
            if lease is not None and lease.holder is None and key not in self._opening:
                self._release(lease)
                return
        raise error

    def _release(self, lease: ClientLease[_T]) -> None:
        if lease.timer is not None:
            lease.timer.cancel()
        if self._leases.get(lease.key) is lease:
            del self._leases[lease.key]
        self._spawn(self._close(lease))

    async def _close(self, lease: ClientLease[_T]) -> None:
        """Closes it on a thread, because that writes to the disk; a later opening of the same key waits for it."""
        async with self._turn(lease.key):
            try:
                turn = self._pools.scanning.submit(self, lambda _: self._given(lease.held))
                await asyncio.wrap_future(turn.result)
            except (PenstockError, RuntimeError):
                self._given(
                    lease.held
                )  # no thread is free to do it, or the disk is full, which the log reports

    def _given(self, held: _T) -> None:
        with self._lock:
            mine = held in self._open
            self._open.discard(held)
        if mine:
            held.close()

    @contextlib.asynccontextmanager
    async def _turn(self, key: Hashable) -> AsyncIterator[None]:
        """Serialises the work on one key, in order of arrival."""
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
