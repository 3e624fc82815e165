"""A port of the Redis protocol on the event loop of a server."""

import threading

import pytest

from tests.publishers.support import wait_until
from tests.transports.resp.conftest import RawClient
from transports import Limits
from transports.errors import ServerFailed
from transports.resp.server import serve_resp
from transports.server.uvicorn import serve


def names():
    return {thread.name for thread in threading.enumerate()}


def test_one_thread_serves_both_ports_until_either_is_stopped(log, stock):
    """F147: clients of both take turns on one event loop, instead of two threads that compete for the interpreter."""
    with serve(log, limits=Limits()) as server:
        with serve_resp(log, beside=server) as resp:
            assert f"penstock-server-{server.port}" in names()
            assert f"penstock-resp-{resp.port}" not in names()
            assert stock(resp).ping()
            assert resp.figures()["connections"] == 1
        assert resp.figures()["connections"] == 0
        with pytest.raises(ConnectionError):
            RawClient(resp.port)
        assert server.figures()["connections"] is not None
        again = serve_resp(log, port=resp.port, beside=server)
        client = RawClient(again.port)
        client.send("PING")
        assert client.socket.recv(7) == b"+PONG\r\n"
        began = server
    wait_until(lambda: not client.socket.recv(1_000))  # what was served beside it has ended with it
    client.socket.close()
    again.stop()
    again.stop()
    with pytest.raises(ServerFailed, match=f"{again.port}.*has stopped"):
        serve_resp(log, port=again.port, beside=began)
    with serve_resp(log, port=again.port) as alone:  # whose port is free
        assert stock(alone).ping()
