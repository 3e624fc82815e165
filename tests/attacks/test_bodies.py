"""HTTP bodies: their time, what they take, whose they are, and who may send them; beside others who mean well."""

import asyncio
import json
import logging

import msgspec
import pytest

from publishers import ChangeLog
from tests.attacks.raw_http import JSON, head
from tests.harness.inside import access_of, appending_of
from tests.publishers.support import Held
from tests.transports.principals import knowing
from tests.transports.server.test_appending import WRITERS, change
from transports import Grant, LogAction, Principal, serve, serve_resp
from transports.quotas.charged_file import LEAST, OPENED, SMALL

LINES = "content-type: application/x-ndjson"
PACKED = "content-type: application/msgpack"
READERS = [("/changes", JSON), ("/changes", LINES), ("/changes", PACKED), ("/graphql", JSON)]
WRITE = {"query": 'mutation { append(changes: [{entityType: "order", key: "1", body: {}}]) { version } }'}
BODIES = {
    "a document": ("/changes", JSON, json.dumps({"changes": [change(1)]}).encode()),
    "MessagePack": ("/changes", PACKED, msgspec.msgpack.encode({"changes": [change(1)]})),
    "lines": ("/changes", LINES, json.dumps(change(1)).encode()),
    "many lines": ("/changes", LINES, json.dumps(change(1, pad="x" * 1000)).encode() * 1 + b"\n" * SMALL),
    "a mutation": ("/graphql", JSON, json.dumps(WRITE).encode()),
}


def budgets(server):
    application = server.application
    appending = appending_of(application)
    return [appending.unanswered, appending.spooled, appending.memory, application._bodies.held]


def nothing_is_taken(server):
    return not any(one.taken for one in budgets(server))


async def drip(client, piece):
    """Sends one piece after the other, about fifty times a second, until there is an answer."""
    while not client.answered:
        await client.send(piece)
        await asyncio.wait([asyncio.Future()], timeout=0.02)


@pytest.mark.parametrize(("path", "kind"), READERS)
@pytest.mark.parametrize(
    ("limits", "piece"),
    [({"request_timeout": 0.3}, b" "), ({"body_timeout": 0.3, "body_rate": 1}, b" " * 20)],
    ids=["below the least rate", "for ever"],
)
async def test_a_body_that_drips_ends(serving, client, until, path, kind, limits, piece):
    """F147: 408, on every path that reads one; what it took is given back."""
    server = serving(authorise=WRITERS, **limits)
    one = await client(server)
    await one.send(head(path, kind, "content-length: 500000"))
    await drip(one, piece)
    assert (await one.answer())[0] == 408
    await until(lambda: nothing_is_taken(server))


async def test_a_body_that_keeps_the_least_rate_is_waited_for(serving, client):
    """F147: three times as long as a short one."""
    server = serving(request_timeout=0.5, body_rate=20)
    one = await client(server)
    body = json.dumps({"query": "{ __typename }" + " " * 60}).encode()
    await one.send(head("/graphql", JSON, f"content-length: {len(body)}"))
    loop = asyncio.get_running_loop()
    for at in range(0, len(body), 10):
        until = loop.time() + 0.15
        await one.send(body[at : at + 10])
        while loop.time() < until:
            await asyncio.wait([asyncio.Future()], timeout=0.01)
    assert (await one.answer())[0] == 200


@pytest.mark.parametrize("kind", [JSON, LINES, PACKED, "content-type: text/plain"])
@pytest.mark.parametrize("several", [False, True])
async def test_who_may_not_write_is_told_before_a_byte_is_kept(serving, client, log, parsed, kind, several):
    """F147: 401 without a token, 403 without the right, whatever the body is."""
    server = serving(authenticate=knowing("ann"), served={"shop": log, "other": log} if several else None)
    for token, status in (("ann", 403), ("nobody", 401)):
        one = await client(server)
        await one.send(head("/changes", kind, "content-length: 500000", f"authorization: Bearer {token}"))
        assert (await one.answer())[0] == status
        assert nothing_is_taken(server)
    assert not parsed


