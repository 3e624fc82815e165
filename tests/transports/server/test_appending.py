"""Appending over real sockets: acknowledgements, windows, refusals, principals, bounds."""

import asyncio
import http.client
import json
import threading

import pytest

from penstock_cdc.errors import LogFailed
from publishers import ChangeLog, Content, Criteria, Criterion, Position, upsert
from publishers.commits.label import RemoteProducer
from tests.harness.failing import failing
from tests.harness.inside import appending_of, committer_of, files_of
from tests.publishers.support import Held, wait_until
from tests.transports.principals import knowing
from transports import Grant, LogAction
from transports.access.access import EVERYBODY

WRITERS = Grant({*EVERYBODY.actions, LogAction.WRITE})


def change(key, **body):
    return {"entity_type": "order", "key": str(key), "body": body}


@pytest.fixture
def writable(serving):
    """A server that everybody may append to."""
    return lambda **options: serving(**{"authorise": WRITERS, **options})


async def append(wire, name, *changes, **payload):
    await wire.send(type="append", id=name, payload={"changes": list(changes)} | payload)


async def answers(wire, count):
    found = []
    while len(found) < count:
        message = await wire.receive()
        if message["type"] in ("appended", "error"):
            found.append((message["id"], message.get("payload", {}).get("code", "appended")))
    return found


async def test_an_append_is_answered_when_it_is_durable(writable, dial, log):
    """F145: with its version and the cursor behind it."""
    async with dial(writable().url) as wire:
        ack = await wire.init()
        assert ack["payload"]["limits"]["appends"] == 256
        await append(
            wire, "a", change(1, n=1), change(2, n=2), meta={"by": "ann"}, producer="etl", sequence=5
        )
        told = await wire.expect("appended")
        assert told == {
            "type": "appended",
            "id": "a",
            "version": 1,
            "cursor": str(log.token(Position(2, 0))),
            "duplicate": False,
            "changes": 3,
            "timestamp": log.time_of(1).isoformat().replace("+00:00", "Z"),
        }
        assert log.durable == 1
        leading, first, _ = log.history(content=Content.BODY).changes
        assert (leading.meta, first.body) == ({"by": "ann"}, {"n": 1})
        assert log.produced(RemoteProducer("anonymous", "etl")).sequence == 5
        await append(wire, "a", change(1, n=1), change(2, n=2), producer="etl", sequence=5)
        again = await wire.expect("appended")
        assert (again["version"], again["duplicate"], again["changes"], again["timestamp"]) == (
            1,
            True,
            0,
            None,
        )
        await append(wire, "a", change(1, n=1), producer="etl", sequence=4)
        old = await wire.expect("appended")  # it was never written, and never will be
        assert (old["version"], old["duplicate"], old["cursor"]) == (0, True, None)
        await append(wire, "a", change(1, n=1), producer="etl", sequence=7)
        await wire.expect("appended")
        await append(wire, "a", change(1, n=1), producer="etl", sequence=5)
        older = await wire.expect("appended")
        assert (older["version"], older["cursor"]) == (1, told["cursor"])
        await append(wire, "b", change(1, n=2), producer="etl", sequence=7)
        assert (await wire.expect("error"))["payload"] | {"message": ""} == {
            "code": "PRODUCER_CONFLICT",
            "message": "",
            "retryable": False,
            "version": 2,
        }


async def test_a_window_of_appends_shares_group_commits(writable, dial, log, monkeypatch):
    """F145: they are written together, and answered in order."""
    server = writable()
    held = Held(log, monkeypatch)
    async with dial(server.url) as wire:
        await wire.init()
        await append(wire, "first", change(0))
        assert await asyncio.to_thread(held.inside.wait, 60)
        for number in range(50):
            await append(wire, str(number), change(number), producer="etl", sequence=number)
        await asyncio.to_thread(wait_until, lambda: committer_of(log).waiting[0] == 50)
        held.go.set()
        assert await answers(wire, 51) == [("first", "appended"), *((str(n), "appended") for n in range(50))]
        assert held.sizes == [1, 50]


async def test_a_refusal_inside_a_window_refuses_all_behind_it(writable, dial, log, monkeypatch):
    """F145: also what is in the queue of the log already."""
    server = writable()
    place = str(log.token(log.head))
    held = Held(log, monkeypatch)
    async with dial(server.url) as wire:
        await wire.init()
        await append(wire, "a", change(1))
        assert await asyncio.to_thread(held.inside.wait, 60)
        await append(wire, "b", change(2), producer="etl", sequence=1, expect=place)
        await append(wire, "c", change(3), producer="etl", sequence=2)
        await asyncio.to_thread(wait_until, lambda: committer_of(log).waiting[0] == 2)
        held.go.set()
        told = await answers(wire, 3)
        assert told == [("a", "appended"), ("b", "EXPECTATION_FAILED"), ("c", "PREDECESSOR_FAILED")]
        await append(wire, "d", change(3), producer="etl", sequence=2)
        assert await answers(wire, 1) == [("d", "PREDECESSOR_FAILED")]
        await append(wire, "e", change(2), producer="etl", sequence=1, first=True)
        await append(wire, "f", change(3), producer="etl", sequence=2)
        assert await answers(wire, 2) == [("e", "appended"), ("f", "appended")]
        assert log.visible == 3


