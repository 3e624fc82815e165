"""A server of the Redis protocol inside the program: a port of its own, on a thread of its own or on that of another server."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from transports.access.access import Access
from transports.limits import Limits
from transports.quotas.pool import Pools
from transports.resp.connection import RespConnection
from transports.resp.port import RespPort
from transports.resp.replies import RespError
from transports.server.logs import logs_by_name
from transports.server.served_port import JOIN_MARGIN, ServedPort
from transports.tcp.accepting import Acceptor, warn_if_few

if TYPE_CHECKING:
    from publishers.log.changelog import ChangeLog
    from publishers.store.store import ChangeStore
    from transports.access.access import Authenticator, Authoriser
    from transports.access.grant import Grant
    from transports.server.logs import FollowedName
    from transports.server.tls import ServerCertificate
    from transports.server.uvicorn import Server

_CROWDED: Final = b"-ERR max number of clients reached\r\n"

__all__ = ["RespServer", "serve_resp"]


class RespServer(ServedPort):
    """Change logs served over the Redis protocol until ``stop``; made by ``serve_resp``.

    Attributes:
        host: The address that it listens on.
        port: The bound port, also if port 0 was requested.
    """

    def __init__(
        self,
        logs: "Mapping[str, ChangeLog]",
        *,
        host: str,
        port: int,
        limits: Limits,
        authenticate: "Authenticator | None",
        authorise: "Authoriser | Grant | None",
        tls: "ServerCertificate | None",
        beside: "ServedPort | None" = None,
    ) -> None:
        warn_if_few(limits)
        self._pools = Pools(limits)
        self._access = Access(
            authenticate,
            authorise,
            timeout=limits.authenticate_timeout,
            fresh=limits.revocation,
            run=self._pools.judging.run,
        )
        self._port = RespPort(logs, self._access, limits, self._pools)
        self._connections: set[RespConnection] = set()
        self._ended: Counter[str] = Counter()
        self._count = 0
        self._going = False
        self._finished: asyncio.Event | None = None
        self._idle: asyncio.Event | None = None
        open_to_all = authenticate is None
        super().__init__(
            host, port, name="resp", limits=limits, tls=tls, open_to_all=open_to_all, beside=beside
        )

    @property
    def url(self) -> str:
        """The URL for clients, as redis-cli and redis-py accept it."""
        return f"{self._scheme('redis')}://{self._authority}"

    @property
    def _unsent(self) -> int:
        return sum(one.unsent for one in list(self._connections))

    def figures(self) -> dict[str, Any]:
        """Returns the statistics of the port; from any thread.

        Returns:
            ``connections``, ``unsentBytes``, ``unfinishedBytes`` of commands that are not answered, the number of answers by ``commands`` and of errors by ``errors``, the commands
            that are ``waiting`` for changes, the group ``consumers`` that clients address, the reasons why the server
            ``ended`` connections, the ``limits``, and the work on ``threads``.
        """
        return {
            "connections": len(self._connections),
            "unsentBytes": self._unsent,
            "ended": dict(self._ended),
            **self._port.statistics(),
        }

    def stop(self) -> None:
        """Fails waiting commands, and closes the connections and the port. Idempotent; does nothing in a child of ``fork``."""
        self._end(self._ask_to_stop)

    def _ask_to_stop(self, loop: asyncio.AbstractEventLoop) -> None:
        loop.call_soon_threadsafe(self._finish)

    # --- on the event loop ----------------------------------------------------------------------------------------------

    def come(self, connection: RespConnection) -> RespError | None:
        """See ``ConnectionKeeper``."""
        if self._going:
            return RespError("GOING_AWAY", "the server is stopping")
        if len(self._connections) >= self._limits.connections:
            return RespError("ERR", "max number of clients reached")
        self._connections.add(connection)
        return None

    def gone(self, connection: RespConnection, why: str | None) -> None:
        """See ``ConnectionKeeper``."""
        self._connections.discard(connection)
        if why is not None:
            self._ended[why] += 1
        if self._idle is not None and not self._connections:
            self._idle.set()

    def _crowded(self, why: str) -> None:
        self._ended[why] += 1

    def _made(self) -> RespConnection:
        self._count += 1
        return RespConnection(self._port, self, self._count)

    def _finish(self) -> None:
        assert self._finished is not None
        self._finished.set()

    async def _serve(self, loop: asyncio.AbstractEventLoop) -> None:
        self._finished = asyncio.Event()
        secured: dict[str, Any] = {}
        if self._tls is not None:
            secured = {
                "ssl": self._tls.context,
                "ssl_handshake_timeout": self._limits.request_timeout,
                "ssl_shutdown_timeout": self._limits.close_timeout,
            }
        listening = Acceptor(self._socket, self._made, self._crowded, refusal=_CROWDED, **secured)
        looking = loop.create_task(self._look_again())
        self._ready.set()
        try:
            await self._finished.wait()
        finally:
            self._going = True
            looking.cancel()
            listening.close()
            self._pools.close()
            for connection in list(self._connections):
                connection.stop()
            self._idle = asyncio.Event()
            if self._connections:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._idle.wait(), self._limits.close_timeout + JOIN_MARGIN)

    async def _look_again(self) -> None:
        """Refreshes the access data while there are clients, which are authenticated again at their next command if the data have changed."""
        while not self._access.lasting:
            await asyncio.sleep(self._limits.revocation / 2)
            if self._connections:
                await self._access.refresh()


def serve_resp(
    log: "ChangeLog | ChangeStore | FollowedName | Mapping[str, ChangeLog]",
    host: str = "127.0.0.1",
    port: int = 0,
    *,
    limits: Limits | None = None,
    authenticate: "Authenticator | None" = None,
    authorise: "Authoriser | Grant | None" = None,
    tls: "ServerCertificate | None" = None,
    beside: "Server | None" = None,
) -> RespServer:
    """Serves a log, several logs by name, or a store over the Redis protocol from inside this program.

    Args:
        log: An open log, several by name, or a store, all of whose logs are opened. The server never closes them.
        host: The address to listen on; by default this machine only.
        port: The port to listen on; 0 picks a free one, see ``RespServer.port``.
        limits: Bounds of each connection, and of the server.
        authenticate: Authenticates clients by the token of ``AUTH`` or ``HELLO``, or by certificate, as for ``serve``; None
            admits every client.
        authorise: What each principal may do with a log, as for ``serve``.
        tls: The server certificate; the port then accepts TLS only. None for plain text.
        beside: A server made by ``serve``, whose thread and event loop serve this port too, until either is stopped: then clients
            of both take turns. None for a thread of its own.

    Returns:
        The running server; stop it with ``stop``, or use it as a context manager.

    Raises:
        ServerFailed: If the address cannot be listened on, or the server ``beside`` has stopped.
        LogForked: In a child of ``fork``, if a log was opened in its parent.
    """
    return RespServer(
        logs_by_name(log),
        host=host,
        port=port,
        limits=limits or Limits(),
        authenticate=authenticate,
        authorise=authorise,
        tls=tls,
        beside=beside,
    ).start()
