"""How long a server waits for a client: uvicorn's protocol for HTTP, with bounds that it lacks.

uvicorn waits for ever for the first request of a connection, for the rest of one that has begun to arrive, and for a
client to take an answer. A client that opens connections and does nothing holds a file descriptor with each, and with it
what is unsent.
"""

import asyncio
import logging
from typing import TYPE_CHECKING, Any, ClassVar, Final

from transports.http.scope import PEER
from transports.limits import Limits
from transports.server.tls import shown_by
from transports.server.watchdog import Watchdog
from transports.tcp.sockets import held_by_kernel, hold_little, send_at_once, unsent_by, wait_for_all

if TYPE_CHECKING:
    from uvicorn.protocols.http.h11_impl import H11Protocol as UvicornProtocol
else:
    try:
        from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol as UvicornProtocol
    except ImportError:
        from uvicorn.protocols.http.h11_impl import H11Protocol as UvicornProtocol

__all__ = ["HttpProtocol"]

_LOG: Final = logging.getLogger("penstock.transports")


class HttpProtocol(UvicornProtocol):
    """HTTP under uvicorn; a connection without a request is aborted after ``request_timeout`` seconds.

    The time runs from the first byte, or from the connection, to the last byte of the head; the body is the application's
    to wait for. Between two requests uvicorn's own timeout holds. A connection with bytes unsent of which none is taken
    for ``stall_timeout`` is aborted, too. The application waits while anything is unsent, so that no more than what
    it sends at a time is.
    """

    limits: ClassVar[Limits] = Limits()

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self._deadline: asyncio.TimerHandle | None = None
        self._watch = Watchdog(self.loop, self.limits.stall_timeout, self._unsent, self._stalled)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """A client has connected."""
        super().connection_made(transport)
        shown = shown_by(transport)
        if shown is not None:
            self.app_state = {**self.app_state, PEER: shown}  # which becomes the state of every scope
        wait_for_all(transport)
        send_at_once(transport)
        hold_little(transport, 2 * self.limits.high_water)
        self._wait()

    def data_received(self, data: bytes) -> None:
        """Bytes have arrived."""
        super().data_received(data)
        if self._upgraded or self._busy:
            self._be_content()
        else:
            self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        self._be_content()
        self._watch.stop()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Something is unsent."""
        super().pause_writing()
        self._watch.start()

    def resume_writing(self) -> None:
        """The kernel has taken everything."""
        self._watch.stop()
        super().resume_writing()

    def ended(self, why: str) -> None:
        """The connection is aborted; for a server that counts why."""

    @property
    def _upgraded(self) -> bool:
        return self.transport.get_protocol() is not self

    @property
    def _busy(self) -> bool:
        """Whether the head of a request has arrived, and its answer has not been sent."""
        return self.cycle is not None and not self.cycle.response_complete

    def _wait(self) -> None:
        if self._deadline is None:
            self._deadline = self.loop.call_later(self.limits.request_timeout, self._give_up)

    def _be_content(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _unsent(self) -> int | None:
        """What the client has yet to take, to which nothing is added meanwhile; None for another protocol to watch."""
        if self._upgraded:
            return None
        return unsent_by(self.transport) + held_by_kernel(self.transport)

    def _stalled(self) -> None:
        _LOG.info("%s bytes of an answer unsent, none taken in time: connection aborted", self._unsent())
        self.ended("HTTP_STALLED")
        self.transport.abort()

    def _give_up(self) -> None:
        self._deadline = None
        self.transport.abort()