async def test_a_right_to_one_of_many_logs_is_enough_to_send_a_body_that_names_it(serving, client, log):
    """F147: the body says which."""

    def authorise(_principal, name, _action):
        return Grant({LogAction.WRITE} if name == "last" else set())

    server = serving(authorise=authorise, served={"first": log, "other": log, "last": log})
    for name, status in (("last", 201), ("first", 403)):
        one = await client(server)
        body = json.dumps({"log": name, "changes": [change(1)]}).encode()
        await one.send(head("/changes", JSON, f"content-length: {len(body)}") + body)
        assert (await one.answer())[0] == status


class Doorkeeper:
    """Knows two clients until it is told otherwise, by their tokens."""

    quick = True

    def __init__(self, revision):
        self.known = {"ann": Principal("ann"), "bob": Principal("bob")}
        if revision:
            self.revision = 0

    def __call__(self, credentials):
        return self.known.get(credentials.token)

    def authorise(self, principal, _log, action):
        return Grant({LogAction.READ, LogAction.WRITE} if principal.name in self.known else {LogAction.READ})


@pytest.mark.parametrize(("path", "kind", "body"), BODIES.values(), ids=BODIES)
@pytest.mark.parametrize("how", ["revision", "time", "right", "another"])
async def test_what_is_taken_away_while_a_body_comes_writes_nothing(
    serving, client, until, log, path, kind, body, how
):
    """F147: the token, whether its source says so or ``revocation`` has passed, the right, or the name."""
    door = Doorkeeper(how == "revision")
    soon = {"revocation": 0.05} if how in ("time", "another") else {}
    server = serving(authenticate=door, authorise=door.authorise, **soon)
    one = await client(server)
    loop = asyncio.get_running_loop()
    await one.send(head(path, kind, "authorization: Bearer ann", f"content-length: {len(body)}") + body[:10])
    await until(lambda: any(each.taken for each in budgets(server)))
    came = loop.time()
    if how == "another":
        door.known["ann"] = door.known["bob"]
    else:
        del door.known["ann"]
    if how == "right":
        access_of(server.application)._authenticate = lambda _: Principal("ann")
    door.revision = 1
    await until(lambda: loop.time() > came + 0.06 or not soon)
    await one.send(body[10:])
    status, _, told = await one.answer()
    refused = "UNAUTHENTICATED" if how != "right" else "FORBIDDEN"
    assert refused in told.decode()
    assert status in (401, 403) or path == "/graphql"
    assert log.head.version == 1
    await until(lambda: nothing_is_taken(server))


@pytest.mark.parametrize("named", [False, True], ids=["addresses", "principals"])
@pytest.mark.parametrize(("path", "kind"), READERS)
async def test_half_of_what_bodies_take_is_left_to_others(serving, client, until, log, path, kind, named):
    """F147: a client without a name is charged by its address, another by its name."""
    server = serving(
        authorise=WRITERS,
        authenticate=knowing("ann", "bob") if named else None,
        message_bytes=2**20,
        appending_bytes=4 * 2**20,
        body_bytes=4 * 2**20,
        spooled_bytes=4 * 2**20,
    )

    async def begin(who, data=b" " * 900_000):
        one = await client(server, "127.0.0.1" if named or who == "ann" else "127.0.0.2")
        await one.send(head(path, kind, f"authorization: Bearer {who}", "content-length: 1000000") + data)
        return one

    greedy = [await begin("ann") for _ in range(8)]
    await until(lambda: sum(one.answered for one in greedy) >= 6)
    for one in greedy:
        if one.answered:
            status, _, told = await one.answer()
            assert (status, "TOO_COSTLY" in told.decode()) == (503, True)
    modest = await begin("bob")
    await modest.send(b" " * 100_000)
    assert (await modest.answer())[0] in (200, 201, 400), "nothing but what its body is worth"
    for one in (*greedy, modest):
        one.close()
    await until(lambda: nothing_is_taken(server))


MUTATE = "mutation ($changes: [ChangeInput!]!) { append(changes: $changes) { version } }"


