"""What a TCP connection is told, and asked, beyond what asyncio does."""

import asyncio
import contextlib
import fcntl
import socket
import struct
import termios

__all__ = ["held_by_kernel", "hold_little", "send_at_once", "unsent_by", "wait_above", "wait_for_all"]

# The socket of a transport may be none of TCP (a Unix domain socket, say), closed, or none at all.
_NO_TCP = (OSError, AttributeError)


def send_at_once(transport: asyncio.BaseTransport) -> None:
    """Switches Nagle's algorithm (RFC 1122 4.2.3.4) off.

    With it, a small write waits until the peer has acknowledged the one before, and the peer delays that by 40 ms where
    it has nothing to say. asyncio sets the option only on sockets that were made with ``IPPROTO_TCP``, which
    ``socket.socket()`` does not do, nor does what accepts from such a listener.
    """
    with contextlib.suppress(*_NO_TCP):
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def hold_little(transport: asyncio.BaseTransport, nbytes: int) -> None:
    """Bounds what the kernel takes and cannot send yet.

    Without it the kernel takes megabytes for a client that reads nothing, and reports no progress for one that reads
    slowly, until a third of them has gone.
    """
    with contextlib.suppress(*_NO_TCP):
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, nbytes)


def wait_for_all(transport: asyncio.WriteTransport) -> None:
    """Has the protocol wait while anything is unsent."""
    wait_above(transport, 0)


def wait_above(transport: asyncio.WriteTransport, nbytes: int) -> None:
    """Has the protocol wait while more than so many bytes are unsent.

    asyncio pauses above the bound, but under TLS from the bound on: with 0 it would pause for nothing, and never go on. And what
    TLS has encrypted counts there only once the transport below takes nothing more, so that is to take nothing it cannot send.
    """
    below = _below(transport)
    if below is None:
        transport.set_write_buffer_limits(high=nbytes)
    else:
        transport.set_write_buffer_limits(high=max(nbytes, 1))
        below.set_write_buffer_limits(high=0)


def unsent_by(transport: asyncio.WriteTransport) -> int:
    """Bytes that were written and the kernel has not taken yet."""
    below = _below(transport)
    return transport.get_write_buffer_size() + (0 if below is None else below.get_write_buffer_size())


def _below(transport: asyncio.WriteTransport) -> asyncio.WriteTransport | None:
    """What sends that which TLS has encrypted; asyncio has no public name for it. None without TLS."""
    found: asyncio.WriteTransport | None = getattr(
        getattr(transport, "_ssl_protocol", None), "_transport", None
    )
    return found


def held_by_kernel(transport: asyncio.BaseTransport) -> int:
    """Bytes that the kernel has taken and the peer has not acknowledged; 0 where that cannot be told."""
    try:
        handle = transport.get_extra_info("socket").fileno()
        (held,) = struct.unpack("i", fcntl.ioctl(handle, termios.TIOCOUTQ, b"\0\0\0\0"))
    except _NO_TCP:
        return 0
    return int(held)
