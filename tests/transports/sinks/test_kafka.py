"""The sink for Kafka without a real broker, which tests/servers have: its forms, bounds, and records at the broker of librdkafka."""

import json
from types import SimpleNamespace

import pytest

from penstock_cdc.errors import InvalidOption
from penstock_cdc.mutations import schema
from publishers import ChangeLog, Content, View, remove, truncate, upsert
from tests.harness.failing import failing
from tests.harness.inside import context_of, target_of
from tests.harness.ports import free_port
from tests.transports.sinks.mock_broker import MockBroker
from tests.transports.sinks.targets import GoingClock, HandClock, rigged
from transports.sinks import SinkContext, SinkState, TargetUnavailable, kafka
from transports.sinks.formats import RECORDS, WebhookSource
from transports.sinks.kafka import ExactlyOnceKafkaSink, KafkaSink
from transports.sinks.kafka_records import partition_of


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


@pytest.fixture
def broker():
    made = MockBroker()
    yield made
    made.close()


HASHES = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}
"""Of Kafka's own tests of its ``murmur2``."""


def test_a_partition_is_that_of_javas_client():
    """F103."""
    for count in (1, 3, 4, 12, 1000):
        assert {key: partition_of(key, count) for key in HASHES} == {
            key: (value & 0x7FFFFFFF) % count for key, value in HASHES.items()
        }


def test_records_are_in_the_topic_of_their_type_in_the_partition_of_javas_client_with_tombstones(
    tmp_path, broker
):
    """F102, F103."""
    with rigged(tmp_path / "log", KafkaSink(broker.servers, form="debezium"), clock=GoingClock()) as rig:
        rig.log.commit([upsert("order", str(n), {"n": n}) for n in range(6)])
        rig.log.commit([remove("order", "1"), upsert("bill", "1", {"n": 1})])
        rig.drained()
    orders = broker.records("order")
    by_key = {json.loads(key)[1]: [] for _, key, _ in orders}
    for partition, key, value in orders:
        assert partition == partition_of(key, 4)
        by_key[json.loads(key)[1]].append(value and json.loads(value)["op"])
    assert by_key == {**{str(n): ["c"] for n in range(6)}, "1": ["c", "d", None]}
    assert [(key, json.loads(value)["after"]) for _, key, value in broker.records("bill")] == [
        (b'["bill","1"]', {"n": 1})
    ]


def test_a_schema_is_in_its_topic_and_a_marker_in_every_partition_between_what_lies_around_it(
    tmp_path, broker
):
    """F104: before the first change that needs it."""
    sink = KafkaSink(broker.servers, "told.{entity_type}", schema_topic="told-schemas")
    with rigged(tmp_path / "log", sink, clock=GoingClock()) as rig:
        rig.log.commit([upsert("order", str(n), {}) for n in range(20)])
        rig.log.commit([schema("order", {"fields": ["n"]})])
        rig.log.commit([upsert("order", str(n), {"n": n}) for n in range(20)])
        rig.drained()
    ((partition, _, told),) = broker.records("told-schemas")
    assert (partition, json.loads(told)["area"]) == (0, "SCHEMA")
    around = {number: [] for number in range(4)}
    for number, _, value in broker.records("told.order"):
        around[number].append(json.loads(value).get("version", "marker"))
    assert all([*dict.fromkeys(one)] == [1, "marker", 3] for one in around.values()), around


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
        rig.target._context = context_of(target_of(rig.runner.machine))
        assert rig.target.alive() is False
        assert rig.target._producer is None


def test_a_fatal_error_whose_reason_the_client_lost_pauses_the_sink(tmp_path, monkeypatch):
    """F103: instead of fencing the newer runner that may be its reason."""
    sink = ExactlyOnceKafkaSink("127.0.0.1:1")

    failing(
        monkeypatch, sink, "_begin", SystemError("Producer.flush returned NULL without setting an exception")
    )
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


class Record:
    """What a consumer is given: a place, or the end of the partition."""

    def __init__(self, offset, value, code=None):
        self._offset, self._value, self._code = offset, value, code

    def offset(self):
        return self._offset

    def value(self):
        return self._value

    def error(self):
        return None if self._code is None else kafka.KafkaError(self._code)


