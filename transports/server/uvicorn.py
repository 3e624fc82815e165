"""A server inside the program: uvicorn with our protocol class, on its own thread and event loop."""

import asyncio
import contextlib
import socket
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import TimeoutError as WaitTimeoutError
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from flow.misuse import names_arguments
from transports.access.host_names import is_loopback
from transports.errors import ExtraMissing, ServerFailed
from transports.limits import Limits
from transports.server.asgi import Application
from transports.server.served_port import JOIN_MARGIN, ServedPort
from transports.server.tls import ServerCertificate
from transports.tcp.accepting import Acceptor

if TYPE_CHECKING:
    from ssl import SSLContext

    from publishers.fanout.batch import Batch
    from publishers.log.changelog import ChangeLog
    from publishers.store.store import ChangeStore
    from transports.access.access import Authenticator, Authoriser
    from transports.access.grant import Grant
    from transports.browser.pages import Page
    from transports.server.shutdown import StoppableServer

__all__ = ["Server", "serve"]


class Server(ServedPort):
    """Change logs served on one port until ``stop``; made by ``serve``.

    Attributes:
        host: The address that it listens on.
        port: The bound port, also if port 0 was requested.
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
        super().__init__(
            host, port, name="server", limits=limits, tls=tls, open_to_all=application.open_to_all
        )
        self.application = application
        self._uvicorn = served

    def __repr__(self) -> str:
        return f"<Server {self.url}{'' if self._serving else ' stopped'}>"

    @property
    def url(self) -> str:
        """The URL for WebSocket clients."""
        return f"{self._scheme('ws')}://{self._authority}/ws"

    @property
    def graphql_url(self) -> str:
        """The URL of GraphQL over HTTP; with the scheme ``ws:``, or ``wss:``, over a WebSocket."""
        return f"{self._scheme('http')}://{self._authority}/graphql"

    @property
    def health_url(self) -> str:
        """The URL of the health check."""
        return f"{self._scheme('http')}://{self._authority}/health"

    @property
    def home_url(self) -> str:
        """The URL of the home page."""
        return f"{self._scheme('http')}://{self._authority}/"

    def figures(self, timeout: float = 5.0) -> Mapping[str, Any]:
        """Returns the statistics of the server and its logs, in the form that the metrics table reads.

        Call it from any thread but the server's own.

        Args:
            timeout: Seconds to wait for the server's answer.

        Raises:
            ServerFailed: If the server has stopped or does not answer in time.
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

    def observe_deliveries(self, delivered: "Callable[[Batch, str], None] | None") -> None:
        """Sets a callback for each batch that is written to a client, on connections that open from now on.

        Args:
            delivered: Called on the event loop with the batch and the name of its log; it must not block. None removes the
                callback.
        """
        self.application.delivered = delivered

    def stop(self, deadline: float = 0.0) -> None:
        """Ends every subscription with ``GOING_AWAY``, closes the connections with 1012, and closes the port. Idempotent.

        In a child of ``fork`` it does nothing.

        Args:
            deadline: Seconds for which running subscriptions may continue after ``goaway`` was sent to the clients.
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

    async def _listen(
        self,
        make: Callable[[], asyncio.BaseProtocol],
        *,
        sock: socket.socket,
        ssl: "SSLContext | None" = None,
        backlog: int = 0,  # the socket listens already
    ) -> Acceptor:
        """Accepts connections as ``loop.create_server`` does, but within the bounds of this server."""
        return Acceptor(
            sock,
            make,
            self.application.count_ended,
            refusal=_CROWDED,
            ssl=ssl,
            ssl_handshake_timeout=self._limits.request_timeout,
            ssl_shutdown_timeout=self._limits.close_timeout,
        )

    async def _serve(self, loop: asyncio.AbstractEventLoop) -> None:
        # uvicorn has no other way to replace how connections are accepted, but the loop belongs to this server.
        loop.create_server = self._listen  # type: ignore[method-assign,assignment]  # see above
        startup = self._uvicorn.startup

        async def announce(sockets: list[socket.socket] | None = None) -> None:
            await startup(sockets)
            self._ready.set()

        self._uvicorn.startup = announce  # type: ignore[method-assign]  # uvicorn has no hook that says it listens
        try:
            await self._uvicorn.serve(sockets=[self._socket])
        finally:
            # Abort connections that were accepted while the port was being closed.
            for connection in list(self._uvicorn.server_state.connections):
                connection.transport.abort()
            await asyncio.sleep(0)


_CROWDED: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nretry-after: 1\r\nconnection: close\r\n\r\n"
)


@names_arguments()
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
    """Serves a log, several logs by name, or a store from inside this program.

    Args:
        log: An open log, several by name, or a store, all of whose logs are opened. The server never closes them.
        host: The address to listen on; by default this machine only.
        port: The port to listen on; 0 picks a free one, see ``Server.port``.
        limits: Bounds of each connection.
        origins: ``Origin`` header values of web pages that may connect and may read HTTP responses, in addition to pages
            served from this machine; ``"*"`` allows all.
        hosts: Accepted values of the ``Host`` header, in addition to the names of this machine; ``"*"`` accepts all. A
            server on a loopback address accepts no other names, so that a foreign web page cannot read it through a local
            browser (DNS rebinding); any other server accepts all names unless some are given.
        authenticate: Maps the ``Credentials`` of a client to a ``Principal``, or to None if the client is refused. Without
            it every client is admitted.
        authorise: What each principal may do with a log: one ``Grant`` for all, or a function from principal, log name and
            ``LogAction`` to a ``Grant``. Without it every client may read everything and no client may write.
        pages: Files for browsers by URL path, in addition to the built-in ones; see ``Application``.
        tls: The server certificate; the port then accepts TLS only. None for plain text.
        spark_queries: Returns the state of this process's streaming queries, as ``ProgressListener.statistics`` does; see
            ``Application``.

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

        from transports.server.http_protocol import HttpProtocol  # noqa: PLC0415 - needs uvicorn, which is optional
        from transports.server.shutdown import StoppableServer  # noqa: PLC0415 - needs uvicorn, which is optional
        from transports.server.ws_protocol import LinkProtocol  # noqa: PLC0415 - needs websockets, which is optional
    except ImportError as error:
        raise ExtraMissing("a server", error.name or "uvicorn", "server") from None

    class Protocol(LinkProtocol):
        """Our protocol class with the limits of this server."""

    class Http(HttpProtocol):
        """The HTTP protocol with the limits of this server; the application counts aborted connections."""

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
