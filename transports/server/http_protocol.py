"""uvicorn's protocol for HTTP, with the bounds that it lacks.

uvicorn waits without limit for the first request of a connection, for the rest of a request head, and for a client to read a
response. It handles whatever has arrived in one turn of the loop, keeps a head of any size, and reads on after it has refused
a body. An idle client thus occupies a file descriptor per connection, and a busy one the loop and the memory of the server.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, ClassVar, Final, cast

import httptools
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from transports.http.asgi import ASGIMessage, ASGISend, Receive, Scope
from transports.http.scope import PEER
from transports.limits import HIGH_WATER, Limits
from transports.server.tls import shown_by
from transports.server.watchdog import Watchdog
from transports.tcp.accepting import SILENT
from transports.tcp.shares import SHARES, Charged, address_of
from transports.tcp.sockets import (
    end_writing,
    held_by_kernel,
    hold_little,
    read_little,
    send_at_once,
    unsent_by,
    wait_for_all,
    writer_of,
)
from transports.tcp.turns import turns_of

__all__ = ["HEAD_BYTES", "HttpProtocol"]

HEAD_BYTES: Final = 64 * 1024
"""Most bytes of an HTTP request that are not its body (target, headers, trailers, sizes of chunks), and one more for each byte of its body: what
browsers and proxies send is a quarter of that. Above it 431, or the connection is aborted."""

_LOG: Final = logging.getLogger("penstock.transports")
_PIECE: Final = 4096
"""Bytes parsed at a time: at most 683 chunks, because a chunk has 6 bytes or more."""
_CHUNKS: Final = 64
"""Pieces of bodies after which the rest of the bytes waits for the next turn of the loop."""
_DROPPED: Final = 4 * 2**20
"""Bytes that a client may send behind a response that does not need them; many clients read no response while they send."""
_READ: Final = 64 * 1024
"""Bytes of one read; so many wait until they are parsed, and as many until the application reads them."""
_AGAIN: Final = 0.1  # seconds until a client is looked at again that the server does not read
_TARGETS: Final = (b"/", b"http://", b"https://")
_ANY: Final = b"a target begins with /"


class _Transport:
    """The transport of a connection as uvicorn sees it: the protocol decides when to close and when to read again."""

    def __init__(self, transport: asyncio.Transport, protocol: "HttpProtocol") -> None:
        self._transport = transport
        self._protocol = protocol
        self.write = writer_of(transport)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def is_closing(self) -> bool:
        return self._protocol.finished or self._transport.is_closing()

    def close(self) -> None:
        self._protocol.finish()

    def resume_reading(self) -> None:
        self._protocol.read_on()


class HttpProtocol(HttpToolsProtocol):
    """HTTP under uvicorn; aborts a connection that sends no request within ``request_timeout`` seconds.

    The timeout covers the time from the connection, or from the first byte of a request, to the last byte of the head; the
    application waits for the body. uvicorn's own timeout applies between two requests. The class also aborts a connection
    with unsent bytes if the client accepts none of them for ``stall_timeout`` seconds. The application waits while any bytes
    are unsent, so the unsent bytes are at most one message.

    One turn of the loop parses a bounded number of chunks. Of a request, at most ``head_bytes``, and one for each byte of its
    body, are not body: target, headers, trailers, and the sizes of chunks. A connection is closed behind a response that is
    sent before the body has arrived; what the client still sends is dropped unparsed, for a bounded time.

    Attributes:
        finished: Whether the last response was sent while the client was still sending.
    """

    limits: ClassVar[Limits] = Limits()

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self._application = self.app
        self.app: Callable[[Scope, Receive, ASGISend], Awaitable[None]] = self._answer
        self._real: asyncio.Transport
        self._deadline: asyncio.TimerHandle | None = None
        self._watch = Watchdog(self.loop, self.limits.stall_timeout, self._unsent, self._stalled)
        self.finished: bool = False
        self._refused = self._behind = self._held = False
        self._dropped = 0
        self._rest = b""
        self._chunks = 0  # pieces of bodies in this turn
        self._body = self._beside = 0  # bytes of the request: of its body, and others
        self._plain: bytes | None = None  # a head whose offer of another protocol is declined

    # Called by asyncio.

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Configures the socket of a new connection and starts the timeout."""
        super().connection_made(transport)
        self._real = transport
        self._payer = address_of(transport)
        self.transport: asyncio.Transport = cast("asyncio.Transport", _Transport(transport, self))
        self.flow: FlowControl = type(self.flow)(self.transport)
        shown = shown_by(transport)
        if shown is not None:
            self.app_state: dict[str, Any] = {
                **self.app_state,
                PEER: shown,
            }  # becomes the ``state`` of every scope
        wait_for_all(transport)
        send_at_once(transport)
        hold_little(transport, 2 * HIGH_WATER)
        read_little(transport, _READ)
        self._wait()

    def data_received(self, data: bytes) -> None:
        """Handles bytes of the client."""
        if self.finished:
            self._dropped += len(data)
            if self._dropped > _DROPPED:
                self._real.close()
            return
        self._unset_keepalive_if_required()
        self._rest += data
        if not self._behind and turns_of(self.loop).holds(self._payer, self.limits.late_share):
            self._held = True
            self.read_on()
        else:
            self._parse()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stops the timers, because the connection is gone."""
        self._be_content()
        self._watch.stop()
        self._rest = b""
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

    # What arrives, in turns.

    def _parse(self) -> None:
        SHARES.charged(self._payer, self._take)

    def _take(self) -> None:
        """Parses what has arrived until it is the turn of other connections, or until the application has to read first."""
        rest, at = memoryview(self._rest), 0
        self._chunks = 0
        while at < len(rest) and self._chunks < _CHUNKS and not (self.flow.read_paused or self._over):
            piece = rest[at : at + _PIECE]
            at += len(piece)
            body = self._body
            self._feed(piece)
            self._beside += len(piece) - max(self._body - body, 0)
            if self._beside > HEAD_BYTES + self._body and not self._over:
                self._refuse(431, b"of a request, at most %d bytes are not its body" % HEAD_BYTES)
        self._rest = b"" if self._over else bytes(rest[at:])
        if self._over:
            return
        if self._busy:
            self._be_content()
        else:
            self._wait()
        self.read_on()

    def read_on(self) -> None:
        """Reads on, once what has arrived is parsed; unless the application has to read first."""
        if self._rest:
            self._real.pause_reading()
            if not (self._behind or self.flow.read_paused):
                self._behind = True
                turns_of(self.loop).later(self._payer, self.limits.late_share, self._go_on)
        elif not self.flow.read_paused:
            self._real.resume_reading()

    def _go_on(self) -> None:
        self._behind = self._held = False
        if self._rest and not self._over:
            self._parse()

    @property
    def _over(self) -> bool:
        """Whether no byte of the client is parsed any more."""
        return self.finished or self._upgraded or self._real.is_closing()

    def _feed(self, piece: memoryview) -> None:
        try:
            self.parser.feed_data(piece)
        except httptools.HttpParserUpgrade as upgrade:
            if self._plain is None:
                self.transport = self._real
                self._real.resume_reading()  # whoever reads on from now does not know that this was held
                self.handle_websocket_upgrade()
                self._be_content()
                return
            plain, self._plain = self._plain, None
            self.parser: httptools.HttpRequestParser = httptools.HttpRequestParser(self)
            self._feed(memoryview(plain + piece[upgrade.args[0] :]))
        except httptools.HttpParserError as error:
            why = error.__context__ or error
            self._refuse(400, str(why).encode("ascii", "replace"))

    def _refuse(self, status: int, why: bytes) -> None:
        """Answers bytes that are no request, and closes; aborts if a request of the client is still being answered."""
        self.ended("HTTP_REFUSED")
        if self._busy:
            self._real.abort()
            return
        self._refused = True
        text = why + b"\n"
        kind = b"content-type: text/plain; charset=utf-8\r\nconnection: close\r\n"
        self._real.write(b"%s%scontent-length: %d\r\n\r\n%s" % (STATUS_LINE[status], kind, len(text), text))
        self.finish()

    # Called by the parser.

    def on_message_begin(self) -> None:
        """A request begins."""
        self._body = self._beside = 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Starts the request.

        A client may offer another protocol than WebSocket, as those do that prefer HTTP/2. The parser would take what follows
        for that protocol, so it gets the head again without the offer.
        """
        if not self.url.startswith(_TARGETS):
            raise ValueError(f"the target is {self.url[:100].decode('latin-1')!r}, but {_ANY.decode()}")
        if self.parser.should_upgrade() and not self._should_upgrade():
            lines = [b"%s %s HTTP/1.1" % (self.parser.get_method(), self.url)]
            lines += [b"%s: %s" % each for each in self.headers if each[0] not in (b"connection", b"upgrade")]
            self._plain = b"\r\n".join(lines) + b"\r\n\r\n"
        else:
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """A piece of a body."""
        self._body += len(body)
        self._chunks += 1
        super().on_body(body)

    def on_message_complete(self) -> None:
        """A request has arrived."""
        if self._plain is None:
            super().on_message_complete()

    def on_response_complete(self) -> None:
        """A response was sent; what the client has sent behind its request is next."""
        super().on_response_complete()
        if self._rest and not self._over:
            self.read_on()

    # The end of a response.

    async def _answer(self, scope: Scope, receive: Receive, send: ASGISend) -> None:
        """Runs the application; closes behind its response if that begins before the body has arrived."""
        cycle = (
            self.cycle if self.cycle.scope is scope else None
        )  # otherwise the next request arrives already

        async def sending(message: ASGIMessage) -> None:
            if cycle is not None and cycle.more_body:
                cycle.keep_alive = False
            await send(message)

        await Charged(self._application(scope, receive, sending), lambda: self._payer)

    def finish(self) -> None:
        """Closes the connection; first drops what the client is still sending.

        Closing with unread bytes would reset the connection, and the client might never see the response.
        """
        sending = self._refused or (self.cycle is not None and self.cycle.more_body)
        if self.finished or not sending or self._real.is_closing():
            self._real.close()
            return
        self.finished, self._rest = True, b""
        end_writing(self._real)
        self._real.resume_reading()
        self._wait_no_more()  # it may still be silent: a refused request was none
        self._wait()

    # Timers.

    @property
    def _upgraded(self) -> bool:
        return self._real.get_protocol() is not self

    @property
    def _busy(self) -> bool:
        """Whether the head of a request has arrived and its response is incomplete."""
        return self.cycle is not None and not self.cycle.response_complete

    def _wait(self) -> None:
        if self._deadline is None:
            self._deadline = self.loop.call_later(self.limits.request_timeout, self._give_up)

    def _be_content(self) -> None:
        SILENT.discard(self)
        self._wait_no_more()

    def _wait_no_more(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _unsent(self) -> int | None:
        """The bytes that the client has yet to accept, to which the application adds none meanwhile.

        None after an upgrade, when another protocol watches.
        """
        if self._upgraded:
            return None
        return unsent_by(self._real) + held_by_kernel(self._real)

    def _stalled(self) -> None:
        _LOG.info("%s bytes of a response unsent, none accepted in time: connection aborted", self._unsent())
        self.ended("HTTP_STALLED")
        self._real.abort()

    def _give_up(self) -> None:
        self._deadline = None
        if self._held:  # what it waits for may have come
            self._deadline = self.loop.call_later(_AGAIN, self._give_up)
        elif self.finished:
            self._real.close()  # what is unsent is still sent; the watch aborts if the client does not accept it
        else:
            self._real.abort()
