"""A port that a program serves beside its own work: on its own thread and event loop."""

import asyncio
import contextlib
import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
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
    ) -> None:
        self.host = host
        self._open = open_to_all
        self._limits = limits
        self._tls = tls
        self._socket = listen_on(host, port)
        self._address = self._socket.getsockname()
        self.port: int = self._address[1]
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ready = threading.Event()
        self._failure: BaseException | None = None
        self._stopping = threading.Lock()
        self._thread = threading.Thread(target=self._run, name=f"penstock-{name}-{self.port}", daemon=True)

    def start(self) -> Self:
        """Starts to listen; returns when the port accepts connections.

        Raises:
            ServerFailed: If the server does not come up within 30 seconds.
        """
        forks.register(self)
        self._thread.start()
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
        """The loop while the thread runs; None otherwise."""
        return self._loop if self._thread.is_alive() else None

    def _end(self, ask: Callable[[asyncio.AbstractEventLoop], None]) -> None:
        """Asks the loop to end if it runs, and waits for its thread."""
        with self._stopping:
            loop = self._serving
            if loop is None:
                return
            with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
                ask(loop)
            self._thread.join(self._limits.close_timeout + 2 * JOIN_MARGIN)

    def _run(self) -> None:
        try:
            asyncio.run(self._main())
        except BaseException as error:  # noqa: BLE001 - uvicorn exits if it cannot start; ``start`` reports it
            self._failure = error
        finally:
            forks.forget(self)  # another socket may use the address from now on
            self._socket.close()
            self._ready.set()

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        await self._serve(self._loop)