async def test_an_append_that_is_removed_while_it_is_withheld_is_told_so_on_every_face(writable, dial, log):
    """F145: it waited to be visible, behind a withheld commit, with which the owner removed it; a retry is written."""
    server = writable()

    def post(path, body):
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        try:
            connection.request("POST", path, json.dumps(body), {"content-type": "application/json"})
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()

    own = {"producer": "etl", "sequence": 1, "wait": "visible"}
    query = (
        'mutation { append(changes: [{entityType: "order", key: "3", body: {}}], wait: VISIBLE) { version } }'
    )
    async with dial(server.url) as wire:
        await wire.init()
        log.commit([upsert("order", "hidden", {})], visible=False)
        await append(wire, "a", change(1), **own)
        posts = [
            asyncio.create_task(asyncio.to_thread(post, path, body))
            for path, body in (
                ("/changes", {"changes": [change(2)], "wait": "visible"}),
                ("/graphql", {"query": query}),
            )
        ]
        await asyncio.to_thread(wait_until, lambda: log.durable == 4)
        log.forget_after(0)
        error = (await wire.expect("error"))["payload"]
        assert (error["code"], error["retryable"]) == ("TRANSACTION_REMOVED", True)
        (status, told), (_, answer) = await asyncio.gather(*posts)
        assert (status, told["code"]) == (409, "TRANSACTION_REMOVED")
        assert answer["errors"][0]["extensions"]["code"] == "TRANSACTION_REMOVED"
        await append(wire, "b", change(1), **own, first=True)
        assert (await wire.expect("appended"))["version"] == 1


async def test_what_is_wrong_with_a_change_is_told_by_its_place(writable, dial, log):
    """F145: nothing of the transaction is written, and what is behind it is refused."""
    async with dial(writable().url) as wire:
        await wire.init()
        await append(wire, "a", change(1), {"entity_type": "order", "key": "2", "colour": 1})
        await append(wire, "b", change(3))
        error = (await wire.expect("error"))["payload"]
        assert (error["code"], error["path"], error["retryable"]) == ("INVALID_CHANGE", "changes[1]", False)
        assert (await wire.expect("error"))["payload"]["code"] == "PREDECESSOR_FAILED"
        for payload, code in (
            ({"changes": 7}, "INVALID_CHANGE"),
            ({}, "INVALID_CHANGE"),
            ({"changes": [change(1)], "log": "none"}, "LOG_NOT_FOUND"),
            ({"changes": [change("k" * 2000)]}, "TRANSACTION_TOO_LARGE"),
        ):
            await wire.send(type="append", id="c", payload={"first": True, **payload})
            assert (await wire.expect("error"))["payload"]["code"] == code
        assert log.head == Position(1, 0)


async def test_keys_are_expected_only_by_those_who_may_read_them(serving, dial, log, fill):
    """F59: whoever writes blindly may expect a place, but learns of no key whether it changed."""
    place = str(log.token(log.head))
    fill(1)
    may = {"ann": {"a"}, "bob": {"a", "b"}, "eve": set()}

    def authorise(principal, _log, action):
        if action is LogAction.READ:
            keys = may[principal.name]
            return Grant(criteria=Criteria.of(Criterion(keys=keys))) if keys else Grant(set())
        return Grant({LogAction.WRITE})

    server = serving(authenticate=knowing(*may), authorise=authorise)
    for name, keys in may.items():
        async with dial(server.url) as wire:
            await wire.init(token=name)
            for key in "ab":
                asked = {"cursor": place, "keys": [{"entity_type": "order", "key": key}]}
                await append(wire, "a", change(1), expect=asked, first=True)
                if key in keys:
                    await wire.expect("appended")
                else:
                    assert (await wire.expect("error"))["payload"]["code"] == "FORBIDDEN"
            await append(wire, "a", change(1), expect=place, first=True)
            assert (await wire.expect("error"))["payload"]["code"] == "EXPECTATION_FAILED"


async def test_a_server_is_not_writable_unless_it_is_said(serving, dial, log):
    """F145: a refusal says what would allow it; reading goes on."""
    async with dial(serving().url) as wire:
        await wire.init()
        await append(wire, "a", change(1))
        error = (await wire.expect("error"))["payload"]
        assert error["code"] == "FORBIDDEN"
        assert "penstock serve DIR --own --writable" in error["message"]
        await wire.subscribe("a")
    assert log.head == Position(1, 0)


