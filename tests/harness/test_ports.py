"""The ports of restarting servers are not assigned to any other socket meanwhile."""

import socket
from pathlib import Path

from tests.harness.ports import free_port

RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


def test_each_port_is_given_once_and_can_be_listened_on():
    ports = [free_port() for _ in range(100)]
    assert len(set(ports)) == 100
    for port in ports[:10]:
        socket.create_server(("127.0.0.1", port)).close()


def test_none_is_one_that_the_system_chooses_for_others():
    low, high = map(int, RANGE.read_text().split()) if RANGE.exists() else (32_768, 60_999)
    assert low < 11_000 or all(not low <= free_port() <= high for _ in range(100))
