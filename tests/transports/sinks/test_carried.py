"""Every operation and every action on a field, in every format: a reader that knows the format only gets the entities of the log."""

import json
from operator import attrgetter

import msgspec
import pytest

from penstock_cdc.errors import InvalidOption
from penstock_cdc.fields import add, discard, push, remove_field, set_field
from penstock_cdc.mutations import expire, schema
from publishers import ChangeLog, Content, Operation, View, remove, truncate, upsert
from publishers.model.change import Area
from tests.harness.missing import skip_without_package
from tests.transports.sinks.mock_broker import MockBroker
from tests.transports.sinks.targets import QUICK, HandClock
from transports.sinks import SinkBatch, SinkContext
from transports.sinks.formats import FORMATS, RECORDS, WebhookSource
from transports.sinks.kafka import KafkaSink

BEFORE = {"a": 1, "b": 2, "items": [1], "tags": ["x", "y"]}
AFTER = {"a": 3, "items": [1, 2, 3], "tags": ["x", "z"]}
FIELDS = [
    set_field("a", 3, before=1),
    remove_field("b", before=2),
    push("items", 2),
    push("items", 3),
    add("tags", "z"),
    discard("tags", "y"),
]


@pytest.fixture
def broker():
    made = MockBroker()
    yield made
    made.close()


@pytest.fixture(scope="module")
def context(tmp_path_factory):
    """A context, and the changes of a log: each operation, and each action on a field."""
    with ChangeLog.open(tmp_path_factory.mktemp("carried") / "log", **QUICK) as log:
        log.commit([schema("order", {"fields": []})])
        log.commit([upsert("order", str(key), BEFORE) for key in range(1, 5)])
        log.commit([upsert("bill", "1", {"n": 1})])
        log.commit([upsert("order", "1", AFTER, before=BEFORE, changes=FIELDS), remove("order", "2")])
        log.commit([upsert("order", "9", AFTER, changes=[push("items", 2)]), expire("order", "3")])
        log.commit([truncate("bill")])
        changes = list(log.history(None, "earliest", content=Content.BODY).changes)
        row = next(one for one in changes if one.key == "4")
        changes.append(msgspec.structs.replace(row, operation=Operation.READ, key="5"))
        assert {one.operation for one in changes} == set(Operation)
        assert len({one.action for one in changes}) == 6
        context = SinkContext.of(log, "stock", View(Content.BODY), HandClock())
        yield context, SinkBatch(tuple(changes), log.head)


ENTITIES = {("order", "1"): AFTER, ("order", "4"): BEFORE, ("order", "5"): BEFORE, ("order", "9"): AFTER}


def entities(told):
    """The entities of a reader, from (what, entity type, key, body) in order."""
    found = {}
    for what, kind, key, body in told:
        if what == "put":
            found[kind, key] = body
        elif what == "gone":
            found.pop((kind, key), None)
        else:
            assert what == "clear"
            found = {place: one for place, one in found.items() if place[0] != kind}
    return found


# What a reader of each format does, who knows nothing of field-level changes.

_RQLITE = {"INSERT": "put", "UPDATE": "put", "READ": "put", "DELETE": "gone", "TRUNCATE": "clear"}
_TYPES = {"upsert": "put", "read": "put", "remove": "gone", "expire": "gone", "truncate": "clear"}
_LETTERS = {"c": "put", "u": "put", "r": "put", "d": "gone", "t": "clear"}


def of_rqlite(events):
    for one in events:
        row = one["old_row_id"] if one["op"] == "DELETE" else one["new_row_id"]
        yield _RQLITE[one["op"]], one["table"], str(row), one["after"]


def of_cloudevents(events):
    for one in events:
        kind, what = one["type"].removeprefix("penstock.").rsplit(".", 1)
        if kind not in ("infrastructure", "schema"):
            yield _TYPES[what], kind, one.get("subject"), one["data"]["body"]


def of_native(events):
    """The table of native tells a field-level change by its ``field``."""
    for one in events:
        if one["area"] == "DATA" and "field" not in one:
            yield _TYPES[one["operation"].lower()], one["entity_type"], one["key"], one["body"]


def of_debezium(events, keys):
    for one, (kind, key) in zip(events, keys, strict=True):
        yield _LETTERS[one["op"]], kind, key, one["after"]


