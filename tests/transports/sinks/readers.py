"""Targets of sinks, each with the entities that a reader of it sees."""

import contextlib
import json
import sqlite3
from types import SimpleNamespace

import opensearchpy
import redis

from publishers import (
    Operation,
)
from tests.transports.sinks.receivers import Receiver
from tests.transports.sinks.targets import Target
from tests.transports.sinks.test_cache import Server
from transports.sinks.cache import CacheSink
from transports.sinks.kafka import ExactlyOnceKafkaSink, KafkaSink
from transports.sinks.search import SearchSink
from transports.sinks.sql import SqlSink
from transports.sinks.webhook import WebhookSink

__all__ = ["CASES", "TYPES", "Own", "Sql"]

TYPES = {"order", "bill"}

# Targets: the sink to each, and the entities that a reader of it sees.


class Sql:
    whole = True
    """Whether readers see entities, and not only which ones changed."""

    def __init__(self, path, patch):
        self.path = path / "t.db"

    def sink(self):
        return SqlSink(f"sqlite:///{self.path}", create_tables=True)

    def entities(self):
        with contextlib.closing(sqlite3.connect(self.path)) as base:
            there = {name for (name,) in base.execute("SELECT name FROM sqlite_master")}
            return {
                (kind, key): json.loads(body)
                for kind in TYPES & there
                for key, body in base.execute(f'SELECT key, body FROM "{kind}" WHERE body IS NOT NULL')
            }

    def close(self):
        pass


class SqlTombstones(Sql):
    def sink(self):
        return SqlSink(f"sqlite:///{self.path}", create_tables=True, tombstone_ttl=3600)


class Documents:
    """A client of a search engine, with external versions that outlast deletions."""

    def __init__(self):
        self.kept = {}
        self.indices = SimpleNamespace(exists=lambda index: True, refresh=lambda index: None)

    def get(self, index, id, params):  # noqa: A002 - the name of the client
        found = self.kept.get((index, id))
        return {"found": found is not None, "_source": found and found[1]}

    def index(self, index, id, body):  # noqa: A002 - likewise
        self.kept[index, id] = 0, body

    def search(self, index, body):
        after = body.get("search_after", [""])[0]
        hits = sorted(key for (one, key), (_, source) in self.kept.items() if one == index and source)
        return {"hits": {"hits": [{"_id": key, "sort": [key]} for key in hits if key > after]}}

    def bulk(self, body):
        lines, items = iter([json.loads(one) for one in body.splitlines()]), []
        for line in lines:
            ((what, where),) = line.items()
            place, version = (where["_index"], where["_id"]), where.get("version", 0)
            source = next(lines) if what == "index" else None
            version_there, there = self.kept.get(place, (-1, None))
            status = 409 if version and version_there >= version else 200
            if status == 200:
                self.kept[place] = version, source
                status = 404 if what == "delete" and there is None else 200
            items.append({what: {"status": status}})
        return {"items": items}

    def close(self):
        pass


class Search(Sql):
    def __init__(self, path, patch):
        self.documents = Documents()
        patch.setattr(opensearchpy, "OpenSearch", lambda *_, **__: self.documents)

    def sink(self):
        return SearchSink("http://search:9200")

    def entities(self):
        kept = self.documents.kept.items()
        return {(kind, key): body for (kind, key), (_, body) in kept if kind in TYPES and body is not None}


class Values(Sql):
    def __init__(self, path, patch):
        self.server = Server()
        patch.setattr(redis.Redis, "from_url", lambda url, **options: self.server)

    def sink(self):
        return CacheSink("redis://cache/1", values=True)

    def entities(self):
        keys = self.server.keys.items()
        return {tuple(key.decode().split(":", 1)): json.loads(value) for key, (value, _) in keys}


class Keys(Values):
    """A reader fills the cache with what it finds, and a change deletes it."""

    whole = False

    def sink(self):
        return CacheSink("redis://cache/1")

    def fill(self, found):
        for (kind, key), body in found.items():
            self.server.keys[f"{kind}:{key}".encode()] = (json.dumps(body).encode(), None)


