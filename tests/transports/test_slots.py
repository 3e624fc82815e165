"""Slots over the WebSocket protocol, by hand: what is sent, what is refused, and what becomes of a slot whose connection is lost."""

import pytest

from publishers import ChangeLog, Criteria, Criterion, Position, upsert
from publishers.slots import SlotState
from transports import Grant, LogAction, serve

CONSUMER = Grant({LogAction.CONSUME}, slots=["stock*"])


@pytest.fixture
def slots(log):
    log.slots.create("stock", Criterion(entity_types={"order"}), since="earliest")
    return log.slots


@pytest.fixture
def consume(serving, dial, slots):
    """Connects to one server, whose bounds are keyword arguments of the first call."""
    servers = []

    def consume(**limits):
        if not servers:
            servers.append(serving(authorise=CONSUMER, **limits))
        return dial(servers[0].url)

    return consume


def put(log, *keys):
    for key in keys:
        log.commit([upsert("order", key, {"key": key})])


def free(slots, name="stock"):
    return slots.info(name).state is SlotState.FREE


async def open_slot(wire, subscription="a", /, *, wanted=100, since=None, **slot):
    """Subscribes to a slot; returns what is said of it, or the error."""
    payload = {
        "slot": {"name": "stock", **slot},
        "credits": wanted,
        "since": since,
    }
    await wire.send(type="subscribe", id=subscription, payload=payload)
    while (message := await wire.receive())["type"] not in ("subscribed", "error"):
        assert message["type"] == "checkpoint"
    return message["slot"] if message["type"] == "subscribed" else message["payload"]


async def refused(wire, **payload):
    await wire.send(type="subscribe", id="r", payload={"credits": 0, **payload})
    return await wire.expect("error")


async def test_what_was_not_delivered_cannot_be_acknowledged(consume, slots, log):
    put(log, "1", "2")
    async with consume() as wire:
        await wire.init()
        await open_slot(wire, wanted=1)
        (event,) = await wire.events(1)
        await wire.send(type="ack", id="a", cursor=str(log.token(log.head)))
        message = await wire.expect("acked")
        assert "n" not in message
        assert (message["error"]["code"], message["error"]["delivered"]) == ("ACK_AHEAD", event["cursor"])
        await wire.send(type="ack", id="a", cursor="nonsense", n=5)
        message = await wire.expect("acked")
        assert (message["error"]["code"], message["n"]) == ("CURSOR_INVALID", 5)
        await wire.send(type="request", id="a", n=1)
        assert len(await wire.events(1)) == 1  # the subscription goes on
        await wire.send(type="ack", id="b", cursor=event["cursor"], n=1)  # of no subscription
        await wire.nothing_comes()


async def test_a_client_that_comes_back_goes_on_with_the_opening_that_it_had(consume, slots, log, until):
    """F74: within the grace time nobody else gets the slot, and what was delivered before counts."""
    put(log, "1", "2")
    async with consume(grace=600.0) as wire:
        await wire.init()
        await open_slot(wire)
        first, second = await wire.events(2)
        await wire.send(type="ack", id="a", cursor=first["cursor"], n=1)
        await wire.expect("acked")
    put(log, "3")
    async with consume() as other, consume() as wire:
        await other.init()
        assert (await open_slot(other))["code"] == "SLOT_BUSY"
        await wire.init()
        told = await open_slot(wire, generation=1, since=second["cursor"])
        assert told["generation"] == 1
        assert told["cursor"] == first["cursor"]
        assert [event["key"] for event in await wire.events(1)] == ["3"]
        await wire.send(type="ack", id="a", cursor=second["cursor"], n=2)
        assert (await wire.expect("acked"))["cursor"] == second["cursor"]
    async with consume() as wire:
        await wire.init()
        await open_slot(wire, generation=1, wanted=0)
        await wire.send(type="complete", id="a")  # gives it back at once
        await until(lambda: free(slots))


async def test_the_newer_of_two_connections_of_one_consumer_has_the_slot(consume, slots, log):
    """As where a server does not know yet that the older one is lost."""
    async with consume() as old, consume() as new:
        await old.init()
        await new.init()
        await open_slot(old, opening="x")
        assert (await open_slot(new, opening="x"))["generation"] == 1
        assert (await old.expect("error"))["payload"]["code"] == "FENCED"
        put(log, "1")
        assert [event["key"] for event in await new.events(1)] == ["1"]
        assert (await open_slot(old, "b", opening="y"))["code"] == "SLOT_BUSY"


async def test_a_slot_is_given_back_when_its_client_stays_away(consume, slots, log, until):
    put(log, "1")
    async with consume(grace=0.02) as wire:
        await wire.init()
        await open_slot(wire)
        (event,) = await wire.events(1)
        await wire.send(type="ack", id="a", cursor=event["cursor"], n=1)
        await wire.expect("acked")
    await until(lambda: free(slots))
    async with consume() as wire:  # nobody has had it meanwhile
        await wire.init()
        assert (await open_slot(wire, generation=1, since=event["cursor"]))["generation"] == 2
    await until(lambda: free(slots))
    slots.open("stock").close()
    async with consume() as wire:
        await wire.init()
        problem = await open_slot(wire, generation=2, since=event["cursor"])
        assert (problem["code"], problem["retryable"]) == ("FENCED", False)


async def test_slots_have_a_bound_where_those_whose_clients_are_away_make_room(consume, slots, log, until):
    log.slots.create("stock-2")
    log.slots.create("stock-3")
    async with consume(slot_leases=2, grace=600.0) as wire:
        await wire.init()
        await open_slot(wire)
    async with consume() as wire:
        await wire.init()
        await open_slot(wire, "b", name="stock-2")
        await open_slot(wire, "c", name="stock-3")
        await until(lambda: free(slots))
        problem = await open_slot(wire, "d")
        assert (problem["code"], problem["limit"], problem["retryable"]) == ("TOO_MANY_SLOTS", 2, True)


