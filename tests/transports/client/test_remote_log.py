"""Our client against our server."""

import asyncio
import contextlib
import threading
from dataclasses import dataclass
from decimal import Decimal

import pytest

import flow
from flow.bridges.iterators import aiter as iterate
from publishers.criteria.criteria import Criterion
from publishers.errors import InvalidOption
from publishers.mutations.mutation import upsert
from publishers.views.view import Content
from tests.harness.inside import link_of, lock_of
from transports import ConnectionLost, RemoteError, connect


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


async def test_a_remote_feed_gives_the_changes_of_the_log(serving, fill, log):
    fill(20, changes=4)
    here = log.history(limit=1000, content=Content.BODY).changes
    async with connect(serving().url) as remote:
        feed = remote.changes(since="earliest", until=20, content=Content.BODY)
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
        remote.changes(wish, since="earliest", as_={"order": Order}).subscribe(probe)
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
        remote.changes(since="earliest", window=50).subscribe(probe)
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
        assert not link_of(remote)._subscriptions


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
            (remote.changes(since=99), "CURSOR_AHEAD"),
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
        remote.changes(Criterion(entity_types={"b"}), since="earliest").subscribe(probe)
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
        remote.changes(wish, since="earliest").subscribe(probe)
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
        remote.changes(Criterion(entity_types={"rare"}), heartbeat=0.02).subscribe(probe)
        await until(lambda: probe.cursor)
        fill(3)
        await until(lambda: probe.subscription.cursor == str(log.token(log.head)))
        assert probe.subscription.head == str(log.token(log.head))
        assert probe.subscription.state == "LIVE"
        await until(lambda: probe.subscription.live == log.head.version - 1)


async def test_leaving_ends_running_subscriptions(serving, until):
    async with connect(serving().url) as remote:
        probe = Probe(1)
        remote.changes().subscribe(probe)
        await until(lambda: probe.subscription)
    await until(lambda: probe.errors)
    assert isinstance(probe.errors[0], ConnectionLost)
    await remote.close()


async def test_a_subscriber_on_another_thread_may_block(serving, fill, until):
    fill(10, changes=3)
    async with connect(serving().url) as remote:
        feed = remote.changes(since="earliest", until=10)

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
        feed = remote.changes(since="earliest", until=10)
        assert [change.position async for change in feed] == here
        assert await asyncio.to_thread(lambda: [change.position for change in feed]) == here
        endless = remote.changes(since="earliest")
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
        assert not link_of(remote)._subscriptions


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
            remote.changes(since="earliest", window=40).subscribe(probe, executor=pool)
            await until(lambda: probe.subscription and probe.subscription._buffer)
            for _ in range(20):
                await asyncio.sleep(0)
                with lock_of(probe.subscription):  # what is taken out of the one goes into the other
                    assert len(probe.subscription._buffer) + probe.subscription._outstanding <= 40
            release.set()
            await until(lambda: len(probe.items) == 1000)


@pytest.mark.parametrize("url", ["http://127.0.0.1:8090/", "127.0.0.1:8090", ""])
def test_a_url_that_is_not_one_of_a_websocket_is_refused_with_what_would_be_right(url):
    with pytest.raises(
        InvalidOption,
        match=r"url is .*, but must be a URL that begins with wss://, or without TLS with ws://",
    ):
        connect(url)


async def test_a_shell_shows_what_is_connected_to_what(serving):
    server = serving()
    assert repr(server) == f"<Server {server.url}>"
    remote = connect(server.url)
    assert repr(remote.changes()) == f"<RemoteFeed of <RemoteLog {server.url} not connected>>"
    async with remote:
        assert repr(remote) == f"<RemoteLog {server.url}>"
    await asyncio.to_thread(server.stop)
    assert repr(server) == f"<Server {server.url} stopped>"


@pytest.mark.parametrize("seconds", [-1, True, "1", float("inf"), float("nan")])
@pytest.mark.parametrize("option", ["linger", "heartbeat"])
def test_a_duration_is_a_number_of_seconds(option, seconds):
    with pytest.raises(InvalidOption, match=f"{option} is .*, but must be seconds, at least 0"):
        connect("ws://127.0.0.1:1/ws").changes(**{option: seconds})
