"""What /statistics tells."""

import asyncio
import json
import urllib.error
import urllib.request

from publishers.criteria.criteria import Criterion
from publishers.mutations.mutation import upsert
from tests.flow.probes import Probe
from tests.harness.inside import connections_of, ended_of
from tests.transports.principals import knowing
from transports.server.statistics import statistics


async def fetch(url, token=None):
    def work():
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(urllib.request.Request(url, headers=headers), timeout=60) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.headers["www-authenticate"]

    return await asyncio.to_thread(work)


async def test_it_tells_where_log_ring_and_subscriptions_are(serving, dial, fill, log, until):
    fill(3, changes=2)
    server = serving()
    async with dial(server.url) as wire:
        await wire.init()
        subscribed = await wire.subscribe(criteria=[{"entity_types": ["order"]}], credits=1)
        fill(2)
        (event,) = await wire.events(1)
        status, told = await fetch(server.health_url.replace("/health", "/statistics"))
    assert status == 200
    shop = told["logs"]["shop"]
    assert (shop["watermark"], shop["head"]["version"], shop["epoch"]) == (5, 6, log.epoch)
    assert shop["head"]["cursor"] == str(log.token(log.head))
    assert shop["ringEvents"] == log.options.ring_events
    (publisher,) = shop["publishers"]
    assert publisher["criteria"] == [{"entity_types": ["order"]}]
    (subscription,) = publisher["subscriptions"]
    assert subscription["position"]["cursor"] == event["cursor"] != subscribed["cursor"]
    assert (subscription["state"], subscription["demand"], subscription["gating"]) == ("LIVE", 0, False)
    assert subscription["lag"] == 2


async def test_what_waits_for_a_stalled_client_is_told(serving, dial, fill, log, until):
    """Invariant 12, E59: the bytes that nobody takes are bounded, and seen."""
    server = serving(stall_timeout=60.0, keepalive=60.0)
    url = server.health_url.replace("/health", "/statistics")
    async with dial(server.url) as good, dial(server.url) as stuck:
        await good.init(), await stuck.init()
        await stuck.subscribe(credits=10**6, content="BODY")
        stuck.socket.transport.pause_reading()
        fill(20, changes=50, body="z" * 10_000)
        most = server.application._limits.window_bytes
        await until(lambda: any(one.unsent for one in connections_of(server.application)))
        status, told = await fetch(url)
        assert (status, told["connections"]) == (200, 2)
        assert 0 < told["mostUnsentBytes"] == told["unsentBytes"] <= most
        shop = told["logs"]["shop"]
        assert (shop["queueBytes"], shop["withheldBytes"], shop["heldBytes"], shop["producers"]) == (
            0,
            0,
            0,
            0,
        )
        assert shop["replayBytes"] <= log.options.replay_bytes
        stuck.socket.transport.resume_reading()


async def test_the_heaviest_connection_and_those_that_were_ended_are_told(serving, dial, fill, until):
    """F147: each bound of a connection is seen from outside."""
    server = serving(messages_per_second=5, keepalive=60.0, stall_timeout=0.2)
    url = server.health_url.replace("/health", "/statistics")
    application = server.application
    async with dial(server.url) as heavy, dial(server.url) as flooding, dial(server.url) as stuck:
        for wire in (heavy, flooding, stuck):
            await wire.init()
        await heavy.subscribe(criteria=[{"keys": [str(n) for n in range(100)]}])
        (weight,) = {one.weight for one in connections_of(application)} - {0}
        told = (await fetch(url))[1]
        assert (told["connections"], told["mostConnectionWeight"], told["ended"]) == (3, weight, {})
        for _ in range(50):
            await flooding.send(type="ping")
        assert (await flooding.closed())[0] == 4490
        await stuck.subscribe(credits=10**6, content="BODY")
        stuck.socket.transport.pause_reading()
        fill(400, body="z" * 50_000)
        await until(lambda: application.connections == 1)
        stuck.socket.transport.resume_reading()
        assert dict(ended_of(application)) == {"FLOOD": 1, "STALLED": 1}


async def test_it_is_for_those_with_a_token_where_there_are_tokens(serving):
    server = serving(authenticate=knowing("right"))
    url = server.health_url.replace("/health", "/statistics")
    assert await fetch(url) == (401, "Bearer")
    assert (await fetch(url, "wrong"))[0] == 401
    assert (await fetch(url, "right"))[0] == 200


def test_the_figures_of_rings_are_those_of_the_log(log, fill):
    """E63: changes, bytes and their share, which differ."""
    slow = Probe()
    log.changes().subscribe(slow)
    fill(3, changes=2)
    told, known = statistics({"shop": log})["logs"]["shop"], log.statistics()
    assert told["rings"] == {"events": known.ring_events, "bytes": known.ring_bytes, "fill": known.ring_fill}
    assert len({0, *told["rings"].values()}) == 4
    assert told["published"] == {"changes": known.published_changes, "bytes": known.published_bytes}
    assert (told["durable"], told["appended"], told["syncs"]) == (known.durable, known.appended, known.syncs)


def test_what_it_lists_is_bounded_and_what_it_counts_is_not(log):
    log.commit([upsert("order", "1", {})])
    for number in range(70):
        log.changes(Criterion(keys={str(number)})).subscribe(Probe())
    for _ in range(70):
        log.changes().subscribe(Probe())
    shop = statistics({"shop": log})["logs"]["shop"]
    assert (shop["publisherCount"], len(shop["publishers"])) == (71, 64)
    assert shop["subscriptionCount"] == 140
    assert all(len(one["subscriptions"]) <= 64 for one in shop["publishers"])


def test_it_tells_what_is_held_from_retention(log, fill):
    """F47: held bytes, and what is left until the hold is lost."""
    fill(2)
    log.hold("slow", log.oldest, keep_bytes=10_000_000)
    (told,) = statistics({"shop": log})["logs"]["shop"]["holds"]
    assert (told["name"], told["state"], told["secondsLeft"]) == ("slow", "RESERVED", None)
    assert told["position"]["cursor"] == str(log.token(log.oldest))
    assert told["heldBytes"] + told["bytesLeft"] == 10_000_000
