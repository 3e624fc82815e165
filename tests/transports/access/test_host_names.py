"""The names by which a server may be asked, on every path."""

import asyncio
import http.client
import json

import pytest
import websockets

from penstock_cdc.errors import InvalidOption
from transports import serve
from transports.access.host_names import HostNames, is_loopback

PATHS = (
    "/",
    "/board/penstock.js",
    "/health",
    "/statistics",
    "/schemas",
    "/graphql",
    "/graphql?query=%7Blogs%7Bname%7D%7D",
    "/graphql/graphiql.js",
    "/elsewhere",
)


async def fetch(server, path, host, method="GET", body=None):
    def work():
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        try:
            headers = {"Host": host, "Content-Type": "application/json"}
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    return await asyncio.to_thread(work)


@pytest.mark.parametrize("path", PATHS)
async def test_a_server_of_this_machine_answers_to_no_other_name(serving, path):
    server = serving()
    for host in (
        "evil.example",
        f"evil.example:{server.port}",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
    ):
        status, body = await fetch(server, path, host)
        assert status == 421
        assert "is not one that this server answers to" in json.loads(body)["error"]
        assert (await fetch(server, path, host, "HEAD"))[0] == 421
        status, _ = await fetch(server, path, host, "POST", b'{"query":"{logs{name}}"}')
        assert status == 421
    for host in (f"127.0.0.1:{server.port}", "LOCALHOST", "shop.localhost.", "[::1]:80"):
        assert (await fetch(server, path, host))[0] != 421


@pytest.mark.parametrize("path", ["/ws", "/graphql", "/elsewhere"])
async def test_no_web_socket_by_another_name_either(serving, dial, path):
    server = serving()
    url = f"ws://evil.example:{server.port}{path}"
    with pytest.raises(websockets.InvalidStatus) as caught:
        async with dial(url, host="127.0.0.1", port=server.port, origin="http://localhost"):
            pass
    assert caught.value.response.status_code == 421


async def test_more_names_may_be_allowed(log):
    with serve(log, hosts=["Shop.Example"]) as server:
        assert (await fetch(server, "/health", f"shop.example:{server.port}"))[0] == 200
        assert (await fetch(server, "/health", "localhost"))[0] == 200
        assert (await fetch(server, "/health", "evil.example"))[0] == 421
    with serve(log, hosts=["*"]) as server:
        assert (await fetch(server, "/health", "evil.example"))[0] == 200


async def test_a_server_for_others_answers_to_all_names_unless_some_are_given(log):
    with serve(log, host="0.0.0.0") as server:
        assert (await fetch(server, "/health", "shop.example"))[0] == 200
    with serve(log, host="0.0.0.0", hosts=["shop.example"]) as server:
        assert (await fetch(server, "/health", "shop.example"))[0] == 200
        assert (await fetch(server, "/health", "evil.example"))[0] == 421


@pytest.mark.parametrize(
    ("header", "stranger"),
    [
        (b"", None),
        (b"localhost:1", None),
        (b"127.9.9.9", None),
        (b"[::1]", None),
        (b"shop.example.", None),
        (b"10.0.0.1", "10.0.0.1"),
        (b"user@evil.example", "evil.example"),
        (b"localhost@evil.example", "evil.example"),
        (b"[", "["),
        (b"\xff", "\xff"),
    ],
)
def test_the_name_is_read_as_a_browser_writes_it(header, stranger):
    hosts = HostNames(["shop.example"])
    assert hosts.stranger([(b"host", header)]) == stranger
    assert hosts.stranger([(b"host", header), (b"host", b"evil.example")]) == (stranger or "evil.example")
    assert hosts.stranger([(b"accept", header)]) is None
    assert HostNames(None).stranger([(b"host", header)]) is None


@pytest.mark.parametrize(
    ("host", "here"), [("::1", True), ("0.0.0.0", False), ("", False), ("localhost", True)]
)
def test_what_is_this_machine(host, here):
    assert is_loopback(host) is here


@pytest.mark.parametrize(
    "hosts", ["shop.example", ["http://shop.example"], ["shop.example:80"], ["a b"], [""], [7], ["*.example"]]
)
def test_what_is_no_host_name_is_refused(log, hosts):
    with pytest.raises(InvalidOption, match="without scheme and port"):
        serve(log, hosts=hosts)


@pytest.mark.parametrize("host", ["fe80::1", "[fe80::1]", "10.0.0.1", "Shop.Example."])
def test_names_and_addresses_are_read_alike(host):
    asked = host if ":" not in host or host[0] == "[" else f"[{host}]"
    assert HostNames([host]).stranger([(b"host", f"{asked}:80".encode())]) is None
