"""graphql-transport-ws over real sockets."""

import asyncio
import json
import socket
import sys
from types import SimpleNamespace

import pytest
import uvicorn
import websockets

from publishers import ChangeLog, upsert
from tests.transports.principals import knowing
from transports import Application, Limits, serve

KEYS = "subscription ($since: Cursor, $until: Long) { onChange(since: $since, until: $until) { version index key } }"


def positions(events):
    return [(int(event["version"]), event["index"]) for event in events]


# The upgrade.


@pytest.mark.parametrize(
    ("offered", "chosen"),
    [
        ((), None),
        (("graphql-transport-ws",), "graphql-transport-ws"),
        (("graphql-ws", "graphql-transport-ws"), "graphql-transport-ws"),
    ],
)
async def test_a_client_that_names_no_sub_protocol_gets_this_one(serving, graphql, offered, chosen):
    async with graphql(serving(), offered) as wire:
        assert wire.socket.subprotocol == chosen
        await wire.init()


async def test_where_only_other_sub_protocols_are_offered_the_handshake_is_refused(serving, graphql):
    """E55."""
    server = serving()
    for offered in (("graphql-ws",), ("penstock.v1+json",)):
        with pytest.raises(websockets.InvalidStatus) as caught:
            async with graphql(server, offered):
                pass
        assert caught.value.response.status_code == 400
        assert b"graphql-transport-ws" in caught.value.response.body


async def test_pages_of_other_sites_may_not_connect(serving, graphql):
    with pytest.raises(websockets.InvalidStatus) as caught:
        async with graphql(serving(), origin="https://evil.example"):
            pass
    assert caught.value.response.status_code == 403


async def test_without_the_extra_the_path_says_what_to_install(serving, graphql, monkeypatch):
    server = serving()
    monkeypatch.setitem(sys.modules, "transports.server.graphql_endpoint", None)
    with pytest.raises(websockets.InvalidStatus) as caught:
        async with graphql(server):
            pass
    assert caught.value.response.status_code == 404
    assert b"pip install 'penstock-cdc[graphql]'" in caught.value.response.body


async def test_connections_are_counted_and_limited_together_with_the_others(serving, graphql, dial):
    server = serving(connections=2)
    async with graphql(server) as wire, dial(server.url):
        await wire.init()
        assert server.application.connections == 2
        async with graphql(server) as other:
            assert (
                other.socket.subprotocol == "graphql-transport-ws"
            )  # without it, clients would not see the code
            assert (await other.closed())[0] == 1013


async def test_a_token_is_judged_wherever_it_comes_from(serving, graphql):
    server = serving(authenticate=knowing("right"))
    async with graphql(server) as wire:
        await wire.init(token="right")
    async with graphql(server, additional_headers={"Authorization": "Bearer right"}) as wire:
        await wire.init()
    async with graphql(server, additional_headers={"Authorization": "Bearer right"}) as wire:
        await wire.send(type="connection_init", payload={"token": "wrong"})
        assert (await wire.closed())[0] == 4403


# The eleven cases in which servers differ.

SUBSCRIBE = {"type": "subscribe", "id": "a", "payload": {"query": KEYS}}


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ([1], 4400),
        (7, 4400),
        (SUBSCRIBE | {"payload": "x"}, 4400),
        (SUBSCRIBE | {"id": ""}, 4400),
        (SUBSCRIBE | {"id": 1}, 4400),
        (SUBSCRIBE | {"payload": {"query": 1}}, 4400),
        ({"type": "x" * 500}, 4400),
        ({"type": "connection_init"}, 4429),
    ],
)
async def test_what_breaks_the_protocol_is_closed_with_its_code(serving, graphql, message, code):
    async with graphql(serving()) as wire:
        await wire.init()
        await wire.socket.send(json.dumps(message))
        told, reason = await wire.closed()
        assert told == code
        assert reason


async def test_an_init_whose_payload_is_null_is_acknowledged(serving, graphql):
    async with graphql(serving()) as wire:
        await wire.send(type="connection_init", payload=None)
        assert await wire.receive() == {"type": "connection_ack"}


