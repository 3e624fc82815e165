"""One principal that takes slots and groups without end, beside another that needs some."""

import pytest

from publishers import ChangeLog
from tests.transports.principals import knowing
from tests.transports.test_groups import join
from tests.transports.test_slots import open_slot
from transports import Grant, LogAction, RemoteError
from transports import connect as remote_log


def consumer(principal, _log, _action):
    """Each uses what has its name in front."""
    mine = {f"{principal.name}-*"}
    return Grant({LogAction.CONSUME}, slots=mine, groups=mine)


async def take_slot(wire, number, principal):
    return await open_slot(wire, f"s{number}", wanted=0, name=f"{principal}-{number}")


async def take_place(wire, number, principal):
    return await join(wire, f"w{number}", f"s{number}", wanted=0, group=f"{principal}-0")


@pytest.mark.parametrize(
    ("take", "option", "code"),
    [(take_slot, "slot_leases", "TOO_MANY_SLOTS"), (take_place, "group_members", "TOO_MANY_CONSUMERS")],
)
async def test_what_one_principal_has_open_leaves_room_for_others(serving, dial, log, take, option, code):
    """F147: also what it has left open on connections that it has lost."""
    for principal in ("ann", "eve"):
        log.groups.create(f"{principal}-0")
        for number in range(20):
            log.slots.create(f"{principal}-{number}")
    server = serving(authenticate=knowing("ann", "eve"), authorise=consumer, grace=600.0, **{option: 8})
    async with dial(server.url) as ann:
        await ann.init(token="ann")
        assert "generation" in await take(ann, 0, "ann")
        for first in (0, 8):
            async with dial(server.url) as eve:
                await eve.init(token="eve")
                told = [await take(eve, number, "eve") for number in range(first, first + 8)]
                assert [one.get("code") for one in told] == [None] * 4 + [code] * 4
                assert {one["limit"] for one in told[4:]} == {4}
                assert told[7]["retryable"]
        assert "generation" in await take(ann, 1, "ann")
        async with dial(server.url) as eve:  # her own, which are away, make room, and none of others
            await eve.init(token="eve")
            assert "generation" in await take(eve, 16, "eve")
        told = [await take(ann, number, "ann") for number in range(2, 6)]
        assert [one.get("code") for one in told] == [None, None, code, code]
        assert told[2]["limit"] == 4


def of_server(kind):
    async def create(url, principal, name):
        async with remote_log(url, token=principal) as log:
            await getattr(log, kind).create(name)

    return create


@pytest.mark.parametrize("kind", ["slots", "groups"])
async def test_what_one_principal_makes_leaves_room_for_others(serving, tmp_path, kind):
    """F147: at most half of what the log may have, unless it may drop those of everybody anyway."""
    with ChangeLog.open(tmp_path / "few", sync="os", slots=6) as log:
        server = serving(served=log, authenticate=knowing("ann", "eve"), authorise=consumer)
        create = of_server(kind)
        for number in range(3):
            await create(server.url, "eve", f"eve-{number}")
        with pytest.raises(RemoteError, match="half of slots") as caught:
            await create(server.url, "eve", "eve-3")
        assert (caught.value.code, caught.value.data["limit"]) == ("TOO_COSTLY", 3)
        for number in range(3):
            await create(server.url, "ann", f"ann-{number}")
        Grant({LogAction.CONSUME}, slots={"*"}, groups={"*"}).check_room(log, kind)
        assert len(getattr(log, kind)) == 6
