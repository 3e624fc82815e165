"""One connection of the Redis protocol, on its event loop: bytes in, one command after another, bytes out."""

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable, Hashable
from typing import Any, Final, Protocol, cast

from transports.errors import GoingAway
from transports.limits import HIGH_WATER
from transports.resp.client import RespClient
from transports.resp.commands import QUICK, answer
from transports.resp.errors import reply_of
from transports.resp.parser import CommandParser, RespViolation
from transports.resp.port import RESP_ARGUMENTS, RespPort
from transports.resp.replies import RespError, encode_reply
from transports.server.tls import shown_by
from transports.tcp.accepting import SILENT
from transports.tcp.shares import Charged
from transports.tcp.sockets import hold_little, send_at_once, unsent_by, wait_above, writer_of
from transports.tcp.turns import turns_of

__all__ = ["RESP_PIPELINE", "RESP_REFUSALS", "ConnectionKeeper", "RespConnection"]

RESP_REFUSALS: Final = 16
"""How often a connection may show a wrong token, or send a command without one, before it is closed: each costs an authentication."""

RESP_PIPELINE: Final = 128
"""Most commands of a connection that are answered in one turn of the event loop, and an eighth of the arguments and empty commands that are
read in it."""

_LOG: Final = logging.getLogger("penstock.transports")
_STRANGER_BYTES: Final = 16 * 1024
_STRANGER_ARGUMENTS: Final = 10
_GATHERED: Final = 64 * 1024  # bytes of replies that are written at once
_AGAIN: Final = 0.1  # seconds until a client is looked at again that the server does not read
_STEPS: Final = 8  # arguments of one turn, for each of its commands


class ConnectionKeeper(Protocol):
    """Tracks the connections of a port."""

    def come(self, connection: "RespConnection") -> RespError | None:
        """Registers a new connection; returns the error with which to refuse it, or None."""
        ...

    def gone(self, connection: "RespConnection", why: str | None) -> None:
        """Removes a connection; ``why`` is the reason if the server ended it."""
        ...


