"""What a server tells of appends and of slots."""

import asyncio
import json
import urllib.request

from publishers import ChangeLog, upsert
from tests.harness.constants import set_bounds
from tests.harness.inside import appending_of
from tests.publishers.support import order
from tests.transports.http.test_changes import post
from tests.transports.server.test_appending import WRITERS, answers, append, change
from transports import connect

__all__ = ["post"]


def read(server, path):
    with urllib.request.urlopen(server.health_url.replace("/health", path), timeout=60) as answer:
        return answer.read().decode()


def sample(text, name):
    """The value of a sample, by its name and labels as they are written."""
    return next(float(line.rpartition(" ")[2]) for line in text.splitlines() if line.startswith(name + " "))


async def figures(server):
    metrics = await asyncio.to_thread(read, server, "/metrics")
    return metrics, json.loads(await asyncio.to_thread(read, server, "/statistics"))


async def test_what_becomes_of_appends_is_counted_and_how_long_it_takes(serving, dial):
    """F145, F161: over the WebSocket, whole and in parts."""
    server = serving(authorise=WRITERS, message_bytes=5_000)
    async with connect(server.url) as remote:
        await remote.commit_async([order(1)], producer=("etl", 1))
        await remote.commit_async([order(1)], producer=("etl", 1))
        await remote.commit_async([upsert("order", str(n), {"pad": "x" * 100}) for n in range(100)])
    async with dial(server.url) as wire:
        await wire.init()
        await append(wire, "a", {"entity_type": "order"})
        await append(wire, "b", change(1))
        assert await answers(wire, 2) == [("a", "INVALID_CHANGE"), ("b", "PREDECESSOR_FAILED")]
        await wire.send(type="begin", id="c", payload={"wait": 7})
        await wire.send(type="begin", id="d", payload={"log": "none"})
        assert [code for _, code in await answers(wire, 2)] == ["INVALID_REQUEST", "LOG_NOT_FOUND"]
        await wire.send(type="begin", id="e")
        await wire.send(type="part", id="e", payload={"changes": []})
        await wire.expect("spooled")
        metrics, told = await figures(server)
    outcomes = {
        "WRITTEN": 2,
        "DUPLICATE": 1,
        "INVALID_CHANGE": 1,
        "PREDECESSOR_FAILED": 1,
        "INVALID_REQUEST": 1,
        "LOG_NOT_FOUND": 1,
    }
    assert told["appends"]["outcomes"] == outcomes
    assert (told["appends"]["unanswered"], told["appends"]["transactions"]) == (0, 1)
    assert told["appends"]["bytes"] > 10_000
    for outcome, count in outcomes.items():
        assert sample(metrics, f'penstock_appends_total{{outcome="{outcome}"}}') == count
    assert sample(metrics, "penstock_append_transactions") == 1
    assert sample(metrics, 'penstock_log_append_latency_seconds_count{log="shop"}') == 3
    assert sample(metrics, 'penstock_log_append_answer_latency_seconds_count{log="shop"}') == 3
    assert told["logs"]["shop"]["appendLatency"]["count"] == 3


def test_appends_over_http_and_graphql_are_counted_too(post, log):
    """F145, F161: in the same figures."""
    assert post({"changes": [change(1)]})[0] == 201
    assert post({"changes": 7})[0] == 400
    query = 'mutation { append(changes: [{entityType: "order", key: "1", body: "{}"}], log: %s) { version } }'
    server = post.servers[-1]
    for name in ('"shop"', '"none"'):
        data = json.dumps({"query": query % name}).encode()
        request = urllib.request.Request(
            server.health_url.replace("/health", "/graphql"), data, {"content-type": "application/json"}
        )
        urllib.request.urlopen(request, timeout=60).read()
    figures = appending_of(server.application).figures
    assert figures.outcomes == {"WRITTEN": 2, "INVALID_CHANGE": 1, "LOG_NOT_FOUND": 1}
    assert (figures.unanswered, figures.nbytes > 0) == (0, True)
    assert figures.durable.histogram(log)["count"] == figures.answered.histogram(log)["count"] == 2


