"""What is taken away ends what runs: within a named time, with a word for it, and nobody else notices."""

import asyncio

import pytest

from flow.clock import SYSTEM_CLOCK
from publishers import Content, Criteria, Criterion, Drop, View
from publishers.mutations.mutation import upsert
from tests.harness.inside import access_of, connections_of
from tests.transports.principals import knowing
from transports import Access, Credentials, Forbidden, Grant, Limits, LogAction, Principal, TokenFile, serve
from transports.server.revocation import Revocation

QUICK = Limits(revocation=0.1)
ORDERS = Criteria.of(Criterion(entity_types=["order"]))


class Rights:
    """An authoriser whose answers change while it is asked."""

    def __init__(self, **grants):
        self.grants = grants

    def __call__(self, principal, log, action):
        found = self.grants[principal.name]
        if isinstance(found, Exception):
            raise found
        return found


@pytest.mark.parametrize(
    ("left", "goes_on"),
    [
        (Grant(), True),
        (Grant(criteria=ORDERS), True),
        (Grant(criteria=Criteria.of(Criterion(entity_types=["order", "item"]))), True),
        (Grant(criteria=Criteria.of(Criterion(entity_types=["item"]))), False),
        (Grant(view=View(), criteria=ORDERS), False),
        (Grant({LogAction.WRITE}), False),
        (Forbidden("log", "somebody else's"), False),
        (RuntimeError("a secret"), False),
    ],
)
async def test_a_subscription_ends_when_its_grant_is_gone_or_narrower(log, dial, graphql, left, goes_on):
    """F140: with FORBIDDEN, on both protocols; a wider grant, and that of another principal, disturb nobody."""
    rights = Rights(ann=Grant(), bob=Grant(criteria=ORDERS))
    with serve(log, limits=QUICK, authenticate=knowing(), authorise=rights) as server:
        async with dial(server.url) as ann, dial(server.url) as bob, graphql(server) as other:
            for wire, token in ((ann, "ann"), (bob, "bob"), (other, "bob")):
                await wire.init(token=token)
            for wire in (ann, bob):
                await wire.subscribe(credits=1000)
            await other.subscribe()
            await other.settled()
            log.commit([upsert("order", "1", {})])
            assert [one["index"] for one in await ann.events(2)] == [0, 1]
            assert len(await bob.events(1)) == 1
            await other.events(1)
            rights.grants["bob"] = left
            if goes_on:
                await Revocation(
                    access_of(server.application), connections_of(server.application).copy, 1
                ).review()
            else:
                assert (await bob.expect("error"))["payload"]["code"] == "FORBIDDEN"
                message = await other.receive()
                assert (message["type"], message["payload"][0]["extensions"]["code"]) == (
                    "error",
                    "FORBIDDEN",
                )
                assert "secret" not in str(message)
                if isinstance(left, Exception):
                    assert (await bob.fail("b"))["code"] in ("FORBIDDEN", "INTERNAL")
            log.commit([upsert("order", "2", {})])
            assert [one["index"] for one in await ann.events(2)] == [0, 1]
            if goes_on:
                assert len(await bob.events(1)) == 1
                await other.events(1)
            else:
                await bob.nothing_comes()


async def test_a_connection_ends_when_the_time_of_its_principal_is_over(log, dial, graphql):
    """F140: with 4403, which is what it would be told if it came again; one whose time is not over stays."""
    ends = {"ann": None, "bob": SYSTEM_CLOCK.now_us() / 1e6 + 1.0}

    def authenticate(credentials):
        return Principal(credentials.token, expires=ends[credentials.token])

    with serve(log, limits=QUICK, authenticate=authenticate) as server:
        async with dial(server.url) as ann, dial(server.url) as bob, graphql(server) as other:
            for wire, token in ((ann, "ann"), (bob, "bob"), (other, "bob")):
                await wire.init(token=token)
            await ann.subscribe(credits=10)
            assert (await bob.closed())[0] == 4403
            assert SYSTEM_CLOCK.now_us() / 1e6 >= ends["bob"]
            assert (await other.closed())[0] == 4403
            log.commit([upsert("order", "1", {})])
            assert len(await ann.events(2)) == 2


