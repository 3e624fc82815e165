"""Accepting connections, of all ports of the process together, only as long as it has descriptors left.

asyncio accepts as many connections as come. In a process that has no free descriptor it prints thousands of tracebacks a second.
And every descriptor that a client has taken is one that a log cannot have.
"""

import asyncio
import contextlib
import errno
import logging
import resource
import socket
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, Final, cast

from flow import forks
from transports.limits import Limits
from transports.tcp.shares import SHARES

__all__ = [
    "FREE_DESCRIPTORS",
    "SILENT",
    "Acceptor",
    "SilentConnections",
    "figures_of_process",
    "raise_limit",
    "warn_if_few",
]

FREE_DESCRIPTORS: Final = 128
"""File descriptors of the process that connections of all ports leave to its logs and files, but at most a quarter of what ``RLIMIT_NOFILE``
allows; beyond them the connection ends that has been silent for longest. A log needs some ten, and a program has files of its own."""

_LOG: Final = logging.getLogger("penstock.transports")
_LACKS: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_ABORTED: Final = frozenset(
    {errno.ECONNABORTED, errno.EPROTO, errno.EPERM, errno.ENETDOWN, errno.EHOSTUNREACH}
)
_TURN: Final = 16  # connections that are accepted in one turn of the loop
_AGAIN: Final = 60.0  # seconds until a port says again that it lacks descriptors
_PAUSE: Final = 0.1  # seconds until a port without descriptors looks for one again
_SHARE: Final = 4  # the part of all descriptors that is left for logs if they are few
_ENOUGH: Final = 16_384  # descriptors for `Limits.connections` by default, and the logs
_PAYERS: Final = 16  # who are named in statistics
_said: set[tuple[int, int]] = set()


