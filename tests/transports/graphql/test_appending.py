"""The mutation ``append``: over HTTP and over a WebSocket."""

import json
import urllib.error
import urllib.parse
import urllib.request

import pytest

from publishers import ChangeLog, Content, Position
from tests.transports.server.test_appending import WRITERS
from transports.codec.changes import read_objects

APPEND = """mutation ($changes: [ChangeInput!]!, $producer: String, $sequence: Long, $expect: Cursor, $keys: [KeyInput!], $meta: JSON) {
  append(changes: $changes, producer: $producer, sequence: $sequence, expect: $expect, keys: $keys, meta: $meta, wait: VISIBLE) {
    version cursor duplicate changes
  }
}"""


@pytest.fixture
def ask(serving):
    """Posts a document; answers the data, or the first error."""
    server = serving(authorise=WRITERS)

    def ask(query, server=server, **variables):
        body = json.dumps({"query": query, "variables": variables}).encode()
        request = urllib.request.Request(server.graphql_url, body, {"content-type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            told = json.loads(answer.read())
        return told["errors"][0] if "errors" in told else told["data"]

    ask.server = server
    return ask


def change(key, **body):
    return {"entityType": "order", "key": str(key), "body": body}


def test_a_document_may_hold_its_values(ask, log):
    """F145: several fields are several transactions, in their order."""
    told = ask(
        'mutation { a: append(changes: [{entityType: "order", key: "1", body: {n: 1}}]) { version }'
        ' b: append(changes: [{entityType: "order", key: "2", body: {}}], wait: ACCEPTED) { version } }'
    )
    assert told == {"a": {"version": "1"}, "b": {"version": "2"}}


def test_refusals_have_the_codes_of_the_protocol(ask, log, serving):
    """F145: expectations, changes that are none, and who may not write."""
    place = str(log.token(log.head))
    ask(APPEND, changes=[change(1)])
    error = ask(APPEND, changes=[change(1)], expect=place)["extensions"]
    assert (error["code"], error["found"]) == ("EXPECTATION_FAILED", str(log.token(Position(2, 0))))
    keys = [{"entityType": "order", "key": "1"}]
    assert ask(APPEND, changes=[change(1)], expect=place, keys=keys)["extensions"]["key"] == "1"
    keys[0]["key"] = "9"
    assert ask(APPEND, changes=[change(1)], expect=place, keys=keys)["append"]["version"] == "2"
    error = ask(APPEND, changes=[change(1), {"entityType": "order"}])
    assert error["extensions"]["path"] == "changes[1].key"
    assert ask(APPEND, changes=[change(1)], producer="etl")["extensions"]["code"] == "INVALID_REQUEST"
    assert ask(APPEND, changes=[change(1)], meta=[1])["extensions"]["code"] == "INVALID_REQUEST"
    refused = ask(APPEND, serving(), changes=[change(1)])
    assert refused["extensions"]["code"] == "FORBIDDEN"
    assert "--writable" in refused["message"]
    assert log.visible == 2


def test_a_mutation_is_not_taken_by_get(ask, log):
    """F145: what a link or an image could ask for writes nothing."""
    query = 'mutation { append(changes: [{entityType: "order", key: "1", body: {}}]) { version } }'
    url = ask.server.graphql_url + "?" + urllib.parse.urlencode({"query": query})
    request = urllib.request.Request(url, headers={"accept": "application/json"})
    with pytest.raises(urllib.error.HTTPError) as found:
        urllib.request.urlopen(request, timeout=60)
    assert (found.value.code, found.value.headers["allow"]) == (405, "POST")
    found.value.close()
    assert log.head == Position(1, 0)


async def test_a_mutation_is_taken_over_a_websocket(ask, dial, log):
    """F145: as any other operation that ends by itself."""
    url = ask.server.graphql_url.replace("http", "ws", 1)
    async with dial(url, subprotocols=["graphql-transport-ws"]) as wire:
        await wire.send(type="connection_init")
        await wire.expect("connection_ack")
        payload = {"query": APPEND, "variables": {"changes": [change(1)]}}
        await wire.send(type="subscribe", id="a", payload=payload)
        assert (await wire.expect("next"))["payload"]["data"]["append"]["version"] == "1"
        await wire.expect("complete")


def test_key_changes_and_changes_of_fields_are_appended_too(ask, log, tmp_path):
    """F145: what other writers write, so does a mutation."""
    changes = [
        {**change(1, n=1), "newKey": "2", "before": {"n": 0}},
        {**change(2, tags=["new"]), "field": "tags", "action": "ADD"},
        {"entityType": "order", "key": "3", "operation": "REMOVE", "linked": "4"},
        {**change(4, n=2), "linked": "3"},
    ]
    assert "append" in (told := ask(APPEND, changes=changes)), told
    with ChangeLog.open(tmp_path / "other") as other:
        told = [
            {
                "entity_type": "order",
                "key": "1",
                "operation": "REKEY",
                "new_key": "2",
                "body": {"n": 1},
                "before": {"n": 0},
            },
            {"entity_type": "order", "key": "2", "body": {"tags": ["new"]}, "field": "tags", "action": "ADD"},
            {"entity_type": "order", "key": "3", "operation": "REMOVE", "linked": "4"},
            {"entity_type": "order", "key": "4", "body": {"n": 2}, "linked": "3"},
        ]
        other.commit(read_objects(told))
        wanted = other.history(content=Content.BODY).changes[1:]
        assert log.history(content=Content.BODY).changes[1:] == wanted
        assert {one.linked for one in wanted} >= {"1", "2", "3", "4"}
    for wrong in ({"operation": "REMOVE"}, {"area": "SCHEMA"}):
        error = ask(APPEND, changes=[{**change(1), "newKey": "2", **wrong}])
        assert (error["extensions"]["code"], error["extensions"]["path"]) == ("INVALID_CHANGE", "newKey")
