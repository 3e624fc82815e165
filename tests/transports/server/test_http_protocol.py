"""How long a server waits for a request, and how it takes one that comes in any pieces, behind others."""

import asyncio
import contextlib
import json
import random
import re

import pytest

from tests.harness.inside import uvicorn_of
from tests.harness.scale import scaled
from tests.transports.certificates import Authority
from tests.transports.server.test_appending import WRITERS, change
from transports import Limits, ServerCertificate, serve


async def said(reader):
    """What comes until the end; an abort is an end."""
    async with asyncio.timeout(60):
        try:
            return await reader.read()
        except ConnectionResetError:
            return b""


@pytest.mark.parametrize(
    "begun", [b"", b"G", b"GET /health HTTP/1.1\r\n", b"POST /graphql HTTP/1.1\r\nHost: localhost\r\nX: "]
)
async def test_a_connection_without_a_request_is_aborted(serving, begun, until):
    server = serving(request_timeout=0.2)
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(begun)
    assert await said(reader) == b""
    writer.close()
    await until(lambda: not uvicorn_of(server).server_state.connections)


async def test_neither_is_one_that_says_a_byte_now_and_then(serving):
    server = serving(request_timeout=0.3)
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    ended = asyncio.create_task(said(reader))
    for byte in b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 10_000:
        writer.write(bytes([byte]))
        await asyncio.wait([ended], timeout=0.02)
        if ended.done():
            break
    assert await ended == b""
    writer.close()


async def test_a_second_request_is_waited_for_no_longer(serving):
    server = serving()
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    request = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
    for _ in range(3):
        writer.write(request)
        async with asyncio.timeout(60):
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
            assert json.loads(await reader.readexactly(length))["status"] == "ok"
    (protocol,) = uvicorn_of(server).server_state.connections
    protocol.limits = Limits(request_timeout=0.1)
    writer.write(request[:30])
    assert await said(reader) == b""
    writer.close()


async def test_a_body_that_does_not_come_is_told(serving):
    server = serving(request_timeout=1.0)
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(
        b"POST /graphql HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 50\r\n\r\n{"
    )
    head, _, body = (await said(reader)).partition(b"\r\n\r\n")
    assert b" 408 " in head.splitlines()[0]
    why = r"the body came too slowly: 1 bytes in [\d.]+ s; send 1024 bytes a second after 1 s, and all of them within 600 s"
    assert re.fullmatch(why, json.loads(body)["errors"][0]["message"])
    writer.close()


async def test_web_sockets_are_waited_for_by_their_own_rules(serving, dial, fill):
    loop = asyncio.get_running_loop()
    async with dial(serving(request_timeout=1.0, init_timeout=20.0).url) as wire:
        end = loop.time() + 1.2
        while loop.time() < end:  # longer than a request is waited for
            await wire.nothing_comes()
            await asyncio.wait([asyncio.Future()], timeout=0.1)
        await wire.init()
        await wire.subscribe(credits=2)
        fill(1)
        await wire.events(2)


def request_of(chance, number):
    """A request that appends a change, and one that only asks; its body is long or short, in chunks or in one."""
    if chance.random() < 0.3:
        return (
            b"GET /health HTTP/1.1\r\nhost: localhost\r\nx: " + b"y" * chance.randrange(6_000) + b"\r\n\r\n"
        )
    pad = "z" * chance.choice([0, 10, 3_000, 5_000, 70_000, 200_000])
    body = json.dumps({"changes": [change(number, pad=pad)]}).encode()
    top = b"POST /changes HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    if chance.random() < 0.5:
        return top + b"content-length: %d\r\n\r\n" % len(body) + body
    chunks = []
    while body:
        size = chance.choice([20, 700, 5_000, 90_000])
        chunks.append(b"%x\r\n%s\r\n" % (len(body[:size]), body[:size]))
        body = body[size:]
    return top + b"transfer-encoding: chunked\r\n\r\n" + b"".join(chunks) + b"0\r\n\r\n"


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "TLS"])
async def test_requests_in_any_pieces_are_answered_in_their_order(log, tmp_path, secure):
    """Each once, whole, and on one connection, however many are sent before the first answer is read."""
    ours = Authority(tmp_path)
    tls = ServerCertificate(*ours.issue("server")) if secure else None
    chance = random.Random(34)
    with serve(log, authorise=WRITERS, tls=tls) as server:
        for _ in range(scaled(8)):
            trusting = {"ssl": ours.trusting(), "server_hostname": "localhost"} if secure else {}
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port, **trusting)
            asked = [request_of(chance, number) for number in range(12)]
            begin, left = log.head.version, b"".join(asked)

            async def send(left=left, writer=writer):
                while left:
                    size = chance.choice([1, 50, 4_096, 4_097, 60_000, 300_000])
                    writer.write(left[:size])
                    left = left[size:]
                    await writer.drain()

            sending = asyncio.create_task(send())
            for one in asked:
                async with asyncio.timeout(60):
                    top = await reader.readuntil(b"\r\n\r\n")
                    length = int(top.lower().partition(b"content-length: ")[2].partition(b"\r")[0])
                    told = json.loads(await reader.readexactly(length))
                if one.startswith(b"GET"):
                    assert told["status"] == "ok"
                else:
                    assert (top.split()[1], told["version"]) == (b"201", begin)
                    begin += 1
            await sending
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()
        assert log.head.version == begin
