"""Sockets of an event loop that a child of ``fork`` has inherited: which they are, and how the child gives them up."""

import os
import socket
from collections.abc import Iterable
from typing import Any, Final

__all__ = ["bound_to", "let_go"]

_ANYWHERE: Final = frozenset({"0.0.0.0", "::"})  # noqa: S104 - compared with, not listened on
_MOST: Final = 65_536


def bound_to(family: int, address: tuple[Any, ...]) -> list[int]:
    """The descriptors of this process that are TCP sockets with a local address.

    They are looked for among all that are open: a connection is known to nobody while the event loop is about to take it, and
    under uvloop it has no Python object at all.

    Args:
        family: Of the address.
        address: Of a socket that listens: host and port first. The connections that it has taken have the same, or if it
            listens everywhere the same port.
    """
    default = socket.getdefaulttimeout()
    # With one, a look at a socket would stop it from blocking, also where the parent uses it.
    socket.setdefaulttimeout(None)
    try:
        return [descriptor for descriptor in _open() if _is_bound(descriptor, family, address)]
    finally:
        socket.setdefaulttimeout(default)


def let_go(descriptors: Iterable[int]) -> None:
    """Closes this process's copies of sockets, and leaves nothing in their places.

    Objects of the event loop in this process have the numbers still, and close them when they are collected. So the numbers
    stay taken: else what is opened next would get one of them, and be closed in the socket's stead.

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
    except OSError:  # it is no socket, or closed by now
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
