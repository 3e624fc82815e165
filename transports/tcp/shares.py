"""Processor time that the requests of each client take, and who has to wait while event loops are late.

All threads of a process share one interpreter. A payer that sends what is costly, on a hundred connections, would take it from
everybody else. So what its requests take is counted, over about the last second. Of a payer beyond its share, one connection
is read in each run of a loop; none while loops are late all the same. Nobody waits for itself alone.
"""

import asyncio
import heapq
import math
import operator
import threading
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Generator, Hashable
from functools import partial
from time import thread_time
from typing import Any, Final, Generic, TypeVar

from flow import forks
from flow.clock import SYSTEM_CLOCK, Clock

__all__ = ["SHARES", "Charged", "Shares", "address_of"]

_T = TypeVar("_T")
_MEMORY: Final = 1.0
"""Seconds after which of what was taken a part of 1/e still counts."""
_LONG: Final = 100.0  # of these, after which nothing is left
_HEAVY: Final = (
    1e9  # the weight of what is taken now beside what was taken first, with which it is counted anew
)
_LATE: Final = 0.02
"""Seconds after which an event loop is late: everybody who has to be heard waits so long."""
_LOOKS: Final = 0.02  # seconds between two looks whether a loop is late
_FORGET: Final = 1.0  # seconds after which a look says nothing any more
_NEW: Final = 0.25  # the weight of a look beside those before it
_LEAST: Final = 0.004  # seconds that others must have taken lately, all together


class Shares:
    """What each payer has taken lately, and whether event loops are late. Thread-safe.

    What was taken counts less the longer ago it was.

    Attributes:
        taken: Seconds of processor time that were charged, of all payers.
        held: How often a payer beyond its share had to wait because event loops were late.

    Args:
        clock: The clock.
    """

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._now = clock.monotonic
        self._lock = threading.Lock()
        # What was taken earlier fades, which is the same as that what is taken later weighs more.
        self._since = self._now()
        self._payers: OrderedDict[Hashable, float] = OrderedDict()
        self._all = 0.0
        self._late = (0.0, -math.inf)
        self._looked = -math.inf
        self.taken: float = 0.0
        self.held = 0
        forks.register(self)

    def forked(self, _pid: int, /) -> None:
        """See ``flow.forks.Forkable``: another thread of the parent may have held the lock."""
        self._lock = threading.Lock()
        forks.register(self)

    def __len__(self) -> int:
        return len(self._payers)

    def spend(self, payer: Hashable, seconds: float) -> None:
        """Charges processor time to a payer."""
        with self._lock:
            weight = self._weight()
            if weight > _HEAVY:
                self._begin_again(weight)
                weight = 1.0
            self.taken += seconds
            self._all += seconds * weight
            self._payers[payer] = self._payers.get(payer, 0.0) + seconds * weight
            self._payers.move_to_end(payer)
            oldest = next(iter(self._payers))
            if self._payers[oldest] < _LEAST / 100 * weight:
                del self._payers[oldest]

    def _weight(self) -> float:
        return math.exp(min((self._now() - self._since) / _MEMORY, _LONG))

    def _begin_again(self, weight: float) -> None:
        self._since = self._now()
        self._all /= weight
        for payer in self._payers:
            self._payers[payer] /= weight

    def lately(self, payer: Hashable) -> float:
        """Returns the seconds that a payer has taken lately."""
        return self._payers.get(payer, 0.0) / self._weight()

    def most(self, count: int) -> dict[str, float]:
        """Returns whoever has taken most lately, the most first, with their seconds; an address without the tuple around it."""
        with self._lock:
            weight, payers = self._weight(), list(self._payers.items())
        found = heapq.nlargest(count, payers, key=operator.itemgetter(1))
        return {
            str(payer[0] if isinstance(payer, tuple) else payer): round(taken / weight, 4)
            for payer, taken in found
        }

    def beyond(self, payer: Hashable, share: float) -> bool:
        """Whether a payer has taken more than its share, and others have taken something too.

        Args:
            payer: The payer.
            share: Seconds of each that it may take.
        """
        own = self._payers.get(payer, 0.0)
        if not own:
            return False
        weight = self._weight()
        return own > share * _MEMORY * weight and self._all - own >= _LEAST * weight

    def owed(self, payer: Hashable, share: float) -> float:
        """Returns the seconds that a payer has to wait until it may be read; 0 while event loops are in time. Arguments as of `beyond`."""
        if self.late < _LATE or not self.beyond(payer, share):
            return 0.0
        return max(_MEMORY * math.log(self.lately(payer) / (share * _MEMORY)), _LOOKS)

    @property
    def late(self) -> float:
        """How late event loops are, in seconds; 0 if nobody has looked for a second."""
        late, at = self._late
        return late if self._now() - at < _FORGET else 0.0

    def note(self, late: float) -> None:
        """Notes how late an event loop was."""
        self._late = self.late * (1 - _NEW) + late * _NEW, self._now()

    def look(self, loop: asyncio.AbstractEventLoop) -> None:
        """Looks, now and then, how long the loop takes until it runs what is due now."""
        now = self._now()
        if now - self._looked >= _LOOKS:
            self._looked = now
            loop.call_soon(self._see, now)

    def _see(self, due: float) -> None:
        self.note(self._now() - due)

    def charged(self, payer: Hashable, work: Callable[[], _T]) -> _T:
        """Does work that a payer is charged for, and returns its result."""
        began = thread_time()
        try:
            return work()
        finally:
            self.spend(payer, thread_time() - began)


SHARES: Final = Shares()


def address_of(transport: asyncio.BaseTransport) -> Hashable:
    """Returns who pays for a connection that has no name: its address, in a tuple so that it is no name."""
    peer = transport.get_extra_info("peername")
    return (peer[0] if isinstance(peer, tuple) else None,)


class Charged(Generic[_T]):
    """A coroutine whose steps are charged to a payer.

    Args:
        coroutine: The coroutine.
        payer: Returns who is charged; it may change from step to step.
        shares: Where they are charged.
    """

    __slots__ = ("_coroutine", "_payer", "_shares")

    def __init__(
        self, coroutine: Awaitable[_T], payer: Callable[[], Hashable], shares: Shares = SHARES
    ) -> None:
        self._coroutine = coroutine
        self._payer = payer
        self._shares = shares

    def __await__(self) -> Generator[Any, Any, _T]:
        steps = self._coroutine.__await__()
        step: Callable[[], Any] = partial(next, steps)
        while True:
            began = thread_time()
            try:
                waits_for = step()
            except StopIteration as end:
                found: _T = end.value
                return found
            finally:
                self._shares.spend(self._payer(), thread_time() - began)
            try:
                yield waits_for
            except BaseException as error:  # noqa: BLE001 - the coroutine is told, and decides
                step = partial(steps.throw, error)
            else:
                step = partial(next, steps)
