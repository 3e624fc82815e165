"""Slots over GraphQL: places that the log keeps for clients of any make."""

import pytest

from publishers import Criterion, Position, upsert
from transports import Grant, LogAction

CHANGES = """subscription ($slot: SlotInput!) { onSlot(slot: $slot) { cursor key body } }"""
KEYS = """subscription ($slot: SlotInput!) { onSlot(slot: $slot) { cursor key } }"""
ACK = """mutation ($cursor: Cursor!, $opening: String!, $slot: String!, $durable: Boolean) {
  ackSlot(slot: $slot, opening: $opening, cursor: $cursor, durable: $durable) { name generation cursor } }"""
STOCK = {"name": "stock", "opening": "one"}
CONSUMER = Grant({LogAction.CONSUME}, slots=["sto*"])


@pytest.fixture
def slot(log):
    """A slot of orders, of which there are three in three transactions."""
    log.slots.create("stock", Criterion(entity_types={"order"}), since="earliest")
    for key in "123":
        log.commit([upsert("customer", key, {}), upsert("order", key, {"key": key})])


async def given(wire, count, name="a"):
    """The next changes of a slot."""
    return [(await wire.next(name))["onSlot"] for _ in range(count)]


def keys(changes):
    return [change["key"] for change in changes]


async def acked(wire, cursor, *, slot="stock", opening="one", durable=False):
    """The answer to an acknowledgement."""
    await wire.subscribe(ACK, "ack", cursor=cursor, opening=opening, slot=slot, durable=durable)
    answer = (await wire.receive())["payload"]
    assert (await wire.receive())["type"] == "complete"
    return answer["errors"][0]["extensions"] if "errors" in answer else answer["data"]["ackSlot"]


@pytest.mark.usefixtures("slot")
async def test_a_client_is_given_what_it_has_not_acknowledged(log, serving, graphql):
    """F74, F85: of the criteria of the slot, on another connection and another day."""
    server = serving(authorise=CONSUMER)
    async with graphql(server) as wire:
        await wire.init()
        await wire.subscribe(CHANGES, slot=STOCK)
        changes = await given(wire, 3)
        assert keys(changes) == ["1", "2", "3"]
        assert changes[0]["body"] == {"key": "1"}
        place = await acked(wire, changes[0]["cursor"], durable=True)
        assert place == {"name": "stock", "generation": "1", "cursor": str(log.token(Position(2)))}
        log.commit([upsert("order", "4", {"key": "4"})])
        assert keys(await given(wire, 1)) == ["4"]
        await wire.send(type="complete", id="a")
        await wire.settled()
    async with graphql(server) as wire:
        await wire.init()
        await wire.subscribe(KEYS, slot={"name": "stock", "opening": "two"})
        changes = await given(wire, 3)
        assert keys(changes) == ["2", "3", "4"]
        place = await acked(wire, changes[2]["cursor"], opening="two")
        assert (place["generation"], place["cursor"]) == ("2", str(log.token(log.head)))


@pytest.mark.usefixtures("slot")
async def test_a_client_that_says_the_same_again_goes_on_with_its_opening(log, serving, graphql):
    """F74, F85: as clients do that connect again; what they acknowledge in between counts."""
    server = serving(authorise=CONSUMER, slot_grace=600.0)
    async with graphql(server) as wire:
        await wire.init()
        await wire.subscribe(KEYS, slot=STOCK)
        changes = await given(wire, 3)
        wire.socket.transport.abort()
    async with graphql(server) as wire:
        await wire.init()
        assert (await acked(wire, changes[1]["cursor"]))["generation"] == "1"
        (busy,) = await wire.fail(KEYS, "b", slot={"name": "stock", "opening": "two"})
        assert (busy["extensions"]["code"], busy["extensions"]["retryable"]) == ("SLOT_BUSY", True)
        await wire.subscribe(KEYS, slot=STOCK)
        assert keys(await given(wire, 1)) == ["3"]
        assert log.slots.info("stock").generation == 1


@pytest.mark.usefixtures("slot")
async def test_one_who_has_lost_a_slot_is_told_and_acknowledges_nothing_any_more(serving, graphql):
    """F74: another one has taken it over."""
    server = serving(authorise=CONSUMER)
    async with graphql(server) as first, graphql(server) as second:
        await first.init()
        await second.init()
        await first.subscribe(KEYS, slot=STOCK)
        changes = await given(first, 3)
        await second.subscribe(KEYS, slot={"name": "stock", "opening": "two", "takeOver": True})
        assert keys(await given(second, 3)) == ["1", "2", "3"]
        message = await first.receive()
        assert message["type"] == "error"
        assert message["payload"][0]["extensions"]["code"] == "FENCED"
        refused = await acked(first, changes[0]["cursor"])
        assert (refused["code"], refused["opening"]) == ("SLOT_NOT_OPEN", "one")
        assert (await acked(second, changes[0]["cursor"], opening="two"))["generation"] == "2"


@pytest.mark.usefixtures("slot")
async def test_what_is_wrong_with_a_slot_has_a_name_and_harms_no_other_operation(log, serving, graphql):
    """F74, F85: names that are none, too much acknowledged, and no place at all."""
    server = serving(authorise=CONSUMER)
    async with graphql(server) as wire:
        await wire.init()
        await wire.subscribe(KEYS, slot=STOCK)
        (first, *_) = await given(wire, 3)
        for wrong, code in (
            ({"name": "stove", "opening": "x"}, "SLOT_NOT_FOUND"),
            ({"name": "Stock!", "opening": "x"}, "INVALID_REQUEST"),
            ({"name": "stock", "opening": ""}, "INVALID_REQUEST"),
            ({"name": "secret", "opening": "x"}, "FORBIDDEN"),
        ):
            (error,) = await wire.fail(KEYS, "b", slot=wrong)
            assert error["extensions"]["code"] == code, wrong
        log.slots.create("stone")
        assert (await acked(wire, first["cursor"], slot="stone"))["code"] == "SLOT_NOT_OPEN"
        assert (await acked(wire, first["cursor"], slot="secret"))["code"] == "FORBIDDEN"
        assert (await acked(wire, "nowhere"))["code"] == "CURSOR_INVALID"
        log.commit([upsert("order", "4", {"key": "4"})])
        assert keys(await given(wire, 1)) == ["4"]


@pytest.mark.usefixtures("slot")
async def test_more_than_was_given_is_not_acknowledged(log, serving, graphql):
    """F74: nothing has changed then."""
    server = serving(authorise=CONSUMER)
    async with graphql(server) as wire:
        await wire.init()
        await wire.subscribe(KEYS, slot=STOCK)
        await given(wire, 3)
        log.slots.pause("stock")
        log.commit([upsert("order", "4", {"key": "4"})])
        assert (await acked(wire, str(log.token(log.head))))["code"] == "ACK_AHEAD"
        assert log.slots.info("stock").position == Position(1)


async def test_a_slot_needs_its_own_grant(log, serving, graphql):
    """F74: to read a log is not to have its slots, and who may have them sees no more than is granted."""
    log.slots.create("stock", Criterion(entity_types={"order"}), since="earliest")
    log.commit([upsert("order", "1", {"key": "1"})])
    async with graphql(serving()) as wire:
        await wire.init()
        (error,) = await wire.fail(KEYS, slot=STOCK)
        assert error["extensions"]["code"] == "FORBIDDEN"
        assert (await acked(wire, str(log.token(log.head))))["code"] == "FORBIDDEN"
