"""A remote log whose connection is lost: resumed, or told."""

import asyncio
import contextlib
import random
from datetime import UTC, datetime

import pytest
from websockets.utils import accept_key

import flow
from publishers.errors import InvalidOption
from publishers.log.changelog import ChangeLog
from publishers.model.position import Position
from publishers.mutations.mutation import upsert
from tests.harness.inside import connections_of, link_of, loop_of
from tests.harness.ports import free_port
from tests.servers.faulty import FaultyProxy
from tests.transports.client.test_remote_log import Probe
from tests.transports.principals import knowing
from transports import Backoff, ConnectionLost, Principal, RemoteError, connect, serve

QUICK = Backoff(first=0.01, limit=0.05)


DEADLINE = 120.0


async def test_a_lost_connection_is_told_unless_it_may_be_made_again(serving, until):
    server = serving()
    async with connect(server.url) as remote:
        probe = Probe(1)
        remote.changes().subscribe(probe)
        await until(lambda: probe.cursor)
        await asyncio.to_thread(server.stop)
        await until(lambda: probe.errors)
        assert isinstance(probe.errors[0], RemoteError)
        assert probe.errors[0].code == "GOING_AWAY"
        late = Probe(1)
        remote.changes().subscribe(late)
        await until(lambda: late.errors)
        assert isinstance(late.errors[0], ConnectionLost)
        assert late.errors[0].close_code == 1012


async def test_no_server_is_told_at_once_also_with_reconnect(serving):
    server = serving()
    server.stop()
    for reconnect in (False, True):
        with pytest.raises(ConnectionLost, match="lost"):
            async with connect(server.url, reconnect=reconnect):
                pass


async def test_a_wrong_address_or_token_is_told_at_once(serving):
    server = serving(authenticate=knowing("right"))
    for url, options, says in (
        (server.url.replace("/ws", "/other"), {}, "404: /other is not served"),
        (server.url.replace("/ws", "/graphql"), {}, "offer the sub-protocol graphql-transport-ws"),
        (server.url, {"token": "wrong"}, "4403"),
    ):
        with pytest.raises(ConnectionLost, match=says):
            async with connect(url, reconnect=True, **options):
                pass
    async with connect(server.url, token="right"):
        pass


async def test_subscribing_resumes_over_restarts_of_the_server(tmp_path, until):
    """A writer that goes on, a server that comes and goes: each change once, in order, without a gap."""
    with ChangeLog.open(tmp_path / "shop") as log:
        server = serve(log, port=free_port())
        port = server.port
        async with connect(server.url, reconnect=QUICK) as remote:
            probe = Probe(flow.UNBOUNDED)
            remote.changes(window=16).subscribe(probe)
            await until(lambda: probe.cursor)
            for _ in range(4):
                for number in range(25):
                    await log.commit_async([upsert("order", str(number), {}) for _ in range(3)])
                await asyncio.to_thread(server.stop)
                for number in range(25):
                    await log.commit_async([upsert("order", str(number), {}) for _ in range(3)])
                server = serve(log, port=port)
            await until(lambda: len(probe.items) >= 200 * 4)
            assert probe.places == [(version, index) for version in range(1, 201) for index in range(4)]
            assert probe.errors == []
        await asyncio.to_thread(server.stop)


@pytest.mark.parametrize("seed", range(3))
async def test_subscribing_resumes_over_cut_connections(serving, log, until, seed):
    chance = random.Random(seed)
    server = serving()
    async with connect(server.url, reconnect=QUICK) as remote:
        probes = [Probe() for _ in range(3)]
        for probe in probes:
            remote.changes(window=chance.choice([1, 5, 64]), since="earliest").subscribe(probe)
        await until(lambda: all(probe.subscription for probe in probes))
        for version in range(60):
            await log.commit_async([upsert("order", str(version), {})])
            for probe in probes:
                probe.subscription.request(chance.randint(1, 4))
            if chance.random() < 0.3:
                for connection in list(connections_of(server.application)):
                    loop_of(server).call_soon_threadsafe(link_of(connection).abort)
            if chance.random() < 0.3:
                await asyncio.sleep(0)
        for probe in probes:
            probe.subscription.request(120)
        await until(lambda: all(len(probe.items) == 120 for probe in probes))
        for probe in probes:
            assert probe.places == [(version, index) for version in range(1, 61) for index in range(2)]
            assert probe.errors == []


