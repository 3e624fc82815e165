"""Markers of schemas, and TRUNCATE, reach every partition of a topic, whenever it was added."""

import json
from types import SimpleNamespace

import pytest

from penstock_cdc.errors import HistoryPruned, PositionForked
from penstock_cdc.mutations import schema
from publishers import Position, truncate, upsert
from tests.publishers.support import wait_until
from tests.transports.sinks.targets import rigged
from transports.sinks import kafka
from transports.sinks.kafka import ExactlyOnceKafkaSink, KafkaSink
from transports.sinks.kafka_markers import KafkaMarker, KafkaMarkers
from transports.sinks.kafka_records import partition_of


class Partitions:
    """A broker whose topics get more partitions. A client knows those that there were when it last asked, as librdkafka does.

    Attributes:
        count: The partitions of each topic.
        records: Of each topic and partition, what the values of its records say.
        grows: Whether each answer about partitions is followed by one partition more.
        fails: How many of the next batches are not confirmed from their second record on.
    """

    def __init__(self, monkeypatch):
        self.count, self.records, self.fails, self.place = 3, {}, 0, None
        self.grows = False
        monkeypatch.setattr(KafkaSink, "_made_producer", lambda *_, **__: self._producer())
        admin = {
            "create_topics": lambda *_, **__: {},
            "list_topics": lambda **_: SimpleNamespace(brokers=True),
        }
        monkeypatch.setattr(kafka, "AdminClient", lambda _: SimpleNamespace(**admin))
        monkeypatch.setattr(
            ExactlyOnceKafkaSink, "_read_place", lambda sink, *_: self.place and sink._position_of(self.place)
        )
        monkeypatch.setattr(ExactlyOnceKafkaSink, "_see", lambda _: None)

    def _producer(self):
        known, begun, broken = [self.count], [], []

        def asked(topic=None, *, timeout):
            known[0] = self.count
            self.count += self.grows
            return SimpleNamespace(
                brokers=True, topics={topic: SimpleNamespace(error=None, partitions=range(known[0]))}
            )

        def produce(topic, value, key, *, on_delivery, headers=None, partition=None):
            if partition is None:
                partition = partition_of(key, known[0])
            assert partition < known[0]
            if self.fails and begun:
                broken.append(True)
                on_delivery(kafka.KafkaError(kafka.KafkaError._MSG_TIMED_OUT), None)
                return
            begun.append((topic, partition, value))
            on_delivery(None, SimpleNamespace(offset=lambda: 0))

        def confirmed(*_):
            for topic, partition, value in begun:
                if topic.startswith("penstock.places."):
                    self.place = value.decode()
                    continue
                told = value and json.loads(value)
                what = "tombstone" if told is None else told.get("marker") or told.get("operation")
                self.records.setdefault((topic, partition), []).append(what)
            begun.clear()
            self.fails -= bool(broken)
            broken.clear()
            return 0

        quiet = dict.fromkeys(
            ("poll", "purge", "begin_transaction", "init_transactions", "commit_transaction"), lambda *_: 0
        )
        return SimpleNamespace(produce=produce, list_topics=asked, flush=confirmed, **quiet)

    def of(self, topic):
        return [self.records.get((topic, number), []) for number in range(self.count)]


@pytest.mark.parametrize("make", [KafkaSink, ExactlyOnceKafkaSink])
@pytest.mark.parametrize("fails", [0, 1, 3])
def test_markers_and_truncate_reach_partitions_that_are_added_while_the_sink_runs(
    tmp_path, monkeypatch, make, fails
):
    """F179: a marker before all that the partition has, also behind an attempt that failed."""
    broker = Partitions(monkeypatch)
    with rigged(tmp_path / "log", make("b:1", "shop", schema_topic="schemas")) as rig:

        def sent(*changes):
            rig.log.commit(changes)
            broker.fails = fails

            def done():
                rig.later(60.0)
                rig.runner.step()
                return rig.runner.statistics().confirmed == rig.log.head

            wait_until(done, rig.runner.statistics)
            return broker.of("shop")

        sent(schema("order", {"fields": ["n"]}), schema("order", {"type": "int"}, part="n"))
        keys = [str(number) for number in range(40)]
        assert all(
            one[:2] == ["schema", "schema"] for one in sent(*(upsert("order", key, {}) for key in keys))
        )
        broker.count = 5
        for one in sent(*(upsert("order", key, {}) for key in keys)):
            assert one[:2] == ["schema", "schema"]
            assert "UPSERT" in one
        broker.count = 7
        for one in sent(truncate("order")):
            assert one[:2] == ["schema", "schema"]
            assert one[-1] == "TRUNCATE"
        broker.count = 8
        for one in sent(schema("order", {"fields": ["n", "m"]})):
            assert one[-1] == "schema"
        before = sum(map(len, broker.of("shop")))
        sent(upsert("order", "1", {}))
        assert sum(map(len, broker.of("shop"))) == before + 1  # no marker comes again
        broker.grows = True
        schemas = [schema("order", {"fields": [name]}) for name in "ab"]
        told = [one[-1:] for one in sent(*schemas, truncate("order"))]
        assert told == [["TRUNCATE"]] * (broker.count - 1) + [[]]


