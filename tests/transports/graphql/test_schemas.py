"""Schemas that are looked up over GraphQL."""

import asyncio
import json
import urllib.request

from penstock_cdc.mutations import schema
from publishers import Content, View, upsert
from transports import Grant, serve

TOTAL = {"type": "struct", "fields": [{"name": "total", "type": "decimal(10,2)"}]}
LOOK_UP = """query ($type: String!, $version: Long, $log: String) {
  schema(entityType: $type, version: $version, log: $log) { entityType version told parts { name body } }
}"""
LISTED = "{ schemas { entityType versions } }"


async def posted(server, query, **variables):
    def work():
        body = json.dumps({"query": query, "variables": variables}).encode()
        request = urllib.request.Request(server.graphql_url, body, {"Content-Type": "application/json"})
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=60) as answer:
            return json.loads(answer.read())

    return await asyncio.to_thread(work)


async def queried(wire, query, **variables):
    await wire.subscribe(query, "q", **variables)
    message = await wire.receive()
    assert (message["type"], await wire.receive()) == ("next", {"id": "q", "type": "complete"})
    return message["payload"]


async def test_a_schema_is_looked_up_over_both_ways(serving, graphql, log):
    """F10: whatever a change names, from any position."""
    log.commit([schema("order", TOTAL), upsert("order", "1", {"total": "1.00"})])
    log.commit([schema("order", {"x": 12345678901234567890}, part="more"), upsert("order", "1", {})])
    server = serving()
    async with graphql(server) as wire:
        await wire.init()
        await wire.subscribe(
            "subscription ($since: Cursor) { onChange(since: $since) { area entityType schemaVersion cursor } }",
            since=str(log.token(log.oldest)),
        )
        events = [event for event in await wire.events(6) if event["area"] == "DATA"]
        await wire.send(type="complete", id="a")
        for event in events:
            asked = {"type": event["entityType"], "version": event["schemaVersion"]}
            found = await queried(wire, LOOK_UP, **asked)
            assert found == await posted(server, LOOK_UP, **asked)
            here = log.schema("order", int(event["schemaVersion"]))
            there = found["data"]["schema"]
            assert (there["entityType"], there["version"]) == ("order", event["schemaVersion"])
            assert there["told"] == str(log.token(here.position))
            assert {part["name"]: part["body"] for part in there["parts"]} == {
                name: json.loads(text) for name, text in here.parts.items()
            }
        for asked in ({"type": "order", "version": 9}, {"type": "none"}):
            assert (await queried(wire, LOOK_UP, **asked)) == {"data": {"schema": None}}
        listed = {"data": {"schemas": [{"entityType": "order", "versions": ["1", "2"]}]}}
        assert await queried(wire, LISTED) == await posted(server, LISTED) == listed
        (error,) = (await queried(wire, LOOK_UP, type="order", log="other"))["errors"]
        assert error["extensions"]["code"] == "LOG_NOT_FOUND"


async def test_who_may_not_see_a_schema_may_not_look_it_up(log):
    """F10, F59."""
    log.commit([schema("order", TOTAL)])
    for view, refused in ((View(), True), (View.of(Content.BODY, fields=["note"]), False)):
        with serve(log, authorise=Grant(view=view)) as server:
            for query in (LOOK_UP, LISTED):
                variables = {"type": "order"} if query is LOOK_UP else {}
                answer = await posted(server, query, **variables)
                codes = [error["extensions"]["code"] for error in answer.get("errors", [])]
                assert codes == (["FORBIDDEN"] if refused else [])
                assert ("total" in json.dumps(answer)) is (not refused and query is LOOK_UP)
