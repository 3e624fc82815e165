"""What is told by HTTP GET: schemas, and the system log in the statistics."""

import asyncio
import json
import urllib.error
import urllib.parse
import urllib.request

import pytest

from penstock_cdc.mutations import schema
from publishers import ChangeLog, ChangeStore, Content, View, upsert
from tests.transports.principals import knowing
from transports import Forbidden, Grant, Limits, LogAction, serve
from transports.cli import main

TOTAL = {"type": "struct", "fields": [{"name": "total", "type": "decimal(10,2)"}]}


async def fetch(server, path="/schemas", token=None, **query):
    def work():
        url = f"{server.home_url.rstrip('/')}{path}?{urllib.parse.urlencode(query)}"
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(urllib.request.Request(url, headers=headers), timeout=60) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read())

    return await asyncio.to_thread(work)


async def test_a_schema_is_looked_up(serving, log):
    """F10."""
    log.commit([schema("order", TOTAL)])
    log.commit([schema("order", {"x": 1}, part="more"), schema("item", {})])
    server = serving()
    told = str(log.token(log.schema("order", 1).position))
    first = {"log": "shop", "entity_type": "order", "version": 1, "told": told, "parts": {"entity": TOTAL}}
    assert await fetch(server, entity_type="order", version=1) == (200, first)
    status, newest = await fetch(server, entity_type="order", log="shop")
    assert (status, newest["version"], newest["parts"]) == (200, 2, {"entity": TOTAL, "more": {"x": 1}})
    assert await fetch(server) == (200, {"log": "shop", "schemas": {"item": [1], "order": [1, 2]}})


@pytest.mark.parametrize(
    ("query", "status", "says"),
    [
        ({"entity_type": "order", "version": 9}, 404, "no schema of version 9 of 'order' is registered"),
        ({"entity_type": "item"}, 404, "no schema of 'item' is registered"),
        ({"entity_type": "order", "log": "other"}, 404, "log is 'other', but must be one of: shop"),
        ({"entity_type": ""}, 400, "entity_type is '', but must be the name of an entity type"),
        ({"entity_type": "order", "version": "x"}, 400, "version is 'x', but must be a whole number from 1"),
        ({"entity_type": "order", "version": 0}, 400, "version is 0, but must be"),
        (
            {"entityType": "order"},
            400,
            "parameter is 'entityType', but must be one of: log, entity_type, version",
        ),
    ],
)
async def test_a_wrong_question_is_told_with_what_would_be_right(serving, log, query, status, says):
    """F10."""
    log.commit([schema("order", TOTAL)])
    found, answer = await fetch(serving(), **query)
    assert found == status
    assert says in answer["error"]


async def test_schemas_are_for_those_who_may_see_them(log):
    """F10, F59."""
    log.commit([schema("order", TOTAL)])
    with serve(log, authenticate=knowing("ann", "bob"), authorise=_authorise) as server:
        assert (await fetch(server, entity_type="order"))[0] == 401
        assert (await fetch(server, token="ann", entity_type="order"))[0] == 200
        for query in ({}, {"entity_type": "order"}, {"entity_type": "none"}):
            status, answer = await fetch(server, token="bob", **query)
            assert (status, answer["code"]) == (403, "FORBIDDEN")


def _authorise(principal, _log, _action):
    return Grant(view=View(Content.BODY) if principal.name == "ann" else View())


async def test_statistics_leave_out_logs_that_a_caller_is_refused(tmp_path):
    """F59: a caller learns neither of their entity types nor of their holds, also right after another one has asked."""

    def authorise(principal, log, _action):
        if principal.name != "ann" and log == "secret":
            raise Forbidden("token", "one that may read this log")
        return Grant({LogAction.READ, LogAction.OPERATE})

    with (
        ChangeLog.open(tmp_path / "open") as shown,
        ChangeLog.open(tmp_path / "secret") as hidden,
        serve({"open": shown, "secret": hidden}, authenticate=knowing(), authorise=authorise) as server,
    ):
        hidden.hold("invention")
        for token, names in (("ann", ["open", "secret"]), ("bob", ["open"]), ("ann", ["open", "secret"])):
            status, told = await fetch(server, "/statistics", token)
            assert (status, list(told["logs"])) == (200, names)
            assert ("invention" in json.dumps(told)) is (token == "ann")
            assert told["connections"] == 0


async def test_the_system_log_of_a_store_is_in_the_statistics(tmp_path, capsys):
    """F50: last, and by the same name wherever one asks; of a single log there is none."""
    with ChangeStore.open(tmp_path / "shop", sync="os", fill_step=65_536) as store:
        store.create("orders").commit([upsert("order", "1", {})])
        with serve(store, limits=Limits()) as server:
            status, told = await fetch(server, "/statistics")
            assert (status, list(told["logs"])) == (200, ["orders", "$system"])
            assert told["logs"]["$system"]["watermark"] == store.system.head.version - 1 == 1
            assert "$system" not in (await fetch(server, "/health"))[1]["logs"]
            assert await asyncio.to_thread(main, ["stats", server.home_url, "--json"]) == 0
            assert list(json.loads(capsys.readouterr().out)["logs"]) == ["orders", "$system"]
    assert main(["stats", str(tmp_path / "shop"), "--json"]) == 0
    assert sorted(json.loads(capsys.readouterr().out)["logs"]) == ["$system", "orders"]


async def test_a_single_log_has_no_system_log_in_its_statistics(serving):
    assert list((await fetch(serving(), "/statistics"))[1]["logs"]) == ["shop"]
