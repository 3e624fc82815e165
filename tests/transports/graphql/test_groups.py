"""Groups over GraphQL: changes that consumers of any make share."""

import asyncio
import threading

import pytest

from publishers import Criterion, Position, upsert
from publishers.groups import ConsumerGroup
from transports import Grant, LogAction
from transports.graphql.execution import Engine

GIVEN = """subscription ($consumer: ConsumerInput!, $history: Boolean) {
  onDelivery(consumer: $consumer, history: $history) { at count changes { key body } } }"""
CONSUMER = Grant({LogAction.CONSUME}, groups=["pick*"])
ONE = {"group": "pickers", "consumer": "one", "opening": "x"}
TWO = {"group": "pickers", "consumer": "two", "opening": "y"}
DECLARED = {
    "consumer": "ConsumerInput!",
    "at": "[Cursor!]!",
    "reason": "String!",
    "delayMs": "Long",
    "count": "Boolean",
    "upto": "Boolean",
    "durable": "Boolean",
    "error": "String",
    "minIdleMs": "Long!",
    "onlyIds": "Boolean",
}


@pytest.fixture
def group(log):
    """A group of orders, of which there are four in four transactions, of two keys."""
    made = log.groups.create("pickers", Criterion(entity_types={"order"}), since="earliest", backoff=(0.0,))
    for number in range(4):
        log.commit([upsert("customer", "c", {}), upsert("order", str(number % 2), {"n": number})])
    return made


async def joined(wire, consumer=ONE, name="a", **variables):
    await wire.subscribe(GIVEN, name, consumer=consumer, **variables)


async def given(wire, count, name="a"):
    return [(await wire.next(name))["onDelivery"] for _ in range(count)]


def numbers(deliveries):
    return [one["changes"][0]["body"]["n"] for one in deliveries]


async def said(wire, verb, at=(), consumer=ONE, selection="", **more):
    """What a mutation answers."""
    variables = {"consumer": consumer} | ({"at": list(at)} if at else {}) | more
    head = ", ".join(f"${name}: {DECLARED[name]}" for name in variables)
    arguments = ", ".join(f"{name}: ${name}" for name in variables)
    found = await wire.answer(
        f"mutation ({head}) {{ {verb}Deliveries({arguments}) {selection} }}", **variables
    )
    return found.get(f"{verb}Deliveries", found)


@pytest.mark.parametrize("padding", ["", "\n# a document that is read on a thread" * 500])
async def test_a_mutation_right_behind_the_subscription_waits_until_its_consumer_has_joined(
    serving, graphql, group, monkeypatch, padding
):
    """F75, F130: whatever takes longer, to read the document or to join."""
    go_on = threading.Event()

    def late(owner, name, concerned):
        method = getattr(owner, name)

        def called(self, *arguments, **named):
            if concerned(*arguments):
                assert go_on.wait(120)
            return method(self, *arguments, **named)

        monkeypatch.setattr(owner, name, called)

    late(Engine, "prepare", lambda query, *_: padding and padding in query)
    late(ConsumerGroup, "join", lambda *_: True)
    async with graphql(serving(authorise=CONSUMER)) as wire:
        await wire.init()
        payload = {"query": GIVEN + padding, "variables": {"consumer": ONE}}
        await wire.send(type="subscribe", id="a", payload=payload)
        place = group._log.token(Position(4, 1))  # of no delivery
        verb = 'ackDeliveries(consumer: $c, at: ["' + place + '"])'
        query = "mutation ($c: ConsumerInput!) { " + verb + " }"
        payload = {"query": query, "variables": {"c": ONE}}
        await wire.send(type="subscribe", id="m", payload=payload)
        await wire.send(type="ping")
        assert (await wire.receive())["type"] == "pong"
        go_on.set()
        found = {}
        while "m" not in found:
            message = await wire.receive()
            found.setdefault(message.get("id"), message)
        assert found["m"]["payload"].get("data") == {"ackDeliveries": 0}
    assert group.info().acked == 0


