"""The sinks of one log, together: added by code, told of by a server, and none of them disturbs another one."""

import json

import pytest

from penstock_cdc.errors import InvalidOption
from publishers import ChangeLog, upsert
from tests.harness.constants import set_constant
from tests.publishers.support import wait_until
from tests.transports.sinks.targets import QUICK, Target
from tests.transports.telemetry.test_prometheus import fetch, read
from transports import serve
from transports.sinks import (
    LogSinks,
    NoSuchSink,
    RetryPolicy,
    SinkOptions,
    SinkState,
    TargetRefused,
    TargetUnavailable,
)
from transports.sinks import log_sinks as module
from transports.telemetry.table import TABLE, samples

AT_ONCE = SinkOptions(since="earliest", linger=0.0, retry=RetryPolicy(first=0.001, limit=0.001))


@pytest.fixture
def log(tmp_path):
    with ChangeLog.open(tmp_path / "shop", **QUICK) as log:
        yield log


def arrived(target, *keys):
    wait_until(lambda: target.keys == list(keys), lambda: target.keys)


def test_sinks_are_added_by_code_asked_by_name_and_removed(log):
    """F109, F119: by code."""
    with LogSinks(log) as sinks:
        target = Target()
        runner = sinks.add("stock", target, AT_ONCE)
        log.commit([upsert("order", "a", {})])
        arrived(target, "a")
        assert (list(sinks), len(sinks), sinks["stock"], "stock" in sinks) == (["stock"], 1, runner, True)
        assert repr(sinks) == "<LogSinks of 'shop': stock>"
        assert sinks.order("stock", "pause").state is SinkState.PAUSED
        assert sinks.order("stock", "seek", "earliest").position == (1, 0)
        sinks.order("stock", "resume")
        arrived(target, "a", "a")
        sinks.remove("stock")
        assert runner.state is SinkState.STOPPED
        assert len(sinks) == 0
        assert log.slots.info("stock").position == log.head
        with pytest.raises(NoSuchSink, match="there is no sink 'stock' in the process"):
            sinks.remove("stock")
        again = sinks.add("stock", target)
    assert again.state is SinkState.STOPPED
    sinks.close()


def test_what_is_wrong_with_a_sink_is_told_when_it_is_added(log, monkeypatch):
    """F108."""
    with LogSinks(log) as sinks:
        sinks.add("stock", Target())
        with pytest.raises(InvalidOption, match="another name"):
            sinks.add("stock", Target())
        with pytest.raises(InvalidOption, match="name"):
            sinks.add("Stock!", Target())
        with pytest.raises(InvalidOption, match="'pause', 'resume', 'seek', 'off', 'on' or 'again'"):
            sinks.order("stock", "explode")
        set_constant(monkeypatch, module, "SINKS_MOST", 1)
        with pytest.raises(InvalidOption, match="at most 1 sinks"):
            sinks.add("other", Target())


def test_a_sink_that_fails_in_any_way_disturbs_no_other_one(log):
    """F108, F125: one refuses, one is down, one breaks, one is stuck: the rest has everything, and each its own place."""
    good, refusing, down, broken = Target(), Target(), Target(), Target()
    refusing.plan = [TargetRefused("no")]
    down.plan = [TargetUnavailable("down")] * 10**6
    broken.open = lambda _: 1 / 0
    with LogSinks(log) as sinks:
        for name, target in (("refusing", refusing), ("down", down), ("broken", broken), ("good", good)):
            sinks.add(name, target, AT_ONCE)
        for key in "abc":
            log.commit([upsert("order", key, {})])
        arrived(good, "a", "b", "c")
        wait_until(
            lambda: (
                [sinks[name].state.name for name in ("refusing", "broken")] == ["PAUSED", "PAUSED"]
                and sinks["down"].counters.failures > 3
            )
        )
        log.commit([upsert("order", "d", {})])
        arrived(good, "a", "b", "c", "d")
        assert (refusing.keys, down.keys) == ([], [])
        places = {name: log.slots.info(name).position for name in ("refusing", "down")}
        assert set(places.values()) == {(1, 0)}
        down.plan = []
        arrived(down, "a", "b", "c", "d")
        sinks.order("refusing", "resume")
        arrived(refusing, "a", "b", "c", "d")