async def test_slots_tell_their_lag_and_how_long_they_last(serving, log, fill):
    """F161: of each its state, what it has not acknowledged, and what is left until it is lost."""
    log.slots.create("billing", keep_bytes=10**9)
    fill(5)
    server = serving()
    metrics, told = await figures(server)
    slot = told["logs"]["shop"]["slots"]["billing"]
    assert (slot["state"], slot["lag"]["versions"], slot["lag"]["changes"] >= 5) == ("free", 5, True)
    assert 0 < slot["bytesLeft"] <= 10**9
    labels = '{log="shop",slot="billing"}'
    assert sample(metrics, "penstock_log_slot_lag_versions" + labels) == 5
    assert sample(metrics, "penstock_log_slot_left_bytes" + labels) == slot["bytesLeft"]
    assert sample(metrics, 'penstock_log_slot_state{log="shop",slot="billing",state="free"}') == 1
    assert sample(metrics, 'penstock_log_slots{log="shop"}') == 1
    assert sample(metrics, 'penstock_log_slots_lost{log="shop"}') == 0


async def test_the_lag_of_the_compacted_state_is_told(serving, tmp_path):
    """F126, F161: and nothing is told of a log that keeps none."""
    set_bounds(state_interval=3600.0)
    with ChangeLog.open(tmp_path / "stated", state=True, sync="os") as log:
        log.commit([order(1)])
        log.state.wait(1, timeout=60)
        log.commit([order(1), order(2)])
        server = serving(served=log)
        metrics, told = await figures(server)
        state = told["logs"]["stated"]["compactedState"]
        assert (state["position"]["version"], state["rows"], state["failed"]) == (2, 1, False)
        assert (state["lag"]["versions"], state["lag"]["changes"]) == (1, 3)
        assert sample(metrics, 'penstock_log_state_lag_versions{log="stated"}') == 1
        assert sample(metrics, 'penstock_log_state_lag_seconds{log="stated"}') > 0
        assert sample(metrics, 'penstock_log_state_failed{log="stated"}') == 0


async def test_a_log_without_a_state_tells_of_none(serving, fill):
    fill(1)
    metrics, told = await figures(serving())
    assert "compactedState" not in told["logs"]["shop"]
    assert "penstock_log_state_lag_versions{" not in metrics


async def test_groups_tell_their_lag_and_what_became_of_their_deliveries(serving, log, fill):
    """F86, F161: of each its state, what is pending and due, and how often something was delivered again or given up."""
    group = log.groups.create("pickers", since="earliest", max_deliver=2)
    fill(4)
    with group.join("one") as worker:
        first, second, third, _ = worker.read(4, wait=0)
        worker.ack(first)
        worker.nack(second, 600.0)
        worker.nack(third, 0.0)
        worker.read(wait=0)
        worker.term(third, "broken")
        metrics, told = await figures(serving())
    group_told = told["logs"]["shop"]["consumerGroups"]["pickers"]
    assert (group_told["state"], group_told["consumers"], group_told["lag"]["versions"]) == ("serving", 1, 3)
    labels = '{group="pickers",log="shop"}'
    expected = {
        "consumers": 1,
        "pending": 1,
        "due": 1,
        "parked": 0,
        "acked_total": 1,
        "redelivered_total": 1,
        "dead_total": 1,
        "lag_versions": 3,
    }
    for name, value in expected.items():
        assert sample(metrics, f"penstock_log_consumer_group_{name}{labels}") == value, name
    assert sample(metrics, 'penstock_log_consumer_groups_stopped{log="shop"}') == 0
    assert (
        sample(metrics, 'penstock_log_consumer_group_state{group="pickers",log="shop",state="serving"}') == 1
    )
