"""uvicorn's protocol for HTTP with the timeouts that it lacks.

uvicorn waits without limit for the first request of a connection, for the rest of a request head, and for a client to read a
response. An idle client thus occupies a file descriptor per connection, and the memory of its unsent bytes.
"""

import asyncio
import logging
from typing import TYPE_CHECKING, Any, ClassVar, Final

from transports.http.scope import PEER
from transports.limits import Limits
from transports.server.tls import shown_by
from transports.server.watchdog import Watchdog
from transports.tcp.accepting import SILENT
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
    """HTTP under uvicorn; aborts a connection that sends no request within ``request_timeout`` seconds.

    The timeout covers the time from the connection, or from the first byte of a request, to the last byte of the head; the
    application waits for the body. uvicorn's own timeout applies between two requests. The class also aborts a connection
    with unsent bytes if the client accepts none of them for ``stall_timeout`` seconds. The application waits while any bytes
    are unsent, so the unsent bytes are at most one message.
    """

    limits: ClassVar[Limits] = Limits()

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self._deadline: asyncio.TimerHandle | None = None
        self._watch = Watchdog(self.loop, self.limits.stall_timeout, self._unsent, self._stalled)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Configures the socket of a new connection and starts the timeout."""
        super().connection_made(transport)
        shown = shown_by(transport)
        if shown is not None:
            self.app_state = {**self.app_state, PEER: shown}  # becomes the ``state`` of every scope
        wait_for_all(transport)
        send_at_once(transport)
        hold_little(transport, 2 * self.limits.high_water)
        self._wait()

    def data_received(self, data: bytes) -> None:
        """Handles bytes of the client."""
        super().data_received(data)
        if self._upgraded or self._busy:
            self._be_content()
        else:
            self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stops the timers, because the connection is gone."""
        self._be_content()
        self._watch.stop()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Starts the watch, because bytes are unsent."""
        super().pause_writing()
        self._watch.start()

    def resume_writing(self) -> None:
        """Stops the watch, because the kernel has accepted all bytes."""
        self._watch.stop()
        super().resume_writing()

    def ended(self, why: str) -> None:
        """Hook: called with the reason when the connection is aborted."""

    @property
    def _upgraded(self) -> bool:
        return self.transport.get_protocol() is not self

    @property
    def _busy(self) -> bool:
        """Whether the head of a request has arrived and its response is incomplete."""
        return self.cycle is not None and not self.cycle.response_complete

    def _wait(self) -> None:
        if self._deadline is None:
            self._deadline = self.loop.call_later(self.limits.request_timeout, self._give_up)

    def _be_content(self) -> None:
        SILENT.discard(self)
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _unsent(self) -> int | None:
        """The bytes that the client has yet to accept, to which the application adds none meanwhile.

        None after an upgrade, when another protocol watches.
        """
        if self._upgraded:
            return None
        return unsent_by(self.transport) + held_by_kernel(self.transport)

    def _stalled(self) -> None:
        _LOG.info("%s bytes of a response unsent, none accepted in time: connection aborted", self._unsent())
        self.ended("HTTP_STALLED")
        self.transport.abort()

    def _give_up(self) -> None:
        self._deadline = None
        self.transport.abort()
