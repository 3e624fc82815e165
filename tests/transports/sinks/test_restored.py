"""Logs and targets that come from a copy: no target believes another history, and none lacks anything in silence.

Each way in which a log, a place or a target goes back meets each target. Real targets are in tests/servers.
"""

import contextlib
import io
import json
import shutil
import sqlite3
from types import SimpleNamespace

import opensearchpy
import pytest
import redis

from publishers import Position, backup, restore, upsert
from tests.harness.inside import progress_of
from tests.transports.sinks.receivers import Receiver
from tests.transports.sinks.targets import Target, rigged
from tests.transports.sinks.test_cache import Server
from transports.sinks import FileSink, SinkState, StreamSink
from transports.sinks.cache import CacheSink
from transports.sinks.kafka import ExactlyOnceKafkaSink, KafkaSink
from transports.sinks.search import SearchSink
from transports.sinks.sql import SqlSink
from transports.sinks.webhook import WebhookSink

STOPPED = (SinkState.PAUSED, SinkState.LOST)


class Case:
    """A target: the sink to it, what a reader of it sees, and what its operator does."""

    knows = False
    """Whether the target stores to which history its content belongs."""

    def __init__(self, path, patch):
        self.path = path

    def sink(self):
        raise NotImplementedError

    def values(self):
        """What was written, in any order."""
        raise NotImplementedError

    def saved(self):
        """What a backup of the target has."""

    def put_back(self, saved):
        """Puts that back; None for an empty target."""

    def close(self):
        pass


class Sql(Case):
    knows = True

    def sink(self):
        return SqlSink(f"sqlite:///{self.path}/t.db", create_tables=True)

    def values(self):
        with contextlib.closing(sqlite3.connect(self.path / "t.db")) as base:
            return {json.loads(body)["n"] for (body,) in base.execute('SELECT body FROM "order"')}

    def saved(self):
        return (self.path / "t.db").read_bytes()

    def put_back(self, saved):
        if saved is not None:
            (self.path / "t.db").write_bytes(saved)
            return
        with contextlib.closing(sqlite3.connect(self.path / "t.db")) as base:
            base.execute('DELETE FROM "order"')
            base.commit()


class File(Case):
    knows = True

    def sink(self):
        return FileSink(self.path / "out", max_bytes=1)  # a file for each batch

    def values(self):
        read = (line for one in (self.path / "out").glob("*.jsonl*") for line in one.read_text().splitlines())
        return {line["body"]["n"] for line in map(json.loads, read) if line.get("key")}

    def saved(self):
        return {one.name: one.read_bytes() for one in (self.path / "out").iterdir()}

    def put_back(self, saved):
        for one in (self.path / "out").glob("*.jsonl*" if saved is None else "*"):
            one.unlink()
        for name, content in (saved or {}).items():
            (self.path / "out" / name).write_bytes(content)


class UnfinishedFile(File):
    """One file, to which lines are added."""

    def sink(self):
        return FileSink(self.path / "out")


class Stream(Case):
    def __init__(self, path, patch):
        self.stream = io.BytesIO()

    def sink(self):
        return StreamSink(self.stream)

    def values(self):
        lines = map(json.loads, self.stream.getvalue().splitlines())
        return {line["body"]["n"] for line in lines if line.get("key")}

    def put_back(self, saved):
        self.stream.seek(0)
        self.stream.truncate()


class Webhook(Case):
    def __init__(self, path, patch):
        self.receiver = Receiver().__enter__()

    def sink(self):
        return WebhookSink(self.receiver.url, allow=["127.0.0.0/8", "::1/128"])

    def values(self):
        changes = (one for each in self.receiver.received for one in json.loads(each.body)["changes"])
        return {one["body"]["n"] for one in changes if one["key"]}

    def put_back(self, saved):
        self.receiver.received.clear()

    def close(self):
        self.receiver.__exit__(None, None, None)


class Broker:
    """Keeps the values of records, as the two sinks for Kafka produce them."""

    def __init__(self):
        self.records = []
        self.place = None


