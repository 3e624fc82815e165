"""Listening on an address."""

import socket
from typing import Final

from transports.errors import ServerFailed

__all__ = ["listen_on"]

_BACKLOG: Final = 2048


def listen_on(host: str, port: int) -> socket.socket:
    """Opens a listening socket.

    Args:
        host: The address to listen on.
        port: The port to listen on; 0 picks a free one.

    Raises:
        ServerFailed: If the address cannot be listened on.
    """
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(_BACKLOG)
    except (OSError, OverflowError, TypeError, UnicodeError) as error:
        listener.close()
        raise ServerFailed(host, port, str(error)) from None
    return listener
