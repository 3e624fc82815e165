import os
import socket
from contextlib import closing

import pytest

from tests.harness.failing import failing
from transports.tcp.descriptors import bound_to, let_go


@pytest.fixture
def listener():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening


def accepted(listening):
    client = socket.create_connection(listening.getsockname()[:2])
    return client, listening.accept()[0]


def test_a_listener_is_found_with_the_connections_that_it_has_taken_and_nothing_else(listener):
    client, server = accepted(listener)
    with client, server, socket.create_server(("127.0.0.1", 0)), socket.socket(socket.AF_UNIX):
        found = bound_to(socket.AF_INET, listener.getsockname())
        assert sorted(found) == sorted([listener.fileno(), server.fileno()])


def test_of_a_listener_on_all_addresses_the_port_tells():
    with socket.create_server(("0.0.0.0", 0)) as everywhere:
        client, server = accepted(everywhere)
        with client, server:
            assert server.getsockname()[0] == "127.0.0.1"
            assert server.fileno() in bound_to(socket.AF_INET, everywhere.getsockname())


def test_another_address_with_the_same_port_is_not_meant(listener):
    with socket.create_server(("127.0.0.2", listener.getsockname()[1])) as other:
        assert bound_to(socket.AF_INET, listener.getsockname()) == [listener.fileno()]
        assert bound_to(socket.AF_INET, other.getsockname()) == [other.fileno()]
        assert bound_to(socket.AF_INET6, listener.getsockname()) == []


def test_a_look_at_a_socket_does_not_change_it(listener):
    """Whether it blocks is the same for all copies of a descriptor, those of the parent of a child included."""
    socket.setdefaulttimeout(5.0)
    try:
        assert os.get_blocking(listener.fileno())
        assert bound_to(socket.AF_INET, listener.getsockname()) == [listener.fileno()]
        assert os.get_blocking(listener.fileno())
        assert socket.getdefaulttimeout() == 5.0
    finally:
        socket.setdefaulttimeout(None)


def test_without_a_list_of_descriptors_each_number_is_tried(listener, monkeypatch):

    failing(monkeypatch, os, "listdir", FileNotFoundError)
    assert bound_to(socket.AF_INET, listener.getsockname()) == [listener.fileno()]


def test_what_was_let_go_is_closed_for_the_peer_and_its_number_stays_taken(listener):
    client, server = accepted(listener)
    with closing(client), closing(server):
        number = server.fileno()
        let_go([number])
        client.settimeout(60)
        assert client.recv(1) == b""
        with pytest.raises(OSError, match="socket"):
            server.send(b"x")
        assert not os.get_inheritable(number)
        reading, writing = os.pipe()
        assert number not in (reading, writing), "the object closes its own number, and nobody else's"
        server.close()
        os.write(writing, b"x")
        assert os.read(reading, 1) == b"x"
        os.close(reading)
        os.close(writing)
