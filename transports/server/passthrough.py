"""WebSockets of applications that do not use links: uvicorn's own protocol class serves them.

Whether an application uses the link is known only once it runs: it either attaches to the link or awaits ASGI's ``receive``
or ``send``. In the second case the connection passes to the class that uvicorn would have chosen, which reads the request
again. The application keeps running, with the channels of that class.
"""

import asyncio
import copy
from typing import Any, Protocol

from transports.http.asgi import ASGIApplication, ASGIMessage, ASGISend, Receive, Scope

__all__ = ["Config", "Passthrough", "Shared"]


class Shared(Protocol):
    """The state that uvicorn shares between the protocols of a server."""

    connections: set[Any]
    tasks: set[asyncio.Task[None]]


class Config(Protocol):
    """The part of uvicorn's configuration that a protocol needs."""

    loaded_app: ASGIApplication
    root_path: str
    asgi_version: str


class Passthrough:
    """One connection that uvicorn's own protocol serves.

    Args:
        config: uvicorn's configuration.
        shared: uvicorn's shared state.
        app_state: uvicorn's application state.
        application: The task in which the application already runs.
    """

    def __init__(
        self, config: Config, shared: Shared, app_state: dict[str, Any], application: "asyncio.Task[None]"
    ) -> None:
        from uvicorn.protocols.websockets.auto import AutoWebSocketsProtocol  # noqa: PLC0415 - an optional dependency

        assert AutoWebSocketsProtocol is not None, "websockets is there, or a LinkProtocol would not be"
        self._application = application
        self._channels: asyncio.Future[tuple[Receive, ASGISend]] = asyncio.get_running_loop().create_future()
        borrowing = copy.copy(config)
        borrowing.loaded_app = self._run
        self._protocol: asyncio.Protocol = AutoWebSocketsProtocol(
            config=borrowing, server_state=shared, app_state=app_state
        )

    def begin(self, transport: asyncio.Transport, head: bytes) -> None:
        """Passes the transport to uvicorn's protocol, with the bytes of the request as they arrived."""
        self._protocol.connection_made(transport)
        self._protocol.data_received(head)
        transport.set_protocol(self._protocol)

    async def receive(self) -> ASGIMessage:
        """ASGI's ``receive``."""
        receive, _ = await asyncio.shield(self._channels)
        return await receive()

    async def send(self, message: ASGIMessage) -> None:
        """ASGI's ``send``."""
        _, send = await asyncio.shield(self._channels)
        await send(message)

    async def _run(self, _scope: Scope, receive: Receive, send: ASGISend) -> None:
        """The application as uvicorn's protocol sees it."""
        self._channels.set_result((receive, send))
        await self._application  # that protocol reports its exceptions
