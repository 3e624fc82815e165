"""The connection of a client to a server: connects, exchanges messages, and reconnects for the client's machine."""

import asyncio
import contextlib
import inspect
import logging
import ssl
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from urllib.parse import urlsplit

from publishers.errors import InvalidOption
from transports.client.backoff import Backoff
from transports.errors import CloseCode, ConnectionLost, ExtraMissing, RemoteError, Violation
from transports.protocol.client import ClientSession
from transports.protocol.connection import Effect
from transports.tcp.descriptors import let_go
from transports.tcp.sockets import send_at_once

if TYPE_CHECKING:
    from transports.client.socket import Socket

__all__ = ["QUIET_PARTS", "OnWait", "Reconnection", "Token"]

Token: TypeAlias = str | Callable[[], str | None] | Callable[[], Awaitable[str | None]] | None
"""A token, or a function that returns the one for the next connection."""

OnWait = Callable[[ConnectionLost | RemoteError, float], object]
"""Called with the error that interrupted a connection or a subscription, and the seconds until the retry."""

_LOG: Final = logging.getLogger("penstock.transports")
# At DEBUG websockets logs whole messages, one of which holds a token.
_QUIET: Final = logging.getLogger("penstock.transports.client")
_QUIET.setLevel(logging.WARNING)
_SUBPROTOCOL: Final = "penstock.v1+json"
# Turns of the loop from the end of a subscription until the machine has sent its last message.
_TURNS: Final = 3
_LAST: Final = 1.0  # seconds that a server has to accept the last messages before the end
QUIET_PARTS: Final = 3
"""A silent server is pinged after such a part of its keep-alive time, and has another for its answer."""