class Kafka(Case):
    made = KafkaSink

    def __init__(self, path, patch):
        self.broker = broker = Broker()

        class Producer(SimpleNamespace):
            def produce(self, topic, value, key, *, headers=None, on_delivery, partition=-1):
                if topic.startswith("penstock.places."):
                    broker.place = value
                    on_delivery(None, SimpleNamespace(offset=lambda: 0))
                else:
                    broker.records.append(json.loads(value))
                    on_delivery(None, None)

        quiet = dict.fromkeys(
            ("poll", "purge", "begin_transaction", "commit_transaction", "init_transactions"), lambda *_: 0
        )
        patch.setattr(KafkaSink, "_made_producer", lambda *_, **__: Producer(flush=lambda *_: 0, **quiet))
        patch.setattr(
            "transports.sinks.kafka.AdminClient", lambda _: SimpleNamespace(create_topics=lambda *_, **__: {})
        )

        def read(sink, *_):
            return None if broker.place is None else sink._position_of(broker.place.decode())

        patch.setattr(ExactlyOnceKafkaSink, "_read_place", read)
        patch.setattr(ExactlyOnceKafkaSink, "_see", lambda _: None)

    def sink(self):
        return self.made("broker:1")

    def values(self):
        return {one["body"]["n"] for one in self.broker.records}

    def saved(self):
        return list(self.broker.records), self.broker.place

    def put_back(self, saved):
        if saved is None:
            self.broker.records.clear()
        else:
            self.broker.records, self.broker.place = saved


class ExactlyOnceKafka(Kafka):
    knows = True
    made = ExactlyOnceKafkaSink


class Engine:
    """Indices of documents with external versions."""

    def __init__(self):
        self.documents = {}

    def get(self, index, id, params):  # noqa: A002 - the name of the client
        found = self.documents.get((index, id))
        return {"found": found is not None, "_source": found and found[1]}

    def index(self, index, id, body):  # noqa: A002 - likewise
        self.documents[index, id] = 0, body

    def bulk(self, body):
        lines, items = iter([json.loads(one) for one in body.splitlines()]), []
        for line in lines:
            ((what, where),) = line.items()
            place, version = (where["_index"], where["_id"]), where.get("version", 0)
            source = next(lines) if what == "index" else None
            older = version and place in self.documents and self.documents[place][0] >= version
            if not older:
                self.documents[place] = version, source
            items.append({what: {"status": 409 if older else 200}})
        return {"items": items}

    def close(self):
        pass


class Search(Case):
    knows = True

    def __init__(self, path, patch):
        self.engine = Engine()
        patch.setattr(opensearchpy, "OpenSearch", lambda *_, **__: self.engine)

    def sink(self):
        return SearchSink("http://search:9200")

    def values(self):
        return {body["n"] for (index, _), (_, body) in self.engine.documents.items() if index == "order"}

    def saved(self):
        return dict(self.engine.documents)

    def put_back(self, saved):
        if saved is None:
            saved = {one: each for one, each in self.engine.documents.items() if one[0] != "order"}
        self.engine.documents = dict(saved)


class Cache(Case):
    """Deletes keys: what was deleted is what was written."""

    values_too = False

    def __init__(self, path, patch):
        self.server = Server()
        self.gone = set()
        patch.setattr(redis.Redis, "from_url", lambda url, **options: self.server)

    def sink(self):
        return CacheSink("redis://cache/1", values=self.values_too)

    def values(self):
        return {key.decode().removeprefix("order:") for key in self.server.unlinked}

    def put_back(self, saved):
        self.server.unlinked.clear()


class Values(Cache):
    knows = values_too = True

    def values(self):
        return {json.loads(value)["n"] for value, _ in self.server.keys.values()}

    def saved(self):
        return dict(self.server.keys), dict(self.server.places)

    def put_back(self, saved):
        if saved is None:
            self.server.keys.clear()
        else:
            self.server.keys, self.server.places = dict(saved[0]), dict(saved[1])


CASES = (Sql, File, UnfinishedFile, Stream, Webhook, Kafka, ExactlyOnceKafka, Search, Cache, Values)


@pytest.fixture(params=CASES, ids=lambda one: one.__name__)
def case(request, tmp_path, monkeypatch):
    made = request.param(tmp_path, monkeypatch)
    yield made
    made.close()


@contextlib.contextmanager
def running(case, path, **options):
    with rigged(path, case.sink(), **options) as rig:
        yield rig