class HandBroker:
    """A broker that has one partition of places, and loses the ends of transactions when it is told to.

    Attributes:
        kept: Transactions, each a list of its keys and its place, its end if there is one, and its first offset.
        loses: Whether the next transactions have no end.
        mute: Whether the commit of the next transaction is not confirmed.
    """

    def __init__(self, monkeypatch, clock):
        self.kept, self.loses, self.mute, self.high, self.clock = [], False, False, 0, clock
        self.begun = []
        monkeypatch.setattr(kafka, "Producer", self._producer)
        monkeypatch.setattr(kafka, "Consumer", self._consumer)
        monkeypatch.setattr(kafka, "AdminClient", self._admin)

    @property
    def stable(self):
        """The first offset that readers of committed records do not get."""
        return min([self.high] + [first for _, end, first in self.kept if end is None])

    @property
    def keys(self):
        """The keys that readers of committed records get."""
        return [
            json.loads(key)[1]
            for records, end, first in self.kept
            for key, _ in records[:-1]
            if end == "commit" and first < self.stable
        ]

    def abort(self):
        """What kafka-transactions.sh does."""
        self.kept = [(records, end or "abort", first) for records, end, first in self.kept]
        self.high += 1

    def _admin(self, _config):
        return SimpleNamespace(
            create_topics=lambda *_, **__: {}, list_topics=lambda **_: SimpleNamespace(brokers=True)
        )

    def _producer(self, _config):
        calls = dict.fromkeys(("init_transactions", "purge", "poll"), lambda *_: None)
        return SimpleNamespace(
            begin_transaction=self.begun.clear,
            produce=self._produce,
            flush=lambda _: 0,
            commit_transaction=self._commit,
            **calls,
        )

    def _produce(self, _topic, value, key, on_delivery, **_):
        self.begun.append((key, value))
        on_delivery(None, Record(self.high, value))

    def _commit(self, _timeout):
        self.kept.append((list(self.begun), None if self.loses else "commit", self.high))
        self.high += 1 if self.loses else 2
        if self.mute:
            self.mute = False
            raise kafka.KafkaException(kafka.KafkaError(kafka.KafkaError._TIMED_OUT))

    def _consumer(self, _config):
        at, ended = [0], []

        def assign(partitions):
            at[0] = partitions[0].offset

        def poll(timeout):
            for records, end, first in self.kept:
                if end == "commit" and at[0] <= first < self.stable:
                    at[0] = first + 1
                    return Record(first, records[-1][1])
            at[0] = self.stable
            if ended != at:
                ended[:] = at
                return Record(self.stable, None, kafka._END)
            self.clock.now += timeout
            return None

        return SimpleNamespace(
            get_watermark_offsets=lambda *_, **__: (0, self.high),
            assign=assign,
            poll=poll,
            close=lambda: None,
        )


@pytest.mark.parametrize(
    "store_every", [1.0, 60.0], ids=["stored at once", "tried again before it is stored"]
)
def test_a_transaction_whose_end_the_broker_has_lost_is_named_and_sent_again_once_it_is_aborted(
    tmp_path, monkeypatch, store_every
):
    """F103: the slot does not move past what readers do not get."""
    clock = HandClock()
    broker = HandBroker(monkeypatch, clock)
    sink = ExactlyOnceKafkaSink("broker:9092", timeout=5)
    with rigged(tmp_path / "log", sink, clock=clock, store_every=store_every) as rig:
        rig.commit("a")
        rig.drained()
        rig.later(60.0)
        rig.stored()
        broker.loses = True
        rig.commit("b")
        rig.drained()
        if store_every > 1.0:
            sink.close()  # as after a batch that the broker did not confirm
            rig.commit("c")
        rig.later(2.0)
        rig.until(lambda: rig.runner.state is SinkState.RETRYING)
        told = rig.runner.statistics().last_error
        assert f"a transaction at offset {broker.stable} that is neither committed nor aborted" in told
        assert "kafka-transactions.sh" in told
        assert rig.log.slots.info("stock").position < rig.log.head
        assert broker.keys == ["a"]
        broker.abort()
        broker.loses = False

        def sent():
            rig.later(5.0)
            return broker.keys[-1:] != ["a"] and rig.stored() == rig.log.head

        rig.until(sent)
        assert broker.keys == ["a", "b", "c"][: len(broker.keys)]
        assert len(broker.keys) == (2 if store_every == 1.0 else 3)


def test_a_place_that_was_read_after_a_commit_of_unknown_outcome_is_not_waited_for_again(
    tmp_path, monkeypatch
):
    """F103."""
    clock = HandClock()
    broker = HandBroker(monkeypatch, clock)
    sink = ExactlyOnceKafkaSink("broker:9092", timeout=5)
    with rigged(tmp_path / "log", sink, clock=clock, store_every=60.0) as rig:
        rig.commit("a")
        rig.drained()
        broker.mute = True
        rig.commit("b")
        rig.until(lambda: rig.runner.counters.failures == 1)
        rig.later(5.0)
        rig.drained()
        rig.later(60.0)
        assert rig.stored() == rig.log.head
        assert broker.keys == ["a", "b"]
        assert rig.runner.counters.failures == 1