async def test_a_log_that_is_opened_again_is_resumed_in_its_next_epoch(tmp_path, until):
    server = None
    log = ChangeLog.open(tmp_path / "shop")
    server = serve(log, port=free_port())
    port = server.port
    async with connect(server.url, reconnect=QUICK) as remote:
        probe = Probe(flow.UNBOUNDED)
        remote.changes().subscribe(probe)
        await until(lambda: probe.cursor)
        for epoch in range(1, 4):
            log.commit([upsert("order", str(epoch), {})])
            await until(lambda epoch=epoch: len(probe.items) == 2 * epoch)
            await asyncio.to_thread(server.stop)
            log.close()
            log = ChangeLog.open(tmp_path / "shop")
            server = serve(log, port=port)
        assert probe.places == [(version, index) for version in (1, 2, 3) for index in (0, 1)]
        assert log.position_of(probe.items[-1].cursor) == Position(4, 0)
    await asyncio.to_thread(server.stop)
    log.close()


async def test_giving_up_after_the_allowed_attempts(serving, until):
    server, waits = serving(), []

    def note(lost, delay):
        waits.append((type(lost), delay <= 0.01))
        raise ValueError("which harms nothing")

    patience = Backoff(first=0.01, limit=0.01, attempts=3)
    async with connect(server.url, reconnect=patience, on_wait=note) as remote:
        probe = Probe(1)
        remote.changes().subscribe(probe)
        await until(lambda: probe.cursor)
        await asyncio.to_thread(server.stop)
        await until(lambda: probe.errors)
        assert isinstance(probe.errors[0], ConnectionLost)
        assert waits == [(ConnectionLost, True)] * 3


async def test_a_subscription_that_is_refused_again_and_again_is_given_up_too(serving, until):
    waits = []
    patience = Backoff(first=0.01, attempts=3, jitter=lambda: 1.0)
    async with connect(
        serving().url, reconnect=patience, on_wait=lambda error, delay: waits.append((error.code, delay))
    ) as remote:
        probe = Probe(1)
        remote.changes(since=99).subscribe(probe)
        await until(lambda: probe.errors)
        assert probe.errors[0].code == "CURSOR_AHEAD"
        assert waits == [("CURSOR_AHEAD", 0.01), ("CURSOR_AHEAD", 0.02), ("CURSOR_AHEAD", 0.04)]


def test_subscribing_without_a_connection_is_told_by_signals(serving):
    remote = connect(serving().url)
    early = Probe(1)
    remote.changes().subscribe(early)
    assert early.subscription is not None
    assert isinstance(early.errors[0], ConnectionLost)

    async def come_and_go():
        async with remote:
            pass

    asyncio.run(come_and_go())
    late = Probe(1)
    remote.changes().subscribe(late)
    assert isinstance(late.errors[0], (ConnectionLost, RuntimeError))
    with pytest.raises(TypeError, match=r"rule 1\.9"):
        remote.changes().subscribe(None)


def test_backoff_doubles_up_to_its_limit_under_full_jitter():
    patient = Backoff(first=1.0, limit=5.0, jitter=lambda: 1.0)
    assert [patient.delay(attempt) for attempt in range(5)] == [1.0, 2.0, 4.0, 5.0, 5.0]
    assert Backoff(jitter=lambda: 0.0).delay(7) == 0.0
    assert Backoff(attempts=2).delay(2) is None
    assert patient.delay(10**6) == 5.0