@pytest.mark.parametrize("leap", [-7200, 7200])
async def test_a_wall_clock_that_is_set_neither_prolongs_a_token_nor_ends_a_connection(log, dial, leap):
    """F140: whoever is connected has what was left of its life, by the monotonic clock."""

    class Clock:
        monotonic = staticmethod(SYSTEM_CLOCK.monotonic)
        leap = 0

        def now_us(self):
            return SYSTEM_CLOCK.now_us() + self.leap * 1_000_000

    clock, life = Clock(), {"ann": 3000.0, "bob": 1.5}

    def authenticate(credentials):
        return Principal(credentials.token, expires=clock.now_us() / 1e6 + life[credentials.token])

    with serve(log, limits=QUICK, authenticate=authenticate) as server:
        access_of(server.application)._clock = clock
        async with dial(server.url) as ann, dial(server.url) as bob:
            await ann.init(token="ann")
            await bob.init(token="bob")
            began = SYSTEM_CLOCK.monotonic()
            await ann.subscribe(credits=10)
            clock.leap = leap
            assert (await bob.closed())[0] == 4403
            assert 1.0 < SYSTEM_CLOCK.monotonic() - began < 60.0
            log.commit([upsert("order", "1", {})])
            assert len(await ann.events(2)) == 2


async def test_a_token_that_is_taken_from_the_file_ends_its_connections(log, dial, tmp_path):
    """F140: the others are judged again, and go on."""
    path = tmp_path / "tokens"
    path.write_text("ann:one\nbob:two\n")
    tokens = TokenFile(path)
    with serve(log, limits=QUICK, authenticate=tokens) as server:
        async with dial(server.url) as ann, dial(server.url) as bob:
            await ann.init(token="one")
            await bob.init(token="two")
            await ann.subscribe(credits=10)
            await bob.subscribe(credits=10)
            path.write_text("# bob has left\nann:one\n")
            tokens.reload()
            assert await bob.closed() == (4403, "the token or certificate is missing, wrong or expired")
            log.commit([upsert("order", "1", {})])
            assert len(await ann.events(2)) == 2


async def test_a_principal_with_other_roles_is_granted_by_those_from_then_on(log, dial):
    """F140: what was read again says so by its revision; one that cannot be judged just then stays who it was."""

    class Roles:
        revision = 0
        quick = True
        role = "reader"

        def __call__(self, credentials):
            if self.role == "broken":
                raise OSError("the directory is down")
            return Principal("ann", {self.role})

    def authorise(principal, _log, _action):
        return Grant() if "reader" in principal.roles else Grant(frozenset())

    roles = Roles()
    with serve(log, limits=QUICK, authenticate=roles, authorise=authorise) as server:
        async with dial(server.url) as wire:
            await wire.init()
            await wire.subscribe(credits=10)
            roles.role, roles.revision = "broken", 1
            await Revocation(
                access_of(server.application), connections_of(server.application).copy, 1
            ).review()
            log.commit([upsert("order", "1", {})])
            assert len(await wire.events(2)) == 2
            roles.role = "guest"
            assert (await wire.expect("error"))["payload"]["code"] == "FORBIDDEN"


async def test_nobody_is_reviewed_where_nothing_can_change(log, dial):
    """F140: one grant for all, and no authenticator."""
    with serve(log, limits=QUICK) as server:
        async with dial(server.url) as wire:
            await wire.init()
            assert server.application._revocation._task is None


async def test_what_the_rights_were_read_from_is_looked_at_before_they_are_asked(log):
    """F140: on a thread, once for each of them; one that takes too long holds the review up no longer than its time."""
    looked = []

    class Watching(Rights):
        revision = 3

        def refresh(self):
            looked.append(self)

    both = Watching()
    access = Access(both, both)
    assert access.revision == 6
    await Revocation(access, list, 1.0).review()
    assert looked == [both]

    async def never(_client, _work):
        await asyncio.Event().wait()

    await Revocation(Access(both, both, run=never), list, 0.02).review()
    assert looked == [both]


def test_a_token_file_that_says_the_same_as_before_has_no_other_revision(tmp_path):
    """F140."""
    path = tmp_path / "tokens"
    path.write_text("ann:one\n")
    tokens = TokenFile(path)
    first = tokens.revision
    path.write_text("# ours\nann:one\n")
    tokens.reload()
    assert tokens.revision == first
    path.write_text("ann:two\n")
    tokens.reload()
    assert tokens.revision == first + 1
    assert tokens(Credentials("one")) is None


def test_a_grant_covers_what_it_lets_go_on_as_before():
    """F140."""
    masked = View.of(Content.BODY, mask={"card": Drop()})
    assert Grant().covers(Grant(view=masked, criteria=ORDERS))
    assert Grant(view=masked).covers(Grant(view=masked))
    assert not Grant(view=masked).covers(Grant())
    assert not Grant(criteria=ORDERS).covers(Grant())
    assert not Grant({LogAction.OPERATE}).covers(Grant())
    stock = Grant({LogAction.CONSUME}, slots=["stock-*"])
    assert stock.covers(stock, "stock-1")
    assert not stock.covers(stock, "bills")
    assert not stock.covers(Grant())
    assert not Grant({LogAction.CONSUME}, view=masked, slots=["*"]).covers(stock, "stock-1")
