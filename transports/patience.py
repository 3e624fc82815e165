"""How long a server waits for a request: uvicorn's protocol for HTTP, with a bound that it lacks.

uvicorn waits for ever for the first request of a connection, and for the rest of one that has begun to arrive; whoever
opens connections and says nothing holds a file descriptor with each.
"""

import asyncio
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from uvicorn.protocols.http.h11_impl import H11Protocol as HttpProtocol
else:
    try:
        from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol as HttpProtocol
    except ImportError:
        from uvicorn.protocols.http.h11_impl import H11Protocol as HttpProtocol

__all__ = ["PatientProtocol"]


class PatientProtocol(HttpProtocol):
    """HTTP under uvicorn; a connection without a request is aborted after ``timeout`` seconds.

    The time runs from the first byte, or from the connection, to the last byte of the head; the body is the application's
    to wait for. Between two requests uvicorn's own timeout holds.
    """

    timeout: ClassVar[float] = 10.0

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """A client has connected."""
        super().connection_made(transport)
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
        super().connection_lost(exc)

    @property
    def _upgraded(self) -> bool:
        return self.transport.get_protocol() is not self

    @property
    def _busy(self) -> bool:
        """Whether the head of a request has arrived, and its answer has not been sent."""
        return self.cycle is not None and not self.cycle.response_complete

    def _wait(self) -> None:
        if self._deadline is None:
            self._deadline = self.loop.call_later(self.timeout, self._give_up)

    def _be_content(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _give_up(self) -> None:
        self._deadline = None
        self.transport.abort()
