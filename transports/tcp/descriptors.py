"""Sockets of an event loop that a child of ``fork`` has inherited: how the child finds and closes them."""

import os
import socket
from collections.abc import Iterable
from typing import Any, Final

__all__ = ["bound_to", "let_go"]

_ANYWHERE: Final = frozenset({"0.0.0.0", "::"})  # noqa: S104 - compared with, not listened on
_MOST: Final = 65_536


def bound_to(family: int, address: tuple[Any, ...]) -> list[int]:
    """Returns the descriptors of this process that are TCP sockets with the given local address.

    The function searches all open descriptors: the event loop may be about to accept a connection that no object refers to
    yet, and under uvloop a connection has no Python object at all.

    Args:
        family: The address family.
        address: The address of a listening socket: host and port first. Accepted connections have the same address, or if
            the socket listens on all addresses the same port.
    """
    default = socket.getdefaulttimeout()
    # With a default timeout, wrapping a socket would make it non-blocking, also for the parent.
    socket.setdefaulttimeout(None)
    try:
        return [descriptor for descriptor in _open() if _is_bound(descriptor, family, address)]
    finally:
        socket.setdefaulttimeout(default)


def let_go(descriptors: Iterable[int]) -> None:
    """Closes this process's copies of sockets, but keeps the descriptor numbers occupied.

    Objects of the event loop in this process still refer to the numbers, and close them when they are collected. A free
    number would go to the next file that is opened, which would then be closed in the socket's stead.

    Raises:
        OSError: If no descriptor is free.
    """
    nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    try:
        for descriptor in descriptors:
            os.dup2(nothing, descriptor, inheritable=False)
    finally:
        os.close(nothing)


def _is_bound(descriptor: int, family: int, address: tuple[Any, ...]) -> bool:
    try:
        found = socket.socket(fileno=descriptor)
    except OSError:  # not a socket, or closed meanwhile
        return False
    try:
        if found.family != family or found.type != socket.SOCK_STREAM:
            return False
        host, port = found.getsockname()[:2]
        return port == address[1] and (host == address[0] or address[0] in _ANYWHERE)
    finally:
        found.detach()


def _open() -> Iterable[int]:
    try:
        return [int(name) for name in os.listdir("/proc/self/fd")]
    except OSError:
        return range(min(os.sysconf("SC_OPEN_MAX"), _MOST))
