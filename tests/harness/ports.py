"""Ports for servers that restart on the same port.

While a server is down, the system may assign a port of its ephemeral range to any socket: to a parallel test, or to the
server's own client, which then connects to itself. It never assigns ports below that range.
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
    """Returns an unused port of 127.0.0.1 below the ephemeral range; never returns the same port twice."""
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
