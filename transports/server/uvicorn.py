"""A server inside the program: uvicorn with our protocol class, on a thread and an event loop of its own."""

import asyncio
import contextlib
import socket
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import TimeoutError as WaitTimeoutError
from functools import partial
from typing import TYPE_CHECKING, Any

from transports.access.host_names import is_loopback
from transports.errors import ExtraMissing, ServerFailed
from transports.limits import Limits
from transports.server.asgi import Application
from transports.server.served_port import JOIN_MARGIN, ServedPort
from transports.server.tls import ServerCertificate

if TYPE_CHECKING:
    from publishers.fanout.batch import Batch
    from publishers.log.changelog import ChangeLog
    from publishers.store.store import ChangeStore
    from transports.access.access import Authenticator, Authoriser
    from transports.access.grant import Grant
    from transports.browser.pages import Page
    from transports.server.shutdown import StoppableServer

__all__ = ["Server", "serve"]


class Server(ServedPort):
    """Change logs served on one port, until ``stop``; made by ``serve``.

    Attributes:
        host: The address that it listens on.
        port: The port, also if 0 was asked for.
        application: The ASGI application.
    """

    def __init__(
        self,
        application: Application,
        *,
        host: str,
        port: int,
        limits: Limits,
        tls: ServerCertificate | None = None,
    ) -> None:
        served = _uvicorn(application, limits, tls)
        super().__init__(host, port, name="server", limits=limits, tls=tls)
        self.application = application
        self._uvicorn = served

    @property
    def url(self) -> str:
        """Where clients connect."""
        return f"{self._scheme('ws')}://{self._authority}/ws"

    @property
    def graphql_url(self) -> str:
        """Where GraphQL is: over HTTP, and with ``ws:`` over a WebSocket."""
        return f"{self._scheme('http')}://{self._authority}/graphql"

    @property
    def health_url(self) -> str:
        """Where the server says how it is."""
        return f"{self._scheme('http')}://{self._authority}/health"

    @property
    def home_url(self) -> str:
        """Where a browser finds the first page."""
        return f"{self._scheme('http')}://{self._authority}/"

    def figures(self, timeout: float = 5.0) -> Mapping[str, Any]:
        """Statistics of the server and its logs, as the table of metrics reads them; from any thread but that of the server.

        Args:
            timeout: Seconds to wait for them.

        Raises:
            ServerFailed: If the server has stopped, or does not answer in time.
        """
        loop = self._serving
        if loop is None or loop.is_closed():
            raise ServerFailed(self.host, self.port, "it has stopped")
        asked = asyncio.run_coroutine_threadsafe(self.application.figures(), loop)
        try:
            return asked.result(timeout)
        except WaitTimeoutError:
            asked.cancel()
            raise ServerFailed(self.host, self.port, f"it tells no statistics within {timeout:g} s") from None

    def tell_deliveries(self, delivered: "Callable[[Batch, str], None] | None") -> None:
        """Has each batch told that is written to a client, and the name of its log, for connections that come from now on.

        Args:
            delivered: Is told on the event loop, so it must not wait for anything; None for nobody.
        """
        self.application.delivered = delivered

    def stop(self, deadline: float = 0.0) -> None:
        """Ends every subscription with ``GOING_AWAY``, closes the connections with 1012, and the port. Idempotent.

        In a child of ``fork`` it does nothing.

        Args:
            deadline: Seconds for which running subscriptions may go on after the clients were told (``goaway``).
        """
        self._end(partial(self._ask_to_stop, deadline))

    def _ask_to_stop(self, deadline: float, loop: asyncio.AbstractEventLoop) -> None:
        with contextlib.suppress(RuntimeError, WaitTimeoutError):
            asyncio.run_coroutine_threadsafe(self._drain(deadline), loop).result(deadline + JOIN_MARGIN)
        self._uvicorn.ask_to_stop()

    async def _drain(self, deadline: float) -> None:
        if deadline > 0:
            self.application.goaway(deadline)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.application.idle(), deadline)
        self.application.stop()

    async def _serve(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._tls is not None:
            bounds = {
                "ssl_handshake_timeout": self._limits.request_timeout,
                "ssl_shutdown_timeout": self._limits.close_timeout,
            }
            # uvicorn passes neither on, and the loop is this server's own; without them a client has 60 and 30 s.
            loop.create_server = partial(loop.create_server, **bounds)  # type: ignore[method-assign]  # see above
        startup = self._uvicorn.startup

        async def announce(sockets: list[socket.socket] | None = None) -> None:
            await startup(sockets)
            self._ready.set()

        self._uvicorn.startup = announce  # type: ignore[method-assign]  # uvicorn has no hook that says it listens
        try:
            await self._uvicorn.serve(sockets=[self._socket])
        finally:
            # Who came in while the port was being closed, and is not gone yet.
            for connection in list(self._uvicorn.server_state.connections):
                connection.transport.abort()
            await asyncio.sleep(0)


def serve(
    log: "ChangeLog | ChangeStore | Mapping[str, ChangeLog]",
    host: str = "127.0.0.1",
    port: int = 0,
    *,
    limits: Limits | None = None,
    origins: Collection[str] = (),
    hosts: Collection[str] = (),
    authenticate: "Authenticator | None" = None,
    authorise: "Authoriser | Grant | None" = None,
    pages: "Mapping[str, Page] | None" = None,
    tls: ServerCertificate | None = None,
    spark_queries: "Callable[[], Mapping[str, Any]] | None" = None,
) -> Server:
    """Serves a log, several by name, or a store, from inside this program.

    Args:
        log: An open log, several by name, or a store, of which every log is opened. The server never closes them.
        host: Address to listen on; by default this machine only.
        port: Port to listen on; 0 takes a free one, see ``Server.port``.
        limits: Bounds of each connection.
        origins: Web pages that may connect, and read what is answered over HTTP, beside those served from this machine;
            ``"*"`` for all.
        hosts: Names by which the server may be asked, beside those of this machine; ``"*"`` for all. A server that listens
            on this machine only answers to no others, lest a page of somebody else's read it through a browser here; any
            other server answers to all names unless some are given.
        authenticate: Tells who a client is by its ``Credentials``: a ``Principal``, or None if it is not let in. None lets
            everybody in.
        authorise: What each principal may do with a log: a ``Grant`` for all, or a function that makes one of principal, name
            of the log and ``LogAction``. None lets everybody read everything, and nobody write.
        pages: Files for browsers, by the path of their URL, beside those that every server has; see ``Application``.
        tls: Its certificate; then it speaks nothing but TLS. None for a server without TLS.
        spark_queries: Tells of the streaming queries of this process: ``ProgressListener.statistics``; see ``Application``.

    Returns:
        The running server; stop it with ``stop``, or use it as a context manager.

    Raises:
        ExtraMissing: If uvicorn or websockets is not installed.
        ServerFailed: If the address cannot be listened on.
        LogForked: In a child of ``fork``, if a log was opened in its parent.
    """
    limits = limits or Limits()
    application = Application(
        log,
        limits=limits,
        origins=origins,
        hosts=hosts if hosts or is_loopback(host) else None,
        authenticate=authenticate,
        authorise=authorise,
        pages=pages,
        spark_queries=spark_queries,
    )
    return Server(application, host=host, port=port, limits=limits, tls=tls).start()


def _uvicorn(application: Application, limits: Limits, tls: ServerCertificate | None) -> "StoppableServer":
    try:
        import uvicorn  # noqa: PLC0415 - an optional dependency

        from transports.server.shutdown import StoppableServer  # noqa: PLC0415 - needs uvicorn, which is optional
        from transports.server.timeouts import HttpProtocol  # noqa: PLC0415 - needs uvicorn, which is optional
        from transports.server.ws_protocol import LinkProtocol  # noqa: PLC0415 - needs websockets, which is optional
    except ImportError as error:
        raise ExtraMissing("a server", error.name or "uvicorn", "server") from None

    class Protocol(LinkProtocol):
        """Our protocol class, with the limits of this server."""

    class Http(HttpProtocol):
        """Likewise for HTTP; the application counts what is aborted."""

        def ended(self, why: str) -> None:
            application.count_ended(why)

    Protocol.limits = limits
    Http.limits = limits
    config = uvicorn.Config(
        application,
        http=Http,
        ws=Protocol,
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=limits.close_timeout,  # type: ignore[arg-type]  # asyncio takes parts of seconds
    )
    if tls is not None:
        config.load()
        config.ssl = tls.context
    return StoppableServer(config)
