"""Metrics and traces of OpenTelemetry, with the SDK in this process."""

import asyncio
import subprocess
import sys

import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import flow
from penstock_cdc.errors import ExpectationFailed, InvalidChange, InvalidOption
from publishers import ChangeLog, ChangeStore, Position, upsert
from publishers.mutations.mutation import columns_of
from publishers.tracing import LINKS_MAX, CommitSpans, DeliverySpans
from tests.harness.constants import set_constant
from tests.publishers.support import BatchProbe
from tests.transports.graphql_wire import engine, graphql  # noqa: F401 - fixtures
from transports.cli import main
from transports.errors import ServerFailed
from transports.telemetry.otel import observe
from transports.telemetry.table import TABLE, MetricKind, samples


@pytest.fixture
def traced(monkeypatch):
    """A provider for the process, as far as this test sees it, and what it was given."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    set_constant(monkeypatch, trace, "_TRACER_PROVIDER", provider)
    yield provider, lambda: sorted(exporter.get_finished_spans(), key=lambda span: span.name)
    provider.shutdown()


@pytest.fixture
def log(tmp_path):
    with ChangeLog.open(tmp_path / "shop", tracer=CommitSpans()) as log:
        yield log


async def test_one_trace_goes_from_a_commit_to_its_delivery(log, serving, dial, traced, until):
    """F139, F161: a child of what the caller does, through the log, over a socket."""
    provider, spans = traced
    server = serving()
    observe(server, tracers=provider)
    async with dial(server.url) as wire:
        await wire.init()
        await wire.subscribe(credits=10)
        with provider.get_tracer("test").start_as_current_span("buy"):
            await log.commit_async([upsert("order", "1", {})], meta={"user": "ann"})
        events = await wire.events(2)
        await until(lambda: len(spans()) == 3)
        log.commit([upsert("order", "2", {})])
        await wire.events(2)
    buy, commit, deliver = spans()
    assert [one.name for one in (buy, commit, deliver)] == ["buy", "penstock commit", "penstock deliver"]
    assert {one.context.trace_id for one in (buy, commit, deliver)} == {buy.context.trace_id}
    assert commit.parent.span_id == buy.context.span_id
    assert deliver.parent.span_id == commit.context.span_id
    assert [link.context.span_id for link in deliver.links] == [commit.context.span_id]
    assert dict(commit.attributes) == {
        "penstock.log": "shop",
        "penstock.version": 1,
        "penstock.changes": 2,
        "penstock.duplicate": False,
    }
    assert (deliver.attributes["penstock.log"], deliver.attributes["penstock.changes"]) == ("shop", 2)
    meta = events[0]["meta"]
    assert meta == {"user": "ann", "traceparent": meta["traceparent"]}
    assert f"{commit.context.span_id:016x}" in meta["traceparent"]


def test_each_log_of_a_store_is_traced_by_its_name(tmp_path, traced):
    """F139."""
    provider, spans = traced
    with ChangeStore.open(tmp_path / "store", tracer=CommitSpans()) as store:
        store.create("shop")
        with provider.get_tracer("test").start_as_current_span("buy"):
            store["shop"].commit([upsert("order", "1", {})])
    assert [(one.name, one.attributes.get("penstock.log")) for one in spans()] == [
        ("buy", None),
        ("penstock commit", "shop"),
    ]
    with pytest.raises(InvalidOption, match="tracer"):
        ChangeStore.open(tmp_path / "other", tracer="spans")


def test_a_batch_of_several_commits_links_to_each_up_to_a_bound(log, traced):
    """F139, F161: one trace for a batch would say nothing of the others."""
    provider, spans = traced
    seen = []

    class Following(BatchProbe):
        def on_next_batch(self, batch):
            with DeliverySpans(provider).around(batch, "shop", consumer="mine"):
                seen.append(trace.get_current_span().get_span_context())
                super().on_next_batch(batch)

    probe = Following(0)
    log.changes().subscribe(probe, executor=flow.INLINE)
    for number in range(LINKS_MAX + 3):
        with provider.get_tracer("test").start_as_current_span("buy"):
            log.commit([upsert("order", str(number), {})])
    probe.request(1_000)
    (deliver,) = [one for one in spans() if one.name == "penstock deliver"]
    commits = [one.context.span_id for one in spans() if one.name == "penstock commit"]
    assert deliver.parent is None
    assert len(commits) == LINKS_MAX + 3
    assert {link.context.span_id for link in deliver.links} <= set(commits)
    assert len(deliver.links) == LINKS_MAX
    assert deliver.attributes["penstock.links_left_out"] == 3
    assert deliver.attributes["consumer"] == "mine"
    assert seen == [deliver.context]


def test_every_way_to_write_is_traced(log, traced):
    """F139: a span ends when its commit returns, or when what was submitted is durable."""
    provider, spans = traced
    row = upsert("order", "1", {})
    with provider.get_tracer("test").start_as_current_span("buy"):
        submitted = log.submit([row], meta={"user": "ann"})
        assert submitted.result().version == 1
        log.commit_columns([columns_of([row])])
        with log.transaction() as tx:
            tx.upsert("order", "2", {})
    submitted.visible.result()
    commits = [one for one in spans() if one.name == "penstock commit"]
    assert sorted(one.attributes["penstock.version"] for one in commits) == [1, 2, 3]
    written = [change.meta["traceparent"] for change in log.history().changes if change.index == 0]
    assert {one.context.span_id for one in commits} == {int(text.split("-")[2], 16) for text in written}


def test_annotations_that_are_none_are_refused_by_the_log(log, traced):
    provider, _ = traced
    with (
        provider.get_tracer("test").start_as_current_span("buy"),
        pytest.raises(InvalidChange, match="meta"),
    ):
        log.commit([upsert("order", "1", {})], meta="ann")


def test_a_commit_that_fails_is_a_failed_span(log, traced):
    provider, spans = traced
    with provider.get_tracer("test").start_as_current_span("buy"):
        with pytest.raises(InvalidChange):
            log.commit([7])
        refused = log.submit([upsert("order", "1", {})], expect=log.token(log.head), producer=("me", 1))
        late = log.submit([upsert("order", "1", {})], expect=str(log.token(Position(1))), producer=("me", 2))
        assert refused.result().version == 1
        with pytest.raises(ExpectationFailed):
            late.visible.result()  # the last of its futures: what the others call has been called
    failed = [one for one in spans() if one.status.status_code is trace.StatusCode.ERROR]
    assert {one.name for one in failed} == {"penstock commit"}
    assert {one.events[0].name for one in failed} == {"exception"}
    assert len(failed) == 2


def test_a_tracer_is_called(tmp_path):
    with pytest.raises(InvalidOption, match="tracer"):
        ChangeLog.open(tmp_path / "shop", tracer="otel")


def test_what_nobody_traces_makes_no_span(log, traced):
    provider, spans = traced
    probe = BatchProbe(100)
    log.changes().subscribe(probe, executor=flow.INLINE)
    for meta in (None, {"user": "ann"}, {"traceparent": "nonsense"}, {"traceparent": 7}):
        log.commit([upsert("order", "1", {})], meta=meta)
        with DeliverySpans(provider).around(probe.batches[-1], "shop") as span:
            assert not span.get_span_context().is_valid
    assert spans() == []


def test_the_trace_that_a_writer_names_is_kept(log, traced):
    """F139: what came from afar with its own context goes on in that trace."""
    provider, _ = traced
    theirs = "00-" + 31 * "0" + "7-" + 15 * "0" + "9-01"
    with provider.get_tracer("test").start_as_current_span("serve"):
        log.commit([upsert("order", "1", {})], meta={"traceparent": theirs})
    assert log.history(None, limit=1).changes[0].meta == {"traceparent": theirs}


async def test_deliveries_by_graphql_are_traced_too(log, traced, graphql, serving, until):  # noqa: F811 - a fixture
    """F139."""
    provider, spans = traced
    server = serving()
    observe(server, tracers=provider)
    async with graphql(server) as wire:
        await wire.init()
        await wire.subscribe("subscription { onChange { version } }")
        await until(lambda: log.statistics().subscription_count == 1)
        with provider.get_tracer("test").start_as_current_span("buy"):
            log.commit([upsert("order", "1", {})])
        await until(lambda: any(one.name == "penstock deliver" for one in spans()))


async def test_who_raises_on_a_delivery_is_told_no_more_and_harms_no_client(log, serving, dial, caplog):
    server = serving()

    def fail(batch, name):
        raise ValueError(name)

    server.observe_deliveries(fail)
    async with dial(server.url) as wire:
        await wire.init()
        await wire.subscribe(credits=10)
        for number in range(2):
            log.commit([upsert("order", str(number), {})])
        await wire.events(4)
    assert len([one for one in caplog.records if "gets no more deliveries" in one.getMessage()]) == 1


def observed(reader):
    data = reader.get_metrics_data()
    return {
        metric.name: {
            tuple(sorted(point.attributes.items())): point.value for point in metric.data.data_points
        }
        for resource in (data.resource_metrics if data else ())
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }


async def test_metrics_are_those_of_the_table(log, serving, dial):
    """F161: name by name, and the figures of the server."""
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    server = serving()
    observe(server, meters=provider)
    async with dial(server.url) as wire:
        await wire.init()
        await wire.subscribe(credits=10)
        log.commit([upsert("order", "1", {})])
        await wire.events(2)
        told = await asyncio.to_thread(server.figures)
        found = await asyncio.to_thread(observed, reader)
    for metric in TABLE:
        if metric.kind is MetricKind.HISTOGRAM:
            continue
        wanted = {
            tuple(sorted(zip(metric.all_labels, values, strict=True))) for values, _ in samples(metric, told)
        }
        assert found.get(metric.name.removesuffix("_total"), {}).keys() == wanted
    assert found["penstock_log_visible_version"] == {(("log", "shop"),): 1}
    assert found["penstock_log_send_latency_seconds_count"] == {(("log", "shop"),): 1}
    assert found["penstock_log_send_latency_seconds_bucket"][("le", "+Inf"), ("log", "shop")] == 1
    assert found["penstock_log_send_latency_seconds_sum"][(("log", "shop"),)] > 0
    server.stop()
    with pytest.raises(ServerFailed, match="stopped"):
        server.figures()
    provider.shutdown()


async def test_a_server_that_does_not_answer_is_not_waited_for(log, serving, monkeypatch):
    server = serving()

    async def never():
        await asyncio.Event().wait()

    monkeypatch.setattr(server.application, "figures", never)
    with pytest.raises(ServerFailed, match=r"within 0\.01 s"):
        await asyncio.to_thread(server.figures, 0.01)


def test_nothing_of_it_is_imported_unless_it_is_used():
    """F139: nothing imported, and nothing paid."""
    imported = "publishers, transports, transports.server.uvicorn, transports.cli.serve"
    extras = ("opentelemetry", "prometheus_client")
    code = f"import sys, {imported}; sys.exit(any(name.startswith({extras}) for name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_command_says_what_to_install(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "transports.telemetry.otel", None)
    with ChangeLog.open(tmp_path / "other"):
        assert main(["serve", str(tmp_path / "other"), "--port", "0", "--otel"]) == 1
    assert "pip install 'penstock-cdc[otel]'" in capsys.readouterr().err
