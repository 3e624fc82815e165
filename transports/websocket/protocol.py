"""The WebSocket protocol class for uvicorn (``ws=``): raw batched frames, pause, abort.

It stands on the sans-I/O protocol of ``websockets`` and adds what that and uvicorn leave out: frames are written as they
are, all of a turn in one write; the application sees when the socket is full and is told when it is not; and a peer that
takes nothing is cut off with ``transport.abort()``, since ``transport.close()`` waits for a flush that never comes.

The application is an ordinary ASGI application. It finds the link under ``LINK`` in the scope's extensions, and takes it
over with ``attach`` instead of exchanging ASGI messages.
"""

import asyncio
import contextlib
import fcntl
import logging
import socket
import struct
import termios
from collections import deque
from collections.abc import Awaitable, Callable, MutableMapping
from http import HTTPStatus
from typing import Any, ClassVar, Final, Protocol, cast

from websockets.frames import Frame, Opcode
from websockets.http11 import Request, Response
from websockets.protocol import State
from websockets.server import ServerProtocol

from transports.errors import CloseCode, close_reason
from transports.limits import Limits
from transports.websocket.frames import frame_head, scope_of
from transports.websocket.link import LINK, Receiver

__all__ = ["LinkProtocol"]

_LOG: Final = logging.getLogger("penstock.transports")
_QUIET: Final = logging.getLogger("penstock.transports.websocket")
_QUIET.setLevel(logging.WARNING)  # the sans-I/O protocol tells of every connection at INFO
_STEPS: Final = 4  # how often within the stall timeout progress is looked for

Message = MutableMapping[str, Any]


class _State(Protocol):
    """What uvicorn shares between the protocols of a server."""

    connections: set[Any]
    tasks: set[asyncio.Task[None]]


class _Config(Protocol):
    loaded_app: Callable[..., Awaitable[None]]
    root_path: str
    asgi_version: str


