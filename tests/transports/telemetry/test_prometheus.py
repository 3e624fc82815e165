"""What ``/metrics`` answers."""

import asyncio
import json
import sys
import urllib.error
import urllib.request

import pytest
from prometheus_client.parser import text_string_to_metric_families

from publishers import upsert
from publishers.log.changelog import ChangeLog
from tests.harness.inside import loop_of
from tests.transports.principals import knowing
from tests.transports.server.test_appending import WRITERS
from tests.transports.telemetry.page import PAGE, written
from transports import Forbidden, Grant, LogAction, serve
from transports.access.access import SERVER
from transports.errors import ExtraMissing
from transports.telemetry.latency import BOUNDS, Latencies, Latency
from transports.telemetry.prometheus import exposition
from transports.telemetry.table import TABLE, MetricKind, samples


async def fetch(server, path, token=None):
    def work():
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        url = server.home_url.rstrip("/") + path
        try:
            with opener.open(urllib.request.Request(url, headers=headers), timeout=60) as answer:
                return answer.status, answer.headers["content-type"], answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.headers["content-type"], error.read().decode()

    return await asyncio.to_thread(work)


def read(text):
    """Every sample, by its name and labels."""
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            key = (sample.name, tuple(sorted(sample.labels.items())))
            assert key not in found
            found[key] = sample.value
    return found


async def test_what_happens_is_counted(serving, dial, fill, log, until):
    """F135, F161: commits, deliveries, connections, lag, refusals and latencies of one server, read by Prometheus's own parser."""
    server = serving(subscription_weight=100)
    async with dial(server.url) as wire, dial(server.url) as idle:
        await wire.init(), await idle.init()
        await wire.subscribe(credits=100, content="BODY")
        await idle.subscribe()
        fill(3, changes=2)
        await wire.events(9)
        refused = await wire.fail("b", criteria=[{"keys": [str(n) for n in range(100)]}])
        assert refused["code"] == "TOO_COSTLY"
        status, kind, text = await fetch(server, "/metrics")
        assert (status, kind) == (200, "text/plain; version=0.0.4; charset=utf-8")
        found = read(text)
    shop = ("log", "shop")
    assert found["penstock_connections", (("protocol", "penstock.v1+json"),)] == 2
    assert found["penstock_errors_total", (("code", "TOO_COSTLY"),)] == 1
    assert found["penstock_log_visible_version", (shop,)] == 3
    assert found["penstock_log_changes_total", (shop,)] == 9
    assert found["penstock_log_subscriptions", (shop,)] == 2
    assert found["penstock_log_delivered_total", (("area", "DATA"), shop)] == 6
    assert found["penstock_log_lag_events", (shop, ("share", "1"))] == 9
    assert found["penstock_log_lag_versions", (shop, ("share", "0.5"))] in (0, 3)
    assert found["penstock_log_sound", (shop,)] == 1
    assert 0 <= found["penstock_log_commit_age_seconds", (shop,)] < 60
    assert found["penstock_log_queue_limit_bytes", (shop,)] == log.options.queue_bytes
    sent = found["penstock_log_send_latency_seconds_count", (shop,)]
    assert 1 <= sent <= 3
    assert found["penstock_log_send_latency_seconds_bucket", (("le", "+Inf"), shop)] == sent
    assert 0 < found["penstock_log_send_latency_seconds_sum", (shop,)] < 60 * sent
    await until(lambda: server.application.connections == 0)
    assert server.application._protocols == {"penstock.v1+json": 0}