async def append_by_message(wire, pad):
    await wire.init()
    await wire.send(type="append", id="a", payload={"changes": [change(1, pad=pad)]})


async def append_by_mutation(wire, pad):
    await wire.send(type="connection_init")
    await wire.expect("connection_ack")
    changes = [{"entityType": "order", "key": "1", "body": {"pad": pad}}]
    await wire.send(type="subscribe", id="a", payload={"query": MUTATE, "variables": {"changes": changes}})


@pytest.mark.parametrize("leaves", [False, True])
@pytest.mark.parametrize(
    ("protocol", "append"),
    [("penstock.v1+json", append_by_message), ("graphql-transport-ws", append_by_mutation)],
    ids=["messages", "mutations"],
)
async def test_the_share_is_one_for_all_transports(
    serving, client, dial, until, log, monkeypatch, protocol, append, leaves
):
    """F147: what a client sent over a WebSocket counts over HTTP, and another one appends beside it."""
    server = serving(authorise=WRITERS, appending_bytes=4_000)
    held = Held(log, monkeypatch)
    body = json.dumps({"changes": [change(2, pad="x" * 1_000)]}).encode()

    async def post(source):
        one = await client(server, source)
        await one.send(head("/changes", JSON, f"content-length: {len(body)}") + body)
        return one

    url = server.url if append is append_by_message else server.graphql_url.replace("http", "ws", 1)
    async with dial(url, subprotocols=[protocol]) as wire:
        await append(wire, "x" * 1_300)
        assert await asyncio.to_thread(held.inside.wait, 60)
        status, _, told = await (await post("127.0.0.1")).answer()
        assert (status, json.loads(told)["option"]) == (503, "appending_bytes")
        other = await post("127.0.0.2")
        await until(lambda: appending_of(server.application).unanswered.taken > 2_300)
        if not leaves:
            held.go.set()
            assert (await other.answer())[0] == 201
    held.go.set()
    await until(lambda: nothing_is_taken(server))


async def test_mutations_that_wait_for_their_turn_are_charged_too(serving, dial, until, log, monkeypatch):
    """F147: one is answered after the other, and the rest waits; refused ones end alone."""
    server = serving(authorise=WRITERS, appending_bytes=8_000)
    held = Held(log, monkeypatch)
    async with dial(
        server.graphql_url.replace("http", "ws", 1), subprotocols=["graphql-transport-ws"]
    ) as wire:
        await append_by_mutation(wire, "x" * 1_000)
        payload = {
            "query": MUTATE,
            "variables": {"changes": [{"entityType": "order", "key": "2", "body": {"pad": "x" * 1_000}}]},
        }
        for name in "bcdef":
            await wire.send(type="subscribe", id=name, payload=payload)
        refused = [await wire.expect("error") for _ in "def"]
        assert {one["payload"][0]["extensions"]["option"] for one in refused} == {"appending_bytes"}
        await wire.send(type="complete", id="c")
        held.go.set()
        for name in "ab":
            assert (await wire.expect("next"))["id"] == name
            await wire.expect("complete")
        await until(lambda: nothing_is_taken(server))
        await wire.send(type="subscribe", id="g", payload=payload)
        assert (await wire.expect("next"))["id"] == "g"
    await until(lambda: nothing_is_taken(server))


async def test_lines_stay_in_memory_within_its_budget_only(serving, client, until, log):
    """F147: they are charged what they hold; the others wait in files, of which a principal has so many."""
    server = serving(authorise=WRITERS, appending_bytes=8 * SMALL)
    appending = appending_of(server.application)
    size, kept = 200_000 + OPENED, 4 * SMALL // (200_000 + OPENED)  # half of it is for one client
    made = []
    for files in [0] * kept + list(range(1, 8)):
        made.append(await client(server))
        await made[-1].send(head("/changes", LINES, "content-length: 250000") + b"\n" * 200_000)
        small = len(made) - files
        taken = small * size + files * LEAST, small * size + files * OPENED
        await until(lambda taken=taken: (appending.spooled.taken, appending.memory.taken) == taken)
    for one in made:
        await one.send(json.dumps(change(1)).encode().ljust(50_000))
        assert (await one.answer())[0] == 201
    await until(lambda: nothing_is_taken(server))
    assert log.head.version == 1 + len(made)