class LinkProtocol(asyncio.Protocol):
    """One WebSocket connection under uvicorn; a ``Link`` once the application has attached to it.

    Bounds: nothing is polled for a paused connection; reading stops while answers to the peer wait beyond the window;
    a message above ``message_bytes`` closes with 1009; without a pong, or with bytes unsent and none taken, for the
    time of the limits, the connection is aborted.
    """

    limits: ClassVar[Limits] = Limits()

    def __init__(
        self,
        config: _Config,
        server_state: _State,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self.loop = _loop or asyncio.get_event_loop()
        self._config = config
        self._app_state = app_state
        self._connections = server_state.connections
        self._tasks = server_state.tasks
        self._conn = ServerProtocol(max_size=self.limits.message_bytes, logger=_QUIET)
        self._transport: asyncio.Transport
        self._receiver: Receiver | None = None
        self._response: Response | None = None
        self._gone: asyncio.Future[None] = self.loop.create_future()
        self._events: deque[Request | Response | Frame] = deque()
        self._message = bytearray()
        self._binary = False
        self._queue: list[bytes] = []
        self._queued = 0
        self._written = 0
        self._drained = 0
        self._still = 0
        self._full = False
        self._reading = True
        self._pinged = False
        self._ended = False
        self._keepalive: asyncio.TimerHandle | None = None
        self._watchdog: asyncio.TimerHandle | None = None
        self._closer: asyncio.TimerHandle | None = None

    # What asyncio and uvicorn call.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A request to upgrade has arrived on this transport."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=self.limits.high_water)
        # Without it the kernel takes megabytes for a client that reads nothing, and reports no progress for one that
        # reads slowly, until a third of them has gone.
        with contextlib.suppress(OSError, AttributeError):
            self._transport.get_extra_info("socket").setsockopt(
                socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, 2 * self.limits.high_water
            )
        self._connections.add(self)

    def data_received(self, data: bytes) -> None:
        """Bytes have arrived."""
        self._conn.receive_data(data)
        self._events += self._conn.events_received()
        self._process()

    def _process(self) -> None:
        """Handles what arrived, but no more than the peer takes answers to."""
        while self._events and self._reading:
            event = self._events.popleft()
            if isinstance(event, Request):
                self._upgrade(event)
            elif isinstance(event, Frame):
                self._frame(event)
        self._collect()
        self.flush()
        if self._conn.parser_exc is not None and not self._events:
            self._tell_lost()
            self._cut_off_later()
            # The rest of what the peer sends is read and dropped. To close with bytes unread would reset the
            # connection, and the close frame with the reason might never be seen.
            if not self._transport.can_write_eof():
                self._transport.close()
            elif not self._ended:
                self._ended = True
                self._transport.write_eof()

    def eof_received(self) -> bool:
        """The peer sends nothing more."""
        return False

    def pause_writing(self) -> None:
        """The unsent bytes have passed the high-water mark."""
        self._full = True

    def resume_writing(self) -> None:
        """The unsent bytes have fallen below the low-water mark."""
        self._full = False
        if not self._reading and not self._transport.is_closing():
            self._reading = True
            self._process()
            if self._reading:
                self._transport.resume_reading()
        if self._receiver is not None:
            self._receiver.drained()

    def connection_lost(self, exc: Exception | None) -> None:
        """The transport is closed."""
        self._connections.discard(self)
        for timer in (self._keepalive, self._watchdog, self._closer):
            if timer is not None:
                timer.cancel()
        self._tell_lost()
        if not self._gone.done():
            self._gone.set_result(None)

    def shutdown(self) -> None:
        """The server is stopping (called by uvicorn)."""
        if self._receiver is not None:
            self._receiver.stop()
        elif not self._transport.is_closing():
            self._transport.close()

    # What the application calls.

    def attach(self, receiver: Receiver, subprotocol: str | None) -> None:
        """Accepts the upgrade; from now on the receiver is told what arrives."""
        if self._response is None or self._transport.is_closing():
            receiver.lost()
            return
        if subprotocol is not None:
            self._response.headers["Sec-WebSocket-Protocol"] = subprotocol
        self._conn.send_response(self._response)
        self._receiver = receiver
        self._keepalive = self.loop.call_later(self.limits.keepalive, self._ping)
        self._collect()
        self.flush()

    def refuse(self, status: HTTPStatus, why: str) -> None:
        """Answers the upgrade with an HTTP error."""
        if (
            self._response is not None
            and self._conn.state is State.CONNECTING  # and not accepted, and closed since
            and not self._transport.is_closing()
        ):
            self._conn.send_response(self._conn.reject(status, why + "\n"))
            self._collect()
            self.flush()
            self._end()

    async def closed(self) -> None:
        """Waits until the connection is gone."""
        await asyncio.shield(self._gone)

    @property
    def transport(self) -> asyncio.Transport:
        """What it stands on, by the name that it has in all of uvicorn's protocols."""
        return self._transport

    @property
    def paused(self) -> bool:
        """Whether more than the high-water mark is unsent."""
        return self._full

    @property
    def unsent(self) -> int:
        """Bytes that were written and not yet taken by the operating system."""
        return self._queued + self._transport.get_write_buffer_size()

    def write(self, message: bytes) -> None:
        """Queues one text message, framed and uncompressed."""
        if self._conn.state is State.OPEN:
            head = frame_head(len(message))
            self._queue += (head, message)
            self._queued += len(head) + len(message)

    def flush(self) -> None:
        """Sends what was queued in one write."""
        if not self._queue:
            return
        data = b"".join(self._queue)
        self._queue.clear()
        self._queued = 0
        if self._ended or self._transport.is_closing():
            return
        self._written += len(data)
        self._transport.write(data)
        left = self._transport.get_write_buffer_size()
        if left:
            if self._watchdog is None:
                self._drained, self._still = self._taken(left), 0
                self._watchdog = self.loop.call_later(self.limits.stall_timeout / _STEPS, self._watch)
            if left > self.limits.window and self._reading:
                # These are answers to the peer's own messages, or one event above the window: it must take them
                # before it may say more.
                self._reading = False
                self._transport.pause_reading()

    def close(self, code: CloseCode, reason: str) -> None:
        """Sends a close frame behind what was queued; the answer is awaited for ``close_timeout``."""
        if self._conn.state is State.OPEN:
            self._conn.send_close(code, close_reason(reason))
            self._collect()
        self.flush()
        self._tell_lost()
        self._cut_off_later()

    def abort(self) -> None:
        """Cuts the connection off, dropping what is unsent."""
        self._tell_lost()
        self._transport.abort()

    # Inside.

    def _upgrade(self, request: Request) -> None:
        response = self._conn.accept(request)
        if response.status_code != HTTPStatus.SWITCHING_PROTOCOLS:
            self._conn.send_response(response)
            self._collect()
            self.flush()
            self._end()
            return
        self._response = response
        scope = scope_of(request, self._transport, root=self._config.root_path) | {
            "asgi": {"version": self._config.asgi_version, "spec_version": "2.4"},
            "state": self._app_state.copy(),
            "extensions": {LINK: self},
        }
        task = self.loop.create_task(self._run_app(scope))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run_app(self, scope: Message) -> None:
        try:
            await self._config.loaded_app(scope, self._receive, self._send)
        except Exception:  # noqa: BLE001 - whatever it was, this connection ends and the server does not
            _LOG.exception("the application failed on a WebSocket")
        if self._receiver is None:
            self.refuse(HTTPStatus.INTERNAL_SERVER_ERROR, "the application did not take the connection")

    async def _receive(self) -> Message:
        await self.closed()
        return {"type": "websocket.disconnect", "code": int(CloseCode.ABNORMAL)}

    async def _send(self, message: Message) -> None:
        # An application that knows nothing of links can only decline.
        if message["type"] != "websocket.close" or self._receiver is not None:
            raise RuntimeError(f"this protocol class serves links only; take scope['extensions'][{LINK!r}]")
        self.refuse(HTTPStatus.FORBIDDEN, "refused")

    def _frame(self, frame: Frame) -> None:
        if frame.opcode is Opcode.PONG:
            self._pinged = False
        elif frame.opcode is Opcode.CLOSE:
            self._collect()
            self.flush()
            self._end()
        elif frame.opcode is not Opcode.PING:
            if frame.opcode is not Opcode.CONT:
                self._message.clear()
                self._binary = frame.opcode is Opcode.BINARY
            self._message += frame.data
            if frame.fin:
                self._deliver()

    def _deliver(self) -> None:
        raw = bytes(self._message)
        self._message.clear()
        if self._receiver is None or self._conn.state is not State.OPEN:
            return
        try:
            text = raw if self._binary else raw.decode()
        except UnicodeDecodeError as error:
            self.close(
                CloseCode.INVALID_DATA, f"text messages must be UTF-8: {error.reason} at byte {error.start}"
            )
            return
        self._receiver.received(text)

    def _collect(self) -> None:
        """Takes what the sans-I/O protocol wants sent; its end of stream is our ``_end``."""
        for data in self._conn.data_to_send():
            self._queue.append(data)
            self._queued += len(data)

    def _end(self) -> None:
        """Nothing more is to be said: close behind what is unsent, but not for ever."""
        self._tell_lost()
        self._transport.close()
        self._cut_off_later()

    def _cut_off_later(self) -> None:
        if self._closer is None:
            self._closer = self.loop.call_later(self.limits.close_timeout, self._transport.abort)

    def _tell_lost(self) -> None:
        receiver, self._receiver = self._receiver, None
        if receiver is not None:
            receiver.lost()

    def _ping(self) -> None:
        if self._conn.state is not State.OPEN:
            return
        if self._pinged and self._reading:
            _LOG.info("no pong within %g s: connection aborted", self.limits.keepalive)
            self.abort()
            return
        self._pinged = True
        self._conn.send_ping(b"penstock")
        self._collect()
        self.flush()
        self._keepalive = self.loop.call_later(self.limits.keepalive, self._ping)

    def _taken(self, left: int) -> int:
        """Bytes that the peer has taken, of all that were written; what the kernel still holds for it does not count."""
        try:
            handle = self._transport.get_extra_info("socket").fileno()
            (held,) = struct.unpack("i", fcntl.ioctl(handle, termios.TIOCOUTQ, b"\0\0\0\0"))
        except (OSError, AttributeError):
            held = 0
        return self._written - left - int(held)

    def _watch(self) -> None:
        """Looks whether the peer has taken anything of what is unsent."""
        self._watchdog = None
        left = self._transport.get_write_buffer_size()
        if not left:
            return
        drained = self._taken(left)
        self._still = 0 if drained != self._drained else self._still + 1
        self._drained = drained
        if self._still >= _STEPS:
            _LOG.info(
                "%d bytes unsent, none taken within %g s: connection aborted", left, self.limits.stall_timeout
            )
            self.abort()
            return
        self._watchdog = self.loop.call_later(self.limits.stall_timeout / _STEPS, self._watch)