async def test_binary_frames_are_read_too(serving, graphql):
    async with graphql(serving()) as wire:
        await wire.socket.send(b'{"type":"connection_init"}')
        assert await wire.receive() == {"type": "connection_ack"}


async def test_a_long_id_in_use_is_closed_with_4409_and_a_reason_that_fits(serving, graphql):
    async with graphql(serving()) as wire:
        await wire.init()
        for _ in range(2):
            await wire.subscribe(KEYS, "ü" * 200)
        code, reason = await wire.closed()
        assert code == 4409
        assert 100 < len(reason.encode()) <= 123


async def test_without_init_it_is_closed_in_time(serving, graphql):
    async with graphql(serving(init_timeout=0.05)) as wire:
        assert (await wire.closed())[0] == 4408


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("subscription {", "Syntax Error"),
        ("subscription { nonsense }", "nonsense"),
        ("subscription ($x: Long!) { onChange(until: $x) { key } }", "$x"),
    ],
)
async def test_a_wrong_document_ends_its_operation_only(serving, graphql, fill, query, words):
    async with graphql(serving()) as wire:
        await wire.init()
        await wire.subscribe(KEYS, "neighbour")
        (error,) = await wire.fail(query)
        assert words in error["message"]
        await wire.fail(query)  # the id is free again
        fill(1)
        await wire.events(2, "neighbour")


async def test_an_unknown_operation_name_is_an_error_of_the_operation(serving, graphql):
    async with graphql(serving()) as wire:
        await wire.init()
        await wire.send(
            type="subscribe", id="a", payload={"query": "query X { __typename }", "operationName": "Y"}
        )
        message = await wire.receive()
        assert (message["type"], message["id"]) == ("error", "a")
        await wire.nothing_comes()


async def test_a_source_that_fails_ends_in_an_error_and_no_complete(
    serving, graphql, fill, monkeypatch, caplog
):
    from publishers.blocks.block import Block

    async with graphql(serving()) as wire:
        await wire.init()
        await wire.subscribe(KEYS)
        await wire.settled()
        monkeypatch.setattr(Block, "key", lambda *_: {}["secret"])
        fill(1)
        message = await wire.receive()
        assert (message["type"], message["id"]) == ("error", "a")
        assert message["payload"][0]["extensions"]["code"] == "INTERNAL"
        assert message["payload"][0]["extensions"]["cursor"]
        assert "secret" not in json.dumps(message)
        await wire.nothing_comes()


async def test_a_failure_of_ours_ends_its_operation_only_and_is_told_by_an_id(
    serving, graphql, monkeypatch, caplog
):
    from transports.graphql.execution import Engine, GraphQLOperation

    async with graphql(serving()) as wire:
        await wire.init()
        for owner, name, query in (
            (GraphQLOperation, "open", KEYS),
            (GraphQLOperation, "run", "{ logs { name } }"),
            (Engine, "prepare", KEYS),
        ):
            with monkeypatch.context() as broken:
                broken.setattr(owner, name, lambda *_: {}["secret"])
                (error,) = await wire.fail(query)
            assert error["extensions"]["code"] == "INTERNAL"
            assert error["extensions"]["id"] in caplog.text
            assert "secret" not in error["message"]
        await wire.settled()


async def test_a_failure_of_the_machine_closes_with_4500(serving, graphql, monkeypatch, caplog):
    from transports.protocol.graphql_ws import GraphQLSession

    async with graphql(serving()) as wire:
        monkeypatch.setattr(GraphQLSession, "receive", lambda *_: {}["secret"])
        await wire.send(type="connection_init")
        code, reason = await wire.closed()
        assert code == 4500
        assert reason.split()[-1] in caplog.text


# Operations.


async def test_events_arrive_once_and_in_order_from_any_place(serving, graphql, fill, log):
    fill(4, changes=2)
    async with graphql(serving()) as wire:
        await wire.init()
        await wire.subscribe(since=str(log.token(log.oldest)))
        events = await wire.events(12)
        await wire.subscribe(name="b", since=events[4]["cursor"])
        assert await wire.events(7, "b") == events[5:]
        await wire.send(type="complete", id="b")
        await wire.settled()
        fill(1)
        assert positions(await wire.events(2)) == [(5, 0), (5, 1)]