async def test_producers_belong_to_their_principals_and_have_a_quota(serving, dial, log):
    """F145: the same name of another principal is another producer."""
    server = serving(authenticate=knowing("ann", "bob"), authorise=WRITERS, producers=2)
    for name in ("ann", "bob"):
        async with dial(server.url) as wire:
            await wire.init(token=name)
            for number in range(2):
                await append(wire, "a", change(1), producer=f"p{number}", sequence=1)
                assert not (await wire.expect("appended"))["duplicate"]
            await append(wire, "a", change(1), producer="p2", sequence=1)
            error = (await wire.expect("error"))["payload"]
            assert (error["code"], error["limit"]) == ("TOO_MANY_PRODUCERS", 2)
            await append(wire, "a", change(1), producer="p1", sequence=1, first=True)
            assert (await wire.expect("appended"))["duplicate"]
            await append(wire, "a", change(1))
            assert (await wire.expect("appended"))["version"]


async def test_a_slow_disk_does_not_keep_readers_of_the_same_connection(
    writable, dial, log, fill, monkeypatch
):
    """F145: while appends wait, subscriptions are opened and read."""
    fill(3)
    server = writable()
    held = Held(log, monkeypatch)
    async with dial(server.url) as wire:
        await wire.init()
        for number in range(20):
            await append(wire, str(number), change(number))
        assert await asyncio.to_thread(held.inside.wait, 60)
        await wire.subscribe("s", start="earliest", credits=6)
        assert len(await wire.events(6, "s")) == 6
        held.go.set()
        assert await answers(wire, 20) == [(str(n), "appended") for n in range(20)]


async def test_bytes_of_unanswered_appends_are_bounded_for_the_server(writable, dial, log, monkeypatch):
    """F145: what is beyond is refused, and may be sent again."""
    server = writable(appending_bytes=5_000)
    held = Held(log, monkeypatch)
    async with dial(server.url) as one, dial(server.url) as other:
        await one.init()
        await other.init()
        await append(one, "a", change(1, pad="x" * 2000))
        assert await asyncio.to_thread(held.inside.wait, 60)
        await append(other, "b", change(1, pad="x" * 2000))
        error = (await other.expect("error"))["payload"]
        assert (error["code"], error["option"], error["retryable"]) == ("TOO_COSTLY", "appending_bytes", True)
        held.go.set()
        assert await answers(one, 1) == [("a", "appended")]
        await append(other, "b", change(1, pad="x" * 2000), first=True)
        assert await answers(other, 1) == [("b", "appended")]


async def test_a_cut_connection_loses_nothing_that_was_begun_and_holds_nothing(
    writable, dial, log, monkeypatch
):
    """F145: what waits on a thread is dropped; a repetition finds what was written."""
    server = writable()
    held = Held(log, monkeypatch)
    async with dial(server.url) as wire:
        await wire.init()
        for number in range(1, 31):
            await append(wire, str(number), change(number), producer="etl", sequence=number)
        assert await asyncio.to_thread(held.inside.wait, 60)
    held.go.set()
    await asyncio.to_thread(wait_until, lambda: not appending_of(server.application).unanswered.taken)
    async with dial(server.url) as wire:
        await wire.init()
        for number in range(1, 31):
            await append(wire, str(number), change(number), producer="etl", sequence=number)
        assert await answers(wire, 30) == [(str(n), "appended") for n in range(1, 31)]
    keys = [one.key for one in log.history(limit=1000).changes if one.key]
    assert keys == [str(number) for number in range(1, 31)]


async def test_a_follower_and_a_failed_log_say_so(serving, dial, log, monkeypatch):
    """F145: without the directories of the server."""
    with ChangeLog.open(log.path, read_only=True) as follower:
        server = serving(served={"shop": follower}, authorise=WRITERS)
        async with dial(server.url) as wire:
            await wire.init()
            await append(wire, "a", change(1))
            error = (await wire.expect("error"))["payload"]
            assert error["code"] == "LOG_READ_ONLY"
            assert str(log.path) not in json.dumps(error)

    failing(monkeypatch, files_of(log), "sync", LogFailed("unknown", "no disk"))
    async with dial(serving(authorise=WRITERS).url) as wire:
        await wire.init()
        await append(wire, "a", change(1))
        error = (await wire.expect("error"))["payload"]
        assert (error["code"], error["outcome"]) == ("LOG_FAILED", "unknown")


async def test_a_server_that_stops_refuses_what_it_has_not_begun(writable, dial, log, monkeypatch):
    """F145: and the connection ends as ever."""
    server = writable()
    held = Held(log, monkeypatch)
    async with dial(server.url) as wire:
        await wire.init()
        await append(wire, "a", change(1))
        assert await asyncio.to_thread(held.inside.wait, 60)
        stopping = threading.Thread(target=server.stop)
        stopping.start()
        assert (await wire.closed())[0] == 1012
        held.go.set()
        await asyncio.to_thread(stopping.join, 20)
