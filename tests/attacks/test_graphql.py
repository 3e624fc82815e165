"""Documents that are made to cost much, beside a subscriber and a committer that mean well."""

import asyncio
import json
import threading
import urllib.error
import urllib.request

import pytest

from tests.harness.inside import pools_of
from tests.transports.graphql.test_cost import CIRCLES, DOUBLING, SAME_ARGUMENTS

TURN = 30_000
"""Calls in one turn of the loop; the smallest of these documents would take more if it were validated there."""

DOCUMENTS = {
    "fields of one name": "{ " + "__typename " * 1_900 + "}",
    "fields of one name within each other": "{ " + "logs { name name name name name } " * 270 + "}",
    "long arguments that are compared": SAME_ARGUMENTS,
    "fragments that double": DOUBLING + " fragment F30 on Query { __typename }",
    "fragments in a circle": CIRCLES,
    "many fragments": "{ "
    + " ".join(f"...F{n}" for n in range(300))
    + " } "
    + " ".join(f"fragment F{n} on Query {{ __typename }}" for n in range(300)),
    "deep": "{ " + "logs { " * 600 + "name" + " }" * 601,
    "unknown names that are long": "{ "
    + " ".join("history" + "y" * 60 + str(n) for n in range(1_000))
    + " }",
    "one long comment": "# " + "x" * 700_000 + "\n{ __typename }",
    "one long text": '{ history(since: "' + "x" * 700_000 + '") { next } }',
    "unclosed texts": "{ a(b: " + '"""\\""" ' * 20_000 + " }",
    "many aliases": "{ "
    + " ".join(f"a{n}: history(limit: 1000) {{ changes {{ body }} }}" for n in range(150))
    + " }",
}


async def post(server, query, variables=None):
    def work():
        body = json.dumps({"query": query, "variables": variables}).encode()
        headers = {"content-type": "application/json", "accept": "application/graphql-response+json"}
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        request = urllib.request.Request(server.graphql_url, data=body, headers=headers)
        try:
            with opener.open(request, timeout=60) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read())

    return await asyncio.to_thread(work)


@pytest.mark.parametrize("text", DOCUMENTS.values(), ids=DOCUMENTS.keys())
async def test_no_document_holds_the_loop(serving, graphql, beside, watched, text):
    """F147: over HTTP and over a WebSocket; it is refused, and the turns of the loop stay short."""
    server = serving()
    async with beside(server) as commit, graphql(server) as wire:
        await wire.init()
        await wire.subscribe("{ __typename }", "warm")  # what is imported and made once
        while (await wire.receive())["type"] != "complete":
            pass
        turns = watched(server)
        errors = await wire.fail(text)
        await commit()
        status, answer = await post(server, text)
        await commit()
        assert status == 400
        for told in (errors, answer["errors"]):
            assert {one["extensions"]["code"] for one in told} <= {"TOO_COSTLY", "INVALID_REQUEST"}
            assert len(json.dumps(told)) < 20 * 1_000
        assert turns.longest < TURN


async def test_variables_of_a_megabyte_are_counted_and_not_coerced(serving, graphql, beside, watched):
    """F147."""
    server = serving()
    query = "subscription ($c: [Criterion!]) { onChange(criteria: $c) { key } }"
    async with beside(server) as commit, graphql(server) as wire:
        await wire.init()
        turns = watched(server)
        (error,) = await wire.fail(query, c=[{}] * 200_000)
        assert error["extensions"]["code"] == "TOO_COSTLY"
        errors = await wire.fail(query, "b", c=[{"x": n} for n in range(5_000)])
        assert len(json.dumps(errors)) < 50 * 1_000
        await commit()
        assert turns.longest < TURN


async def test_a_client_that_sends_large_documents_takes_one_thread(
    serving, graphql, beside, until, monkeypatch
):
    """F147: however many it sends at once, by however many connections."""
    from transports.graphql.execution import Engine

    server, go_on, running, most = serving(), threading.Event(), [], []
    prepare = Engine.prepare

    def slowly(self, query, *args, **named):
        if "large" not in query:
            return prepare(self, query, *args, **named)
        running.append(query)
        most.append(len(running))
        assert go_on.wait(60)
        running.remove(query)
        return prepare(self, query, *args, **named)

    monkeypatch.setattr(Engine, "prepare", slowly)
    async with beside(server) as commit, graphql(server) as one, graphql(server) as other:
        for wire in (one, other):
            await wire.init()
            for number in range(20):
                await wire.subscribe("{ __typename } # large " + "x" * 5_000, f"q{number}")
        # It is counted before its thread has begun.
        await until(lambda: running and pools_of(server.application).preparing.waiting >= 1)
        await commit()
        assert len(running) == max(most) == 1
        go_on.set()


async def test_a_page_and_an_answer_are_bounded_in_bytes(serving, beside, fill):
    """F147: a query of a kilobyte does not make the server hold a gigabyte."""
    fill(40, body="x" * 20_000)
    server = serving(answer_bytes=400_000, history_bytes=200_000)
    pages = " ".join(f"a{n}: history(limit: 1000) {{ changes {{ body before }} }}" for n in range(30))
    async with beside(server) as commit:
        status, answer = await post(server, f"{{ {pages} }}")
        await commit()
    assert status == 200
    assert len(json.dumps(answer)) < 450_000
    assert {error["extensions"]["code"] for error in answer["errors"]} == {"TOO_COSTLY"}