@pytest.mark.parametrize("make", [KafkaSink, ExactlyOnceKafkaSink])
@pytest.mark.parametrize("fails", [0, 1])
@pytest.mark.parametrize("last", ["UPSERT", "TRUNCATE", "schema"])
def test_markers_and_truncate_reach_partitions_that_were_added_while_no_sink_ran(
    tmp_path, monkeypatch, make, fails, last
):
    """F179: the note of the sink says which partitions have the marker of which schema."""
    broker = Partitions(monkeypatch)
    changes = {
        "UPSERT": [upsert("order", str(number), {}) for number in range(40)],
        "TRUNCATE": [truncate("order")],
        "schema": [schema("order", {"fields": ["n", "m"]})],
    }

    def ran(*rounds):
        with rigged(tmp_path / "log", make("b:1", "shop", schema_topic="schemas")) as rig:
            for one in rounds:
                rig.log.commit(one)
                broker.fails = fails

                def done():
                    rig.later(60.0)
                    rig.runner.step()
                    return rig.runner.statistics().confirmed == rig.log.head and rig.stored() == rig.log.head

                wait_until(done, rig.runner.statistics)

    ran([schema("order", {"fields": ["n"]}), schema("order", {"type": "int"}, part="n")], changes["UPSERT"])
    before = sum(map(len, broker.of("shop")))
    ran(changes["UPSERT"][:1])
    assert sum(map(len, broker.of("shop"))) == before + 1  # no marker comes again
    broker.count = 5
    ran(changes[last])
    ran(changes["UPSERT"])
    for one in broker.of("shop")[3:]:
        assert one[:2] == ["schema", "schema"]
        assert "UPSERT" in one
        assert last in one[: one.index("UPSERT") + 1]
    broker.count = 6
    with rigged(tmp_path / "log", make("b:1", "shop", schema_topic="schemas")) as rig:
        rig.log.commit([upsert("order", "x", {})])
        rig.until(rig.runner.seek("earliest").done)
        rig.runner.resume()

        def done():
            rig.later(60.0)
            rig.runner.step()
            return rig.runner.statistics().confirmed == rig.log.head

        wait_until(done, rig.runner.statistics)
    assert broker.of("shop")[5][:2] == ["schema", "schema"]


def test_the_markers_of_a_history_that_is_gone_are_forgotten(tmp_path):
    """F178, F179: those of a schema whose version is not kept any more still count."""

    def marker(topic, index):
        return KafkaMarker(topic, b"k", b"v", {}, f"{topic}:token", 1, index, 3)

    def position_of(token):
        raise PositionForked(1, None) if token.startswith("gone") else HistoryPruned(Position(5))

    first = KafkaMarkers()
    first.begin()
    for topic, index in (("gone", 1), ("old", 2)):
        first.note(marker(topic, index))
    kept = json.loads(json.dumps(first.told))
    assert first.told is None
    again = KafkaMarkers(kept, position_of)
    again.begin()
    for topic in ("gone", "old"):
        assert [*again.lacking(topic, Position(1, 2), lambda _: 5)] == []
    assert [*again.lacking("gone", Position(2), lambda _: 5)] == []
    assert [*again.lacking("old", Position(2), lambda _: 5)] == [(marker("old", 2), 3), (marker("old", 2), 4)]
    assert [*again.lacking("old", Position(2), lambda _: 5)] == []


def test_a_crash_before_the_note_repeats_markers_as_they_were():
    """F179: the same record, under the id of its schema, to the same partition; and none of an older schema."""
    markers = KafkaMarkers()
    markers.begin()
    for version in (1, 2):
        markers.note(
            KafkaMarker("t", b"k", b"v%d" % version, {"penstock-id": f"{version}"}, "t", version, 1, 3)
        )
    kept = markers.told

    def sent():
        again = KafkaMarkers(json.loads(json.dumps(kept)), lambda _: Position(9))
        again.begin()
        found = list(again.lacking("t", Position(9), lambda _: 5))
        again.confirm()  # and the crash comes before the note
        return [(marker.record, marker.headers, partition) for marker, partition in found]

    first = sent()
    assert [(record.value, headers, partition) for record, headers, partition in first] == [
        (b"v2", {"penstock-id": "2"}, 3),
        (b"v2", {"penstock-id": "2"}, 4),
    ]
    assert sent() == first
