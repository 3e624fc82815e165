"""Our client against our server."""

import asyncio
import contextlib
import random
import threading
from dataclasses import dataclass
from decimal import Decimal

import pytest

import flow
from flow.bridges.asyncio import aiter as iterate
from publishers.criteria.criteria import Criterion
from publishers.errors import InvalidOption
from publishers.log.changelog import ChangeLog
from publishers.model.position import Position
from publishers.mutations.mutation import upsert
from publishers.views.view import Content
from tests.harness.ports import free_port
from tests.transports.principals import knowing
from transports import Backoff, ConnectionLost, RemoteError, connect, serve


class Probe:
    """A subscriber that asks for what it is told to."""

    def __init__(self, demand=0):
        self.first, self.items, self.errors, self.completed = demand, [], [], 0
        self.subscription = None

    def on_subscribe(self, subscription):
        self.subscription = subscription
        if self.first:
            subscription.request(self.first)

    def on_next(self, change):
        self.items.append(change)

    def on_error(self, error):
        self.errors.append(error)

    def on_complete(self):
        self.completed += 1

    @property
    def cursor(self):
        return self.subscription and self.subscription.cursor

    @property
    def places(self):
        return [(change.version, change.index) for change in self.items]


QUICK = Backoff(first=0.01, limit=0.05)
DEADLINE = 120.0


async def test_a_remote_feed_gives_the_changes_of_the_log(serving, fill, log):
    fill(20, changes=4)
    here = log.history(limit=1000, content=Content.BODY).changes
    async with connect(serving().url) as remote:
        feed = remote.changes(start="earliest", until=20, content=Content.BODY)
        async with iterate(feed, prefetch=7) as changes:
            found = [change async for change in changes]
    assert tuple(found) == here
    assert found[-1].cursor == str(log.token(log.head))
    assert found[1].body == {"value": "x"}


@dataclass
class Order:
    total: Decimal


async def test_bodies_come_as_objects_of_the_class_that_was_asked_for(serving, log, until):
    """F24."""
    log.commit([upsert("order", "1", Order(Decimal("10.00"))), upsert("order", "2", {"total": "ten"})])
    async with connect(serving().url) as remote:
        probe, wish = Probe(9), Criterion(entity_types={"order"})
        remote.changes(wish, start="earliest", as_={"order": Order}).subscribe(probe)
        await until(lambda: probe.errors)
        assert str(probe.errors[0]).startswith("body of order '2' at 1:2 does not fit Order: ")
        (change,) = probe.items
        assert (change.body, change.before) == (Order(Decimal("10.00")), None)
        assert change == log.history(wish, content=Content.BODY).changes[0]
        feed = remote.changes(wish, since=change.cursor, until=1, content=Content.BODY)
        assert [one.body async for one in feed] == [{"total": "ten"}]
        assert change.idempotency_key == log.idempotency_key(change)


async def test_it_delivers_no_more_than_requested_and_requests_no_more_than_the_window(serving, fill, until):
    fill(30, changes=9)
    async with connect(serving().url) as remote:
        probe = Probe()
        remote.changes(start="earliest", window=50).subscribe(probe)
        await until(lambda: probe.subscription)
        probe.subscription.request(3)
        await until(lambda: len(probe.items) == 3)
        probe.subscription.request(100)
        await until(lambda: len(probe.items) == 103)
        entry = probe.subscription.entry
        assert entry._announced == entry._came == 103
        probe.subscription.request(flow.UNBOUNDED)
        await until(lambda: len(probe.items) == 300)
        assert probe.places == sorted(set(probe.places))
        assert probe.subscription._outstanding <= 50


async def test_cancelling_ends_the_subscription_at_the_server(serving, fill, log, until):
    async with connect(serving().url) as remote:
        probe = Probe(flow.UNBOUNDED)
        remote.changes().subscribe(probe)
        await until(lambda: log.statistics().publishers)
        probe.subscription.cancel()
        await until(lambda: not log.statistics().publishers)
        fill(1)
        assert probe.items == probe.errors == []
        assert not remote._subscriptions


@pytest.mark.parametrize("n", [0, -1, True, "5"])
async def test_a_wrong_request_ends_in_on_error(serving, n, until):
    async with connect(serving().url) as remote:
        probe = Probe()
        remote.changes().subscribe(probe)
        await until(lambda: probe.subscription)
        probe.subscription.request(n)
        await until(lambda: probe.errors)
        assert isinstance(probe.errors[0], flow.IllegalRequestError)


async def test_an_error_of_the_server_is_told_with_code_and_data(serving, fill, log, until):
    fill(1)
    async with connect(serving().url) as remote:
        for feed, code in (
            (remote.changes(since="rubbish"), "CURSOR_INVALID"),
            (remote.changes(start=99), "CURSOR_AHEAD"),
            (remote.changes(log="other"), "LOG_NOT_FOUND"),
            (remote.changes(batch_events=10**6), "INVALID_REQUEST"),
        ):
            probe = Probe(1)
            feed.subscribe(probe)
            await until(lambda probe=probe: probe.errors)
            (error,) = probe.errors
            assert isinstance(error, RemoteError)
            assert error.code == code
            assert code in str(error)
        assert error.data == {"path": "batch.maxEvents"}


async def test_criteria_and_views_travel(serving, log, until):
    async with connect(serving().url) as remote:
        probe = Probe(100)
        remote.changes(Criterion(entity_types={"b"}), start="earliest").subscribe(probe)
        log.commit([upsert("a", "1", {}), upsert("b", "2", {"x": 1})])
        await until(lambda: probe.items)
        assert [(change.entity_type, change.body_bytes) for change in probe.items] == [("b", None)]