async def test_a_server_that_breaks_the_protocol_is_left(until):
    import json

    import websockets

    sent = []

    async def rogue(socket):
        with contextlib.suppress(websockets.ConnectionClosed):
            await socket.recv()
            await socket.send('{"type":"connection_ack"}')
            while True:
                message = json.loads(await socket.recv())
                sent.append(message)
                if message["type"] == "subscribe":
                    event = {
                        "cursor": "c",
                        "version": 1,
                        "index": 0,
                        "count": 9,
                        "timestamp": "2026-01-01T00:00:00Z",
                        "area": "DATA",
                        "operation": "UPSERT",
                    }
                    told = {"type": "next", "id": message["id"], "events": [event] * 3, "cursor": "c"}
                    await socket.send(json.dumps(told | {"boundary": False}))

    async with websockets.serve(rogue, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with connect(f"ws://127.0.0.1:{port}/ws", reconnect=QUICK) as remote:
            probe = Probe()
            remote.changes().subscribe(probe)
            await until(lambda: probe.errors)
            assert isinstance(probe.errors[0], ConnectionLost)
            assert probe.errors[0].close_code == 4490
            assert "requested" in str(probe.errors[0])
            assert probe.items == []


async def test_a_heartbeat_that_was_lost_is_noticed_and_the_connection_made_again(until):
    """E53: the index of a checkpoint must follow that of the one before; a subscription goes on from its cursor."""
    import json

    import websockets

    begun = []

    async def leaky(socket):
        with contextlib.suppress(websockets.ConnectionClosed):
            await socket.recv()
            await socket.send('{"type":"connection_ack"}')
            begun.append(json.loads(await socket.recv())["payload"])
            item = {"id": "1", "head": "h", "live": 7, "state": "LIVE"}
            for n in (1, 2, 4) if len(begun) == 1 else (1, 2, 3):
                told = {"type": "checkpoint", "items": [item | {"cursor": f"c{n}"}], "n": n, "nextMs": 5}
                await socket.send(json.dumps(told))
            await socket.wait_closed()

    async with websockets.serve(leaky, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with connect(f"ws://127.0.0.1:{port}/ws", reconnect=QUICK) as remote:
            probe = Probe(1)
            remote.changes().subscribe(probe)
            await until(lambda: len(begun) == 2 and probe.cursor == "c3")
            assert begun[1]["since"] == "c2"
            assert probe.subscription.live == 7
        async with connect(f"ws://127.0.0.1:{port}/ws") as remote:
            begun.clear()
            remote.changes().subscribe(probe := Probe(1))
            await until(lambda: probe.errors)
            assert "checkpoint 4 came, but 3 was to come" in str(probe.errors[0])
            assert probe.errors[0].retryable


async def test_an_address_that_is_none_is_told_at_once_and_not_waited_for():
    for url in ("ws://[::1", "ws://x:99999/ws"):
        with pytest.raises(ConnectionLost) as told:
            async with asyncio.timeout(DEADLINE):
                await connect(url).open()
        assert not told.value.retryable or "x:99999" in url


async def test_what_nobody_expected_ends_the_connection_and_every_subscription(
    serving, until, monkeypatch, caplog
):
    async with connect(serving().url, reconnect=QUICK) as remote:
        probe = Probe(5)
        remote.changes().subscribe(probe)
        await until(lambda: probe.cursor)
        # Not a method, which would be looked up before the message is waited for.
        monkeypatch.setattr("transports.protocol.client.read", lambda _: {}["broken"])
        remote.changes().subscribe(Probe())  # its answer is what breaks
        await until(lambda: probe.errors)
    assert isinstance(probe.errors[0], ConnectionLost)
    assert "broken" in caplog.text


@pytest.mark.parametrize("kind", ["plain", "coroutine", "indirect"])
async def test_a_token_that_expires_is_renewed_and_a_fresh_one_that_is_refused_is_not(
    serving, log, until, kind
):
    """E55, F193: the function is asked before each connection; each change comes once."""
    asked = []
    refusing = False

    def judge(credentials):
        return None if refusing else Principal("ann", expires=datetime.now(UTC).timestamp() + 0.1)

    def plain():
        asked.append(f"token {len(asked)}")
        return asked[-1]

    async def coroutine():
        return plain()

    def indirect():
        return coroutine()

    tokens = {"plain": plain, "coroutine": coroutine, "indirect": indirect}
    server = serving(authenticate=judge, revocation=0.05)
    waits = []
    async with connect(
        server.url, token=tokens[kind], reconnect=QUICK, on_wait=lambda *told: waits.append(told)
    ) as remote:
        probe = Probe(flow.UNBOUNDED)
        remote.changes(since="earliest").subscribe(probe)
        for version in range(1, 6):
            await log.commit_async([upsert("order", str(version), {})])
            await until(lambda count=version: len(asked) > count and len(probe.items) == 2 * count)
        assert probe.places == [(version, index) for version in range(1, 6) for index in range(2)]
        assert {lost.close_code for lost, _ in waits} == {4403}
        refusing = True
        await until(lambda: probe.errors)
        assert probe.errors[0].close_code == 4403
        assert len(asked) == len(waits) + 1


async def test_a_connection_that_carries_nothing_more_is_given_up_at_once_and_replaced(serving, log, until):
    """E61: also where the machine accepts what is sent; it is pinged after a third of the keep-alive time."""
    waits = []
    with FaultyProxy(serving(keepalive=1.0).port) as proxy:
        url = f"ws://127.0.0.1:{proxy.port}/ws"
        async with connect(url, reconnect=QUICK, on_wait=lambda lost, _: waits.append(lost.why)) as remote:
            probe = Probe(flow.UNBOUNDED)
            remote.changes(since="earliest").subscribe(probe)
            for version in range(1, 4):
                await log.commit_async([upsert("order", str(version), {})])
                await until(lambda count=version: len(probe.items) == 2 * count)
                proxy.forget()
            await until(lambda: len(waits) == 3)
            assert probe.places == [(version, index) for version in range(1, 4) for index in range(2)]
            assert set(waits) == {"nothing was heard of the server"}


async def test_a_message_that_is_slow_to_arrive_is_waited_for(until):
    """E61: a byte of it is a sign of life, although no ping is answered meanwhile."""
    left = [b"\x81\x7e\x01\x00", b'{"type":"ping",', b'"payload":{}', b" " * 228, b"}"]
    told = []

    async def one(reader, writer):
        head = await reader.readuntil(b"\r\n\r\n")
        key = head.decode().partition("Sec-WebSocket-Key: ")[2].partition("\r\n")[0]
        writer.write(
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Protocol: penstock.v1+json\r\nSec-WebSocket-Accept: %b\r\n\r\n"
            % accept_key(key).encode()
        )
        greeting = b'{"type":"connection_ack","payload":{"keepAliveMs":900}}'
        writer.write(b"\x81" + bytes([len(greeting)]) + greeting)
        while data := await reader.read(1 << 16):
            told.append(data[0])
            if 0x89 in told and left:  # a ping of the client, each of which comes only after a silence
                writer.write(left.pop(0))
        writer.close()

    async with await asyncio.start_server(one, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with connect(f"ws://127.0.0.1:{port}/ws"):
            await until(lambda: not left and told[-1] == 0x81)  # the answer to the message
        server.close()


async def test_a_token_that_cannot_be_had_is_told_at_first_and_waited_for_later(serving, log, until):
    server = serving(authenticate=knowing("right"))
    failing = OSError("the issuer is away")

    def token():
        if failing is not None:
            raise failing
        return "right"

    with pytest.raises(OSError, match="the issuer is away"):
        async with connect(server.url, token=token, reconnect=QUICK):
            pass
    failing, waits = None, []
    async with connect(
        server.url, token=token, reconnect=QUICK, on_wait=lambda lost, _: waits.append(lost)
    ) as remote:
        probe = Probe(1)
        remote.changes().subscribe(probe)
        await until(lambda: probe.cursor)
        failing = OSError("the issuer is away")
        for connection in list(connections_of(server.application)):
            loop_of(server).call_soon_threadsafe(link_of(connection).abort)
        await until(lambda: "the issuer is away" in "".join(str(lost) for lost in waits))
        failing = None
        await log.commit_async([upsert("order", "1", {})])
        await until(lambda: probe.items)
        assert probe.errors == []
    with pytest.raises(InvalidOption, match="a function that returns text or None"):
        async with connect(server.url, token=lambda: 7):  # type: ignore[arg-type,return-value]
            pass