async def order(wire, **payload):
    """Sends an order on slots; returns the answer, or the error."""
    await wire.send(type="slot", id="q", payload=payload)
    return (await wire.receive())["payload"]


ORDERS_ONLY = Criteria.of(Criterion(entity_types={"order"}))


@pytest.mark.parametrize(
    ("grant", "shown"),
    [
        (None, ["bills", "stock"]),
        (CONSUMER, ["stock"]),
        (Grant({LogAction.OPERATE, LogAction.READ, LogAction.CONSUME}, slots=["b*"]), ["bills"]),
        (Grant({LogAction.READ}), None),
        (Grant({LogAction.READ, LogAction.OPERATE}, criteria=ORDERS_ONLY), None),
    ],
)
async def test_a_follower_shows_stored_slots_to_consumers_and_operators(
    tmp_path, log, slots, dial, grant, shown
):
    """F74, F86: the slots that the grant names, or all to a client that may operate the whole log."""
    slots.create("bills")
    with (
        ChangeLog.open(tmp_path / "shop", read_only=True) as follower,
        serve(follower, authorise=grant) as server,
    ):
        async with dial(server.url) as wire:
            await wire.init()
            listed = await order(wire, do="list")
            told = {name: await order(wire, name=name) for name in ("bills", "stock")}
            assert (await order(wire, do="drop", name="stock"))["code"] == "LOG_READ_ONLY"
    if shown is None:
        assert {listed["code"]} | {one["code"] for one in told.values()} == {"FORBIDDEN"}
        return
    assert [one["name"] for one in listed] == shown
    assert all(one["stored"] and one["log"] == "shop" for one in listed)
    for name, one in told.items():
        assert one == [each for each in listed if each["name"] == name] or one["code"] == "FORBIDDEN"


@pytest.mark.parametrize(
    ("payload", "path"),
    [
        ({"slot": "stock"}, "slot"),
        ({"slot": {}}, "slot.name"),
        ({"slot": {"name": "Stock"}}, "slot.name"),
        ({"slot": {"name": "stock", "takeOver": 1}}, "slot.takeOver"),
        ({"slot": {"name": "stock", "generation": 0}}, "slot.generation"),
        ({"slot": {"name": "stock", "generation": 1, "takeOver": True}}, "slot.generation"),
        ({"slot": {"name": "stock", "owner": ""}}, "slot.owner"),
        ({"slot": {"name": "stock", "opening": "x" * 129}}, "slot.opening"),
        ({"slot": {"name": "stock"}, "criteria": []}, "criteria"),
        ({"slot": {"name": "stock"}, "start": "earliest"}, "start"),
        ({"slot": {"name": "stock"}, "since": "x"}, "since"),
        ({"slot": {"name": "stock"}, "until": 5}, "until"),
        ({"slot": {"name": "stock"}, "onGap": "fail"}, "onGap"),
    ],
)
async def test_what_is_wrong_with_a_slot_is_named(consume, payload, path):
    async with consume() as wire:
        await wire.init()
        problem = (await refused(wire, **payload))["payload"]
        assert (problem["code"], problem["path"]) == ("INVALID_REQUEST", path)


async def test_a_lost_slot_says_so(consume, slots, log):
    async with consume() as wire:
        await wire.init()
        await open_slot(wire)
        slots.book.kept["stock"].state = SlotState.LOST
        await wire.send(type="ack", id="a", cursor=str(log.token(Position(1))), n=1)
        problem = (await wire.expect("acked"))["error"]
        assert (problem["code"], problem["oldest"]) == ("SLOT_LOST", str(log.token(Position(1))))


async def test_a_server_that_stops_gives_its_slots_back(serving, dial, slots, log):
    server = serving(authorise=CONSUMER, grace=600.0)
    async with dial(server.url) as wire, dial(server.url) as away:
        await away.init()
        await open_slot(away)
        await away.socket.close()
        await wire.init()
        log.slots.create("stock-2")
        await open_slot(wire, name="stock-2")
        server.stop()
    assert free(slots)
    assert free(slots, "stock-2")


async def test_a_slot_is_taken_away_with_the_grant(serving, dial, slots, log, until):
    """F140: it ends with FORBIDDEN, and is given back."""
    granted = {"stock"}

    def authorise(_principal, _log, _action):
        return Grant({LogAction.CONSUME}, slots=granted)

    server = serving(authorise=authorise, revocation=0.05, grace=600.0)
    async with dial(server.url) as wire:
        await wire.init()
        await open_slot(wire)
        granted.clear()
        message = await wire.receive()
        while message["type"] == "checkpoint":
            message = await wire.receive()
        assert (message["type"], message["payload"]["code"]) == ("error", "FORBIDDEN")
        await until(lambda: free(slots))


async def test_heavy_criteria_of_a_slot_are_compiled_on_a_thread(serving, dial, log, until):
    """And what they weigh counts as that of any subscription."""
    log.slots.create("stock", Criterion(keys={str(number) for number in range(300)}), since="earliest")
    put(log, "1", "x", "2")
    async with dial(serving(authorise=CONSUMER).url) as wire:
        await wire.init()
        await open_slot(wire)
        assert [event["key"] for event in await wire.events(2)] == ["1", "2"]
        await wire.send(type="complete", id="a")
        await until(lambda: free(log.slots))
    async with dial(serving(authorise=CONSUMER, subscription_weight=10, heaviest=1).url) as wire:
        await wire.init()
        assert (await open_slot(wire))["code"] == "TOO_COSTLY"
        await until(lambda: free(log.slots))