async def test_every_field_of_a_criterion_travels(serving, log, until):
    """F53, F55, F58, E15: changed fields, regular expressions, conditions and transitions."""
    wish = Criterion(
        areas={"DATA"},
        entity_types={"order"},
        key_globs={"o-*"},
        key_patterns={"o-[0-9]+"},
        operations={"UPSERT"},
        changed={"total", "status"},
        where=["total > 10.5", "customer.id in [7, 9007199254740993]", "note not exists"],
        transitions={"ENTERED"},
    )
    body = {"total": 11, "customer": {"id": 9007199254740993}}
    async with connect(serving().url) as remote:
        probe = Probe(100)
        remote.changes(wish, start="earliest").subscribe(probe)
        log.commit(
            [
                upsert("order", "o-1", body, before=body, changed=["total"]),
                upsert("order", "o-2", body, before=body | {"total": 10}, changed=["total"]),
                upsert("order", "o-x", body, before=body | {"total": 10}, changed=["total"]),
                upsert("order", "o-4", body, changed=["name"]),
                upsert("order", "o-5", body | {"note": None}, changed=["total"]),
                upsert("order", "o-6", body, changed=["status"]),
            ]
        )
        await until(lambda: len(probe.items) == 2)
        assert [change.key for change in probe.items] == ["o-2", "o-6"]
        assert log.statistics().publishers[0].criteria == (wish.to_json(),)


async def test_a_checkpoint_moves_the_cursor_although_nothing_matches(serving, fill, log, until):
    async with connect(serving().url) as remote:
        probe = Probe(1)
        remote.changes(Criterion(entity_types={"rare"}), heartbeat_ms=20).subscribe(probe)
        await until(lambda: probe.cursor)
        fill(3)
        await until(lambda: probe.subscription.cursor == str(log.token(log.head)))
        assert probe.subscription.head == str(log.token(log.head))
        assert probe.subscription.state == "LIVE"
        await until(lambda: probe.subscription.live == log.head.version - 1)


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


async def test_leaving_ends_running_subscriptions(serving, until):
    async with connect(serving().url) as remote:
        probe = Probe(1)
        remote.changes().subscribe(probe)
        await until(lambda: probe.subscription)
    await until(lambda: probe.errors)
    assert isinstance(probe.errors[0], ConnectionLost)
    await remote.close()


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
            remote.changes(window=chance.choice([1, 5, 64]), start="earliest").subscribe(probe)
        await until(lambda: all(probe.subscription for probe in probes))
        for version in range(60):
            await log.commit_async([upsert("order", str(version), {})])
            for probe in probes:
                probe.subscription.request(chance.randint(1, 4))
            if chance.random() < 0.3:
                for connection in list(server.application._connections):
                    server._loop.call_soon_threadsafe(connection._link.abort)
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
        remote.changes(start=99).subscribe(probe)
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


async def test_a_subscriber_on_another_thread_may_block(serving, fill, until):
    fill(10, changes=3)
    async with connect(serving().url) as remote:
        feed = remote.changes(start="earliest", until=10)

        def work():
            with flow.iter_blocking(feed, prefetch=5) as changes:
                return [(change.version, change.index) for change in changes]

        places = await asyncio.to_thread(work)
    assert places == [(version, index) for version in range(1, 11) for index in range(4)]


async def test_loops_over_a_remote_feed_end_their_subscriptions_at_the_server(serving, fill, log, until):
    """F128, E42: as loops over a local one do."""
    fill(10)
    here = [change.position for change in log.history(limit=100).changes]
    async with connect(serving().url) as remote:
        feed = remote.changes(start="earliest", until=10)
        assert [change.position async for change in feed] == here
        assert await asyncio.to_thread(lambda: [change.position for change in feed]) == here
        endless = remote.changes(start="earliest")
        async for change in endless:
            if change.version == 3:
                break
        await until(lambda: not log.statistics().publishers)

        def leave():
            for change in endless:
                if change.version == 3:
                    return change.version
            return 0

        assert await asyncio.to_thread(leave) == 3
        await until(lambda: not log.statistics().publishers)
        async with contextlib.aclosing(aiter(endless)) as changes:
            assert (await anext(changes)).version == 1
            assert len(log.statistics().publishers) == 1
        await until(lambda: not log.statistics().publishers)
        assert not remote._subscriptions


@pytest.mark.parametrize("window", [0, -1, True, 2**31, "5"])
def test_a_wrong_window_is_refused(window):
    with pytest.raises(InvalidOption, match="window"):
        connect("ws://localhost/ws").changes(window=window)


async def test_a_slow_subscriber_holds_a_window_and_no_more(serving, fill, until):
    """The rest waits in the log: the server's cursor stands still."""
    release = threading.Event()

    class Slow(Probe):
        def on_next(self, change):
            release.wait(60)
            super().on_next(change)

    from concurrent.futures import ThreadPoolExecutor

    fill(100, changes=9)
    with ThreadPoolExecutor(1) as pool:
        async with connect(serving().url) as remote:
            probe = Slow(flow.UNBOUNDED)
            remote.changes(start="earliest", window=40).subscribe(probe, executor=pool)
            await until(lambda: probe.subscription and probe.subscription._buffer)
            for _ in range(20):
                await asyncio.sleep(0)
                with probe.subscription._lock:  # what is taken out of the one goes into the other
                    assert len(probe.subscription._buffer) + probe.subscription._outstanding <= 40
            release.set()
            await until(lambda: len(probe.items) == 1000)


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


@pytest.mark.parametrize("url", ["http://127.0.0.1:8090/", "127.0.0.1:8090", ""])
def test_a_url_that_is_not_one_of_a_websocket_is_refused_with_what_would_be_right(url):
    with pytest.raises(
        InvalidOption,
        match=r"url is .*, but must be a URL that begins with wss://, or without TLS with ws://",
    ):
        connect(url)