async def test_a_subscription_completes_at_its_last_version(serving, graphql, fill, log):
    fill(3)
    async with graphql(serving()) as wire:
        await wire.init()
        await wire.subscribe(KEYS, since=str(log.token(log.oldest)), until="2")
        assert positions(await wire.events(4)) == [(1, 0), (1, 1), (2, 0), (2, 1)]
        assert await wire.receive() == {"id": "a", "type": "complete"}


async def test_criteria_choose_what_comes(serving, graphql, log):
    async with graphql(serving()) as wire:
        await wire.init()
        await wire.subscribe(
            "subscription ($wishes: [Criterion!]) { onChange(criteria: $wishes) { key } }",
            wishes=[
                {"entityTypes": ["order"], "keyGlobs": ["1*"]},
                {"entityTypes": ["customer"], "operations": ["REMOVE"]},
            ],
        )
        await wire.settled()
        log.commit([upsert(kind, key, {}) for kind in ("order", "customer") for key in ("1", "10", "2")])
        assert [event["key"] for event in await wire.events(2)] == ["1", "10"]
        await wire.nothing_comes()


@pytest.mark.parametrize("how", ["variables", "document"])
async def test_conditions_on_values_and_changed_fields_choose_what_comes(serving, graphql, log, how):
    """F53, F55, F58, E15."""
    wish = """{changed: "total", keyPatterns: ["o-[0-9]"], transitions: [ENTERED], where: [
        {path: "total", compare: GT, value: 10}, {path: "customer.id", compare: IN, value: [7, 9007199254740993]}
        {path: "note", compare: EXISTS, value: false}, {path: "paid", compare: NE, value: null}]}"""
    plain = {
        "changed": ["total"],
        "keyPatterns": ["o-[0-9]"],
        "transitions": ["ENTERED"],
        "where": [
            {"path": "total", "compare": "GT", "value": 10},
            {"path": "customer.id", "compare": "IN", "value": [7, 9007199254740993]},
            {"path": "note", "compare": "EXISTS", "value": False},
            {"path": "paid", "compare": "NE", "value": None},
        ],
    }
    body = {"total": 11, "customer": {"id": 9007199254740993}, "paid": False}
    async with graphql(serving()) as wire:
        await wire.init()
        if how == "variables":
            query = "subscription ($wishes: [Criterion!]) { onChange(criteria: $wishes) { key } }"
            await wire.subscribe(query, wishes=[plain])
        else:
            await wire.subscribe(f"subscription {{ onChange(criteria: [{wish}]) {{ key }} }}")
        await wire.settled()
        log.commit(
            [
                upsert("order", "o-1", body, before=body, changed=["total"]),
                upsert("order", "o-2", body, before=body | {"total": 10}, changed=["total"]),
                upsert("order", "o-3", body | {"paid": None}, changed=["total"]),
                upsert("order", "o-4", body | {"customer": {"id": 9007199254740992}}, changed=["total"]),
                upsert("order", "o-5", body, changed=["name"]),
            ]
        )
        assert [event["key"] for event in await wire.events(1)] == ["o-2"]
        await wire.nothing_comes()


async def test_after_a_complete_nothing_comes_and_the_id_is_free(serving, graphql, fill, log, until):
    async with graphql(serving()) as wire:
        await wire.init()
        await wire.subscribe(KEYS)
        await wire.send(type="complete", id="a")
        await wire.settled()
        fill(1)
        await wire.nothing_comes()
        await until(lambda: not log.statistics().publishers)
        await wire.subscribe(KEYS)
        await wire.settled()
        fill(1)
        assert positions(await wire.events(2)) == [(2, 0), (2, 1)]


async def test_queries_are_answered_one_after_the_other_on_the_same_socket(serving, graphql, fill):
    fill(3)
    async with graphql(serving()) as wire:
        await wire.init()
        for number in range(10):
            await wire.subscribe("{ history(limit: 2) { changes { version } } }", f"q{number}")
        await wire.send(type="complete", id="q9")
        for number in range(9):
            data = await wire.next(f"q{number}")
            assert data == {"history": {"changes": [{"version": "1"}, {"version": "1"}]}}
            assert await wire.receive() == {"id": f"q{number}", "type": "complete"}
        await wire.settled()


