"""Turns of the connections of an event loop that have more to do than they may do at once.

A connection that has used up its turn would have the next one in the same run of the loop as all others like it. Fifty that never
run dry would then make each run fifty turns long, for whoever has one message to send. So one of them goes on in each run, and
payers alternate, however many connections each has. A payer that has taken more than its share of the processor has no turn while
loops are late. What logs have to tell the loop, such as that a commit was written, goes first.
"""

import asyncio
import itertools
import weakref
from collections import deque
from collections.abc import Callable, Hashable
from functools import partial
from heapq import heappop, heappush
from typing import Final

from flow.executors import loop_executor
from transports.tcp.shares import SHARES, Shares

__all__ = ["Turns", "turns_of"]

_SOON: Final = 0.05  # seconds after which a payer that owes is looked at again at the latest
_FIRST: Final = 8  # runs of the loop at most in which what logs have to tell goes before a turn
_numbers: Final = itertools.count()


class Turns:
    """The connections of one event loop that wait for their next turn. All methods run on the loop.

    Args:
        loop: The loop.
        shares: What payers have taken of the processor.
    """

    __slots__ = ("_due", "_executor", "_loop", "_owing", "_passed", "_shares", "_waiting", "_wakes")

    def __init__(self, loop: asyncio.AbstractEventLoop, shares: Shares = SHARES) -> None:
        self._loop = weakref.ref(loop)  # whose key this is the value of
        self._executor = loop_executor(loop)
        self._passed = 0  # runs since the last turn
        self._shares = shares
        # By payer, the next one first: its share, and what goes on.
        self._waiting: dict[Hashable, deque[tuple[float, Callable[[], object]]]] = {}
        self._owing: dict[Hashable, deque[tuple[float, Callable[[], object]]]] = {}
        self._due: list[tuple[float, int, Hashable]] = []  # when payers that owe are looked at again
        self._wakes: asyncio.Handle | None = None

    def holds(self, payer: Hashable, share: float) -> bool:
        """Whether a connection has to wait for a turn before it may begin, because its payer is beyond its share."""
        if (loop := self._loop()) is not None:
            self._shares.look(loop)
        return self._shares.beyond(payer, share)

    def later(self, payer: Hashable, share: float, go_on: Callable[[], object]) -> None:
        """Calls ``go_on`` in a later run of the loop, when it is the turn of a connection, which may be closed by then.

        Args:
            payer: Who pays for the connection.
            share: Seconds of processor time that it may take of each, while loops are late.
            go_on: Called once.
        """
        owing = self._owing.get(payer)
        if owing is not None:
            owing.append((share, go_on))
            return
        self._waiting.setdefault(payer, deque()).append((share, go_on))
        if self._wakes is None or isinstance(self._wakes, asyncio.TimerHandle):
            self._wake()

    async def next(self, payer: Hashable, share: float) -> None:
        """Waits until it is the turn of the connection."""
        turn = asyncio.get_running_loop().create_future()
        self.later(payer, share, partial(_begin, turn))
        await turn

    def _wake(self) -> None:
        if self._wakes is not None:
            self._wakes.cancel()
            self._wakes = None
        if (loop := self._loop()) is None:
            return
        if self._waiting:
            self._wakes = loop.call_soon(self._run)
        elif self._due:
            self._wakes = loop.call_at(self._due[0][0], self._run)

    def _run(self) -> None:
        self._wakes = None
        self._look_again(asyncio.get_running_loop())
        if self._executor.awake and self._passed < _FIRST:
            self._passed += 1
            self._wake()
            return
        self._passed = 0
        go_on = self._next()
        self._wake()
        if go_on is not None:
            go_on()

    def _look_again(self, loop: asyncio.AbstractEventLoop) -> None:
        self._shares.look(loop)
        while self._due and self._due[0][0] <= loop.time():
            payer = heappop(self._due)[2]
            self._waiting[payer] = self._owing.pop(payer)

    def _next(self) -> Callable[[], object] | None:
        """Takes the next turn of a payer that has one."""
        loop = self._loop()
        while self._waiting:
            payer, waiting = next(iter(self._waiting.items()))
            del self._waiting[payer]
            owed = self._shares.owed(payer, waiting[0][0])
            if owed and loop is not None:
                self._shares.held += 1
                self._owing[payer] = waiting
                heappush(self._due, (loop.time() + min(owed, _SOON), next(_numbers), payer))
                continue
            _, go_on = waiting.popleft()
            if waiting:
                self._waiting[payer] = waiting  # behind the other payers
            return go_on
        return None


def _begin(turn: "asyncio.Future[None]") -> None:
    if not turn.done():
        turn.set_result(None)


_of_loops: Final[weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Turns]] = weakref.WeakKeyDictionary()


def turns_of(loop: asyncio.AbstractEventLoop) -> Turns:
    """Returns the only turns of a loop."""
    return _of_loops.get(loop) or _of_loops.setdefault(loop, Turns(loop))
