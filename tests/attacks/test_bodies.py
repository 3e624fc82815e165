"""HTTP requests that cost more than they say: in chunks, heads, trailers and bodies, beside others who mean well."""

import asyncio
import errno
import json
import logging

import msgspec
import pytest

from publishers import ChangeLog
from tests.publishers.support import Held
from tests.transports.principals import knowing
from tests.transports.server.test_appending import WRITERS, change
from transports import Grant, LogAction, Principal, serve, serve_resp
from transports.quotas.charged_file import LEAST, OPENED, SMALL
from transports.server.http_protocol import HttpProtocol
from transports.tcp.accepting import SILENT

TURN = 12_000
"""Calls in one turn of the loop; what one turn parses takes about a third of that."""
CHUNK = b"1\r\nx\r\n"
CLOSES = "connection: close\r\n"


def head(path, *lines, method="POST"):
    return "\r\n".join([f"{method} {path} HTTP/1.1", "host: localhost", *lines, "", ""]).encode()


CHUNKED = "transfer-encoding: chunked"
JSON = "content-type: application/json"


class Client:
    """A connection on which bytes are written as they are."""

    def __init__(self, reader, writer):
        self._reader, self._writer = reader, writer

    @property
    def answered(self):
        """Whether something of a response has come, or the end."""
        return bool(self._reader._buffer) or self._reader.at_eof()

    async def send(self, data):
        """Writes until everything is sent, or the connection is reset; returns whether it is not."""
        try:
            for at in range(0, len(data), 1 << 16):
                self._writer.write(data[at : at + (1 << 16)])
                await self._writer.drain()
        except ConnectionError:
            return False
        return True

    async def answer(self):
        """The status, the head and the body of the next response; None if the connection was aborted."""
        try:
            async with asyncio.timeout(60):
                top = (await self._reader.readuntil(b"\r\n\r\n")).decode()
                length = int(top.lower().partition("content-length: ")[2].partition("\r")[0] or 0)
                return int(top.split()[1]), top, await self._reader.readexactly(length)
        except (ConnectionError, asyncio.IncompleteReadError):
            return None

    async def rest(self):
        """What comes until the end."""
        async with asyncio.timeout(60):
            try:
                return await self._reader.read()
            except ConnectionError:
                return b""

    def close(self):
        self._writer.close()


@pytest.fixture
async def client():
    """Connects to a server; all connections are closed at the end."""
    made = []

    async def connect(server, source="127.0.0.1"):
        made.append(Client(*await asyncio.open_connection("127.0.0.1", server.port, local_addr=(source, 0))))
        return made[-1]

    yield connect
    for one in made:
        one.close()


@pytest.fixture
def parsed(monkeypatch):
    """The pieces of bodies that were parsed, by the path of their request."""
    found, real = [], HttpProtocol.on_body

    def on_body(self, body):
        found.append(len(body))
        real(self, body)

    monkeypatch.setattr(HttpProtocol, "on_body", on_body)
    return found


# What is not body.


@pytest.mark.parametrize("path", ["/", "/changes", "/graphql", "/health", "/nothing"])
async def test_chunks_of_one_byte_are_cut_off_on_every_path(serving, beside, client, watched, parsed, path):
    """F147: a megabyte of them; what is parsed has a bound, and no turn of the loop takes long."""
    server = serving()
    async with beside(server) as commit:
        turns = watched(server)
        attackers = [await client(server) for _ in range(4)]
        for one in attackers:
            await one.send(head(path, JSON, CHUNKED) + CHUNK * 170_000)
            await one.rest()
        await commit()
        assert turns.longest <= TURN
    assert len(parsed) <= 4 * 20_000


async def test_a_turn_parses_so_many_chunks_and_then_others_have_theirs(
    serving, beside, client, watched, parsed
):
    """F147: even where their number has no bound."""
    server = serving(head_bytes=2**30, request_timeout=60.0)
    async with beside(server) as commit:
        turns = watched(server)
        attackers = [await client(server) for _ in range(2)]
        sent = [
            asyncio.create_task(one.send(head("/graphql", JSON, CHUNKED) + CHUNK * 40_000))
            for one in attackers
        ]
        await commit()
        await asyncio.gather(*sent)
        for one in attackers:
            await one.send(b"0\r\n\r\n")
            assert (await one.answer())[0] == 400
        assert turns.longest <= TURN
    assert sum(parsed) == len(parsed) == 80_000


BESIDE = {
    "a head": head("/health", method="GET")[:-2] + b"x: " + b"y" * 70_000,
    "a head of many lines": head("/health", method="GET")[:-2] + b"x: y\r\n" * 12_000,
    "a target": b"GET /" + b"x" * 70_000,
}


@pytest.mark.parametrize("data", BESIDE.values(), ids=BESIDE)
async def test_what_is_not_body_has_a_bound(serving, client, data):
    """F147: 431, and nothing more is kept."""
    one = await client(serving())
    await one.send(data)
    status, top, why = await one.answer()
    assert (status, why) == (431, b"of a request, at most 65536 bytes are not its body\n")
    assert CLOSES in top.lower()
    assert await one.rest() == b""


HIDDEN = {
    "trailers": b"2\r\n{}\r\n0\r\n" + b"x: y\r\n" * 12_000,
    "extensions of a chunk": b"2;" + b"x" * 70_000,
    "a size with leading zeros": (b"0" * 8 + b"1\r\nx\r\n") * 12_000,
}


