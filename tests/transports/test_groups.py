"""Groups over the WebSocket protocol, by hand: what is said, what is refused, and what becomes of consumers whose connections are lost."""

from types import SimpleNamespace

import pytest

from publishers import Criterion, upsert
from transports import Grant, LogAction
from transports.operations.calls import AckCall
from transports.server.connection_groups import _do_all

WORKER = Grant({LogAction.CONSUME}, groups=["pick*"])


@pytest.fixture
def group(log):
    return log.groups.create("pickers", Criterion(entity_types={"order"}), since="earliest", ack_wait=600.0)


@pytest.fixture
def work(serving, dial, group):
    """Connects to one server, whose bounds are keyword arguments of the first call."""
    servers = []

    def work(**limits):
        if not servers:
            servers.append(serving(authorise=WORKER, **limits))
        return dial(servers[0].url)

    return work


def put(log, *keys):
    for key in keys:
        log.commit([upsert("order", key, {"key": key})])


async def join(wire, consumer="w1", subscription="a", /, *, wanted=100, group="pickers", **more):
    """Joins; returns what is said of that, or the error."""
    payload = {"group": group, "consumer": consumer, "credits": wanted, **more}
    await wire.send(type="join", id=subscription, payload=payload)
    message = await wire.receive()
    return message["group"] if message["type"] == "joined" else message["payload"]


def kept(wire):
    """The deliveries that have come and were not looked at, as they may come before an answer."""
    if not hasattr(wire, "kept"):
        wire.kept = []
    return wire.kept


async def given(wire, count):
    """So many deliveries, and no more."""
    while len(kept(wire)) < count:
        wire.kept += (await wire.expect("deliveries"))["items"]
    found, wire.kept = wire.kept, []
    assert len(found) == count
    return found


def keys(deliveries):
    return [event["key"] for one in deliveries for event in one["events"]]


async def call(wire, do, subscription="a", /, n=1, **payload):
    """Says something; returns the result, or the error."""
    await wire.send(type="group", id=subscription, n=n, do=do, payload=payload)
    while (message := await wire.receive())["type"] != "group":
        assert message["type"] == "deliveries"
        kept(wire).extend(message["items"])
    assert (message["id"], message["n"]) == (subscription, n)
    return message["result"] if "result" in message else message["error"]


async def test_a_client_that_comes_back_goes_on_with_its_generation(work, group, log, until):
    """F84: within the grace time it keeps what has come, and what has not comes again, uncounted."""
    put(log, "1", "2", "3")
    async with work(grace=600.0) as wire:
        await wire.init()
        await join(wire, opening="x")
        first, second, third = await given(wire, 3)
    async with work() as wire:
        await wire.init()
        await until(lambda: not any(one.waiting for one in group.book.machine.consumers.listed()))
        told = await join(wire, generation=1, received=1)
        assert told["generation"] == 1
        again = await given(wire, 2)
        assert [(one["at"], one["count"]) for one in again] == [(second["at"], 1), (third["at"], 1)]
        assert await call(wire, "ack", at=[first["at"]]) == {"count": 1}
    async with (
        work() as wire
    ):  # where the answer was lost it is known by what it is called, and has received nothing
        await wire.init()
        assert (await join(wire, opening="x"))["generation"] == 1
        assert [one["at"] for one in await given(wire, 2)] == [second["at"], third["at"]]


async def test_the_newer_of_two_connections_of_one_client_has_the_consumer(work, group, log):
    """As where a server does not know yet that the older one is lost."""
    put(log, "1")
    async with work() as old, work() as new:
        await old.init()
        await new.init()
        await join(old, opening="x")
        (first,) = await given(old, 1)
        assert (await join(new, generation=1, received=1))["generation"] == 1
        assert (await old.expect("error"))["payload"]["code"] == "FENCED"
        assert await call(new, "ack", at=[first["at"]]) == {"count": 1}