async def test_a_client_that_says_the_same_again_goes_on_with_its_joining(log, serving, graphql, group):
    """F84, F75: over a lost connection: its generation stays, what it has comes again first, and nobody else gets that."""
    server = serving(authorise=CONSUMER, grace=600.0)
    async with graphql(server) as wire:
        await wire.init()
        await joined(wire)
        first = await given(wire, 4)
        wire.socket.transport.abort()
    async with graphql(server) as wire:
        await wire.init()
        assert await said(wire, "ack", [first[0]["at"]]) == 1  # meanwhile
        await joined(wire, TWO, "b")
        assert (await wire.answer('{ pendingDeliveries(group: "pickers") { total } }'))[
            "pendingDeliveries"
        ] == {"total": 3}
        await joined(wire)
        again = await given(wire, 3)
        assert numbers(again) == [1, 2, 3]
        assert [one["count"] for one in again] == [1, 1, 1]
        assert log.groups.info("pickers").generation == 2  # that of the other one
        assert await said(wire, "ack", [one["at"] for one in again]) == 3
        assert group.info().floor == log.head


async def test_a_client_that_gives_credits_has_no_more_in_flight(log, serving, graphql, group):
    """F82: what is delivered and not acknowledged is bounded by the client too."""
    async with graphql(serving(authorise=CONSUMER)) as wire:
        await wire.init()
        payload = {"query": GIVEN, "variables": {"consumer": ONE}, "extensions": {"flow": {"credits": 1}}}
        await wire.send(type="subscribe", id="a", payload=payload)
        assert numbers(await given(wire, 1)) == [0]
        assert group.pending().total == 1
        await wire.send(type="ping", payload={"request": {"a": 2}})
        assert (await wire.receive())["type"] == "pong"
        assert numbers(await given(wire, 2)) == [1, 2]
        assert group.pending().total == 3


async def test_what_is_wrong_has_a_name_and_harms_no_other_operation(log, serving, graphql, group):
    """F75, F84: groups that are not there, names that are none, places that are none, what was not joined."""
    async with graphql(serving(authorise=CONSUMER)) as wire:
        await wire.init()
        await joined(wire)
        await given(wire, 4)
        for wrong, code in (
            ({"group": "pickets"}, "GROUP_NOT_FOUND"),
            ({"group": "Pick!"}, "INVALID_REQUEST"),
            ({"consumer": ""}, "INVALID_REQUEST"),
            ({"opening": ""}, "INVALID_REQUEST"),
            ({"opening": "x" * 300}, "INVALID_REQUEST"),
            ({"group": "secret"}, "FORBIDDEN"),
        ):
            (error,) = await wire.fail(GIVEN, "b", consumer=ONE | wrong)
            assert error["extensions"]["code"] == code, wrong
        place = str(log.token(Position(1, 2)))
        assert (await said(wire, "ack", ["nowhere"]))["code"] == "CURSOR_INVALID"
        assert (await said(wire, "ack", [place, place], upto=True))["code"] == "INVALID_REQUEST"
        assert (await said(wire, "ack", [place], TWO))["code"] == "CONSUMER_NOT_JOINED"
        assert (await said(wire, "ack", [place], ONE | {"group": "secret"}))["code"] == "FORBIDDEN"
        assert (await said(wire, "claim", [], selection="{ next }", minIdleMs="99999999999999"))["code"] == (
            "INVALID_REQUEST"
        )
        nobody = await wire.answer('{ pendingDeliveries(group: "secret") { total } }')
        assert nobody["code"] == "FORBIDDEN"
        log.commit([upsert("order", "4", {"n": 4})])
        assert numbers(await given(wire, 1)) == [4]


async def test_a_grant_that_ends_ends_the_consumer(serving, graphql, group):
    """F75: what may be done is asked again while it runs."""
    allowed = [True]

    def authorise(_principal, _log, action):
        return CONSUMER if allowed[0] and action is LogAction.CONSUME else None

    server = serving(authorise=authorise, revocation=0.05)
    async with graphql(server) as wire:
        await wire.init()
        await joined(wire)
        await given(wire, 4)
        allowed[0] = False
        async with asyncio.timeout(120):
            while (message := await wire.receive())["type"] == "ping":
                await wire.send(type="pong", payload=message["payload"])
        assert (message["type"], message["payload"][0]["extensions"]["code"]) == ("error", "FORBIDDEN")


async def test_an_engine_without_a_server_lets_none_join(log, engine):
    """F75: the schema works under other servers, but for what a connection holds."""
    log.groups.create("pickers", since="earliest")
    operation = engine.prepare(GIVEN, variables={"consumer": ONE})
    assert operation.kind == "subscription"
