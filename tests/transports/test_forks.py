"""Servers and clients in a child of ``fork``: the child keeps no socket, and everything is refused."""

import asyncio
import gc
import os
import socket
import threading

import pytest

from penstock_cdc.errors import LogForked
from tests.forking import child, in_child, threads
from tests.harness.inside import connection_of, link_of, socket_of
from tests.harness.ports import free_port
from tests.transports.client.test_remote_log import Probe
from transports import connect, serve
from transports.tcp.descriptors import bound_to


def sockets():
    """The sockets of this process."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            found.append(os.readlink(f"/proc/self/fd/{name}"))
        except OSError:
            continue
    return {one for one in found if one.startswith("socket:")}


async def test_a_child_holds_neither_the_port_nor_a_connection(log, dial, fill):
    """F143: a client sees the end when the server has stopped, and the port is free, although children live."""
    with serve(log, port=free_port()) as server:
        async with dial(server.url) as wire:
            await wire.init()
            await wire.subscribe(credits=100)

            def run():
                server.stop()
                server.__exit__(None, None, None)
                gc.collect()
                return bound_to(socket.AF_INET, ("127.0.0.1", server.port))

            with server._stopping:  # of which another thread may be the holder
                assert await asyncio.to_thread(in_child, run) == []
            fill(1)
            assert len(await wire.events(2)) == 2
            holding = child(threading.Event().wait)
            with holding:
                await asyncio.to_thread(server.stop)
                assert (await wire.closed())[0] == 1012
                with serve(log, port=server.port) as again:
                    assert again.port == server.port


async def test_connections_that_are_being_made_are_not_kept_either(log, dial):
    """F143: children that are forked while clients come and go, and the event loop has not told anybody of them yet."""
    with serve(log) as server:
        address = ("127.0.0.1", server.port)

        def come():
            with socket.create_connection(address) as client:
                client.send(b"GET /health HTTP/1.0\r\n\r\n")
                assert client.recv(100)

        def fork():
            with threads(come, come):
                return [in_child(lambda: bound_to(socket.AF_INET, address)) for _ in range(20)]

        assert await asyncio.to_thread(fork) == [[]] * 20
        async with dial(server.url) as wire:
            await wire.init()


async def test_what_another_process_has_opened_is_not_served(log):
    """F143: neither a log, nor by a handle that was made before."""
    with serve(log) as server:

        def run():
            with pytest.raises(LogForked) as caught:
                serve(log)
            with pytest.raises(LogForked):
                serve({"shop": log})
            return caught.value.pid, server.url

        assert await asyncio.to_thread(in_child, run) == (os.getpid(), server.url)


async def test_a_client_is_refused_in_a_child_and_goes_on_in_the_parent(serving, fill, until):
    """F143."""
    server, probe = serving(), Probe(demand=100)
    before = connect(server.url)
    async with connect(server.url) as remote:
        feed = remote.changes(since="earliest")
        feed.subscribe(probe)
        await until(lambda: probe.subscription is not None)
        fill(1)

        async def refused():
            late = Probe(demand=1)
            feed.subscribe(late)
            assert isinstance(late.errors[0], LogForked)
            for call in (remote.open, lambda: remote.schema("order")):
                with pytest.raises(LogForked) as caught:
                    await call()
            with pytest.raises(LogForked):
                probe.subscription.request(1)
            probe.subscription.cancel()
            await remote.__aexit__(None, None, None)
            async with before as mine:  # which the parent has not opened
                schema = await mine.schema("order")
            return schema, str(caught.value)

        def run():
            found = asyncio.run(refused())
            gc.collect()
            return found, sockets()

        number = socket_of(connection_of(link_of(remote))).transport.get_extra_info("socket").fileno()
        mine = os.readlink(f"/proc/self/fd/{number}")
        assert mine in sockets()
        told = f"{server.url} was opened in process {os.getpid()}; connect here"
        (found, left) = await asyncio.to_thread(in_child, run)
        assert found == (None, told)
        assert mine not in left
        fill(1)
        await until(lambda: len(probe.items) == 4)
        assert not probe.errors


async def test_the_connection_of_a_client_ends_with_it_although_children_live(log, until):
    """F143."""
    with serve(log) as server:
        remote = connect(server.url)
        await remote.open()
        with child(threading.Event().wait):
            await remote.close()
            await until(lambda: server.application.connections == 0)