class Reconnection:
    """Keeps one connection, on the event loop on which it was opened.

    Args:
        session: The machine.
        url: The URL of the endpoint.
        token: The token, or a function, also a coroutine function, that returns the one for the next connection.
        perform: Performs the effects of the machine.
        waiting: Called before each wait, with the reason why there is no connection and the seconds until the next attempt.
        given_up: Called with the reason when no further attempt will be made.
        reconnect: The delays between attempts to reconnect; None for no reconnection.
        open_timeout: Seconds that the function of the token has, and then the server to acknowledge the connection.
        headers: Additional headers of the upgrade request.
        tls: The TLS context; None for the machine's trusted authorities.
        server_name: The name that the server's certificate must bear, if it is not the host of the URL.
    """

    def __init__(
        self,
        session: ClientSession,
        url: str,
        *,
        token: Token,
        perform: Callable[[Iterable[Effect]], None],
        waiting: Callable[[ConnectionLost, float], None],
        given_up: Callable[[ConnectionLost], None],
        reconnect: Backoff | None,
        open_timeout: float,
        headers: Mapping[str, str],
        tls: ssl.SSLContext | None,
        server_name: str | None,
    ) -> None:
        self._session = session
        self._url = url
        self._token = token
        self._accepted = False  # whether the server has acknowledged this connection
        self._perform = perform
        self._waiting = waiting
        self._given_up = given_up
        self._reconnect = reconnect
        self._open_timeout = open_timeout
        self._headers = dict(headers)
        self._tls: dict[str, Any] = {"ssl": tls, "server_hostname": server_name}
        self._attempt = 0  # attempts in a row without an acknowledgement
        self._outgoing: deque[bytes] = deque()
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()  # set while nothing waits to be sent
        self._idle.set()
        self._task: asyncio.Task[None] | None = None
        self._socket: Socket | None = None
        self._silent = False  # whether this connection was given up because nothing was heard of the server
        self._opened: asyncio.Future[None] | None = None

    async def open(self) -> None:
        """Connects; returns when the server has acknowledged the connection.

        Raises:
            ConnectionLost: If that fails; the first attempt is not retried.
            Exception: What the function of the token raises.
            ExtraMissing: If websockets is not installed.
        """
        try:
            import websockets.asyncio.client  # noqa: F401, PLC0415 - an optional dependency
        except ImportError as error:
            raise ExtraMissing("a client", error.name or "websockets", "server") from None
        loop = asyncio.get_running_loop()
        self._opened = loop.create_future()
        self._task = loop.create_task(self._run())
        try:
            await asyncio.shield(self._opened)
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Sends what waits, for at most a second, then closes the connection for good. Idempotent."""
        task, self._task = self._task, None
        if task is not None:
            for _ in range(_TURNS):
                await asyncio.sleep(0)
            if self._session.ready:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_LAST):
                        await self._idle.wait()
            task.cancel()
            await asyncio.wait([task])
        self._give_up(ConnectionLost(self._url, "it was closed here", retryable=False))

    def let_go(self) -> None:
        """Closes this process's copy of the socket; for a child of ``fork``, where nothing else is done."""
        transport = None if self._socket is None else self._socket.transport
        found = None if transport is None else transport.get_extra_info("socket")
        if found is not None and found.fileno() >= 0:
            let_go([found.fileno()])

    def send(self, message: bytes) -> None:
        """Queues a message."""
        self._outgoing.append(message)
        self._idle.clear()
        self._wake.set()

    async def _run(self) -> None:
        while True:
            try:
                lost = await self._serve()
            except Exception as error:  # noqa: BLE001 - callers that wait for this connection would wait for ever
                _LOG.exception("the connection to %s failed", self._url)
                lost = ConnectionLost(self._url, repr(error), retryable=False)
            if lost.close_code == CloseCode.FORBIDDEN and self._accepted and callable(self._token):
                lost.retryable = True  # the token has expired, and the next one is asked for
            again = lost.retryable and self._opened is not None and self._opened.done()
            delay = self._reconnect.delay(self._attempt) if self._reconnect and again else None
            if delay is None:
                self._give_up(lost)
                return
            self._attempt += 1
            self._waiting(lost, delay)
            await asyncio.sleep(delay)

    def _not_upgraded(self, error: Exception) -> ConnectionLost:
        from websockets.exceptions import InvalidMessage, InvalidStatus  # noqa: PLC0415 - an optional dependency

        why, retryable = f"the server refused the upgrade: {error}", True
        if isinstance(error, InvalidMessage) and self._url.startswith("wss:"):
            why = "the server closed it without an answer, as it does to whoever has no certificate that it accepts"
        if isinstance(error, InvalidStatus):
            why += f": {(error.response.body or b'')[:200].decode(errors='replace').strip()}"
            retryable = error.response.status_code != HTTPStatus.BAD_REQUEST
        return ConnectionLost(self._url, why, retryable=retryable)

    async def _serve(self) -> ConnectionLost:
        """Connects, and serves the connection until it is lost; returns the reason."""
        self._accepted = self._silent = False
        from websockets.asyncio.client import connect as dial  # noqa: PLC0415 - an optional dependency
        from websockets.exceptions import (  # noqa: PLC0415 - likewise
            ConnectionClosed,
            InvalidHandshake,
            InvalidURI,
        )

        from transports.client.socket import Socket  # noqa: PLC0415 - it needs the same

        try:
            loopback = urlsplit(self._url).hostname in ("localhost", "127.0.0.1", "::1")
        except ValueError as error:
            return ConnectionLost(self._url, str(error), retryable=False)
        try:
            async with asyncio.timeout(self._open_timeout):
                token = await self._ask_token()
        except Exception as error:  # noqa: BLE001 - of the user's function: whatever it is, the next attempt may succeed
            if self._opened is not None and not self._opened.done():
                self._opened.set_exception(error)
            lost = ConnectionLost(self._url, f"there is no token: {error!r}")
            lost.__cause__ = error
            return lost
        deadline = asyncio.get_running_loop().time() + self._open_timeout
        try:
            async with dial(
                self._url,
                subprotocols=[_SUBPROTOCOL],  # type: ignore[list-item]  # a NewType of str
                additional_headers=self._headers,
                compression=None,
                proxy=None if loopback else True,
                open_timeout=self._open_timeout,
                ping_interval=None,
                close_timeout=1.0,
                max_size=None,
                logger=_QUIET,
                create_connection=Socket,
                **{name: value for name, value in self._tls.items() if value is not None},
            ) as socket:
                assert isinstance(socket, Socket)
                self._socket = socket
                send_at_once(socket.transport)  # with a proxy, the proxy's client made the socket
                await self._greet(socket, token, deadline)
                await self._exchange(socket)
        except ConnectionClosed as error:
            return self._closed(*((error.rcvd.code, error.rcvd.reason) if error.rcvd else (None, "")))
        except (InvalidURI, ImportError) as error:  # a proxy of the environment may need a package
            return ConnectionLost(self._url, str(error), retryable=False)
        except InvalidHandshake as error:
            return self._not_upgraded(error)
        except Violation as error:
            return ConnectionLost(self._url, str(error), close_code=error.close_code, retryable=False)
        except TimeoutError:
            return ConnectionLost(self._url, f"no answer within {self._open_timeout:g} s")
        except ssl.SSLCertVerificationError as error:
            why = f"its certificate is not trusted: {error.verify_message}"
            return ConnectionLost(self._url, why, retryable=False)
        except (OSError, EOFError, ValueError) as error:
            refused = isinstance(error, ConnectionRefusedError)
            why = "it was refused" if refused else str(error) or type(error).__name__
            return ConnectionLost(self._url, why)
        finally:
            self._session.lost()
            self._socket = None
            self._outgoing.clear()
            self._idle.set()
        return self._closed(1000, "closed by the server")

    def _closed(self, code: int | None, reason: str) -> ConnectionLost:
        suffix = f" ({reason})" if reason else ""
        lost = "nothing was heard of the server" if self._silent else "no close frame came"
        why = lost if code is None else f"closed with {code}{suffix}"
        known = code in CloseCode.__members__.values()
        retryable = CloseCode(code).retryable if known and code is not None else True
        return ConnectionLost(self._url, why, close_code=code, retryable=retryable)

    async def _ask_token(self) -> str | None:
        if not callable(self._token):
            return self._token
        found = self._token()
        if inspect.isawaitable(found):
            found = await found
        if found is not None and not isinstance(found, str):
            raise InvalidOption("token", type(found).__name__, "a function that returns text or None")
        return found

    async def _greet(self, socket: "Socket", token: str | None, deadline: float) -> None:
        self._perform(self._session.begin(token))
        while self._outgoing:
            await socket.send(self._outgoing.popleft().decode())
        try:
            async with asyncio.timeout_at(deadline):
                text = await socket.recv()
        except TimeoutError:
            socket.transport.abort()  # no close frame would be answered
            raise
        self._perform(self._session.receive(text))
        self._attempt = 0
        self._accepted = True
        if self._opened is not None and not self._opened.done():
            self._opened.set_result(None)

    async def _exchange(self, socket: "Socket") -> None:
        tasks = [asyncio.create_task(self._write(socket)), asyncio.create_task(self._watch(socket))]
        try:
            while True:
                self._perform(self._session.receive(await socket.recv(decode=False)))
        except Violation as error:
            await socket.close(error.close_code, error.reason)
            raise
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def _watch(self, socket: "Socket") -> None:
        """Pings a server of which nothing is heard, and gives the connection up without an answer."""
        from websockets.exceptions import ConnectionClosed  # noqa: PLC0415 - an optional dependency

        wait, now = self._session.keepalive / QUIET_PARTS, socket.loop.time
        with contextlib.suppress(ConnectionClosed):  # the reader gets the same exception and reports it
            while True:
                await asyncio.sleep(socket.heard + wait - now())
                heard = socket.heard
                late = now() >= heard + wait  # otherwise something was heard meanwhile
                while late and heard == socket.heard:
                    asked = now()
                    with contextlib.suppress(TimeoutError):  # a connection that accepts nothing more
                        async with asyncio.timeout(wait):
                            _ = await socket.ping()
                    await asyncio.sleep(asked + wait - now())
                    late = now() - asked > 2 * wait  # the machine slept: an answer may not have been read yet
                    if heard == socket.heard and not late:
                        self._silent = True
                        socket.transport.abort()
                        return

    async def _write(self, socket: "Socket") -> None:
        from websockets.exceptions import ConnectionClosed  # noqa: PLC0415 - an optional dependency

        with contextlib.suppress(ConnectionClosed):  # the reader gets the same exception and reports it
            while True:
                while self._outgoing:
                    await socket.send(self._outgoing.popleft().decode())
                self._idle.set()
                self._wake.clear()
                await self._wake.wait()

    def _give_up(self, lost: ConnectionLost) -> None:
        if self._opened is not None and not self._opened.done():
            self._opened.set_exception(lost)
            self._opened.exception()
        self._given_up(lost)