def test_the_parser_of_cloudevents_sdk_takes_every_change(context):
    """F111, F166: of a webhook's batch and of a topic, with every operation, and whatever characters a key has."""
    skip_without_package("cloudevents")
    from cloudevents.core.formats.json import JSONFormat
    from cloudevents.core.v1.event import CloudEvent

    told, batch = context
    change = next(one for one in batch.changes if one.key == "4")
    odd = [msgspec.structs.replace(change, key=key) for key in ("é/1", " ", "a\nb", "\udcff", "x" * 300)]
    whole = [one for one in (*batch.changes, *odd) if one.field is None]
    body = FORMATS["cloudevents"].encode(SinkBatch((*batch.changes, *odd), batch.next), told, WebhookSource())
    records = [msgspec.json.encode(RECORDS["cloudevents"](one, told, WebhookSource())) for one in whole]
    for texts in ([json.dumps(one) for one in json.loads(body)], records):
        for text, one in zip(texts, whole, strict=True):
            event = JSONFormat().read(CloudEvent, text)
            assert event.get_id() == told.change_id(one)
            assert event.get_source()
            assert event.get_type().endswith(f".{one.operation.name.lower()}")
            assert event.get_time() == one.timestamp
            assert event.get_subject() == (json.loads(text)["subject"] if one.key is not None else None)
            assert event.get_data()["operation"] == one.operation.name


@pytest.mark.parametrize("profile", FORMATS)
def test_a_webhook_gets_the_entities_and_no_piece_as_one(context, profile):
    """F111, F177."""
    told, batch = context
    body = json.loads(FORMATS[profile].encode(batch, told, WebhookSource()))
    if profile == "keys":
        got = [(one["entity_type"], one["key"]) for one in body]
        whole = [one for one in batch.changes if one.area is Area.DATA and one.field is None]
        assert got == list(map(attrgetter("entity_type", "key"), whole))
        return
    if profile == "rqlite":
        events = list(of_rqlite([one for message in body["payload"] for one in message["events"]]))
    else:
        reader = of_native if profile == "native" else of_cloudevents
        events = list(reader(body["changes"] if profile == "native" else body))
    assert entities(events) == ENTITIES
    if profile == "native":
        pieces = [one for one in body["changes"] if "field" in one]
        assert [one["action"] for one in pieces] == [*(part.action.value for part in FIELDS), "PUSH"]


def test_a_topic_has_the_entities_and_no_piece_as_one_also_after_compaction(context, broker):
    """F102, F103, F177: each key of a record is that of an entity, or of one piece of it."""
    for form in (*RECORDS, "native, with fields"):
        carried(*context, broker, form)


def carried(told, batch, broker, form):
    form, _, fields = form.partition(", ")
    prefix = f"{form}{len(fields)}"
    sink = KafkaSink(
        broker.servers, prefix + ".{entity_type}", form=form, field_changes=bool(fields), tombstones=False
    )
    sink.open(told)
    try:
        assert sink.write(batch) is None
    finally:
        sink.close()
    found = {}
    for kind in ("order", "bill"):
        records = broker.records(f"{prefix}.{kind}")
        newest = {(partition, key): value for partition, key, value in records}
        for compacted in (records, [(*place, value) for place, value in newest.items()]):
            keys = [json.loads(key) for _, key, _ in compacted]
            values = [json.loads(value) for _, _, value in compacted]
            whole = [number for number, key in enumerate(keys) if len(key) == 2]
            events = [values[number] for number in whole]
            reader = {"native": of_native, "cloudevents": of_cloudevents}.get(form)
            if reader is None:
                names = [keys[number] for number in whole]
                made = entities(of_debezium(events, names))
            else:
                made = entities(reader(events))
            found.setdefault(compacted is records, {}).update(made)
            pieces = [(key, one["action"]) for key, one in zip(keys, values, strict=True) if len(key) > 2]
            if kind == "order":
                assert len(pieces) == (len(FIELDS) + 1 if fields else 0)
        places = {}
        for partition, key, _ in records:
            name = json.loads(key)
            if name[1] is not None:
                places.setdefault(name[1], set()).add(partition)
        assert all(len(one) == 1 for one in places.values())  # pieces are in the partition of their entity
    assert found == {True: ENTITIES, False: ENTITIES}


def test_only_native_takes_field_level_changes():
    """F177."""
    for form in set(RECORDS) - {"native"}:
        with pytest.raises(InvalidOption, match="only native"):
            KafkaSink("x:1", form=form, field_changes=True)


def test_a_schema_is_sent_when_all_before_it_is_confirmed_and_confirmed_before_what_follows(context):
    """F104, F10: the broker sees no order of confirmations, so the steps of the sink are noted."""
    told, batch = context
    steps = []

    class Noting(KafkaSink):
        def _send_record(self, record, _change):
            steps.append(record.topic)

        def _settle(self):
            steps.append("confirmed")

    sink = Noting("none:1", schema_topic="schemas")
    sink._context = told  # not opened, since no broker is there
    sink._send(batch.changes * 2, None)  # so that there are changes before a schema too
    places = [place for place, step in enumerate(steps) if step == "schemas"]
    assert len(places) == 2
    assert steps[-1] == "confirmed"
    assert [steps[place + 1] for place in places] == ["confirmed", "confirmed"]
    assert steps[places[1] - 1] == "confirmed"
    assert steps[places[1] - 2] not in ("confirmed", "schemas")