def commit(rig, *names):
    for name in names:
        rig.log.commit([upsert("order", name, {"n": name})])


def settled(rig):
    """Steps until everything has arrived, or the sink has stopped; answers its state."""
    progress = progress_of(rig.runner.machine)
    rig.until(lambda: rig.runner.state in STOPPED or (progress.confirmed or Position(0)) >= rig.log.head)
    if rig.runner.state not in STOPPED:
        rig.stored()
    return rig.runner.state


def ordered(rig, order, *given):
    future = getattr(rig.runner, order)(*given)
    rig.until(future.done)
    return future.result()


@pytest.mark.parametrize("snapshot", ["never", "initial"])
def test_a_restored_log_stops_its_sinks_which_go_on_after_the_drill(case, tmp_path, snapshot):
    """F178: what the target got from the lost part is not believed, and the reason says what to do."""
    with running(case, tmp_path / "log") as rig:
        commit(rig, "a", "b")
        settled(rig)
        rig.log.slots.book.flush()
        backup(tmp_path / "log", tmp_path / "backup")
        commit(rig, "lost", "lost too")
        settled(rig)
        assert case.values() == {"a", "b", "lost", "lost too"}
    restore(tmp_path / "backup", tmp_path / "log", replace=True)
    with running(case, tmp_path / "log", since="latest", snapshot=snapshot, log={"state": True}) as rig:
        commit(rig, "c", "d", "e")
        assert settled(rig) in STOPPED
        status = rig.runner.statistics()
        assert "seek" in status.reason
        assert case.values() == {"a", "b", "lost", "lost too"}
        case.put_back(None)
        ordered(rig, "seek", "earliest")
        ordered(rig, "resume")
        assert settled(rig) is SinkState.STREAMING
        assert case.values() == {"a", "b", "c", "d", "e"}
        commit(rig, "f")
        rig.again()
        assert settled(rig) is SinkState.STREAMING
        assert case.values() == {"a", "b", "c", "d", "e", "f"}


def test_a_sink_may_be_moved_before_it_meets_its_target(case, tmp_path):
    """F178: as `penstock sinks seek` does while no sink runs."""
    with running(case, tmp_path / "log") as rig:
        commit(rig, "a")
        settled(rig)
        rig.log.slots.book.flush()
        backup(tmp_path / "log", tmp_path / "backup")
        commit(rig, "lost")
        settled(rig)
    restore(tmp_path / "backup", tmp_path / "log", replace=True)
    with running(case, tmp_path / "log") as rig:
        commit(rig, "c")
        case.put_back(None)
        ordered(rig, "seek", "earliest")
        rig.again()
        assert settled(rig) is SinkState.STREAMING
        assert case.values() == {"a", "c"}


def test_a_file_of_the_lost_history_that_stays_is_finished_and_gets_no_further_line(tmp_path, monkeypatch):
    """F178: readers of finished files see where the other history begins."""
    case = UnfinishedFile(tmp_path, monkeypatch)
    with running(case, tmp_path / "log") as rig:
        backup(tmp_path / "log", tmp_path / "backup")
        commit(rig, "lost")
        settled(rig)
    (path,) = (tmp_path / "out").glob("*.tmp")
    content = path.read_bytes()
    path.write_bytes(content + b"never committed")
    restore(tmp_path / "backup", tmp_path / "log", replace=True)
    with running(case, tmp_path / "log") as rig:
        commit(rig, "c")
        ordered(rig, "seek", "earliest")
        assert settled(rig) is SinkState.STREAMING
    assert path.with_suffix("").read_bytes() == content
    (new,) = (one.read_bytes() for one in (tmp_path / "out").glob("*.tmp"))
    assert [json.loads(line).get("key") for line in new.splitlines()] == [None, "c"]


