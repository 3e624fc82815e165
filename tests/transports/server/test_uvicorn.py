import asyncio
import contextlib
import socket
import subprocess
import sys
import threading

import pytest

from publishers.errors import InvalidOption
from tests.harness.constants import set_constant
from tests.harness.inside import loop_of, thread_of, uvicorn_of
from tests.harness.ports import free_port
from transports import ExtraMissing, Limits, ServerFailed, serve


def test_a_server_takes_a_free_port_and_gives_it_back(log):
    server = serve(log)
    assert server.port > 0
    assert server.url == f"ws://127.0.0.1:{server.port}/ws"
    server.stop()
    server.stop()
    port = free_port()  # the system may give its own to others as soon as it is free
    for _ in range(2):
        with serve(log, port=port) as again:
            assert again.port == port
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("penstock-server")]


def test_a_server_that_is_asked_to_stop_waits_for_no_tick(log, monkeypatch):
    set_constant(monkeypatch, "transports.server.shutdown._TICK", 3600.0)
    server = serve(log)
    server.stop()
    assert not thread_of(server).is_alive()
    uvicorn_of(server).ask_to_stop()  # the loop is closed


def test_a_client_that_is_accepted_while_the_server_stops_is_let_go(log):
    """Nothing of it is left open, and it is not left to wait for an answer."""
    server = serve(log)
    clients = []

    def come_and_stop():
        clients.extend(socket.create_connection(("127.0.0.1", server.port)) for _ in range(3))
        uvicorn_of(server).ask_to_stop()

    loop_of(server).call_soon_threadsafe(come_and_stop)
    thread_of(server).join(60)
    assert not thread_of(server).is_alive()
    for client in clients:
        client.settimeout(60)
        with client, contextlib.suppress(ConnectionResetError):
            assert client.recv(1) == b""


@pytest.mark.parametrize("host", ["203.0.113.7", "no.such.host.invalid", "\udcff"])
def test_an_address_that_cannot_be_listened_on_is_told(log, host):
    with pytest.raises(ServerFailed, match="cannot serve on"):
        serve(log, host=host)


def test_a_port_in_use_or_out_of_range_is_told(log):
    with serve(log) as server, pytest.raises(ServerFailed, match="in use"):
        serve(log, port=server.port)
    with pytest.raises(ServerFailed):
        serve(log, port=70_000)


async def test_it_serves_on_ipv6_and_wildcards(log, dial):
    for host in ("::1", "0.0.0.0"):
        with serve(log, host=host) as server:
            async with dial(server.url) as wire:
                await wire.init()


@pytest.mark.parametrize(
    "limits", [{"subscriptions": 0}, {"keepalive": -1}, {"window_bytes": 1000}, {"late_share": "x"}]
)
def test_limits_out_of_bounds_are_refused(limits):
    with pytest.raises(InvalidOption, match=next(iter(limits))):
        Limits(**limits)


def test_without_the_extra_one_line_says_what_to_install(log, monkeypatch):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(ExtraMissing, match=r"pip install 'penstock-cdc\[server\]'"):
        serve(log)


def test_importing_transports_needs_no_extra():
    code = (
        "import sys\n"
        "for name in ('uvicorn', 'websockets', 'pyspark', 'pyarrow', 'rich'): sys.modules[name] = None\n"
        "import transports, transports.cli\n"
        "try:\n"
        "    import asyncio; asyncio.run(transports.connect('ws://localhost/ws').open())\n"
        "except transports.ExtraMissing as error:\n"
        "    print(error)\n"
        "from transports import *\n"
        "try:\n"
        "    transports.LinkProtocol\n"
        "except transports.ExtraMissing as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "a client needs websockets" in done.stdout
    assert "the protocol class needs websockets" in done.stdout


def test_what_needs_an_extra_has_a_public_name_too():
    import transports
    from transports.server.ws_protocol import LinkProtocol

    assert transports.LinkProtocol is LinkProtocol
    with pytest.raises(AttributeError, match="'transports' has no attribute 'Nothing'"):
        _ = transports.Nothing


async def test_many_servers_and_loops_do_not_meet(log, dial, fill):
    with serve(log) as one, serve(log) as two:
        async with dial(one.url) as left, dial(two.url) as right:
            await left.init(), await right.init()
            await left.subscribe(credits=10)
            await right.subscribe(credits=10)
            fill(1)
            assert await left.events(2) == await right.events(2)
            await asyncio.to_thread(one.stop)
            fill(1)
            await right.events(2)


async def test_a_client_that_comes_while_the_server_stops_is_told_to_come_again(log, dial, until):
    with serve(log) as server:
        async with dial(server.url) as early:
            await early.init()
            stopping = asyncio.create_task(asyncio.to_thread(server.stop, 60.0))
            assert (await early.expect("goaway"))["deadlineMs"] == 60_000
            async with dial(server.url) as late:
                assert (await late.closed())[0] == 1012
        await stopping