async def test_a_mutation_is_an_error_of_its_operation(serving, graphql):
    async with graphql(serving()) as wire:
        await wire.init()
        await wire.fail("mutation { onChange }")
        await wire.nothing_comes()


async def test_there_are_so_many_operations_and_no_more(serving, graphql):
    async with graphql(serving(subscriptions=3)) as wire:
        await wire.init()
        for number in range(3):
            await wire.subscribe(KEYS, str(number))
        (error,) = await wire.fail(KEYS, "one more")
        assert error["extensions"]["code"] == "TOO_MANY_SUBSCRIPTIONS"


async def test_positions_that_are_refused_are_told_with_their_codes(serving, graphql, tmp_path, fill, log):
    with ChangeLog.open(tmp_path / "other") as other:
        foreign = str(other.token(other.head))
    ahead = str(log.token(log.head._replace(version=9)))
    async with graphql(serving()) as wire:
        await wire.init()
        for since, code in (("x", "CURSOR_INVALID"), (foreign, "CURSOR_FOREIGN"), (ahead, "CURSOR_AHEAD")):
            (error,) = await wire.fail(KEYS, since=since)
            assert error["extensions"]["code"] == code
            assert error["path"] == ["onChange"]
        assert error["extensions"]["retryable"] is True
        assert error["extensions"]["head"] == str(log.token(log.head))


async def test_a_log_that_closes_completes_who_has_everything(tmp_path, graphql):
    log = ChangeLog.open(tmp_path / "closing")
    with serve(log) as server:
        async with graphql(server) as wire:
            await wire.init()
            await wire.subscribe(KEYS)
            await wire.settled()
            await asyncio.to_thread(log.close)
            assert await wire.receive() == {"id": "a", "type": "complete"}
            (error,) = await wire.fail(KEYS)
            assert error["extensions"] == {"code": "LOG_CLOSED", "retryable": True}


async def test_several_logs_must_be_named(tmp_path, graphql):
    with (
        ChangeLog.open(tmp_path / "a") as a,
        ChangeLog.open(tmp_path / "b") as b,
        serve({"a": a, "b": b}) as server,
    ):
        async with graphql(server) as wire:
            await wire.init()
            (error,) = await wire.fail(KEYS)
            assert error["extensions"]["code"] == "LOG_NOT_FOUND"
            assert "a, b" in error["message"]
            await wire.subscribe('subscription { onChange(log: "b") { key } }')
            await wire.settled()
            a.commit([upsert("order", "in a", {})])
            b.commit([upsert("order", "in b", {})])
            assert [event["key"] for event in await wire.events(2)] == [None, "in b"]


async def test_a_stopping_server_closes_with_1012_and_sends_no_last_word(serving, graphql):
    server = serving()
    async with graphql(server) as wire:
        await wire.init()
        await wire.subscribe(KEYS)
        await wire.settled()
        await asyncio.to_thread(server.stop)
        with pytest.raises(websockets.ConnectionClosed) as caught:
            await wire.socket.recv()
        assert caught.value.rcvd.code == 1012


# Other hosts.


async def test_under_a_server_that_knows_nothing_of_us_the_protocol_is_as_correct(log, fill, graphql):
    application = Application(log)
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(
        application, ws="websockets-sansio", log_config=None, timeout_graceful_shutdown=2, lifespan="off"
    )
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    host = SimpleNamespace(graphql_url=f"http://127.0.0.1:{listener.getsockname()[1]}/graphql")
    try:
        async with graphql(host) as wire:
            assert wire.socket.subprotocol == "graphql-transport-ws"
            await wire.init()
            await wire.subscribe(KEYS)
            await wire.settled()
            fill(10, changes=29)
            assert positions(await wire.events(300))[-1] == (10, 29)
            await wire.send(type="bogus")
            assert (await wire.closed())[0] == 4400
    finally:
        server.should_exit = True
        await serving
        listener.close()


# Bounds.


async def test_limits_have_bounds():
    from penstock_cdc.errors import InvalidOption

    for name in ("answer_bytes", "body_bytes", "scan_threads"):
        with pytest.raises(InvalidOption, match=name):
            Limits(**{name: 0})