@pytest.mark.parametrize("waiting", [(), ("b", "c")])
def test_where_nothing_is_lost_every_target_gets_the_rest(case, tmp_path, waiting):
    """F178: also what it had not got when the backup was made, which no slot holds in the restored log."""
    with running(case, tmp_path / "log") as rig:
        for _ in range(3):
            rig.again()  # a generation that the restored log knows nothing of
            rig.runner.step()
        commit(rig, "a")
        settled(rig)
        rig.runner.close()
        commit(rig, *waiting)
        rig.log.slots.book.flush()
        backup(tmp_path / "log", tmp_path / "backup")
    restore(tmp_path / "backup", tmp_path / "log", replace=True)
    with running(case, tmp_path / "log", since="latest") as rig:
        commit(rig, "d")
        state = settled(rig)
        assert state is (SinkState.STREAMING if case.knows else SinkState.LOST)
        if not case.knows:
            place = str(rig.log.token(Position(2)))
            assert place in rig.runner.statistics().reason
            ordered(rig, "seek", place)
            assert settled(rig) is SinkState.STREAMING
        assert case.values() == {"a", *waiting, "d"}
        assert rig.runner.statistics().gap is None


@pytest.mark.parametrize("more", [(), ("b", "c")])
def test_a_copied_log_is_refused_by_a_target_that_has_more_than_it(case, tmp_path, more):
    """F178: with its slots, whose generations are older. A target that stores nothing tells the histories apart by ids alone."""
    with running(case, tmp_path / "log") as rig:
        commit(rig, "a")
        settled(rig)
    shutil.copytree(tmp_path / "log", tmp_path / "copy" / "log")
    with running(case, tmp_path / "log") as rig:
        for _ in range(3):
            rig.again()
            rig.runner.step()
        commit(rig, *more)
        rig.until(lambda: case.values() == {"a", *more})
        rig.stored()
    with running(case, tmp_path / "copy" / "log") as rig:
        commit(rig, "x", "y", "z")
        if case.knows and more:
            assert settled(rig) is SinkState.PAUSED
            assert "another history" in rig.runner.statistics().reason
            assert case.values() == {"a", *more}
        else:
            assert settled(rig) is SinkState.STREAMING
            assert case.values() == {"a", *more, "x", "y", "z"}


@pytest.mark.parametrize(
    "case", [one for one in CASES if one.knows], ids=lambda one: one.__name__, indirect=True
)
def test_a_target_that_went_back_gets_the_rest_again(case, tmp_path):
    """F178: its place went back with it, and is believed."""
    with running(case, tmp_path / "log") as rig:
        commit(rig, "a")
        settled(rig)
        rig.runner.close()
        saved = case.saved()
        rig.again()
        commit(rig, "b", "c")
        settled(rig)
        rig.runner.close()
        case.put_back(saved)
        assert case.values() == {"a"}
        rig.again()
        rig.until(lambda: case.values() == {"a", "b", "c"})
        assert rig.runner.statistics().gap is None


@pytest.mark.parametrize("target", [Target(stores=True)])
def test_a_place_that_is_missing_at_the_target_is_told_as_a_gap(target, tmp_path):
    """F178: with the next batch, and by the status, also over a restart."""
    with rigged(tmp_path / "log", target) as rig:
        rig.commit(1)
        rig.drained()
        rig.stored()
        head = str(rig.log.token(rig.log.head))
        target.place = target.behind = None
        rig.again()
        rig.until(lambda: rig.runner.state is SinkState.STREAMING)
        assert rig.runner.statistics().gap == (str(rig.log.token(rig.log.oldest)), head)
        rig.again()
        rig.commit(2)
        rig.drained()
        assert target.taken[-1].gap.next == head
        rig.stored()
        rig.commit(3)
        rig.drained()
        assert target.taken[-1].gap is None


def test_a_restored_sink_that_is_moved_past_its_place_tells_the_gap(tmp_path):
    """F178."""
    with rigged(tmp_path / "log") as rig:
        rig.commit(1)
        rig.drained()
        rig.stored()
        rig.commit(2)
        rig.log.slots.book.flush()
        backup(tmp_path / "log", tmp_path / "backup")
    restore(tmp_path / "backup", tmp_path / "log", replace=True)
    with rigged(tmp_path / "log") as rig:
        rig.until(lambda: rig.runner.state is SinkState.LOST)
        first, head = (str(rig.log.token(one)) for one in (Position(2), rig.log.head))
        ordered(rig, "seek", "latest")
        assert rig.runner.statistics().gap == (first, head)
        assert not (tmp_path / "log" / "PLACES").exists()