async def test_text_and_json_agree(serving, dial, fill):
    """F135: metric by metric, on a server on which nothing happens meanwhile."""
    server = serving()
    async with dial(server.url) as wire:
        await wire.init()
        await wire.subscribe(credits=2)
        fill(4, changes=3)
        await wire.events(2)
        await fetch(server, "/graphql")
        # Of one moment: what both are made from is kept for a while.
        (_, _, text), told = await asyncio.gather(fetch(server, "/metrics"), _figures(server))
    found = read(text)
    flat = {
        (metric.name, tuple(sorted(zip(metric.all_labels, values, strict=True)))): value
        for metric in TABLE
        if metric.kind is not MetricKind.HISTOGRAM
        for values, value in samples(metric, told)
    }
    moving = {"penstock_log_commit_age_seconds", "penstock_log_lag_seconds", "penstock_log_expiry_seconds"}
    same = {key: value for key, value in flat.items() if key[0] not in moving}
    assert len(same) > 60
    assert {key: found[key] for key in same} == same
    assert {key[0] for key in flat} <= {name for name, _ in found}


async def _figures(server):
    """What ``/statistics`` is made from, as its own event loop gives it."""
    return await asyncio.wrap_future(
        asyncio.run_coroutine_threadsafe(server.application.figures(), loop_of(server))
    )


def query(**told):
    """A streaming query, as a listener tells of it."""
    figures = {"state": "RUNNING", "batch": 3, "batches": 4, "rows": 50, "batchRows": 5, "inputRate": 2.5, "rate": 9, "seconds": {"addBatch": 0.5}, "behind": 7, "error": None}  # fmt: skip
    return figures | told


async def test_streaming_queries_are_told_of(serving):
    """F152: their rates, lag and errors, in both forms."""
    queries = {"totals": query(), "copy": query(state="FAILED", error="it failed", behind=None)}
    server = serving(spark_queries=lambda: queries)
    found = read((await fetch(server, "/metrics"))[2])
    assert {key: value for key, value in found.items() if key[0].startswith("penstock_spark")} == {
        ("penstock_spark_query_state", (("query", "totals"), ("state", "RUNNING"))): 1,
        ("penstock_spark_query_state", (("query", "copy"), ("state", "FAILED"))): 1,
        ("penstock_spark_query_behind_versions", (("query", "totals"),)): 7,
        **{
            (f"penstock_spark_query_{name}", (*label, ("query", one))): value
            for one in queries
            for name, label, value in (
                ("batches_total", (), 4),
                ("rows_total", (), 50),
                ("input_rate", (), 2.5),
                ("rate", (), 9),
                ("batch_seconds", (("part", "addBatch"),), 0.5),
            )
        },
    }
    told = json.loads((await fetch(server, "/statistics"))[2])
    assert told["sparkQueries"] == queries


async def test_every_figure_of_the_table_is_where_statistics_have_it(serving, dial, fill, log):
    """F135: a path of the table that leads nowhere would be a metric that is never told."""
    server = serving(authorise=WRITERS, spark_queries=lambda: {"totals": query()}, commit_age=3_600.0)
    server.application.redis_port = lambda: {
        "connections": 1,
        "ended": {"STALLED": 1},
        "commands": {"PING": 2},
        "errors": {"ERR": 1},
        "waiting": 0,
        "consumers": 1,
        "unsentBytes": 0,
        "unfinishedBytes": 0,
        "limits": {"consumers": 10, "unsentBytes": 20, "unfinishedBytes": 30},
    }
    log.slots.create("billing", keep_bytes=10_000_000)
    log.groups.create("pickers", since="earliest")
    log.hold("slow", log.oldest, keep_bytes=10_000_000)
    async with dial(server.url) as wire:
        await wire.init()
        await wire.send(type="append", id="w", payload={"changes": [], "producer": "etl", "sequence": 1})
        await wire.expect("appended")
        await wire.subscribe(credits=10)
        fill(2)
        await wire.events(4)
        await wire.fail("b", log="other")
        await wire.send(type="nonsense")
        await wire.closed()
        await fetch(server, "/graphql?query={__typename}")
        told = await _figures(server)
    never = {metric.name for metric in TABLE if not list(samples(metric, told))}
    # Of a log that keeps a state, and of one whose sinks run here; tests/transports/sinks has them.
    never -= {name for name in never if name.startswith(("penstock_log_state_", "penstock_sink_"))}
    # A hold without a bound in time, and a slot whose segment is being written.
    assert never == {"penstock_log_hold_expiry_seconds", "penstock_log_slot_left_seconds"}