async def test_lines_become_columns_a_megabyte_at_a_time(serving, client, log, monkeypatch):
    """F147: however long they are."""
    from transports import appends

    sizes, real = [], appends.columns_of

    def columns_of(rows, **given):
        sizes.append(sum(len(one.body or b"") for one in rows))
        return real(rows, **given)

    monkeypatch.setattr(appends, "columns_of", columns_of)
    body = b"".join(json.dumps(change(n, pad="x" * 100_000)).encode() + b"\n" for n in range(60))
    one = await client(serving(authorise=WRITERS))
    await one.send(head("/changes", LINES, f"content-length: {len(body)}") + body)
    assert (await one.answer())[0] == 201
    assert len(sizes) == 6
    assert max(sizes) < 2**20 + 2**18


async def test_a_line_beyond_the_largest_change_is_refused_unparsed(serving, client, tmp_path, monkeypatch):
    """F147: however long it is, so much of it is read."""
    from transports.http import changes

    longest, real = [0], changes.read_lines

    def read_lines(lines):
        yield from real(longest.append(len(line)) or line for line in lines)

    monkeypatch.setattr(changes, "read_lines", read_lines)
    with ChangeLog.open(tmp_path / "small", max_change_bytes=100_000, sync="os") as log:
        server = serving(authorise=WRITERS, served=log)
        for size, status in ((90_000, 201), (3_000_000, 413)):
            body = (
                json.dumps(change(1)).encode()
                + b"\n" * SMALL
                + json.dumps(change(2, pad="x" * size)).encode()
            )
            one = await client(server)
            await one.send(head("/changes", LINES, f"content-length: {len(body)}") + body)
            told, _, why = await one.answer()
            assert (told, "max_change_bytes" in why.decode()) == (status, status == 413)
        assert max(longest) < 200_000


# Who it was, and who may come.


async def test_the_access_log_names_who_asked_on_every_path(serving, client, caplog, until):
    """F147: GraphQL over HTTP too."""
    caplog.set_level(logging.INFO, "penstock.access")
    server = serving(authenticate=knowing("ann"), authorise=WRITERS)
    for path, kind, body in BODIES.values():
        one = await client(server)
        await one.send(head(path, kind, "authorization: Bearer ann", f"content-length: {len(body)}") + body)
        await one.answer()
    entries = [one for one in caplog.records if one.name == "penstock.access"]
    await until(lambda: len([one for one in caplog.records if one.name == "penstock.access"]) == len(BODIES))
    assert {one.data.get("principal") for one in entries} == {"ann"}


async def test_of_several_headers_of_one_name_none_counts_alone(serving, client):
    """F147: neither of two tokens, hosts or origins."""
    server = serving(authenticate=knowing("ann"), origins=("https://shop.example",))
    for twice in (
        ("authorization: Bearer bob", "authorization: Bearer ann"),
        ("authorization: Bearer ann", "authorization: Bearer bob"),
        ("authorization: Bearer ann", "origin: https://evil.example", "origin: https://shop.example"),
        ("authorization: Bearer ann", "host: evil.example"),
    ):
        one = await client(server)
        await one.send(head("/graphql", JSON, "content-length: 2", *twice) + b"{}")
        assert (await one.answer())[0] in (401, 403, 421)


@pytest.mark.parametrize("serves", [serve, serve_resp])
@pytest.mark.parametrize("authenticate", [None, knowing("ann")])
@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_a_port_that_is_open_to_all_is_told(log, caplog, serves, authenticate, host):
    """F147: as the command refuses it; of each port, and of no other."""
    with serves(log, host=host, authenticate=authenticate) as server:
        told = [one.getMessage() for one in caplog.records if "no client needs a token" in one.getMessage()]
    assert len(told) == (host == "0.0.0.0" and authenticate is None)
    assert all(f"port {server.port} " in one for one in told)
