"""WebSockets of an application that knows nothing of links: uvicorn's own protocol class serves them.

Whether an application takes the link is known only when it has begun to run: it attaches to the link, or it awaits ASGI's
``receive`` or ``send``. In the second case the connection is lent to the class that uvicorn would have chosen itself,
which reads the request anew. The application goes on as it is, with the channels of that class.
"""

import asyncio
import copy
from typing import Any, Protocol

from transports.http.asgi import ASGIApplication, ASGIMessage, ASGISend, Receive, Scope

__all__ = ["Config", "Passthrough", "Shared"]


class Shared(Protocol):
    """What uvicorn shares between the protocols of a server."""

    connections: set[Any]
    tasks: set[asyncio.Task[None]]


class Config(Protocol):
    """What a protocol needs of uvicorn's configuration."""

    loaded_app: ASGIApplication
    root_path: str
    asgi_version: str


class Passthrough:
    """One connection that uvicorn's own protocol serves.

    Args:
        config: Of uvicorn.
        shared: Of uvicorn.
        app_state: Of uvicorn.
        application: The task in which the application runs already.
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
        """Hands the transport over, with the request as it came."""
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
        """What the other protocol takes for the application."""
        self._channels.set_result((receive, send))
        await self._application  # its exceptions are for that protocol to tell