@pytest.mark.parametrize("data", HIDDEN.values(), ids=HIDDEN)
async def test_neither_has_what_comes_with_a_body_a_way_around_it(serving, client, until, data):
    """F147: the connection is aborted, because its request is being answered."""
    server = serving()
    one = await client(server)
    await one.send(head("/graphql", JSON, CHUNKED) + data)
    assert await one.rest() == b""
    await until(lambda: not server._uvicorn.server_state.tasks)
    assert server.application._costs()["ended"] == {"HTTP_REFUSED": 1}


# The end of a response.


@pytest.mark.parametrize(("path", "status"), [("/health", 405), ("/nothing", 404), ("/changes", 403)])
async def test_an_answer_before_the_body_closes_the_connection_and_arrives(
    serving, client, parsed, path, status
):
    """F147: many clients read no response while they send; what they send is dropped unparsed."""
    server = serving()
    one = await client(server)
    await one.send(head(path, JSON, "content-length: 3000000"))
    told, top, _ = await one.answer()
    assert told == status
    assert CLOSES in top.lower()
    assert await one.send(b"x" * 3_000_000)
    assert await one.rest() == b""
    assert not parsed


async def test_who_has_gone_before_the_answer_is_no_error(serving, client, monkeypatch, caplog):
    """F147: nobody is left to be told that nothing follows."""

    def gone(_self):
        raise OSError(errno.ENOTCONN, "Transport endpoint is not connected")

    monkeypatch.setattr(asyncio.selector_events._SelectorSocketTransport, "write_eof", gone)
    one = await client(serving())
    await one.send(head("/health", "content-length: 100"))
    assert (await one.answer())[0] == 405
    await one.send(b"x" * 100)
    assert not caplog.records


async def test_a_read_delivers_so_much(serving, client, monkeypatch):
    """F147: what waits for its turn, or for the application, has a bound on each connection."""
    sizes, real = [], HttpProtocol.data_received

    def data_received(self, data):
        sizes.append(len(data) + len(self._rest))
        real(self, data)

    monkeypatch.setattr(HttpProtocol, "data_received", data_received)
    one = await client(serving())
    await one.send(head("/graphql", JSON, "content-length: 1000000") + b" " * 1_000_000)
    assert (await one.answer())[0] == 400
    assert max(sizes) <= 2 * 64 * 1024


async def test_who_sends_on_and_on_behind_an_answer_is_disconnected(serving, client, until):
    """F147: after four megabytes, or ``request_timeout``."""
    server = serving(request_timeout=0.5)
    much, silent = await client(server), await client(server)
    for one in (much, silent):
        await one.send(head("/health", "content-length: 100000000"))
        assert (await one.answer())[0] == 405
    await much.send(b"x" * 20_000_000)
    await until(lambda: not server._uvicorn.server_state.connections)


# Targets.


@pytest.mark.parametrize(
    "line", ["OPTIONS *", "CONNECT a.example:80", "GET health", "GET ?x", "GET", "PRI * HTTP/2.0\r\n"]
)
async def test_a_target_that_is_none_is_refused_in_one_line(serving, client, caplog, line):
    """F147: whatever the method; no traceback."""
    one = await client(serving())
    await one.send(f"{line} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
    status, _, why = await one.answer()
    assert status == 400
    assert why.count(b"\n") == 1
    assert b" b'" not in why
    assert await one.rest() == b""
    assert len(SILENT) == 1, "it gives way where descriptors run out, as one that has sent nothing"
    assert not caplog.records


async def test_a_target_with_its_host_is_served(serving, client):
    """RFC 9112 3.2.2."""
    one = await client(serving())
    await one.send(head("http://localhost/health", method="GET"))
    assert (await one.answer())[0] == 200


async def test_who_offers_another_protocol_gets_http(serving, client):
    """As the HTTP client of Java does: with a body, and twice on one connection."""
    one = await client(serving())
    body = json.dumps({"query": "{ __typename }"}).encode()
    offer = (
        "connection: Upgrade, HTTP2-Settings",
        "upgrade: h2c",
        "http2-settings: AAEAAEAAAAIAAAABAAMAAABk",
    )
    for _ in range(2):
        await one.send(head("/graphql", JSON, f"content-length: {len(body)}", *offer) + body)
        status, _, told = await one.answer()
        assert (status, json.loads(told)) == (200, {"data": {"__typename": "Query"}})


# Bodies: their time, and what they take.

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
    appending = application._appending
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
        server.application._access._authenticate = lambda _: Principal("ann")
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
        principal_spooled_bytes=2 * 2**20,
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


async def test_the_share_is_one_for_all_transports(serving, client, dial, until, log, monkeypatch):
    """F147: what a client sent over a WebSocket counts over HTTP, and another one appends beside it."""
    server = serving(authorise=WRITERS, appending_bytes=4_000)
    held = Held(log, monkeypatch)
    body = json.dumps({"changes": [change(2, pad="x" * 1_000)]}).encode()

    async def post(source):
        one = await client(server, source)
        await one.send(head("/changes", JSON, f"content-length: {len(body)}") + body)
        return one

    async with dial(server.url) as wire:
        await wire.init()
        await wire.send(type="append", id="a", payload={"changes": [change(1, pad="x" * 1_500)]})
        assert await asyncio.to_thread(held.inside.wait, 60)
        status, _, told = await (await post("127.0.0.1")).answer()
        assert (status, json.loads(told)["option"]) == (503, "appending_bytes")
        other = await post("127.0.0.2")
        await until(lambda: server.application._appending.unanswered.taken > 2_500)
        held.go.set()
        assert (await other.answer())[0] == 201
    await until(lambda: nothing_is_taken(server))


async def test_lines_stay_in_memory_within_its_budget_only(serving, client, until, log):
    """F147: they are charged what they hold; the others wait in files, of which a principal has so many."""
    server = serving(authorise=WRITERS, appending_bytes=8 * SMALL)
    appending = server.application._appending
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
