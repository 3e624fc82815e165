"""What a connection needs of a transport, so that the rest does not know which server it runs under."""

from http import HTTPStatus
from typing import Final, Protocol

from transports.errors import CloseCode

__all__ = ["LINK", "Offer", "Receiver", "SocketLink"]

LINK: Final = "penstock.link"
"""Where an application finds an ``Offer``, in the extensions of its ASGI scope."""


class Receiver(Protocol):
    """Who is told what happens on a link; all on the event loop, none may block."""

    def received(self, text: bytes | str) -> None:
        """One message has arrived."""
        ...

    def drained(self) -> None:
        """The link is writable again."""
        ...

    def lost(self) -> None:
        """The connection is gone, or going; told exactly once."""
        ...

    def stop(self) -> None:
        """The server is stopping."""
        ...


class SocketLink(Protocol):
    """One accepted WebSocket, for use on its event loop."""

    @property
    def paused(self) -> bool:
        """Whether nothing should be written: more than the high-water mark is unsent."""
        ...

    @property
    def unsent(self) -> int:
        """Bytes that were written and not yet taken by the operating system."""
        ...

    @property
    def ending(self) -> str | None:
        """Why the server has ended it: the name of a close code, or ``STALLED``; None if it has not."""
        ...

    def forgive(self) -> None:
        """One message of the client had a bound of its own, and does not count among its frames a second."""
        ...

    def write(self, message: bytes) -> None:
        """Queue one text message; ``flush`` sends what is queued in one piece."""
        ...

    def flush(self) -> None:
        """Send what was queued."""
        ...

    def close(self, code: CloseCode, reason: str) -> None:
        """Start the closing handshake behind what was queued; a peer that does not answer in time is cut off."""
        ...

    def abort(self) -> None:
        """Cut the connection off, dropping what is unsent."""
        ...


class Offer(SocketLink, Protocol):
    """A request to upgrade that an application may take over as a link."""

    def attach(self, receiver: Receiver | None, subprotocol: str | None) -> None:
        """Accepts the upgrade; from now on the receiver, if there is one, is told what arrives."""
        ...

    def refuse(self, status: HTTPStatus, why: str) -> None:
        """Answers the upgrade with an HTTP error."""
        ...

    async def closed(self) -> None:
        """Waits until the connection is gone."""
        ...
