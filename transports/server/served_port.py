"""A port that a program serves beside its own work: on a thread and event loop of its own, or on those of another port."""

import asyncio
import contextlib
import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from typing import TYPE_CHECKING, Final, Self

from flow import forks
from transports.access.host_names import is_loopback
from transports.errors import ServerFailed
from transports.tcp.descriptors import bound_to, let_go
from transports.tcp.listening import listen_on

if TYPE_CHECKING:
    from transports.limits import Limits
    from transports.server.tls import ServerCertificate

__all__ = ["JOIN_MARGIN", "ServedPort"]

JOIN_MARGIN: Final = 5.0
_START_TIMEOUT: Final = 30.0
_LOG: Final = logging.getLogger("penstock.transports")


class ServedPort(ABC):
    """A port with the thread that serves it. A derived class implements what is served.

    Args:
        host: The address to listen on.
        port: The port to listen on; 0 for a free one.
        name: What is served, for the name of the thread.
        limits: The bounds of the server.
        tls: The server certificate; None for plain text.
        open_to_all: Whether no client is authenticated.
        beside: A running port, whose event loop serves this one too; None for a thread and an event loop of its own.

    Attributes:
        host: The address that it listens on.
        port: The bound port, also if port 0 was requested.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        name: str,
        limits: "Limits",
        tls: "ServerCertificate | None",
        open_to_all: bool,
        beside: "ServedPort | None" = None,
    ) -> None:
        self.host = host
        self._open = open_to_all
        self._limits = limits
        self._tls = tls
        self._socket = listen_on(host, port)
        self._address = self._socket.getsockname()
        self.port: int = self._address[1]
        self._loop: asyncio.AbstractEventLoop | None = None
        self._beside = beside
        self._running: Future[None] = Future()  # done when nothing is served any more
        self._ready = threading.Event()
        self._failure: BaseException | None = None
        self._stopping = threading.Lock()
        self._thread: threading.Thread | None = None
        if beside is None:
            name = f"penstock-{name}-{self.port}"
            self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> Self:
        """Starts to listen; returns when the port accepts connections.

        Raises:
            ServerFailed: If the server does not come up within 30 seconds, or the port beside which it runs has stopped.
        """
        forks.register(self)
        loop = None if self._beside is None else self._beside._serving  # noqa: SLF001 - of the same class
        if self._thread is not None:
            self._thread.start()
        elif loop is not None:
            asyncio.run_coroutine_threadsafe(self._serve_beside(), loop)
        else:
            self._end_with(RuntimeError("the server whose event loop was to serve it has stopped"))
        if not self._ready.wait(_START_TIMEOUT) or self._failure is not None:
            raise ServerFailed(self.host, self.port, str(self._failure or "it did not start in time"))
        if self._open and not is_loopback(self.host):
            _LOG.warning(
                "port %d is open to other machines, and no client needs a token: everyone who reaches it may do what the "
                "authoriser grants, by default read every change, schema and statistic of every log; give authenticate",
                self.port,
            )
        return self

    def forked(self, _pid: int, /) -> None:
        """Closes the port and the connections in the child, which has no serving thread. See ``flow.forks.Forkable``."""
        self._stopping = threading.Lock()
        self._running = Future()
        self._running.set_result(None)
        let_go(bound_to(self._socket.family, self._address))

    @abstractmethod
    def stop(self) -> None:
        """Ends the connections and closes the port. Idempotent; does nothing in a child of ``fork``."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @abstractmethod
    async def _serve(self, loop: asyncio.AbstractEventLoop) -> None:
        """Serves the socket on the loop of the thread until it is stopped.

        Sets ``_ready`` as soon as it accepts connections.
        """

    @property
    def _authority(self) -> str:
        host = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(self.host, self.host)  # noqa: S104 - a look-up
        return f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"

    def _scheme(self, plain: str) -> str:
        return plain if self._tls is None else plain + "s"

    @property
    def _serving(self) -> asyncio.AbstractEventLoop | None:
        """The loop while it serves the port; None otherwise."""
        return None if self._running.done() else self._loop

    def _end(self, ask: Callable[[asyncio.AbstractEventLoop], None]) -> None:
        """Asks the loop to serve the port no more, and waits until it does not."""
        with self._stopping:
            loop = self._serving
            if loop is None:
                return
            with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
                ask(loop)
            wait_for([self._running], self._limits.close_timeout + 2 * JOIN_MARGIN)
            if self._thread is not None:
                self._thread.join(JOIN_MARGIN)

    def _run(self) -> None:
        failure: BaseException | None = None
        try:
            asyncio.run(self._main())
        except BaseException as error:  # noqa: BLE001 - uvicorn exits if it cannot start; ``start`` reports it
            failure = error
        self._end_with(failure)

    async def _serve_beside(self) -> None:
        failure: BaseException | None = None
        try:
            await self._main()
        except BaseException as error:  # noqa: BLE001 - as above
            failure = error
        self._end_with(failure)

    def _end_with(self, failure: BaseException | None) -> None:
        self._failure = failure
        forks.forget(self)  # another socket may use the address from now on
        self._socket.close()
        self._ready.set()
        self._running.set_result(None)

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        await self._serve(self._loop)
