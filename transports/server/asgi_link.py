"""A link over plain ASGI messages, for servers that do not run our protocol class.

The protocol is just as correct here, but the host decides how many bytes may be unsent behind ``send`` and what happens to a
peer that reads nothing.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Hashable
from http import HTTPStatus
from typing import Final

from transports.errors import CloseCode, close_reason
from transports.http.asgi import ASGISend, Receive
from transports.limits import HIGH_WATER, Limits
from transports.server.link import Receiver

__all__ = ["FOREIGN", "AsgiLink"]

_LOG: Final = logging.getLogger("penstock.transports")

FOREIGN: Final = (
    "running without the protocol class penstock_cdc.LinkProtocol (uvicorn --ws penstock_cdc:LinkProtocol): "
    "that server decides how many bytes may be unsent, and when a stalled client is disconnected"
)
"""What the log is told once where these links are used."""


class AsgiLink:
    """One WebSocket of an ASGI server. Writes queue here; one message at a time is passed to the server.

    Args:
        receive: The ASGI callable.
        send: The ASGI callable.
        limits: Bounds of the connection.

    Attributes:
        payer: See ``SocketLink``; the host decides who is read.
        held: See ``SocketLink``.
    """

    def __init__(self, receive: Receive, send: ASGISend, limits: Limits) -> None:
        self._receive = receive
        self._send = send
        self._limits = limits
        self.payer: Hashable = None
        self.held: bool = False
        self._queue: deque[bytes] = deque()
        self._unsent = 0
        self._paused = False
        self._wake = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._receiver: Receiver | None = None
        self._subprotocol: str | None = None
        self._attached = False
        self._closing: tuple[CloseCode, str] | None = None
        self._aborted = asyncio.Event()

    def attach(self, receiver: Receiver | None, subprotocol: str | None) -> None:
        """Accepts the upgrade, as soon as ``closed`` is awaited."""
        self._attached = True
        self._receiver = receiver
        self._subprotocol = subprotocol

    def refuse(self, status: HTTPStatus, why: str) -> None:
        """Refuses the upgrade with 403, the only HTTP status that plain ASGI offers."""
        _LOG.info("upgrade refused: %d %s", status, why)

    @property
    def paused(self) -> bool:
        """Whether more bytes than the high-water mark wait for the server."""
        return self._paused

    @property
    def unsent(self) -> int:
        """Bytes that wait to be passed to the server."""
        return self._unsent

    def forgive(self) -> None:
        """Does nothing: the host bounds the rate of frames. See ``SocketLink``."""

    def write(self, message: bytes) -> None:
        """Queues one text message."""
        if self._closing is None and not self._aborted.is_set():
            self._queue.append(message)
            self._unsent += len(message)
            self._paused = self._paused or self._unsent > HIGH_WATER
            if self._unsent > self._limits.window_bytes:
                self._room.clear()

    def flush(self) -> None:
        """Wakes the task that passes messages to the server."""
        if self._queue:
            self._wake.set()

    @property
    def ending(self) -> str | None:
        """Why the application closed the connection; a stalled peer is known only to the host."""
        return None if self._closing is None else self._closing[0].name

    def close(self, code: CloseCode, reason: str) -> None:
        """Closes behind the queued messages."""
        if self._closing is None:
            self._closing = (code, close_reason(reason))
            self._wake.set()
            self._notify_lost()

    def abort(self) -> None:
        """Drops the connection and its queued messages."""
        self._aborted.set()
        self._notify_lost()

    async def closed(self) -> None:
        """Serves the connection until it ends. Cancelling this ends it at once, however often it is cancelled."""
        try:
            await self._serve()
        finally:
            self._notify_lost()

    async def _serve(self) -> None:
        await self._receive()
        if not self._attached:
            await self._send({"type": "websocket.close", "code": int(CloseCode.FORBIDDEN)})
            return
        await self._send({"type": "websocket.accept", "subprotocol": self._subprotocol})
        tasks = [asyncio.create_task(work()) for work in (self._read, self._pump, self._aborted.wait)]
        for task in tasks:
            task.add_done_callback(_report)
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if self._closing is not None and not tasks[0].done():
                # The host awaits the peer's close frame; this bounds the wait.
                await asyncio.wait(tasks[:1], timeout=self._limits.close_timeout)
        finally:
            # Nothing is awaited here: a scope that was cancelled may cancel each further wait too.
            for task in tasks:
                task.cancel()
        await asyncio.wait(tasks)

    async def _read(self) -> None:
        while (message := await self._receive())["type"] != "websocket.disconnect":
            text = message.get("text")
            # All bounds count bytes. Lone surrogates pass here and are refused by the parser.
            data = message.get("bytes") or b"" if text is None else text.encode("utf-8", "surrogatepass")
            if len(data) > self._limits.message_bytes:
                self.close(
                    CloseCode.MESSAGE_TOO_BIG, f"a message holds at most {self._limits.message_bytes} bytes"
                )
            elif self._receiver is not None:
                self._receiver.received(data)
            # The client may send more only after it has taken the answers so far.
            await self._room.wait()

    async def _pump(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._queue:
                message = self._queue.popleft()
                await self._send({"type": "websocket.send", "text": message.decode()})
                self._unsent -= len(message)
                if self._unsent <= self._limits.window_bytes:
                    self._room.set()
                if self._paused and self._unsent <= HIGH_WATER // 4:
                    self._paused = False
                    if self._receiver is not None:
                        self._receiver.drained()
            if self._closing is not None:
                code, reason = self._closing
                await self._send({"type": "websocket.close", "code": int(code), "reason": reason})
                return

    def _notify_lost(self) -> None:
        receiver, self._receiver = self._receiver, None
        if receiver is not None:
            receiver.lost()


def _report(task: asyncio.Task[object]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        _LOG.debug("the host ended the connection: %r", error)
