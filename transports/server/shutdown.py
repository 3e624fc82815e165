"""uvicorn that stops when it is asked to.

uvicorn looks ten times a second whether it should exit, then sleeps for a tenth of a second, and for another one as long as
a connection is left. Ours waits to be asked, and looks once a second, as often as the ``date`` of its answers changes.
"""

import asyncio
import contextlib
import logging
import socket
from typing import Final

import uvicorn

__all__ = ["StoppableServer"]

_LOG: Final = logging.getLogger("penstock.transports")
_TICK: Final = 1.0
_ACCEPTING: Final = 3
"""Turns of the loop from the acceptance of a connection until its protocol knows it: its task, the transport, the call."""
_LEFT: Final = 0.005
"""Seconds between two looks at the connections that are left."""


class StoppableServer(uvicorn.Server):
    """A server that runs on a loop of its own, and ends without delay."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._asked = asyncio.Event()

    def ask_to_stop(self) -> None:
        """Has it stop; from any thread, at any time, as often as you like."""
        self.should_exit = True
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: it has stopped
                self._loop.call_soon_threadsafe(self._asked.set)

    async def main_loop(self) -> None:
        """Serves until it is asked to stop."""
        self._loop = asyncio.get_running_loop()
        while not await self.on_tick(0):  # 0 has it set the date anew
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_TICK):
                    await self._asked.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Closes the listeners and then each connection, and waits for them and what they do, as long as the configuration says."""
        loop = asyncio.get_running_loop()
        for listening in self.servers:
            for listener in listening.sockets:
                loop.remove_reader(listener.fileno())
        # For a server that is closed asyncio makes no transport, and leaves open what it has accepted for it just before.
        for _ in range(_ACCEPTING):
            await asyncio.sleep(0)
        for listening in self.servers:
            listening.close()
        for listener in sockets or ():
            listener.close()
        try:
            async with asyncio.timeout(self.config.timeout_graceful_shutdown):
                await self._close_connections()
        except TimeoutError:
            connections, tasks = self.server_state.connections, self.server_state.tasks
            _LOG.warning("%d connections and %d requests did not end in time", len(connections), len(tasks))
            for task in tasks:
                task.cancel()

    async def _close_connections(self) -> None:
        state = self.server_state
        told: set[object] = set()
        while state.connections or state.tasks:
            for connection in state.connections - told:  # also those that were accepted meanwhile
                connection.shutdown()
                told.add(connection)
            await asyncio.sleep(_LEFT)
