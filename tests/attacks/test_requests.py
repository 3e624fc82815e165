"""HTTP requests that cost more than they say: in chunks, heads, trailers, targets and what follows a response."""

import asyncio
import errno
import json

import pytest

from tests.attacks.raw_http import CHUNKED, JSON, head
from tests.harness.failing import failing
from tests.harness.inside import uvicorn_of
from transports.server.http_protocol import HttpProtocol
from transports.tcp.accepting import SILENT

TURN = 12_000
"""Calls in one turn of the loop; what one turn parses takes about a third of that."""
CHUNK = b"1\r\nx\r\n"
CLOSES = "connection: close\r\n"

# What is not body.


@pytest.mark.parametrize("path", ["/", "/changes", "/graphql", "/health", "/nothing"])
async def test_chunks_of_one_byte_are_cut_off_on_every_path(serving, beside, client, watched, parsed, path):
    """F147: a megabyte of them; what is parsed has a bound, and no turn of the loop takes long."""
    server = serving()
    async with beside(server) as commit:
        turns = watched(server)
        attackers = [await client(server) for _ in range(4)]
        for one in attackers:
            await one.send(head(path, JSON, CHUNKED) + CHUNK * 170_000)
            await one.rest()
        await commit()
        assert turns.longest <= TURN
    assert len(parsed) <= 4 * 20_000


async def test_a_turn_parses_so_many_chunks_and_then_others_have_theirs(
    serving, beside, client, watched, parsed
):
    """F147: even where their number has no bound."""
    server = serving(head_bytes=2**30, request_timeout=60.0)
    async with beside(server) as commit:
        turns = watched(server)
        attackers = [await client(server) for _ in range(2)]
        sent = [
            asyncio.create_task(one.send(head("/graphql", JSON, CHUNKED) + CHUNK * 40_000))
            for one in attackers
        ]
        await commit()
        await asyncio.gather(*sent)
        for one in attackers:
            await one.send(b"0\r\n\r\n")
            assert (await one.answer())[0] == 400
        assert turns.longest <= TURN
    assert sum(parsed) == len(parsed) == 80_000


BESIDE = {
    "a head": head("/health", method="GET")[:-2] + b"x: " + b"y" * 70_000,
    "a head of many lines": head("/health", method="GET")[:-2] + b"x: y\r\n" * 12_000,
    "a target": b"GET /" + b"x" * 70_000,
}


@pytest.mark.parametrize("data", BESIDE.values(), ids=BESIDE)
async def test_what_is_not_body_has_a_bound(serving, client, data):
    """F147: 431, and nothing more is kept."""
    one = await client(serving())
    await one.send(data)
    status, top, why = await one.answer()
    assert (status, why) == (431, b"of a request, at most 65536 bytes are not its body\n")
    assert CLOSES in top.lower()
    assert await one.rest() == b""


HIDDEN = {
    "trailers": b"2\r\n{}\r\n0\r\n" + b"x: y\r\n" * 12_000,
    "extensions of a chunk": b"2;" + b"x" * 70_000,
    "a size with leading zeros": (b"0" * 8 + b"1\r\nx\r\n") * 12_000,
}


@pytest.mark.parametrize("data", HIDDEN.values(), ids=HIDDEN)
async def test_neither_has_what_comes_with_a_body_a_way_around_it(serving, client, until, data):
    """F147: the connection is aborted, because its request is being answered."""
    server = serving()
    one = await client(server)
    await one.send(head("/graphql", JSON, CHUNKED) + data)
    assert await one.rest() == b""
    await until(lambda: not uvicorn_of(server).server_state.tasks)
    assert server.application._costs()["ended"] == {"HTTP_REFUSED": 1}


# The end of a response.


@pytest.mark.parametrize(("path", "status"), [("/health", 405), ("/nothing", 404), ("/changes", 403)])
async def test_an_answer_before_the_body_closes_the_connection_and_arrives(
    serving, client, parsed, path, status
):
    """F147: many clients read no response while they send; what they send is dropped unparsed."""
    server = serving()
    one = await client(server)
    await one.send(head(path, JSON, "content-length: 3000000"))
    told, top, _ = await one.answer()
    assert told == status
    assert CLOSES in top.lower()
    assert await one.send(b"x" * 3_000_000)
    assert await one.rest() == b""
    assert not parsed


async def test_who_has_gone_before_the_answer_is_no_error(serving, client, monkeypatch, caplog):
    """F147: nobody is left to be told that nothing follows."""
    failing(
        monkeypatch,
        asyncio.selector_events._SelectorSocketTransport,
        "write_eof",
        OSError(errno.ENOTCONN, "Transport endpoint is not connected"),
    )
    one = await client(serving())
    await one.send(head("/health", "content-length: 100"))
    assert (await one.answer())[0] == 405
    await one.send(b"x" * 100)
    assert not caplog.records


async def test_a_read_delivers_so_much(serving, client, monkeypatch):
    """F147: what waits for its turn, or for the application, has a bound on each connection."""
    sizes, real = [], HttpProtocol.data_received

    def data_received(self, data):
        sizes.append(len(data) + len(self._rest))
        real(self, data)

    monkeypatch.setattr(HttpProtocol, "data_received", data_received)
    one = await client(serving())
    await one.send(head("/graphql", JSON, "content-length: 1000000") + b" " * 1_000_000)
    assert (await one.answer())[0] == 400
    assert max(sizes) <= 2 * 64 * 1024


async def test_who_sends_on_and_on_behind_an_answer_is_disconnected(serving, client, until):
    """F147: after four megabytes, or ``request_timeout``."""
    server = serving(request_timeout=0.5)
    much, silent = await client(server), await client(server)
    for one in (much, silent):
        await one.send(head("/health", "content-length: 100000000"))
        assert (await one.answer())[0] == 405
    await much.send(b"x" * 20_000_000)
    await until(lambda: not uvicorn_of(server).server_state.connections)


# Targets.


@pytest.mark.parametrize(
    "line", ["OPTIONS *", "CONNECT a.example:80", "GET health", "GET ?x", "GET", "PRI * HTTP/2.0\r\n"]
)
async def test_a_target_that_is_none_is_refused_in_one_line(serving, client, caplog, line):
    """F147: whatever the method; no traceback."""
    one = await client(serving())
    await one.send(f"{line} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
    status, _, why = await one.answer()
    assert status == 400
    assert why.count(b"\n") == 1
    assert b" b'" not in why
    assert await one.rest() == b""
    assert len(SILENT) == 1, "it gives way where descriptors run out, as one that has sent nothing"
    assert not caplog.records


async def test_a_target_with_its_host_is_served(serving, client):
    """RFC 9112 3.2.2."""
    one = await client(serving())
    await one.send(head("http://localhost/health", method="GET"))
    assert (await one.answer())[0] == 200


async def test_who_offers_another_protocol_gets_http(serving, client):
    """As the HTTP client of Java does: with a body, and twice on one connection."""
    one = await client(serving())
    body = json.dumps({"query": "{ __typename }"}).encode()
    offer = (
        "connection: Upgrade, HTTP2-Settings",
        "upgrade: h2c",
        "http2-settings: AAEAAEAAAAIAAAABAAMAAABk",
    )
    for _ in range(2):
        await one.send(head("/graphql", JSON, f"content-length: {len(body)}", *offer) + body)
        status, _, told = await one.answer()
        assert (status, json.loads(told)) == (200, {"data": {"__typename": "Query"}})