class RespConnection(asyncio.Protocol):
    """Answers the commands of one client, in order.

    Commands that a client sends ahead wait in the parser's buffer, and beyond ``resp_command_bytes`` in the network. While
    the client does not accept replies, its next command waits; if it accepts nothing for ``stall_timeout``, the connection
    is aborted. What the server holds of all clients has the bounds ``resp_input_bytes`` and ``resp_output_bytes``, beyond
    which the connection that holds most is aborted.

    Args:
        port: The state that all connections share.
        keeper: Tracks the connections.
        number: The number of the connection.
    """

    def __init__(self, port: RespPort, keeper: ConnectionKeeper, number: int) -> None:
        self._port = port
        self._limits = port.limits
        self._keeper = keeper
        self._client = RespClient(number)
        self._parser = CommandParser(self._limits.resp_command_bytes, RESP_ARGUMENTS)
        self._transport: asyncio.Transport | None = None
        self._task: asyncio.Task[None] | None = None
        self._gathered: list[bytes] = []
        self._gathered_bytes = 0
        self._writable = asyncio.Event()
        self._writable.set()
        self._reading = True
        self._held = False  # whether nothing is read from the client, because its payer is beyond its share
        self._why: str | None = None
        self._timers: dict[str, asyncio.TimerHandle] = {}

    @property
    def unsent(self) -> int:
        """Bytes that were written and that the kernel has not accepted."""
        return 0 if self._transport is None else unsent_by(self._transport)

    @property
    def unfinished(self) -> int:
        """Bytes that have arrived and are not executed yet."""
        if self._transport is None:
            return 0
        transaction = self._client.transaction
        return self._parser.held + (0 if transaction is None else transaction.held)

    @property
    def address(self) -> str | None:
        """The address of the client; None if it is unknown."""
        return self._client.address

    def overload(self) -> None:
        """Aborts the connection, because it holds more than others while the server holds too much."""
        self._why = self._why or "OVERLOAD"
        if self._transport is not None:
            self._transport.abort()

    # --- asyncio --------------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Configures the transport of a new connection, and admits or refuses it."""
        self._transport = made = cast("asyncio.Transport", transport)
        self._write = writer_of(made)
        peer = made.get_extra_info("peername")
        self._client.address = peer[0] if isinstance(peer, tuple) else None
        self._client.peer_certificate = shown_by(made)
        send_at_once(made)
        hold_little(made, HIGH_WATER)
        wait_above(made, HIGH_WATER)
        with contextlib.suppress(OSError, AttributeError):  # the peer is gone already
            made.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        refusal = self._keeper.come(self)
        if refusal is not None:
            self._end("OVERLOAD", refusal)
        elif not self._known:
            self._later("stranger", self._limits.request_timeout, self._send_stranger_away)

    def data_received(self, data: bytes) -> None:
        """Handles bytes of the client."""
        if self._known:
            SILENT.discard(self)
        self._parser.feed(data)
        self._port.unfinished.note(self, self.unfinished)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._answer())
        elif self._parser.held >= self._limits.resp_command_bytes:
            self._read(on=False)

    def eof_received(self) -> bool:
        """Handles the end of input; pending commands are answered, except one that is useless without the client."""
        self._client.ended = True
        if self._task is not None and self._client.abandons:
            self._task.cancel()
            self._close()
        elif self._task is None:
            self._close()
        # Under TLS the connection ends in both directions at once.
        return self._transport is not None and self._transport.get_extra_info("ssl_object") is None

    def pause_writing(self) -> None:
        """Starts the stall timer, because too many bytes are unsent."""
        self._writable.clear()
        self._later("stall", self._limits.stall_timeout, self._look_whether_stalled, self.unsent)

    def resume_writing(self) -> None:
        """Stops the stall timer."""
        self._port.unsent.note(self, self.unsent)
        self._writable.set()
        self._forget("stall")

    def connection_lost(self, exc: Exception | None) -> None:
        """Stops everything, because the connection is closed."""
        SILENT.discard(self)
        self._transport = None
        self._port.unfinished.note(self, 0)
        self._port.unsent.note(self, 0)
        for name in list(self._timers):
            self._forget(name)
        self._writable.set()
        if self._task is not None:
            self._task.cancel()
        self._keeper.gone(self, self._why)

    # --- commands -------------------------------------------------------------------------------------------------------

    async def _answer(self) -> None:
        """Answers the commands that have arrived, until none is left."""
        try:
            await Charged(self._answer_all(), self._payer)
        except RespViolation as error:
            self._client.leaving, self._why = True, "PROTOCOL_ERROR"
            self._gather(RespError("ERR", f"Protocol error: {error}"))
            self._send()
        except asyncio.CancelledError:  # the client is gone, or the server is stopping
            return
        except Exception:  # noqa: BLE001 - a fault ends this connection, and leaves no client waiting
            _LOG.exception("a connection of the Redis protocol has failed")
            self._client.leaving, self._why = True, "INTERNAL"
        finally:
            self._task = None
        self._port.unfinished.note(self, self.unfinished)
        if self._client.ended or self._client.leaving:
            self._close()
        else:
            self._read(on=True)
            self._await_rest()

    async def _answer_all(self) -> None:
        pipeline = RESP_PIPELINE
        self._parser.steps = _STEPS * pipeline
        answered = 0
        if turns_of(asyncio.get_running_loop()).holds(self._payer(), self._limits.late_share):
            self._held = True
            await self._take_turn()
            self._held = False
        while not self._client.leaving:
            words = self._next()
            if words is None:
                if self._parser.paused:
                    await self._take_turn()
                elif self._gathered:
                    await self._flush()  # more commands may arrive meanwhile
                else:
                    return
                continue
            if self._gathered and not self._client.collects and words[0].upper() not in QUICK:
                await self._flush()  # no finished reply waits for a slow one behind it
            self._gather(await answer(self._port, self._client, words))
            answered += 1
            if self._client.refusals >= RESP_REFUSALS:
                self._client.leaving, self._why = True, "UNAUTHORIZED"
            if self._gathered_bytes >= _GATHERED or answered % pipeline == 0:
                await self._take_turn()
        self._send()

    async def _take_turn(self) -> None:
        """Sends the gathered replies, and lets other connections have their turn."""
        await self._flush()
        await turns_of(asyncio.get_running_loop()).next(self._payer(), self._limits.late_share)
        self._parser.steps = _STEPS * RESP_PIPELINE

    def _payer(self) -> Hashable:
        return self._client.payer

    @property
    def _known(self) -> bool:
        return self._port.access.open or self._client.principal is not None

    def _next(self) -> list[bytes] | None:
        """Returns the next command: of a transaction that is executed, or of the client. Its bounds are small until the client is authenticated."""
        transaction = self._client.transaction
        if transaction is not None and transaction.executing:
            if (words := transaction.next()) is not None:
                return words
            self._client.transaction = None
        most, arguments = self._limits.resp_command_bytes, RESP_ARGUMENTS
        known = self._known
        self._parser.most = most if known else min(_STRANGER_BYTES, most)
        self._parser.arguments = arguments if known else min(_STRANGER_ARGUMENTS, arguments)
        return self._parser.next()

    def _gather(self, reply: Any) -> None:
        encoded = encode_reply(reply, self._client.version)
        self._gathered.append(encoded)
        self._gathered_bytes += len(encoded)

    def _send(self) -> None:
        if self._gathered and self._transport is not None and not self._transport.is_closing():
            self._write(b"".join(self._gathered))
            self._port.unsent.note(self, self.unsent)
        self._gathered, self._gathered_bytes = [], 0

    async def _flush(self) -> None:
        """Sends the gathered replies, and waits until the client has accepted enough of them."""
        self._send()
        await self._writable.wait()

    def _read(self, *, on: bool) -> None:
        if self._transport is None or self._transport.is_closing() or self._reading is on:
            return
        self._reading = on
        if on:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    # --- its end --------------------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Stops: fails the command in progress, and closes the connection."""
        if self._task is not None:
            self._task.cancel()
            self._end("GOING_AWAY", reply_of(GoingAway()))
        else:
            self._why = self._why or "GOING_AWAY"
            self._close()

    def _end(self, why: str, reply: RespError) -> None:
        """Sends an error and closes the connection."""
        self._why = self._why or why
        self._gather(reply)
        self._send()
        self._close()

    def _close(self) -> None:
        """Closes behind what was written; aborts a client that does not accept it in time."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.close()
            self._later("close", self._limits.close_timeout, self._transport.abort)

    # --- time -----------------------------------------------------------------------------------------------------------

    def _later(self, name: str, seconds: float, call: Callable[..., object], *given: object) -> None:
        self._forget(name)
        self._timers[name] = asyncio.get_running_loop().call_later(seconds, call, *given)

    def _forget(self, name: str) -> None:
        timer = self._timers.pop(name, None)
        if timer is not None:
            timer.cancel()

    def _await_rest(self) -> None:
        """Starts or stops the timer for the rest of a command that has begun."""
        if not self._parser.within:
            self._forget("rest")
        elif "rest" not in self._timers:
            self._later("rest", self._limits.request_timeout, self._look_for_rest, self._parser.taken)

    def _look_for_rest(self, taken: int) -> None:
        self._forget("rest")
        if self._task is not None:  # ``_answer`` starts the timer again when it is done
            return
        if self._parser.within and self._parser.taken == taken:
            late = f"the rest of a command did not come within {self._limits.request_timeout:g} s"
            self._end("PROTOCOL_ERROR", RespError("ERR", f"Protocol error: {late}"))
        else:
            self._await_rest()

    def _send_stranger_away(self) -> None:
        if self._held:  # what it waits for may have come
            self._later("stranger", _AGAIN, self._send_stranger_away)
        elif not self._known:
            late = f"Authentication required, within {self._limits.request_timeout:g} s."
            self._end("UNAUTHORIZED", RespError("NOAUTH", late))

    def _look_whether_stalled(self, unsent: int) -> None:
        now = self.unsent
        if now < unsent:
            self._later("stall", self._limits.stall_timeout, self._look_whether_stalled, now)
            return
        self._why = self._why or "STALLED"
        if self._transport is not None:
            self._transport.abort()
