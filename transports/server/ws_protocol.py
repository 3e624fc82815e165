"""The WebSocket protocol class for uvicorn (``ws=``): raw batched frames, pause, abort.

It builds on the sans-I/O protocol of ``websockets`` and adds what that protocol and uvicorn lack. It writes ready-made
frames, and all frames of a turn in one write. It reports to the application when the socket is full and when it drains. It
aborts a stalled peer with ``transport.abort()``, because ``transport.close()`` waits for a flush that never comes.

The application is an ordinary ASGI application. It finds the link under ``LINK`` in the scope's extensions and accepts it
with ``attach`` instead of exchanging ASGI messages. If an application exchanges ASGI messages, as the WebSockets of a web
application around ours do, uvicorn's own protocol class serves it.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Hashable
from http import HTTPStatus
from typing import Any, ClassVar, Final, cast

from websockets.exceptions import InvalidHeader
from websockets.frames import Frame, Opcode
from websockets.http11 import Request, Response
from websockets.protocol import State
from websockets.server import ServerProtocol

from transports.errors import CloseCode, close_reason
from transports.http.asgi import ASGIMessage, Scope
from transports.limits import HIGH_WATER, Limits
from transports.server.frames import frame_head, scope_of
from transports.server.link import LINK, Receiver
from transports.server.passthrough import Config, Passthrough, Shared
from transports.server.watchdog import Watchdog
from transports.tcp.shares import SHARES, address_of
from transports.tcp.sockets import (
    end_writing,
    held_by_kernel,
    hold_little,
    send_at_once,
    unsent_by,
    wait_above,
    writer_of,
)
from transports.tcp.turns import turns_of

__all__ = ["FRAMES_PER_MESSAGE", "LinkProtocol"]

FRAMES_PER_MESSAGE: Final = 4
"""WebSocket frames a second, fragments and control frames included, for each of `Limits.messages_per_second`; twice as many in a burst. Above it
4490: fragments of one byte and empty control frames cost as much as messages."""

_LOG: Final = logging.getLogger("penstock.transports")
_QUIET: Final = logging.getLogger("penstock.transports.websocket")
_QUIET.setLevel(logging.WARNING)  # the sans-I/O protocol logs every connection at INFO
_FRAMES: Final = 64  # handled in one turn of the loop
_PIECE: Final = 512  # bytes parsed at a time: at most 85 frames, because a client frame has 6 bytes or more
_BURST: Final = 2  # seconds' worth of frames that may arrive at once


class LinkProtocol(asyncio.Protocol):
    """One WebSocket connection under uvicorn; a ``Link`` once the application has attached to it.

    Bounds: a paused connection polls nothing. Reading stops while answers beyond the window are unsent. One turn of the loop
    handles a bounded number of frames, and too many frames per second, whatever they contain, close with 4490. A message
    above ``message_bytes`` closes with 1009. The connection is aborted if no pong arrives within ``keepalive``, or if bytes
    are unsent and the peer accepts none within ``stall_timeout``.

    Attributes:
        payer: Who pays for the processor time of the connection.
        held: See ``SocketLink``.
    """

    limits: ClassVar[Limits] = Limits()

    def __init__(
        self,
        config: Config,
        server_state: Shared,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self.loop: asyncio.AbstractEventLoop = _loop or asyncio.get_event_loop()
        self._config = config
        self._app_state = app_state
        self._shared = server_state
        self._conn = ServerProtocol(max_size=self.limits.message_bytes, logger=_QUIET)
        self._transport: asyncio.Transport
        self.payer: Hashable = None
        self.held: bool = False
        self._receiver: Receiver | None = None
        self._response: Response | None = None
        self._head = b""
        # Allows a refusal with a body, for applications that uvicorn's own protocol serves.
        self._extensions: dict[str, Any] = {LINK: self, "websocket.http.response": {}}
        self._task: asyncio.Task[None]
        self._passthrough: Passthrough | None = None
        self._gone: asyncio.Future[None] = self.loop.create_future()
        self._unread = bytearray()
        self._events: deque[Request | Response | Frame] = deque()
        self._answers: deque[bytes] = deque()  # of the sans-I/O protocol, to frames that are not handled yet
        self._frame_rate = FRAMES_PER_MESSAGE * self.limits.messages_per_second
        self._tokens = float(_BURST * self._frame_rate)
        self._refilled = self.loop.time()
        self._behind = self._flooded = False
        self._message = bytearray()
        self._binary = False
        self._queue: list[bytes] = []
        self._queued = 0
        self._written = self._most = 0
        self._full = False
        self._reading = True
        self._pinged = False
        self._ended = False
        self._keepalive: asyncio.TimerHandle | None = None
        self.ending: str | None = None
        self._watch = Watchdog(self.loop, self.limits.stall_timeout, self._taken, self._stalled)
        self._closer: asyncio.TimerHandle | None = None

    # Called by asyncio and uvicorn.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Configures the transport, on which an upgrade request is arriving."""
        self._transport = cast("asyncio.Transport", transport)
        self._write = writer_of(self._transport)
        self.payer = address_of(transport)
        wait_above(self._transport, HIGH_WATER)
        send_at_once(transport)
        hold_little(transport, 2 * HIGH_WATER)
        self._shared.connections.add(self)

    def data_received(self, data: bytes) -> None:
        """Handles bytes of the client."""
        if self._response is None:
            self._head += data
        if not self._flooded:
            self._unread += data
            if not self._behind and turns_of(self.loop).holds(self.payer, self.limits.late_share):
                self.held = True
                self._wait_for_turn()
            else:
                self._process()

    def _process(self) -> None:
        SHARES.charged(self.payer, self._handle)

    def _handle(self) -> None:
        """Handles what has arrived: at most ``_FRAMES`` frames in one turn, and only while the peer accepts the answers."""
        self._refill()
        left = _FRAMES
        while self._reading and left:
            if not self._events and not self._parse():
                break
            while self._events and self._reading and left:
                left -= 1
                event = self._events.popleft()
                if isinstance(event, Request):
                    self._upgrade(event)
                elif isinstance(event, Frame):
                    self._admit()
                    self._frame(event)
        if not self._events:
            self._collect()
        self.flush()
        if (self._events or self._unread) and self._reading and not self._behind:
            self._wait_for_turn()
        if self._conn.parser_exc is not None and not self._events:
            self._notify_lost()
            self._cut_off_later()
            # Read and drop the rest of what the peer sends. Closing with unread bytes would reset the connection, and the
            # peer might never see the close frame with the reason.
            if not self._ended:
                self._ended = True
                if not end_writing(self._transport):
                    self._transport.close()

    def _wait_for_turn(self) -> None:
        self._behind = True
        self._transport.pause_reading()
        turns_of(self.loop).later(self.payer, self.limits.late_share, self._go_on)

    def _go_on(self) -> None:
        self._behind = self.held = False
        if self._reading and not self._gone.done():
            self._process()
            self._read_again()

    def _read_again(self) -> None:
        if self._reading and not self._behind:
            self._transport.resume_reading()

    def _parse(self) -> bool:
        """Parses one piece of the unread bytes, which bounds the number of frames. Returns whether there was one."""
        if not self._unread:
            return False
        piece = bytes(self._unread[:_PIECE])
        del self._unread[:_PIECE]
        self._conn.receive_data(piece)
        self._answers += self._conn.data_to_send()
        self._events += self._conn.events_received()
        return True

    def _refill(self) -> None:
        now = self.loop.time()
        earned = (now - self._refilled) * self._frame_rate
        self._tokens = min(_BURST * self._frame_rate, self._tokens + earned)
        self._refilled = now

    def forgive(self) -> None:
        """Exempts one message from the frame rate; see ``SocketLink``."""
        self._tokens += 1

    def _admit(self) -> None:
        """Charges a frame to the rate limit: fragments and control frames cost the server as much as messages."""
        self._tokens -= 1
        if self._tokens < 0 and not self._flooded:
            self._flooded = True  # anything else from the client is read and dropped
            self._unread.clear()
            self._events.clear()
            self.close(CloseCode.FLOOD, f"more than {self._frame_rate} frames a second; send whole messages")

    def eof_received(self) -> bool:
        """The peer sends nothing more; asyncio closes the transport."""
        return False

    def pause_writing(self) -> None:
        """Marks the link full: the unsent bytes are above the high-water mark."""
        self._full = True

    def resume_writing(self) -> None:
        """Resumes reading and deliveries: the unsent bytes are below the low-water mark."""
        self._full = False
        if not self._reading and not self._transport.is_closing():
            self._reading = True
            self._process()
            self._read_again()
        if self._receiver is not None:
            self._receiver.drained()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stops the timers and informs the receiver, because the transport is closed."""
        self._shared.connections.discard(self)
        self._watch.stop()
        for timer in (self._keepalive, self._closer):
            if timer is not None:
                timer.cancel()
        self._notify_lost()
        if not self._gone.done():
            self._gone.set_result(None)

    def shutdown(self) -> None:
        """Called by uvicorn when the server stops."""
        if self._receiver is not None:
            self._receiver.stop()
        elif not self._transport.is_closing():
            self._transport.close()

    # Called by the application.

    def attach(self, receiver: Receiver | None, subprotocol: str | None) -> None:
        """Accepts the upgrade; from now on the receiver, if any, gets the events."""
        if self._response is None or self._transport.is_closing():
            if receiver is not None:
                receiver.lost()
            return
        if subprotocol is not None:
            self._response.headers["Sec-WebSocket-Protocol"] = subprotocol
        self._conn.send_response(self._response)
        self._receiver = receiver
        self._head = b""
        self._keepalive = self.loop.call_later(self.limits.keepalive, self._ping)
        self._collect()
        self.flush()

    def refuse(self, status: HTTPStatus, why: str) -> None:
        """Refuses the upgrade with an HTTP error."""
        if (
            self._response is not None
            and self._conn.state is State.CONNECTING  # neither accepted nor closed meanwhile
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
        """The transport, under the name that all of uvicorn's protocols use."""
        return self._transport

    @property
    def paused(self) -> bool:
        """Whether the unsent bytes are above the high-water mark."""
        return self._full

    @property
    def unsent(self) -> int:
        """Bytes that were written and that the operating system has not accepted yet."""
        return self._queued + unsent_by(self._transport)

    def write(self, message: bytes) -> None:
        """Queues one text message, framed and uncompressed."""
        if self._conn.state is State.OPEN:
            head = frame_head(len(message))
            self._queue += (head, message)
            self._queued += len(head) + len(message)

    def flush(self) -> None:
        """Sends the queued messages in one write."""
        if not self._queue:
            return
        data = b"".join(self._queue)
        self._queue.clear()
        self._queued = 0
        if self._ended or self._transport.is_closing():
            return
        self._written += len(data)
        self._write(data)
        left = unsent_by(self._transport)
        if left:
            self._watch.start()
            if left > self.limits.window_bytes and self._reading:
                # These bytes are answers to the peer's own messages, or one event above the window: the peer must accept
                # them before it may send more.
                self._reading = False
                self._transport.pause_reading()

    def close(self, code: CloseCode, reason: str) -> None:
        """Sends a close frame behind the queued messages; waits at most ``close_timeout`` for the peer's."""
        self.ending = self.ending or code.name
        if self._conn.state is State.OPEN:
            self._conn.send_close(code, close_reason(reason))
            self._collect()
        self.flush()
        self._notify_lost()
        self._cut_off_later()

    def abort(self) -> None:
        """Aborts the connection and drops the unsent bytes."""
        self._notify_lost()
        self._transport.abort()

    # Internals.

    def _upgrade(self, request: Request) -> None:
        response = self._conn.accept(request)
        if response.status_code != HTTPStatus.SWITCHING_PROTOCOLS:
            wrong = self._conn.handshake_exc
            if isinstance(wrong, InvalidHeader) and wrong.name == "Sec-WebSocket-Version":
                response = self._conn.reject(
                    HTTPStatus.UPGRADE_REQUIRED, f"{wrong}; the version must be 13\n"
                )
                # In addition to "close", as RFC 9110 §7.8 requires.
                response.headers["Connection"] = "Upgrade"
                response.headers["Upgrade"] = "websocket"
                response.headers["Sec-WebSocket-Version"] = "13"
            self._conn.send_response(response)
            self._collect()
            self.flush()
            self._end()
            return
        self._response = response
        scope = scope_of(request, self._transport, root=self._config.root_path) | {
            "asgi": {"version": self._config.asgi_version, "spec_version": "2.4"},
            "state": self._app_state.copy(),
            "extensions": self._extensions,
        }
        self._task = self.loop.create_task(self._run_app(scope))
        self._shared.tasks.add(self._task)
        self._task.add_done_callback(self._shared.tasks.discard)

    async def _run_app(self, scope: Scope) -> None:
        try:
            await self._config.loaded_app(scope, self._receive, self._send)
        except Exception:
            if self._passthrough is not None:
                raise
            _LOG.exception("the application failed on a WebSocket")
        if self._receiver is None and self._passthrough is None:
            self.refuse(HTTPStatus.INTERNAL_SERVER_ERROR, "the application did not accept the connection")

    async def _receive(self) -> ASGIMessage:
        if (other := self._pass_on()) is not None:
            return await other.receive()
        await self.closed()
        if self._head:  # the client has left before the application accepted
            self._head = b""
            return {"type": "websocket.connect"}
        return {"type": "websocket.disconnect", "code": int(CloseCode.ABNORMAL)}

    async def _send(self, message: ASGIMessage) -> None:
        if (other := self._pass_on()) is not None:
            await other.send(message)
        elif not self._gone.done():
            raise RuntimeError(f"the application has taken scope['extensions'][{LINK!r}]; write to that")

    def _pass_on(self) -> Passthrough | None:
        """Returns uvicorn's protocol if the application has not attached; from then on it cannot attach."""
        if self._passthrough is None and self._conn.state is State.CONNECTING and not self._gone.done():
            self._extensions.pop(LINK)
            self._shared.connections.discard(self)
            self._passthrough = Passthrough(self._config, self._shared, self._app_state, self._task)
            self._passthrough.begin(self._transport, self._head)
        return self._passthrough

    def _frame(self, frame: Frame) -> None:
        if frame.opcode is Opcode.PING:
            if self._answers:  # the pong of this ping, behind the answers to earlier frames
                self._put(self._answers.popleft())
        elif frame.opcode is Opcode.PONG:
            self._pinged = False
        elif frame.opcode is Opcode.CLOSE:
            self._collect()
            self.flush()
            self._end()
        else:
            if frame.opcode is not Opcode.CONT:
                self._message.clear()
                self._binary = frame.opcode is Opcode.BINARY
            self._message += frame.data
            if frame.fin:
                self._deliver()

    def _deliver(self) -> None:
        raw = bytes(self._message)
        self._message.clear()
        # A close frame in the same bytes has already changed the state; the receiver still gets this message first.
        if self._receiver is None or self._conn.parser_exc is not None:
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
        """Queues what the sans-I/O protocol wants to send; ``_end`` handles its end of stream."""
        self._answers += self._conn.data_to_send()
        while self._answers:
            self._put(self._answers.popleft())

    def _put(self, data: bytes) -> None:
        self._queue.append(data)
        self._queued += len(data)

    def _end(self) -> None:
        """Closes behind the unsent bytes, and aborts after ``close_timeout``."""
        self._notify_lost()
        self._transport.close()
        self._cut_off_later()

    def _cut_off_later(self) -> None:
        if self._closer is None:
            self._closer = self.loop.call_later(self.limits.close_timeout, self._transport.abort)

    def _notify_lost(self) -> None:
        receiver, self._receiver = self._receiver, None
        if receiver is not None:
            receiver.lost()

    def _ping(self) -> None:
        if self._conn.state is not State.OPEN:
            return
        if self._pinged and self._reading and not self._behind:
            _LOG.info("no pong within %g s: connection aborted", self.limits.keepalive)
            self.abort()
            return
        self._pinged = True
        self._conn.send_ping(b"penstock")
        # Pongs keep their place behind frames that are not handled yet.
        for data in self._conn.data_to_send():
            self._put(data)
        self.flush()
        self._keepalive = self.loop.call_later(self.limits.keepalive, self._ping)

    def _taken(self) -> int | None:
        """Returns how many of the written bytes the peer has accepted, without those in the kernel's buffer.

        None if no bytes are unsent here.
        """
        left = unsent_by(self._transport)
        # The maximum: bytes that TLS adds to the buffer must not count as progress undone.
        self._most = max(self._most, self._written - left - held_by_kernel(self._transport))
        return self._most if left else None

    def _stalled(self) -> None:
        left = unsent_by(self._transport)
        self.ending = self.ending or "STALLED"
        _LOG.info(
            "%d bytes unsent, none accepted within %g s: connection aborted", left, self.limits.stall_timeout
        )
        self.abort()
