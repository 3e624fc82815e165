"""What a TCP connection is told, and asked, beyond what asyncio does."""

import asyncio
import contextlib
import fcntl
import socket
import struct
import termios

__all__ = ["held_by_kernel", "hold_little", "send_at_once"]

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


def held_by_kernel(transport: asyncio.BaseTransport) -> int:
    """Bytes that the kernel has taken and the peer has not acknowledged; 0 where that cannot be told."""
    try:
        handle = transport.get_extra_info("socket").fileno()
        (held,) = struct.unpack("i", fcntl.ioctl(handle, termios.TIOCOUTQ, b"\0\0\0\0"))
    except _NO_TCP:
        return 0
    return int(held)
