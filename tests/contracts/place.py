"""What the faces of a module share: servers of one set of logs, a loop for clients in this process, and a process for JavaScript."""

import asyncio
import itertools
import shutil
from collections.abc import Callable, Coroutine
from functools import cached_property
from pathlib import Path
from typing import Any, Final, TypeVar

from publishers import ChangeLog, upsert
from tests.harness.inside import connections_of, link_of, loop_of
from tests.publishers.support import QUICK
from tests.simulation.workload import Clock
from transports import Grant, Limits, LogAction, Server, serve
from transports.resp.server import RespServer, serve_resp

__all__ = ["DEADLINE", "Place", "put"]

DEADLINE: Final = 60.0
ALL: Final = Grant(
    {LogAction.READ, LogAction.WRITE, LogAction.CONSUME, LogAction.OPERATE}, groups={"*"}, slots={"*"}
)
_T = TypeVar("_T")


class Place:
    """Logs by name, of which each test has one of its own, and servers of all of them.

    Attributes:
        logs: The open logs by name.
        clock: That of all logs; it stands still unless it is moved.
        grants: What clients may do with a log; all if a log is not named here.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._numbers = itertools.count()
        self._ends: list[Callable[[], object]] = []
        self._runner = asyncio.Runner()
        self._ends.append(self._runner.close)
        self.clock = Clock()
        self.logs: dict[str, ChangeLog] = {}
        self.grants: dict[str, Grant] = {}

    @cached_property
    def server(self) -> Server:
        """Serves the logs over HTTP, WebSocket and GraphQL."""
        limits = Limits(grace=600.0, keepalive=600.0)
        server = serve(self.logs, authorise=self._grant, limits=limits)
        self._ends.append(server.stop)
        return server

    @cached_property
    def resp(self) -> RespServer:
        """Serves the logs over the Redis protocol."""
        server = serve_resp(self.logs, authorise=self._grant)
        self._ends.append(server.stop)
        return server

    def connections(self) -> set[Any]:
        """The connections that the server has."""
        return set(connections_of(self.server.application))

    def cut(self, connections: set[Any]) -> None:
        """Cuts connections off, as a network does: nobody is asked."""
        for connection in connections:
            loop_of(self.server).call_soon_threadsafe(link_of(connection).abort)

    def at_end(self, end: Callable[[], object]) -> None:
        """Ends something of a face before the servers stop."""
        self._ends.append(end)

    def run(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        """Runs a coroutine on the loop of the clients of this process."""

        async def bounded() -> _T:
            async with asyncio.timeout(DEADLINE):
                return await coroutine

        return self._runner.run(bounded())

    def open(self, name: str | None = None, **options: Any) -> ChangeLog:
        """Opens a log: a new one, or that of a name again."""
        name = f"log{next(self._numbers)}" if name is None else name
        log = ChangeLog.open(self._directory / name, **{**QUICK, "clock": self.clock, **options})
        self.logs[name] = log
        return log

    def close(self) -> None:
        for end in reversed(self._ends):
            end()
        shutil.rmtree(self._directory, ignore_errors=True)

    def _grant(self, _principal: object, log: str, _action: LogAction) -> Grant:
        return self.grants.get(log, ALL)


def put(log: ChangeLog, *keys: str, entity_type: str = "order") -> None:
    """Commits one transaction for each key."""
    for key in keys:
        log.commit([upsert(entity_type, key, {"key": key})])