class SilentConnections:
    """The connections of this process that have not sent a request yet, the oldest first. Thread-safe.

    They are what a stranger can have without limit, so they are closed first where descriptors run out.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._aborts: dict[object, Callable[[], object]] = {}
        forks.register(self)

    def forked(self, _pid: int, /) -> None:
        """See ``flow.forks.Forkable``: the connections belong to the parent."""
        self._lock = threading.Lock()
        self._aborts = {}
        forks.register(self)

    def __len__(self) -> int:
        return len(self._aborts)

    def add(self, connection: object, abort: Callable[[], object]) -> None:
        """Adds a connection as the newest; ``abort`` is called once, from any thread."""
        with self._lock:
            self._aborts[connection] = abort

    def discard(self, connection: object) -> None:
        """Removes a connection that has sent a request, or has ended. Idempotent."""
        if connection in self._aborts:
            with self._lock:
                self._aborts.pop(connection, None)

    def evict(self) -> bool:
        """Closes the connection that has been silent for longest; returns whether there was one."""
        with self._lock:
            oldest = next(iter(self._aborts), None)
            if oldest is None:
                return False
            abort = self._aborts.pop(oldest)
        abort()
        return True


SILENT: Final = SilentConnections()


def figures_of_process() -> dict[str, Any]:
    """Returns what all ports of the process have in common, for its statistics."""
    return {
        "silentConnections": len(SILENT),
        "chargedSeconds": SHARES.taken,
        "payers": SHARES.most(_PAYERS),
        "heldTurns": SHARES.held,
        "lateSeconds": SHARES.late,
    }


class Acceptor:
    """Accepts the connections of a listening socket on the running loop, as ``loop.create_server`` does.

    A connection whose descriptor would be among the last ``free_descriptors`` of the process makes the one give way that has been
    silent for longest, on any port; without a silent one it is closed itself. The kernel gives the lowest free number, so this
    counts everything that the process has open. If it has no descriptor at all, the port pauses.

    Args:
        listener: The socket.
        make: Makes the protocol of a connection.
        ended: Called with ``CROWDED`` for each connection that was closed for want of descriptors, with ``TLS_REFUSED`` for each
            whose TLS handshake failed, such as for want of a certificate.
        refusal: What such a client is told, if it is possible.
        secured: The TLS arguments of ``loop.connect_accepted_socket``.
    """

    def __init__(
        self,
        listener: socket.socket,
        make: Callable[[], asyncio.BaseProtocol],
        ended: Callable[[str], object],
        *,
        refusal: bytes = b"",
        **secured: Any,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._listener = listener
        self._make = make

        self._ended = ended
        self._refusal = b"" if secured.get("ssl") else refusal
        self._secured = secured if secured.get("ssl") else {}
        self._beginning: set[asyncio.Task[None]] = set()
        self._resuming: asyncio.TimerHandle | None = None
        self._closed = False
        self._silent_until = 0.0
        listener.setblocking(False)
        self._resume()

    @property
    def sockets(self) -> tuple[socket.socket, ...]:
        """The listening socket, until it is closed."""
        return () if self._closed else (self._listener,)

    def close(self) -> None:
        """Accepts no more connections, and closes the socket. Idempotent."""
        if not self._closed:
            self._closed = True
            self._pause()
            self._listener.close()

    def _resume(self) -> None:
        self._resuming = None
        self._loop.add_reader(self._listener.fileno(), self._accept)

    def _pause(self) -> None:
        self._loop.remove_reader(self._listener.fileno())
        if self._resuming is not None:
            self._resuming.cancel()
            self._resuming = None

    def _accept(self) -> None:
        for _ in range(_TURN):
            try:
                connection, _ = self._listener.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if error.errno in _LACKS:
                    self._wait(error)
                    return
                if error.errno in _ABORTED:
                    continue
                raise
            if self._is_crowded(connection):
                if not SILENT.evict():
                    self._refuse(connection)
                    continue
                SILENT.evict()  # one more, until there is room again
            connection.setblocking(False)
            newcomer = _Newcomer(self._loop, connection, self._make())
            task = newcomer.task = self._loop.create_task(newcomer.begin(self._secured, self._ended))
            self._beginning.add(task)
            task.add_done_callback(self._beginning.discard)
            SILENT.add(newcomer.protocol, partial(self._loop.call_soon_threadsafe, self._evict, newcomer))

    def _is_crowded(self, connection: socket.socket) -> bool:
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return soft != resource.RLIM_INFINITY and connection.fileno() >= soft - min(
            FREE_DESCRIPTORS, soft // _SHARE
        )

    def _refuse(self, connection: socket.socket) -> None:
        self._ended("CROWDED")
        self._complain("connections are refused, as they would take the last file descriptors")
        with connection, contextlib.suppress(OSError):
            connection.setblocking(False)
            connection.send(self._refusal)

    def _wait(self, error: OSError) -> None:
        """Accepts nothing for a moment, for want of a descriptor or memory."""
        SILENT.evict()
        self._complain(f"no connection can be accepted at the moment ({error.strerror})")
        self._pause()
        self._resuming = self._loop.call_later(_PAUSE, self._resume)

    def _complain(self, what: str) -> None:
        if self._loop.time() >= self._silent_until:
            self._silent_until = self._loop.time() + _AGAIN
            soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
            _LOG.warning("%s; RLIMIT_NOFILE is %d (ulimit -n)", what, soft)

    def _evict(self, newcomer: "_Newcomer") -> None:
        self._ended("CROWDED")
        newcomer.abort()


class _Newcomer:
    """A connection that was accepted, until it has its transport.

    Attributes:
        protocol: Its protocol.
        task: Runs `begin`.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, connection: socket.socket, protocol: asyncio.BaseProtocol
    ) -> None:
        self.protocol = protocol
        self.task: asyncio.Task[None] | None = None
        self._loop = loop
        self._connection: socket.socket | None = connection
        self._transport: asyncio.WriteTransport | None = None

    async def begin(self, secured: dict[str, Any], ended: Callable[[str], object]) -> None:
        """Gives the connection its transport, after the TLS handshake, if any; ``ended`` is told of one that fails."""
        connection, self._connection = self._connection, None
        if connection is None:
            return
        try:
            made, _ = await self._loop.connect_accepted_socket(lambda: self.protocol, connection, **secured)
            self._transport = cast("asyncio.WriteTransport", made)
        except BaseException as error:
            SILENT.discard(self.protocol)  # the transport has closed the connection
            if not isinstance(error, Exception):
                raise
            if secured:
                ended("TLS_REFUSED")
            _LOG.info("a connection has not come about: %s", error)

    def abort(self) -> None:
        """Closes the connection at once."""
        if self._transport is not None:
            self._transport.abort()
        elif self._connection is not None:  # its task has not begun
            self._connection.close()
            self._connection = None
        elif self.task is not None:
            self.task.cancel()


def raise_limit() -> None:
    """Raises the number of descriptors that this process may have, as far as the system lets it, to what a server needs."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= _ENOUGH:
        return
    most = _ENOUGH if hard == resource.RLIM_INFINITY else min(hard, _ENOUGH)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def warn_if_few(limits: Limits) -> Limits:
    """Warns, once for the same numbers, if the process may have fewer descriptors than its connections need; returns the limits."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    found = soft, limits.connections
    if soft == resource.RLIM_INFINITY or limits.connections + FREE_DESCRIPTORS <= soft or found in _said:
        return limits
    _said.add(found)
    _LOG.warning(
        "Limits.connections is %d, but this process may have only %d file descriptors, for logs too: raise RLIMIT_NOFILE (ulimit -n), or "
        "lower Limits.connections",
        limits.connections,
        soft,
    )
    return limits