async def test_a_server_tells_of_each_sink_and_is_degraded_while_one_carries_nothing(log):
    """F136, F137: /statistics, /metrics, /health and /ready."""
    target, paused = Target(), Target()
    with LogSinks(log) as sinks, serve(log, port=0) as server:
        server.application.sinks = lambda: {"shop": sinks.told(), "another": {}}
        sinks.add("stock", target, AT_ONCE)
        log.commit([upsert("order", "a", {})])
        arrived(target, "a")
        assert (await fetch(server, "/health"))[0] == 200
        paused.plan = [TargetUnavailable("down"), TargetRefused("no such table")]
        sinks.add("billing", paused, AT_ONCE)
        wait_until(lambda: sinks["billing"].state is SinkState.PAUSED)
        told = {}

        async def gathered():
            told.update(json.loads((await fetch(server, "/statistics"))[2])["logs"]["shop"]["sinks"])
            return told.get("billing", {}).get("state") == "PAUSED"

        while not await gathered():
            pass
        assert told["stock"]["state"] == "STREAMING"
        assert (told["stock"]["changes"], told["stock"]["lastErrorAge"]) == (2, None)
        billing = told["billing"]
        assert (billing["reason"], billing["lastError"], billing["failures"]) == (*["no such table"] * 2, 1)
        assert (billing["position"], billing["lag"]["versions"]) == ("1:0", 1)
        found = read((await fetch(server, "/metrics"))[2])
        label = (("log", "shop"), ("sink", "billing"))
        assert found["penstock_sink_state", (*label, ("state", "PAUSED"))] == 1
        assert found["penstock_sink_lag_versions", label] == 1
        assert found["penstock_sink_failures_total", label] == 1
        assert found["penstock_sink_last_error_age_seconds", label] >= 0
        while (found := await fetch(server, "/health"))[0] == 200:
            pass  # it is told again for a moment
        health = json.loads(found[2])
        assert (found[0], health["status"], health["logs"]["shop"]["status"]) == (503, "degraded", "ok")
        assert health["logs"]["shop"]["sinks"] == {"stock": "STREAMING", "billing": "PAUSED"}
        status, _, text = await fetch(server, "/ready")
        assert (status, json.loads(text)["status"]) == (200, "degraded")
        sinks.order("billing", "resume")
        while (await fetch(server, "/health"))[0] != 200:
            pass


def test_every_metric_of_a_sink_is_where_its_statistics_have_it(log):
    """F137."""
    target = Target()
    target.plan = [TargetUnavailable("down")]
    slow = SinkOptions(
        since="earliest", linger=0.0, retry=RetryPolicy(first=60.0, limit=60.0, jitter=lambda: 1.0)
    )
    log.commit([upsert("order", "a", {})])
    with LogSinks(log) as sinks:
        sinks.add("stock", target, slow)
        wait_until(lambda: sinks["stock"].state is SinkState.RETRYING)
        told = {"logs": {"shop": {"sinks": sinks.told()}}}
    mine = [metric for metric in TABLE if metric.name.startswith("penstock_sink_")]
    assert len(mine) == 15
    assert [metric.name for metric in mine if not list(samples(metric, told))] == []


def test_a_sink_that_takes_the_name_of_a_dropped_one_carries_the_rows_itself(tmp_path):
    """F88, F119: though the dropped sink had carried them, and was COMPLETED."""
    rows = SinkOptions(snapshot="initial_only", linger=0.0)
    with ChangeLog.open(tmp_path / "shop", state=True, **QUICK) as log, LogSinks(log) as sinks:
        log.commit([upsert("order", "a", {})])
        for _ in range(2):
            target = Target()
            runner = sinks.add("stock", target, rows)
            arrived(target, "a")
            wait_until(lambda runner=runner: runner.state is SinkState.COMPLETED)
            sinks.drop("stock")
