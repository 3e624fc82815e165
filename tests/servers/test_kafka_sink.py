"""Records on a real broker: keys, headers, tombstones, schemas and markers, sizes, and a newer runner that fences."""

import contextlib
import json

import pytest

from penstock_cdc.mutations import schema
from publishers import ChangeLog, Content, View, remove, truncate, upsert
from tests.harness.inside import context_of, target_of
from tests.publishers.support import wait_until
from tests.servers.kafka_broker import KafkaBroker
from tests.transports.sinks.targets import GoingClock
from tests.transports.sinks.targets import rigged as rigged_by_hand
from transports.sinks import SinkContext, SinkState
from transports.sinks.kafka import ExactlyOnceKafkaSink, KafkaSink

confluent_kafka = pytest.importorskip("confluent_kafka", reason="the extra kafka is not installed")


def rigged(path, sink, **options):
    """A broker that does not answer is waited for by a clock that goes on."""
    return rigged_by_hand(path, sink, clock=GoingClock(), **options)


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with KafkaBroker(tmp_path_factory.mktemp("kafka")) as made:
        yield made


def records(broker, topic):
    reader = confluent_kafka.Consumer(
        {
            "bootstrap.servers": broker.servers,
            "group.id": "tests",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    partitions = reader.list_topics(topic, timeout=30).topics[topic].partitions
    reader.assign([confluent_kafka.TopicPartition(topic, one, 0) for one in partitions])
    found, ended = [], 0
    while ended < len(partitions):
        record = reader.poll(30)
        assert record is not None
        if record.error() is None:
            found.append(record)
        else:
            ended += 1
    reader.close()
    return found


@pytest.mark.timeout(120)
def test_records_have_key_headers_and_tombstones_and_partitions_as_the_java_client_chooses_them(
    broker, tmp_path
):
    """F102, F103: the default topic has the name of the entity type."""
    with rigged(tmp_path / "log", KafkaSink(broker.servers, form="debezium")) as rig:
        rig.log.commit([upsert("order", "é/1", {"n": 1}), remove("order", "é/1")])
        wait_drained(rig)
        found = records(broker, "order")
        assert [one.key() for one in found] == ['["order","é/1"]'.encode()] * 3
        assert [one.value() and json.loads(one.value())["op"] for one in found] == ["c", "d", None]
        assert len({one.partition() for one in found}) == 1
        changes = rig.log.history(None, "earliest").changes
        headers = [dict(one.headers()) for one in found]
        assert headers[0] == {
            "penstock-position": b"1:1",
            "penstock-operation": b"UPSERT",
            "penstock-id": rig.log.idempotency_key(changes[1]).encode(),
        }
        assert headers[2]["penstock-position"] == b"1:2"


def wait_drained(rig):
    def done():
        rig.later(2.0)
        rig.runner.step()
        return rig.runner.statistics().confirmed == rig.log.head

    wait_until(done, rig.runner.statistics, timeout=60)


@pytest.mark.timeout(120)
def test_a_schema_goes_to_its_topic_and_a_marker_to_every_partition_before_what_needs_it(broker, tmp_path):
    """F104."""
    sink = KafkaSink(broker.servers, "told.{entity_type}", schema_topic="told.schemas")
    with rigged(tmp_path / "log", sink) as rig:
        rig.log.commit([upsert("order", str(n), {}) for n in range(9)])
        rig.log.commit([schema("order", {"fields": ["n"]})])
        rig.log.commit([upsert("order", str(n), {"n": n}) for n in range(9)])
        wait_drained(rig)
        schemas = records(broker, "told.schemas")
        assert {one.partition() for one in schemas} == {0}
        assert json.loads(schemas[0].value())["area"] == "SCHEMA"
        by_partition = {}
        for one in records(broker, "told.order"):
            version = int(dict(one.headers())["penstock-position"].split(b":")[0])
            by_partition.setdefault(one.partition(), []).append(version)
        assert len(by_partition) == 3
        for versions in by_partition.values():
            assert versions == sorted(versions)
            assert 2 in versions


@pytest.mark.timeout(120)
@pytest.mark.parametrize("make", [KafkaSink, ExactlyOnceKafkaSink])
def test_markers_and_truncate_reach_partitions_that_are_added_while_the_sink_runs(broker, tmp_path, make):
    """F179: a marker before all that a new partition has."""
    topic = f"grows.{make.__name__.lower()}"
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": broker.servers})

    def told():
        found = {}
        for one in records(broker, topic):
            value = json.loads(one.value())
            found.setdefault(one.partition(), []).append(value.get("marker") or value["operation"])
        return found

    with rigged(tmp_path / "log", make(broker.servers, topic, schema_topic=f"{topic}.schemas")) as rig:
        rig.log.commit([schema("order", {"fields": ["n"]})])
        rig.log.commit([upsert("order", str(n), {"n": n}) for n in range(40)])
        wait_drained(rig)
        for count in (5, 7):
            more = confluent_kafka.admin.NewPartitions(topic, count)
            admin.create_partitions([more])[topic].result(30)
            wait_until(lambda: len(admin.list_topics(topic, timeout=30).topics[topic].partitions) == count)  # noqa: B023 - called at once
            if count == 5:
                rig.log.commit([upsert("order", str(n), {"n": n}) for n in range(40)])
                last = "UPSERT"
            else:
                rig.log.commit([truncate("order")])
                last = "TRUNCATE"
            wait_drained(rig)
            found = told()
            assert sorted(found) == list(range(count))
            assert {one[0] for one in found.values()} == {"schema"}
            assert {one[-1] for one in found.values()} == {last}


@pytest.mark.timeout(120)
@pytest.mark.parametrize("make", [KafkaSink, ExactlyOnceKafkaSink])
def test_markers_and_truncate_reach_partitions_that_were_added_while_no_sink_ran(broker, tmp_path, make):
    """F179: a marker before all that a new partition has, and none again."""
    topic = f"grown.{make.__name__.lower()}"
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": broker.servers})
    rows = [upsert("order", str(n), {"n": n}) for n in range(40)]
    for count, changes in ((3, rows), (5, [truncate("order")]), (7, rows), (7, rows)):
        if count > 3:
            more = confluent_kafka.admin.NewPartitions(topic, count)
            with contextlib.suppress(confluent_kafka.KafkaException):  # it has so many
                admin.create_partitions([more])[topic].result(30)
            wait_until(lambda: len(admin.list_topics(topic, timeout=30).topics[topic].partitions) == count)  # noqa: B023 - called at once
        with rigged(tmp_path / "log", make(broker.servers, topic, schema_topic=f"{topic}.schemas")) as rig:
            if count == 3:
                rig.log.commit([schema("order", {"fields": ["n"]})])
            rig.log.commit(changes)
            wait_drained(rig)
            wait_until(lambda: rig.stored() == rig.log.head, rig.runner.statistics)
    found = {number: [] for number in range(7)}
    for one in records(broker, topic):
        value = json.loads(one.value())
        found[one.partition()].append(value.get("marker") or value["operation"])
    for number, one in found.items():
        assert one[0] == "schema"
        assert one.count("schema") == 1
        assert one[1:].count("TRUNCATE") == (number < 5)
        assert one[-1] == "UPSERT"


@pytest.mark.timeout(120)
def test_a_record_that_is_too_large_is_poison_and_no_other_one_is(broker, tmp_path):
    """F100: the batch is halved until it is alone."""
    sink = KafkaSink(broker.servers, "large", settings={"message.max.bytes": 2000})
    with rigged(tmp_path / "log", sink, on_reject="drop") as rig:
        rig.log.commit(
            [upsert("order", "1", {}), upsert("order", "2", {"x": "y" * 5000}), upsert("order", "3", {})]
        )
        wait_drained(rig)
        assert rig.runner.counters.dropped == 1
        assert {json.loads(one.key())[1] for one in records(broker, "large")} == {"1", "3"}


@pytest.mark.timeout(120)
def test_a_newer_runner_fences_the_older_one_and_goes_on_where_it_was(broker, tmp_path):
    """F103: what the older one sends then is never committed."""
    sink = ExactlyOnceKafkaSink(broker.servers, "fenced")
    with rigged(tmp_path / "log", sink) as rig:
        rig.commit("a")
        wait_drained(rig)
        newer = ExactlyOnceKafkaSink(broker.servers, "fenced")
        assert newer.open(context_of(target_of(rig.runner.machine))) == rig.log.head
        rig.commit("b")
        rig.until(lambda: rig.runner.state is SinkState.PAUSED)
        assert "a newer runner" in rig.runner.statistics().reason
        newer.close()
        assert [json.loads(one.key())[1] for one in records(broker, "fenced")] == ["a"]
        looking = ExactlyOnceKafkaSink(broker.servers, "fenced")
        context = SinkContext.of(rig.log, "stock", context_of(target_of(rig.runner.machine)).view, rig.clock)
        assert looking.open(context) == newer._stored
        looking.close()
        moved = rig.runner.seek("earliest")
        rig.until(moved.done)
        rig.runner.resume()
        wait_drained(rig)
        assert sorted(json.loads(one.key())[1] for one in records(broker, "fenced")) == ["a", "a", "b"]


@pytest.mark.timeout(120)
def test_the_place_of_another_log_is_not_taken(broker, tmp_path):
    for name in ("one", "two"):
        with ChangeLog.open(tmp_path / name, sync="os"):
            pass
        with rigged(tmp_path / name, ExactlyOnceKafkaSink(broker.servers, "logs")) as rig:
            rig.commit(name)
            wait_drained(rig)
    assert len(records(broker, "logs")) == 2


@pytest.mark.timeout(120)
def test_a_sink_that_has_not_run_yet_is_inspected_without_a_topic_for_its_place(broker, tmp_path):
    """F103, F109: as `penstock sinks test` does before the first run."""
    with ChangeLog.open(tmp_path / "log", sync="os") as log:
        sink = ExactlyOnceKafkaSink(broker.servers, "new")
        context = SinkContext.of(log, "new", View(Content.BODY), GoingClock())
        assert sink.open(context) is None
        assert sink.alive()
        sink.close()
    topics = confluent_kafka.admin.AdminClient({"bootstrap.servers": broker.servers}).list_topics(timeout=30)
    assert not [one for one in topics.topics if one.endswith(".new")]


@pytest.mark.timeout(120)
def test_a_transaction_that_nobody_ends_is_named_until_it_is_aborted_and_no_place_behind_it_is_stored(
    broker, tmp_path
):
    """F103: as one whose end a broker has lost; another producer stands in for that here."""
    with rigged(tmp_path / "log", ExactlyOnceKafkaSink(broker.servers, "hangs", timeout=2)) as rig:
        rig.commit("a")
        wait_drained(rig)
        wait_until(lambda: rig.stored() == rig.log.head, rig.runner.statistics)
        other = confluent_kafka.Producer(
            {"bootstrap.servers": broker.servers, "transactional.id": "hangs", "log_level": 0}
        )
        other.init_transactions(30)
        other.begin_transaction()
        other.produce(f"penstock.places.{rig.log.log_id.hex}.stock", b"never committed", b"place")
        assert other.flush(30) == 0
        rig.commit("b")

        def told():
            rig.later(2.0)
            rig.runner.step()
            return "neither committed nor aborted" in (rig.runner.statistics().last_error or "")

        wait_until(told, rig.runner.statistics, timeout=60)
        assert rig.log.slots.info("stock").position < rig.log.head
        other.abort_transaction(30)
        wait_until(lambda: rig.stored() == rig.log.head, rig.runner.statistics, timeout=60)
        assert sorted(json.loads(one.key())[1] for one in records(broker, "hangs")) == ["a", "b"]
