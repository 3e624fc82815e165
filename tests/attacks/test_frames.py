"""WebSocket frames that cost more than they say, beside a subscriber and a committer that mean well."""

import asyncio
import json
import random

import pytest

from transports.server.ws_protocol import LinkProtocol

UPGRADE = (
    b"GET /ws HTTP/1.1\r\nhost: localhost\r\nupgrade: websocket\r\nconnection: upgrade\r\n"
    b"sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)
TURN = 12_000
"""Calls in one turn of the loop; 64 frames and their replies take about half of that."""


def frame(opcode, data=b"", *, fin=True):
    """A frame of a client (RFC 6455 5.2), masked with nothing."""
    length = bytes((0x80 | len(data),)) if len(data) < 126 else b"\xfe" + len(data).to_bytes(2, "big")
    return bytes((opcode | (0x80 if fin else 0),)) + length + b"\0\0\0\0" + data


def said(**message):
    return frame(1, json.dumps(message).encode())


FLOODS = {
    "empty pings": frame(9) * 200_000,
    "empty pongs": frame(10) * 200_000,
    "a message in fragments of one byte": frame(1, b'"', fin=False) + frame(0, b"x", fin=False) * 200_000,
    "a message in empty fragments": frame(1, b"", fin=False) + frame(0, b"", fin=False) * 200_000,
    "empty messages": frame(1) * 200_000,
    "anything": b"".join(
        random.Random(147).choices([frame(9), frame(10, b"x"), frame(9, b"ping"), frame(1, b"{}")], k=200_000)
    ),
}


class Peer:
    """A connection on which bytes are written as they are."""

    def __init__(self, reader, writer):
        self._reader = reader
        self.writer = writer

    async def frame(self):
        """Opcode and data of the next frame."""
        async with asyncio.timeout(60):
            opcode, length = await self._reader.readexactly(2)
            if length == 126:
                length = int.from_bytes(await self._reader.readexactly(2), "big")
            return opcode & 15, await self._reader.readexactly(length)

    async def until(self, opcode):
        """The data of every frame up to the first of a kind, that one included."""
        found = []
        while True:
            kind, data = await self.frame()
            found.append((kind, data))
            if kind == opcode:
                return found


async def dialled(server):
    peer = Peer(*await asyncio.open_connection("127.0.0.1", server.port))
    peer.writer.write(UPGRADE)
    assert (await peer._reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101")
    peer.writer.write(said(type="connection_init"))
    assert json.loads((await peer.frame())[1])["type"] == "connection_ack"
    return peer


@pytest.fixture
def handled(monkeypatch):
    """How many frames were handled."""
    counted, real = [0], LinkProtocol._frame

    def take(self, one):
        counted[0] += 1
        real(self, one)

    monkeypatch.setattr(LinkProtocol, "_frame", take)
    return counted


async def send_all(peer, data):
    """Sends until everything is sent, or the server has closed."""
    try:
        for at in range(0, len(data), 65_536):
            peer.writer.write(data[at : at + 65_536])
            await peer.writer.drain()
    except ConnectionError:
        pass


@pytest.mark.parametrize("flood", FLOODS.values(), ids=FLOODS.keys())
async def test_a_flood_of_frames_is_cut_off_and_stops_nobody(serving, beside, watched, handled, until, flood):
    """F147: frames are rated as messages are, and so many are handled in one turn."""
    server = serving(frames_per_message=1)
    async with beside(server) as commit:
        peer = await dialled(server)
        turns = watched(server)
        sending = asyncio.create_task(send_all(peer, flood))
        await commit()
        found = await peer.until(8)
        assert int.from_bytes(found[-1][1][:2], "big") in (4490, 4400)
        await sending
        await commit()
        assert turns.longest < TURN
        assert handled[0] < 10_000
        peer.writer.close()
        await until(lambda: server.application.connections == 1)


async def test_what_is_within_the_rate_waits_for_the_others(serving, beside, watched):
    """F147: a burst that is allowed is handled a few frames at a time."""
    server = serving()
    async with beside(server) as commit:
        peer = await dialled(server)
        turns = watched(server)
        await send_all(peer, frame(9, b"x") * 5_000 + frame(9, b"last"))
        await commit()
        assert [await peer.frame() for _ in range(5_001)] == [(10, b"x")] * 5_000 + [(10, b"last")]
        assert turns.longest < TURN
        assert turns.count > 5_000 // 64
        peer.writer.close()


async def test_a_large_message_in_large_fragments_is_no_flood(serving, beside):
    """F147: honest fragments."""
    server = serving(frames_per_message=1, messages_per_second=100)
    async with beside(server) as commit:
        peer = await dialled(server)
        text = json.dumps({"type": "ping", "payload": "x" * 900_000}).encode()
        parts = [text[at : at + 60_000] for at in range(0, len(text), 60_000)]
        frames = [frame(0 if n else 1, part, fin=n == len(parts) - 1) for n, part in enumerate(parts)]
        reading = asyncio.create_task(peer._reader.readexactly(900_000))
        await send_all(peer, b"".join(frames))
        assert b'"pong"' in (await reading)[:100]
        await commit()
        peer.writer.close()


async def test_pongs_come_behind_the_replies_to_what_came_before(serving, beside):
    """F147, RFC 6455 5.5.2: a ping among messages, all in one packet."""
    server = serving()
    async with beside(server):
        peer = await dialled(server)
        sent = [(said(type="ping", payload=n), frame(9, b"%d" % n)) for n in range(200)]
        peer.writer.write(b"".join(part for pair in sent for part in pair))
        for number in range(200):
            kind, data = await peer.frame()
            assert (kind, json.loads(data)["payload"]) == (1, number)
            assert await peer.frame() == (10, b"%d" % number)
        peer.writer.close()