async def test_what_a_client_had_that_stays_away_goes_to_others(work, group, log):
    """F78: when the grace time is over its deliveries come again, and it joins anew."""
    put(log, "1", "2")
    async with work(grace=0.02) as wire:
        await wire.init()
        await join(wire)
        await given(wire, 2)
    async with work() as other, work() as wire:
        await other.init()
        await join(other, "w2")
        assert [one["count"] for one in await given(other, 2)] == [2, 2]
        await wire.init()
        assert (await join(wire, generation=1, received=2))["generation"] == 3


async def test_nothing_is_taken_from_a_group_that_was_not_asked_for(work, group, log, until):
    """F82: a client without credits, or one that takes nothing, holds nothing back from others."""
    put(log, *"123456")
    async with work() as idle, work() as other:
        await idle.init()
        await join(idle, "idle", wanted=0)
        await other.init()
        await join(other, "w2", wanted=4)
        assert keys(await given(other, 4)) == ["1", "2", "3", "4"]
        await idle.send(type="request", id="a", n=1)
        assert keys(await given(idle, 1)) == ["5"]
        await idle.send(type="request", id="a", n=0)
        assert (await idle.expect("error"))["payload"]["code"] == "INVALID_DEMAND"
        await until(lambda: group.info().consumers == ("w2",))


async def test_a_stalled_client_takes_no_more_than_a_window(work, group, log, until):
    """What lies behind that is left to others, although the stalled one has asked for everything."""
    body = "x" * 50_000
    async with work(high_water=1_000, window_bytes=70_000) as slow, work() as other:
        await slow.init()
        await join(slow, "slow")
        slow.socket.transport.pause_reading()
        for number in range(300):
            log.commit([upsert("order", str(number), {"body": body})])
        await until(lambda: group.info().pending > 2)
        await other.init()
        await join(other, "w2")
        assert len(await given(other, 100)) == 100
        slow.socket.transport.resume_reading()


async def test_consumers_have_a_bound_where_those_whose_clients_are_away_make_room(work, group, log, until):
    async with work(group_members=2, grace=600.0) as wire:
        await wire.init()
        await join(wire)
    async with work() as wire:
        await wire.init()
        await join(wire, "w2", "b")
        await join(wire, "w3", "c")
        await until(lambda: group.info().consumers == ("w2", "w3"))
        problem = await join(wire, "w4", "d")
        assert (problem["code"], problem["limit"], problem["retryable"]) == ("TOO_MANY_CONSUMERS", 2, True)


async def test_a_group_is_taken_away_with_the_grant(serving, dial, group, log, until):
    """F140: its consumer ends with FORBIDDEN, and leaves."""
    granted = {"pickers"}

    def authorise(_principal, _log, _action):
        return Grant({LogAction.CONSUME}, groups=granted)

    async with dial(serving(authorise=authorise, revocation=0.05, grace=600.0).url) as wire:
        await wire.init()
        await join(wire)
        granted.clear()
        assert (await wire.expect("error"))["payload"]["code"] == "FORBIDDEN"
        await until(lambda: group.info().consumers == ())


@pytest.mark.parametrize(
    ("payload", "code", "path"),
    [
        ({"group": None}, "INVALID_REQUEST", "group"),
        ({"group": "Pick"}, "INVALID_REQUEST", "group"),
        ({"consumer": None}, "INVALID_REQUEST", "consumer"),
        ({"consumer": ""}, "INVALID_REQUEST", "consumer"),
        ({"consumer": "x" * 257}, "INVALID_REQUEST", "consumer"),
        ({"consumer": "a\x1b[2J"}, "INVALID_REQUEST", "consumer"),
        ({"generation": 0}, "INVALID_REQUEST", "generation"),
        ({"received": 3}, "INVALID_REQUEST", "received"),
        ({"history": 1}, "INVALID_REQUEST", "history"),
        ({"opening": 5}, "INVALID_REQUEST", "opening"),
        ({"credits": "many"}, "INVALID_REQUEST", "credits"),
        ({"credits": -1}, "INVALID_DEMAND", None),
        ({"log": 5}, "INVALID_REQUEST", "log"),
        ({"integers": "HEX"}, "INVALID_REQUEST", "integers"),
    ],
)
async def test_what_is_wrong_with_a_joining_is_named(work, payload, code, path):
    async with work() as wire:
        await wire.init()
        told = {"group": "pickers", "consumer": "w", "credits": 0, **payload}
        await wire.send(type="join", id="r", payload=told)
        problem = (await wire.expect("error"))["payload"]
        assert (problem["code"], problem.get("path")) == (code, path)


