"""A uvicorn server that stops promptly.

uvicorn polls its exit flag ten times a second, then sleeps for a tenth of a second, and again as long as a connection is
left. This server waits for a signal instead, and wakes once a second only to refresh the ``date`` header of its responses.
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
"""Turns of the loop from accepting a connection until its protocol knows it: the task, the transport, the callback."""
_LEFT: Final = 0.005
"""Seconds between checks for remaining connections."""


class StoppableServer(uvicorn.Server):
    """A server that runs on its own loop and stops without delay."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._asked = asyncio.Event()

    def ask_to_stop(self) -> None:
        """Stops the server; from any thread, at any time, any number of times."""
        self.should_exit = True
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # a closed loop means that the server has stopped
                self._loop.call_soon_threadsafe(self._asked.set)

    async def main_loop(self) -> None:
        """Serves until it is asked to stop."""
        self._loop = asyncio.get_running_loop()
        while not await self.on_tick(0):  # the argument 0 refreshes the date
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_TICK):
                    await self._asked.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Closes the listeners, then each connection, and waits for connections and requests up to the configured timeout."""
        loop = asyncio.get_running_loop()
        for listening in self.servers:
            for listener in listening.sockets:
                loop.remove_reader(listener.fileno())
        # Stop accepting, but leave the server open: asyncio makes no transport for a closed server and leaks what it has
        # just accepted.
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
        closed: set[object] = set()
        while state.connections or state.tasks:
            for connection in state.connections - closed:  # also connections that were accepted meanwhile
                connection.shutdown()
                closed.add(connection)
            await asyncio.sleep(_LEFT)