async def test_each_principal_is_told_of_the_logs_that_it_may_operate(tmp_path):
    """F135: of two that ask at once neither is told what the other is, and the server's figures are for its operator."""

    def authorise(principal, log, action):
        if principal.name == "reader" and action is LogAction.OPERATE:
            return Grant({LogAction.READ})
        if principal.name not in (log, "reader"):
            raise Forbidden("log", "another")
        return Grant({LogAction.READ, LogAction.OPERATE})

    names = ["a", "b", SERVER, "reader"]
    with ChangeLog.open(tmp_path / "a") as a, ChangeLog.open(tmp_path / "b") as b:
        a.commit([upsert("order", "1", {})])
        with serve({"a": a, "b": b}, authenticate=knowing(*names), authorise=authorise) as server:
            assert (await fetch(server, "/metrics"))[0] == 401
            told = await asyncio.gather(*(fetch(server, "/metrics", token) for token in names * 2))
    for token, (status, _, text) in zip(names * 2, told, strict=True):
        found = read(text)
        assert status == 200
        assert {dict(labels)["log"] for _, labels in found if "log" in dict(labels)} == {token} & {"a", "b"}
        assert (("penstock_unsent_bytes", ()) in found) is (token == SERVER)


async def test_several_servers_of_one_process_tell_of_themselves_only(tmp_path):
    """F135: nothing is kept in a registry of the process."""
    with (
        ChangeLog.open(tmp_path / "a") as a,
        ChangeLog.open(tmp_path / "b") as b,
        serve(a) as first,
        serve(b) as second,
    ):
        for server, name in ((first, "a"), (second, "b")):
            found = read((await fetch(server, "/metrics"))[2])
            assert {dict(labels)["log"] for _, labels in found if "log" in dict(labels)} == {name}


async def test_a_log_that_has_ended_is_not_sound_and_has_no_figures(tmp_path):
    log = ChangeLog.open(tmp_path / "a")
    with serve({"a": log}) as server:
        log.close()
        found = read((await fetch(server, "/metrics"))[2])
    assert found["penstock_log_sound", (("log", "a"),)] == 0


async def test_without_the_library_one_is_told_what_to_install(serving, monkeypatch):
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(ExtraMissing, match="server"):
        exposition({"logs": {}})
    status, _, text = await fetch(serving(), "/metrics")
    assert (status, "pip install" in text) == (501, True)


def test_names_of_the_table_are_of_one_kind():
    names = [metric.name for metric in TABLE]
    assert len(set(names)) == len(names)
    assert all(name.startswith("penstock_") for name in names)
    assert {one.name for one in TABLE if one.kind is MetricKind.COUNTER} == {
        name for name in names if name.endswith("_total")
    }


def test_latencies_fall_into_the_bucket_that_they_are_within():
    latency = Latency()
    latency.observe(0)
    assert latency.histogram()["count"] == 0
    latency.observe(2**62)  # the clock was put back
    latency.observe(1)
    told = latency.histogram()
    assert list(told["buckets"]) == [*map(str, BOUNDS), "+Inf"]
    assert (told["buckets"][str(BOUNDS[0])], told["buckets"][str(BOUNDS[-1])], told["count"]) == (1, 1, 2)
    assert told["seconds"] > 1e9


def test_latencies_of_a_log_go_with_it():
    class Log:
        pass

    latencies, log = Latencies(), Log()
    assert latencies.histogram(log) is None
    latencies.of(log).observe(1)
    assert latencies.of(log) is latencies.of(log)
    assert latencies.histogram(log)["count"] == 1
    del log
    assert not latencies._by_log


def test_the_guide_shows_the_table_as_it_is():
    """F135: names are stable, and documented: ``python -m tests.transports.telemetry.page`` writes them."""
    text = PAGE.read_text()
    assert written(text) == text
    assert text.count("| `penstock_") == len(TABLE)
