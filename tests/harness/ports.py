"""Ports for servers that come again on the port that they had.

A port that the system chose is one that it gives to the next socket of any program, while the server that had it is away:
to a test beside, or to the client of the server, which then is connected to itself. Those below its range it gives to none.
"""

import random
import socket
from pathlib import Path

__all__ = ["free_port"]

_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LEAST = 10_000
_given: set[int] = set()
_chance = random.SystemRandom()  # other workers must not draw the same ones


def free_port() -> int:
    """A port of 127.0.0.1 on which nothing listens, which is given once, and to none but who asks for that very port."""
    end = int(_RANGE.read_text().split()[0]) if _RANGE.exists() else 32_768
    while True:
        port = _chance.randrange(_LEAST, max(end, _LEAST + 1_000))
        if port in _given:
            continue
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        _given.add(port)
        return port
