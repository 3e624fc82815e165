"""The WebSocket of a client; only imported where websockets is installed."""

from websockets.asyncio.client import ClientConnection

__all__ = ["Socket"]


class Socket(ClientConnection):
    """A WebSocket that knows when something last came from the server: any byte, be it of a message that is not complete.

    Attributes:
        heard: When, by the clock of the event loop.
    """

    heard: float = 0.0

    def data_received(self, data: bytes) -> None:
        """See ``asyncio.Protocol``."""
        self.heard = self.loop.time()
        super().data_received(data)
