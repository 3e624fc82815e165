"""Options and counters of a TCP connection beyond those of asyncio."""

import asyncio
import contextlib
import ctypes
import fcntl
import socket
import struct
import termios
from collections.abc import Callable
from typing import Final

__all__ = [
    "end_writing",
    "held_by_kernel",
    "hold_little",
    "read_little",
    "send_at_once",
    "unsent_by",
    "wait_above",
    "wait_for_all",
    "writer_of",
]

# The socket of a transport may not be TCP (a Unix domain socket, say), may be closed, or may be absent.
_NO_TCP = (OSError, AttributeError)

# Python's own ``send`` gives the interpreter up for a call that never waits.
_send: Final = ctypes.PyDLL(None).send
_send.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int)
_send.restype = ctypes.c_ssize_t
_FLAGS: Final = socket.MSG_DONTWAIT | getattr(socket, "MSG_NOSIGNAL", 0)


def send_at_once(transport: asyncio.BaseTransport) -> None:
    """Disables Nagle's algorithm (RFC 1122 §4.2.3.4).

    With it, a small write waits until the peer has acknowledged the previous one, and the peer delays that by up to 40 ms if
    it has nothing to send. asyncio sets the option only on sockets that were created with ``IPPROTO_TCP``; neither
    ``socket.socket()`` nor a connection accepted from such a listener has it.
    """
    with contextlib.suppress(*_NO_TCP):
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def hold_little(transport: asyncio.BaseTransport, nbytes: int) -> None:
    """Bounds the bytes that the kernel accepts but cannot send yet.

    Without the bound the kernel accepts megabytes for a client that reads nothing, and for a slow client it reports no
    progress until a third of them is gone.
    """
    with contextlib.suppress(*_NO_TCP):
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, nbytes)


def end_writing(transport: asyncio.WriteTransport) -> bool:
    """Tells the peer that nothing more follows; returns whether that can be told (not under TLS).

    A peer that has reset the connection is told nothing; the loop reports the reset when it next reads.
    """
    if not transport.can_write_eof():
        return False
    with contextlib.suppress(OSError):
        transport.write_eof()
    return True


def read_little(transport: asyncio.BaseTransport, nbytes: int) -> None:
    """Bounds the bytes that one read delivers, which wait in memory if the protocol may not handle them at once.

    asyncio reads up to 256 KiB, and has no other name for it; another loop keeps its own bound.
    """
    if getattr(transport, "max_size", 0) > nbytes:
        transport.max_size = nbytes  # type: ignore[attr-defined]  # see above


def wait_for_all(transport: asyncio.WriteTransport) -> None:
    """Makes the protocol wait while any byte is unsent."""
    wait_above(transport, 0)


def wait_above(transport: asyncio.WriteTransport, nbytes: int) -> None:
    """Makes the protocol wait while more than ``nbytes`` bytes are unsent.

    asyncio pauses above the bound, but under TLS at the bound: with 0 it would pause without unsent bytes, and never resume.
    Under TLS, encrypted bytes count only once the transport below accepts no more; so that transport must not buffer.
    """
    below = _below(transport)
    if below is None:
        transport.set_write_buffer_limits(high=nbytes)
    else:
        transport.set_write_buffer_limits(high=max(nbytes, 1))
        below.set_write_buffer_limits(high=0)


def unsent_by(transport: asyncio.WriteTransport) -> int:
    """Returns the bytes that were written and that the kernel has not accepted yet."""
    below = _below(transport)
    return transport.get_write_buffer_size() + (0 if below is None else below.get_write_buffer_size())


def _below(transport: asyncio.WriteTransport) -> asyncio.WriteTransport | None:
    """Returns the transport below TLS, for which asyncio has no public name; None without TLS."""
    found: asyncio.WriteTransport | None = getattr(
        getattr(transport, "_ssl_protocol", None), "_transport", None
    )
    return found


def held_by_kernel(transport: asyncio.BaseTransport) -> int:
    """Returns the bytes that the kernel has accepted and the peer has not acknowledged; 0 if the system cannot report it."""
    try:
        handle = transport.get_extra_info("socket").fileno()
        (held,) = struct.unpack("i", fcntl.ioctl(handle, termios.TIOCOUTQ, b"\0\0\0\0"))
    except _NO_TCP:
        return 0
    return int(held)


def writer_of(transport: asyncio.Transport) -> Callable[[bytes], None]:
    """Returns a function that writes to a transport without giving the interpreter up.

    An event loop that gives it up for each of a thousand sockets waits for each behind every busy thread of the process. What
    the kernel does not accept at once, and every error, is left to the transport; so is everything under TLS, and under
    an event loop that does not write from Python.
    """
    taken = transport.get_extra_info("socket")
    if not _writes_from_python(transport) or taken is None:
        return transport.write
    unsent, number = transport.get_write_buffer_size, taken.fileno

    def write(data: bytes) -> None:
        # A transport that is closing may still have its socket, but will have another one's number soon.
        if data and not unsent() and not transport.is_closing():
            sent = _send(number(), data, len(data), _FLAGS)
            if sent == len(data):
                return
            if sent > 0:
                data = data[sent:]
        transport.write(data)

    return write


def _writes_from_python(transport: asyncio.Transport) -> bool:
    """Whether the transport is that of asyncio for plain sockets, which has no public name."""
    return type(transport) is getattr(asyncio.selector_events, "_SelectorSocketTransport", None)