class Kafka(Sql):
    make = KafkaSink
    form = "native"
    tombstones = True

    def __init__(self, path, patch):
        self.records = records = []
        self.place = None
        case = self

        class Producer(SimpleNamespace):
            def produce(self, topic, value, key, *, on_delivery, headers=None, partition=-1):
                if topic.startswith("penstock.places."):
                    case.place = value
                else:
                    records.append((topic, key, value))
                on_delivery(None, SimpleNamespace(offset=lambda: 0))

            def list_topics(self, topic, timeout):
                return SimpleNamespace(topics={topic: SimpleNamespace(error=None, partitions=[0])})

        quiet = dict.fromkeys(
            ("poll", "purge", "flush", "begin_transaction", "commit_transaction", "init_transactions"),
            lambda *_: 0,
        )
        patch.setattr(KafkaSink, "_made_producer", lambda *_, **__: Producer(**quiet))
        patch.setattr(
            "transports.sinks.kafka.AdminClient", lambda _: SimpleNamespace(create_topics=lambda *_, **__: {})
        )

        def read(sink, *_):
            return None if self.place is None else sink._position_of(self.place.decode())

        patch.setattr(ExactlyOnceKafkaSink, "_read_place", read)
        patch.setattr(ExactlyOnceKafkaSink, "_see", lambda _: None)

    def sink(self):
        return self.make("broker:1", form=self.form, tombstones=self.tombstones)

    def entities(self):
        """As a reader of the compacted topic: the newest record of each key, behind the last TRUNCATE."""
        found = {}
        for _, key, value in self.records:
            kind, name = json.loads(key)
            told = value and json.loads(value)
            if name is None:
                found = {one: body for one, body in found.items() if one[0] != kind}
            elif told is None or self.gone(told):
                found.pop((kind, name), None)
            else:
                found[kind, name] = self.body(told)
        if self.tombstones:  # compaction alone does the same, but for TRUNCATE
            newest = {key: value for _, key, value in self.records}
            assert {tuple(json.loads(key)) for key, value in newest.items() if value} >= set(found)
        return found

    def gone(self, told):
        return told["operation"] in ("REMOVE", "EXPIRE")

    def body(self, told):
        return told["body"]


class ExactlyOnceKafka(Kafka):
    make = ExactlyOnceKafkaSink
    tombstones = False


class Debezium(Kafka):
    form = "debezium"
    tombstones = False

    def gone(self, told):
        return told["op"] == "d"

    def body(self, told):
        assert told["op"] in ("c", "u", "r")
        return told["after"]


class CloudEvents(Kafka):
    form = "cloudevents"

    def gone(self, told):
        return told["type"].endswith((".remove", ".expire"))

    def body(self, told):
        return told["data"]["body"]


class Rqlite(Sql):
    def __init__(self, path, patch):
        self.receiver = Receiver().__enter__()

    def sink(self):
        return WebhookSink(self.receiver.url, profile="rqlite", allow=["127.0.0.0/8", "::1/128"])

    def entities(self):
        found = {}
        payloads = (json.loads(one.body)["payload"] for one in self.receiver.received)
        for one in (event for payload in payloads for message in payload for event in message["events"]):
            if one["op"] == "TRUNCATE":
                found = {place: body for place, body in found.items() if place[0] != one["table"]}
            elif one["op"] == "DELETE":
                found.pop((one["table"], str(one["old_row_id"])), None)
            else:
                found[one["table"], str(one["new_row_id"])] = one["after"]
        return found

    def close(self):
        self.receiver.__exit__(None, None, None)


class Own(Sql):
    def __init__(self, path, patch):
        self.target = Target(stores=True)
        self.target.keeps_entities = True

    def sink(self):
        return self.target

    def entities(self):
        found = {}
        for one in (change for batch in self.target.taken for change in batch.changes):
            if one.operation is Operation.TRUNCATE:
                found = {place: body for place, body in found.items() if place[0] != one.entity_type}
            elif one.operation in (Operation.REMOVE, Operation.EXPIRE):
                assert one.body_bytes is None
                found.pop((one.entity_type, one.key), None)
            elif one.key is not None:
                found[one.entity_type, one.key] = one.body
        return found


CASES = (
    Sql, SqlTombstones, Search, Values, Keys, Kafka, ExactlyOnceKafka, Debezium, CloudEvents, Rqlite, Own,
)  # fmt: skip
