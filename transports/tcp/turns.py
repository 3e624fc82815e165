"""Turns of the connections of an event loop that have more to do than they may do at once.

A connection that has used up its turn would have the next one in the same run of the loop as all others like it. Fifty that never
run dry would then make each run fifty turns long, for whoever has one message to send. So one of them goes on in each run, and
clients alternate, however many connections each has.
"""

import asyncio
import weakref
from collections import deque
from collections.abc import Callable, Hashable
from functools import partial
from typing import Final

__all__ = ["Turns", "turns_of"]


class Turns:
    """The connections of one event loop that wait for their next turn. All methods run on the loop.

    Args:
        loop: The loop.
    """

    __slots__ = ("_awake", "_loop", "_waiting")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = weakref.ref(loop)  # whose key this is the value of
        self._waiting: dict[Hashable, deque[Callable[[], object]]] = {}  # by client, the next one first
        self._awake = False

    def later(self, transport: asyncio.BaseTransport | None, go_on: Callable[[], object]) -> None:
        """Calls ``go_on`` in a later run of the loop, when it is the turn of the connection, which may be closed by then."""
        peer = None if transport is None else transport.get_extra_info("peername")
        client = peer[0] if isinstance(peer, tuple) else None
        self._waiting.setdefault(client, deque()).append(go_on)
        if not self._awake:
            self._wake()

    async def next(self, transport: asyncio.BaseTransport | None) -> None:
        """Waits until it is the turn of the connection."""
        turn = asyncio.get_running_loop().create_future()
        self.later(transport, partial(_begin, turn))
        await turn

    def _wake(self) -> None:
        loop = self._loop()
        self._awake = bool(self._waiting) and loop is not None
        if self._awake and loop is not None:
            loop.call_soon(self._run)

    def _run(self) -> None:
        client, waiting = next(iter(self._waiting.items()))
        go_on = waiting.popleft()
        del self._waiting[client]
        if waiting:
            self._waiting[client] = waiting  # behind the other clients
        self._wake()
        go_on()


def _begin(turn: "asyncio.Future[None]") -> None:
    if not turn.done():
        turn.set_result(None)


_of_loops: Final[weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Turns]] = weakref.WeakKeyDictionary()


def turns_of(loop: asyncio.AbstractEventLoop) -> Turns:
    """Returns the only turns of a loop."""
    return _of_loops.get(loop) or _of_loops.setdefault(loop, Turns(loop))
