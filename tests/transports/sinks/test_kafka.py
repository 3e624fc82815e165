"""What of the sink for Kafka needs no broker: its forms and bounds. Real brokers are in tests/servers."""

import json

import pytest

from publishers import ChangeLog, Content, InvalidOption, View, remove, truncate, upsert
from tests.harness.ports import free_port
from tests.transports.sinks.targets import HandClock, rigged
from transports.sinks import SinkContext, SinkState, TargetUnavailable
from transports.sinks.formats import WebhookSource
from transports.sinks.kafka import ExactlyOnceKafkaSink, KafkaSink
from transports.sinks.records import RECORDS


@pytest.fixture
def told(tmp_path):
    """What a form makes of some changes."""
    with ChangeLog.open(tmp_path / "log") as log:
        log.commit(
            [
                upsert("order", "1", {"n": 2}, before={"n": 1}),
                upsert("order", "2", {"n": 1}),
                remove("order", "3", before={"n": 0}),
                truncate("order"),
            ]
        )
        context = SinkContext.of(log, "s", View(Content.BODY), HandClock())
        changes = log.history(None, "earliest", content=Content.BODY).changes[1:]
        yield lambda form: [
            json.loads(_encoded(RECORDS[form](one, context, WebhookSource("shop")))) for one in changes
        ]


def _encoded(value):
    import msgspec

    return msgspec.json.encode(value)


def test_the_envelope_of_debezium_is_as_its_readers_know_it(told):
    """F166: before, after, source, op, ts_ms and transaction."""
    made = told("debezium")
    assert [(one["op"], one["before"], one["after"]) for one in made] == [
        ("u", {"n": 1}, {"n": 2}),
        ("c", None, {"n": 1}),
        ("d", {"n": 0}, None),
        ("t", None, None),
    ]
    source = made[0]["source"]
    assert (source["name"], source["table"], source["position"], source["snapshot"]) == (
        "shop",
        "order",
        "1:1",
        "false",
    )
    assert made[0]["ts_ms"] >= 10**12
    assert [one["transaction"]["total_order"] for one in made] == [1, 2, 3, 4]


def test_the_other_forms_are_those_of_webhooks(told):
    """F111."""
    assert [one["operation"] for one in told("native")] == ["UPSERT", "UPSERT", "REMOVE", "TRUNCATE"]
    assert told("cloudevents")[0]["type"] == "penstock.order.upsert"


@pytest.mark.parametrize("make", [KafkaSink, ExactlyOnceKafkaSink])
def test_a_broker_that_is_not_there_is_tried_again(tmp_path, make):
    """F125."""
    sink = make(f"127.0.0.1:{free_port()}", timeout=0.5)
    with rigged(tmp_path / "log", sink) as rig:
        rig.commit("a")
        rig.until(lambda: rig.runner.state is SinkState.RETRYING)
        assert not sink.alive()
        assert "127.0.0.1" in repr(sink)


def test_settings_that_are_none_pause_the_sink(tmp_path):
    with rigged(tmp_path / "log", KafkaSink("x:1", settings={"no.such": 1})) as rig:
        rig.commit("a")
        rig.until(lambda: rig.runner.state is SinkState.PAUSED)
        assert "no.such" in rig.runner.statistics().reason


@pytest.mark.parametrize(
    "arguments",
    [
        {"servers": ""},
        {"topic": ""},
        {"topic": "{key}"},
        {"form": "avro"},
        {"timeout": 0},
        {"settings": {"acks": 1}},
    ],
)
def test_what_is_out_of_its_bounds_is_refused(arguments):
    with pytest.raises(InvalidOption):
        KafkaSink(**{"servers": "x:1", **arguments})


def test_to_ask_whether_brokers_answer_makes_no_producer_without_transactions(tmp_path):
    """F103: which none could begin with, ever after."""
    with rigged(tmp_path, ExactlyOnceKafkaSink("127.0.0.1:1", timeout=1)) as rig:
        rig.target._context = rig.runner.machine._target._context
        assert rig.target.alive() is False
        assert rig.target._producer is None


def test_a_fatal_error_whose_reason_the_client_lost_pauses_the_sink(tmp_path, monkeypatch):
    """F103: instead of fencing the newer runner that may be its reason."""
    sink = ExactlyOnceKafkaSink("127.0.0.1:1")

    def failed(*_):
        raise SystemError("Producer.flush returned NULL without setting an exception")

    monkeypatch.setattr(sink, "_begin", failed)
    with rigged(tmp_path / "log", sink) as rig:
        rig.commit("a")
        rig.until(lambda: rig.runner.state is SinkState.PAUSED)
        assert "a newer runner" in rig.runner.statistics().reason


def test_an_opening_that_only_inspects_a_broker_that_is_away_raises_an_error_of_sinks(tmp_path):
    """F103, F109: `penstock sinks test` prints it beside the answers of other targets."""
    sink = ExactlyOnceKafkaSink(f"127.0.0.1:{free_port()}", timeout=0.5)
    with ChangeLog.open(tmp_path / "log") as log:
        context = SinkContext.of(log, "s", View(Content.BODY), HandClock())
        with pytest.raises(TargetUnavailable):
            sink.open(context)
    sink.close()