@pytest.mark.parametrize(
    ("do", "payload", "path"),
    [
        ("eat", {}, "do"),
        ("ack", {}, "at"),
        ("ack", {"at": []}, "at"),
        ("ack", {"at": [5]}, "at"),
        ("ack", {"at": ["x"], "durable": "yes"}, "durable"),
        ("ack_upto", {"at": ["x", "y"]}, "at"),
        ("nack", {"at": ["x"], "delayMs": -1}, "delayMs"),
        ("nack", {"at": ["x"], "count": 0}, "count"),
        ("nack", {"at": ["x"], "error": "x" * 1001}, "error"),
        ("term", {"at": ["x"]}, "reason"),
        ("pending", {"limit": 100_000}, "limit"),
        ("pending", {"start": 5}, "start"),
        ("claim", {"minIdleMs": "long"}, "minIdleMs"),
        ("claim", {"onlyIds": 1}, "onlyIds"),
    ],
)
async def test_what_is_wrong_with_a_call_is_named_and_the_consumer_goes_on(work, log, do, payload, path):
    async with work() as wire:
        await wire.init()
        await join(wire)
        problem = await call(wire, do, **payload)
        assert (problem["code"], problem["path"]) == ("INVALID_REQUEST", path)
        put(log, "1")
        assert keys(await given(wire, 1)) == ["1"]


async def test_places_that_are_none_are_refused_and_calls_of_others_are_ignored(work, group, log):
    put(log, "1")
    async with work() as wire:
        await wire.init()
        await join(wire)
        (first,) = await given(wire, 1)
        assert (await call(wire, "ack", at=["nonsense"]))["code"] == "CURSOR_INVALID"
        other = first["at"].rsplit(":", 2)[0] + ":9:0"
        assert (await call(wire, "ack", at=[other]))["code"] == "CURSOR_AHEAD"
        await wire.send(type="group", id="b", n=1, do="ack", payload={"at": [first["at"]]})
        await wire.nothing_comes()
        await wire.send(type="group", id="a", n="x", do="ack", payload={})
        assert (await wire.closed())[0] == 4400


async def test_calls_are_bounded_and_done_before_the_consumer_leaves(work, group, log, until):
    """What a client says last counts, although its connection ends behind it."""
    put(log, *"123")
    async with work(group_calls=2, grace=600.0) as wire:
        await wire.init()
        await join(wire)
        deliveries = await given(wire, 3)
        with group.book.lock:  # so that no call is done yet
            for n, one in enumerate(deliveries):
                await wire.send(type="group", id="a", n=n, do="ack", payload={"at": [one["at"]]})
            problem = await wire.expect("group")
            assert (problem["n"], problem["error"]["code"], problem["error"]["limit"]) == (
                2,
                "TOO_MANY_CALLS",
                2,
            )
            await wire.send(type="complete", id="a")
        await until(lambda: not group.info().consumers)
    assert group.info().acked == 2


async def test_a_server_that_stops_lets_its_consumers_leave(serving, dial, group, log):
    server = serving(authorise=WORKER, grace=600.0)
    async with dial(server.url) as wire, dial(server.url) as away:
        await away.init()
        await join(away)
        await away.socket.close()
        await wire.init()
        await join(wire, "w2")
        server.stop()
    assert group.info().consumers == ()


def test_what_is_to_be_durable_and_is_not_says_so(log, group):
    """The calls beside it are done."""

    def ack(*_places, durable=False):
        if durable:
            raise OSError
        return 1

    held = SimpleNamespace(member=SimpleNamespace(ack=ack))
    place = (str(log.token(log.oldest)),)
    calls = [AckCall(at=place), AckCall(at=place, durable=True)]
    first, second = _do_all(log, held, calls)
    assert first == {"count": 1}
    assert second.code == "INTERNAL"
