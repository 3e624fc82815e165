"""Slots over GraphQL: places that the log keeps for clients of any make."""

import pytest

from publishers import Criterion, upsert
from transports import Grant, LogAction

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
async def test_a_client_that_says_the_same_again_goes_on_with_its_opening(log, serving, graphql):
    """F74, F85: as clients do that connect again; what they acknowledge in between counts."""
    server = serving(authorise=CONSUMER, grace=600.0)
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
