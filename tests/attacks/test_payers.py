"""Whose share a request takes: that of its principal, whatever transport and however many connections it comes by."""

import asyncio
import contextlib
import json
import threading
from collections import Counter

import pytest

from tests.attacks.raw_http import JSON, head
from tests.harness.inside import pools_of
from tests.transports.principals import knowing
from tests.transports.server.test_appending import WRITERS, change
from transports.appends import Appending
from transports.graphql.execution import Engine, GraphQLOperation

QUERY = "{ __typename } # large " + "x" * 9_000
LIGHT = "{ large: __typename }"
MUTATE = "mutation ($changes: [ChangeInput!]!) { append(changes: $changes) { version } }"
CHANGES = [{"entityType": "order", "key": "1", "body": {}}]


class Gate:
    """Holds what a principal does on a thread."""

    def __init__(self, held="eve"):
        self.go, self.inside, self.most = threading.Event(), Counter(), Counter()
        self._held, self._lock = held, threading.Lock()

    def pass_as(self, name):
        with self._lock:
            self.inside[name] += 1
            self.most[name] = max(self.most[name], self.inside[name])
        if name == self._held:
            assert self.go.wait(60)
        with self._lock:
            self.inside[name] -= 1


@pytest.fixture
def gate():
    made = Gate()
    yield made
    made.go.set()


@pytest.mark.parametrize("stage", ["prepared", "answered"])
@pytest.mark.parametrize("leaves", [False, True])
async def test_queries_over_a_websocket_take_of_what_bodies_may(
    serving, graphql, until, monkeypatch, gate, stage, leaves
):
    """F147: while they are prepared, wait and are answered; half of it is left to others, and all is given back."""
    query = QUERY if stage == "prepared" else LIGHT + " " * 9_000
    place, method = (Engine, "prepare") if stage == "prepared" else (GraphQLOperation, "answer")
    original = getattr(place, method)

    def slowly(self, *given, **named):
        principal = named.get("principal") or self._principal
        if "large" in str(given) or stage == "answered":
            gate.pass_as(principal.name)
        return original(self, *given, **named)

    monkeypatch.setattr(place, method, slowly)
    server = serving(authenticate=knowing("ann", "eve"), body_bytes=100_000)
    held = server.application._bodies.held
    async with contextlib.AsyncExitStack() as stack:
        told = []

        async def storm():
            wire = await stack.enter_async_context(graphql(server))
            await wire.init(token="eve")
            for number in range(4):
                await wire.subscribe(query, str(number))
            while True:
                told.append(await wire.receive())

        storms = [asyncio.ensure_future(storm()) for _ in range(2)]
        await until(lambda: len(told) == 3)
        assert [one["type"] for one in told] == ["error"] * 3
        errors = [one["payload"][0]["extensions"] for one in told]
        assert {(one["code"], one["option"], one["retryable"]) for one in errors} == {
            ("TOO_COSTLY", "body_bytes", True)
        }
        assert 40_000 < held.taken <= 50_000
        async with graphql(server) as ann:
            await ann.init(token="ann")
            if stage == "answered":  # else its thread is that of its address, as for every reader
                assert await ann.answer(query) == {"large": "Query"}
            assert await ann.answer("{ __typename }", "small") == {"__typename": "Query"}
        if not leaves:
            gate.go.set()
            await until(lambda: sum(one["type"] == "complete" for one in told) == 5)
            assert not held.taken
        for one in storms:
            one.cancel()
        await asyncio.wait(storms)
    gate.go.set()
    await until(lambda: not held.taken)


async def by_message(stack, server, token, dial, graphql, client):
    wire = await stack.enter_async_context(dial(server.url))
    await wire.init(token=token)
    await wire.send(type="append", id="a", payload={"changes": [change(1)]})
    return wire.expect("appended")


async def by_mutation(stack, server, token, dial, graphql, client):
    wire = await stack.enter_async_context(graphql(server))
    await wire.init(token=token)
    await wire.subscribe(MUTATE, changes=CHANGES)
    return wire.next()


def posted(path, body):
    async def by_request(stack, server, token, dial, graphql, client):
        one, data = await client(server), json.dumps(body).encode()
        await one.send(
            head(path, JSON, f"authorization: Bearer {token}", f"content-length: {len(data)}") + data
        )
        return one.answer()

    return by_request


WAYS = {
    "messages": by_message,
    "mutations": by_mutation,
    "documents": posted("/changes", {"changes": [change(1)]}),
    "posted mutations": posted("/graphql", {"query": MUTATE, "variables": {"changes": CHANGES}}),
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
async def test_threads_that_append_are_shared_by_principals_and_not_by_addresses(
    serving, dial, graphql, client, until, monkeypatch, gate, way
):
    """F147: one has half of them over all transports, so that another of the same address finds one."""
    submit = Appending.submit

    def slowly(self, log, principal, *given):
        gate.pass_as(principal.name)
        return submit(self, log, principal, *given)

    monkeypatch.setattr(Appending, "submit", slowly)
    server = serving(authenticate=knowing("ann", "eve"), authorise=WRITERS, append_threads=4)
    pool = pools_of(server.application).appending
    async with contextlib.AsyncExitStack() as stack:
        twice = [*WAYS.values()] * 2
        answers = [await one(stack, server, "eve", dial, graphql, client) for one in twice]
        await until(lambda: gate.inside["eve"] == 2 and pool.waiting >= 4)
        await (await way(stack, server, "ann", dial, graphql, client))
        assert gate.most == {"eve": 2, "ann": 1}
        gate.go.set()
        await asyncio.gather(*answers)
        assert gate.most["eve"] == 2
        assert server.application._appending.unanswered.taken == 0
