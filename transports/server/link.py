"""The interface between a connection and its transport: the rest of the server does not know which host it runs under."""

from collections.abc import Hashable
from http import HTTPStatus
from typing import Final, Protocol

from transports.errors import CloseCode

__all__ = ["LINK", "Offer", "Receiver", "SocketLink"]

LINK: Final = "penstock.link"
"""The key of the ``Offer`` in the ``extensions`` of an ASGI scope."""


class Receiver(Protocol):
    """Receives the events of a link; every method runs on the event loop and must not block."""

    def received(self, text: bytes | str) -> None:
        """Handles one message."""
        ...

    def drained(self) -> None:
        """The link is writable again."""
        ...

    def lost(self) -> None:
        """The connection is gone or about to go; called exactly once."""
        ...

    def stop(self) -> None:
        """The server is stopping."""
        ...


class SocketLink(Protocol):
    """One accepted WebSocket, for use on its event loop.

    Attributes:
        payer: Who pays for the processor time of the connection: its address in a tuple, or the name of its principal.
    """

    payer: Hashable

    @property
    def paused(self) -> bool:
        """Whether writers should pause: more bytes than the high-water mark are unsent."""
        ...

    @property
    def unsent(self) -> int:
        """Bytes that were written and that the operating system has not accepted yet."""
        ...

    @property
    def held(self) -> bool:
        """Whether the server does not read what the client has sent, because its payer is beyond its share."""
        ...

    @property
    def ending(self) -> str | None:
        """Why the server closed the connection: the name of a close code, or ``STALLED``; None if it did not."""
        ...

    def forgive(self) -> None:
        """Exempts one message of the client, which had a bound of its own, from the bound on frames per second."""
        ...

    def write(self, message: bytes) -> None:
        """Queues one text message; ``flush`` sends the queued messages in one write."""
        ...

    def flush(self) -> None:
        """Sends the queued messages."""
        ...

    def close(self, code: CloseCode, reason: str) -> None:
        """Starts the closing handshake behind the queued messages; aborts a peer that does not answer in time."""
        ...

    def abort(self) -> None:
        """Aborts the connection and drops the unsent bytes."""
        ...


class Offer(SocketLink, Protocol):
    """An upgrade request that an application may accept as a link."""

    def attach(self, receiver: Receiver | None, subprotocol: str | None) -> None:
        """Accepts the upgrade; from now on the receiver, if any, gets the events."""
        ...

    def refuse(self, status: HTTPStatus, why: str) -> None:
        """Answers the upgrade with an HTTP error."""
        ...

    async def closed(self) -> None:
        """Waits until the connection is gone."""
        ...
