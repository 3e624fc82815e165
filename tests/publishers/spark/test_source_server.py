"""F152: the log of a server, read by planners and tasks that share nothing with it, tried in this process."""

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest

from tests.harness.constants import set_constant
from tests.harness.ports import free_port
from tests.publishers.support import wait_until

pytest.importorskip("pyspark")

from pyspark.sql.datasource import CaseInsensitiveDict, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxFiles

import transports
from penstock_cdc.errors import InvalidOption
from penstock_cdc.fields import set_field
from penstock_cdc.mutations import schema
from publishers import ChangeLog, Position, rekey, remove, truncate, upsert
from publishers.spark import source_server
from publishers.spark.source import ChangeSource
from tests.publishers.spark.source_rows import joined, tasks
from transports import ConnectionLost, RemoteError


@pytest.fixture
def path(tmp_path):
    return tmp_path / "log"


@pytest.fixture
def log(path):
    with ChangeLog.open(path) as opened:
        yield opened


@pytest.fixture
def url(log):
    with transports.serve(log, port=0) as server:
        yield server.url


def source(place, **options):
    texts = {name: str(value) for name, value in options.items()}
    return ChangeSource(CaseInsensitiveDict({"path": str(place), **texts}))


def read(place, **options):
    made = source(place, **options)
    return joined(tasks(made.reader(made.schema())))


def parsed(rows):
    """With JSON read, as it may be written in several ways."""
    columns = ("body", "before", "changed", "attached")
    return [{name: json.loads(value) if name in columns and value else value for name, value in row.items()} for row in rows]  # fmt: skip


def fill(log):
    log.commit([schema("order", {"type": "struct", "fields": [{"name": "n", "type": "long", "nullable": True, "metadata": {}}]}, part="entity")])  # fmt: skip
    for n in range(5):
        log.commit(
            [upsert("order", f"a{n}", {"n": n}), remove("order", "gone", before={"n": 1})], meta={"by": n}
        )
    log.commit([upsert("order", "a1", {"n": 9}, before={"n": 1}, changed=["n"]), truncate("order")])
    log.commit([upsert("line", "ü", {"text": "x" * 50}, meta={"of": "a1"})])


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"entity_type": "order", "operation": "UPSERT"},
        {"content": "HEADER", "since": 3, "until": 5, "columns": "version,index,key,body,before,position"},
        {"columns": "key,version,position", "criteria": '[{"key_globs": ["a*"]}]'},
        {"schema": "entity", "entity_type": "order"},
    ],
)
def test_a_server_gives_what_its_directory_gives(log, path, url, options):
    fill(log)
    found = read(url, partitions=3, **options)
    assert found
    assert parsed(found) == parsed(read(path, **options))


def test_what_is_attached_has_the_form_in_which_the_log_stores_it(log, path, url):
    """F152: keys in base64, as they need not be UTF-8, and meta with the digits that were written."""
    log.commit(
        [
            rekey(
                "order",
                "1",
                b"\xff",
                {"n": 1},
                expires_at=datetime(2026, 3, 1, tzinfo=UTC),
                meta={"small": 1e-7, "large": 10**30},
                origin="rome",
                entry_version=7,
            ),
            upsert("order", "2", {"n": 1}, changes=[set_field("n", 1)]),
        ]
    )
    here, there = read(path, columns="attached"), read(url, columns="attached")
    assert [row["attached"] for row in there[1:]] == [row["attached"] for row in here[1:]]
    assert json.loads(there[1]["attached"])["linked"] == "/w=="


def test_tokens_are_those_of_the_log_over_its_epochs(path):
    for n in range(3):
        with ChangeLog.open(path) as log:
            log.commit([upsert("order", f"{n}", {"n": n})])
    with ChangeLog.open(path) as log, transports.serve(log, port=0) as server:
        assert read(server.url, partitions=1) == read(path)
        (first, *_, last) = read(server.url, columns="position")
        assert len(read(server.url, since=first["position"])) == 6
        assert len(read(server.url, since=last["position"])) == 1


def test_tasks_have_about_as_many_versions_each(log, url):
    fill(log)
    made = source(url, partitions=3)
    parts = tasks(made.reader(made.schema()))
    assert [sorted({row["version"] for row in part}) for part in parts] == [[1, 2, 3], [4, 5, 6], [7, 8]]
    assert [len(tasks(source(url, partitions=many).reader(made.schema()))) for many in (1, 8, 100)] == [
        1,
        8,
        8,
    ]


def test_an_empty_log_has_no_tasks_and_spark_reads_nothing(log, url):
    made = source(url)
    reader = made.reader(made.schema())
    assert reader.partitions() == []
    assert list(reader.read(InputPartition(0))) == []
    assert made.streamReader(made.schema()).initialOffset() == {"position": str(log.token(log.head))}


def test_large_results_come_in_several_batches(log, url, monkeypatch):
    fill(log)
    set_constant(monkeypatch, source_server, "_ROWS", 4)
    made = source(url, partitions=1)
    reader = made.reader(made.schema())
    sizes = [len(batch) for one in reader.partitions() for batch in reader.read(one)]
    assert sizes[:-1] == [4] * (len(sizes) - 1)
    assert sum(sizes) == len(read(url))


def test_a_stream_goes_on_exactly_where_it_was_and_keeps_its_limits(log, url):
    fill(log)
    made = source(url, since="earliest", maxVersionsPerBatch=3)
    reader = made.streamReader(made.schema())
    assert isinstance(reader.getDefaultReadLimit(), ReadMaxFiles)
    offset, found = reader.initialOffset(), []
    reader.prepareForTriggerAvailableNow()
    log.commit([upsert("order", "late", {"n": 0})])
    while (end := reader.latestOffset(offset, reader.getDefaultReadLimit())) != offset:
        found.append(sorted({row["version"] for row in joined(tasks(reader, offset, end))}))
        offset = end
    assert found == [[1, 2, 3], [4, 5, 6], [7, 8]]
    again = made.streamReader(made.schema())
    end = again.latestOffset(offset, ReadAllAvailable())
    assert end == again.reportLatestOffset() == again.latestOffset()
    assert [row["key"] for row in joined(tasks(again, offset, end)) if row["index"]] == ["late"]


def test_a_stream_ends_at_until(log, url):
    fill(log)
    made = source(url, since=2, until=4)
    reader = made.streamReader(made.schema())
    assert isinstance(reader.getDefaultReadLimit(), ReadAllAvailable)
    end = reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
    assert end == {"position": str(log.token(Position(5)))}
    assert reader.latestOffset(end, reader.getDefaultReadLimit()) == end


def test_what_the_server_refuses_is_told_as_it_tells_it(log, url):
    fill(log)
    other = source(url, since="earliest")
    with pytest.raises(RemoteError, match="CURSOR_AHEAD"):
        read(url, since=99)
    with pytest.raises(RemoteError, match="LOG_NOT_FOUND"):
        read(url, log_name="elsewhere")
    assert other.schema().names[0] == "version"


def test_a_task_goes_on_where_it_was_when_the_server_is_back(path, monkeypatch):
    set_constant(monkeypatch, source_server, "_WINDOW", 2)
    set_constant(monkeypatch, source_server, "_ROWS", 1)
    with ChangeLog.open(path) as log:
        fill(log)
        port = free_port()
        with transports.serve(log, port=port) as server:
            url = server.url
            made = source(url, partitions=1)
            reader = made.reader(made.schema())
            (only,) = reader.partitions()
            batches = reader.read(only)
            found = next(batches).to_pylist()
        with transports.serve(log, port=port):
            found += [row for batch in batches for row in batch.to_pylist()]
    assert parsed(found) == parsed(read(path))


def test_a_server_that_is_away_is_tried_again(path, monkeypatch):
    """F152: it may be restarting, while a query that runs plans its next batch; then the query would fail."""
    set_constant(monkeypatch, source_server, "_ATTEMPTS", 10_000)
    set_constant(monkeypatch, source_server, "_LONGEST_WAIT", 0.01)
    made, connect, port = [], transports.connect, free_port()
    monkeypatch.setattr(transports, "connect", lambda *a, **k: made.append(a) or connect(*a, **k))
    with ChangeLog.open(path) as log, ThreadPoolExecutor(1) as pool:
        fill(log)
        reading = pool.submit(read, f"ws://127.0.0.1:{port}/ws", columns="version")
        wait_until(lambda: len(made) > 2)
        assert not reading.done()
        with transports.serve(log, port=port):
            assert {row["version"] for row in reading.result(60)} == set(range(1, log.head.version))


def test_a_server_that_is_not_there_is_told(monkeypatch):
    set_constant(monkeypatch, source_server, "_ATTEMPTS", 0)
    with pytest.raises(ConnectionLost):
        read("ws://127.0.0.1:9/ws")


def test_without_images_a_transaction_tells_its_annotations_but_no_id(log, url):
    fill(log)
    found = parsed(read(url, content="HEADER", columns="index,attached", until=2))
    assert [row["attached"] for row in found] == [
        None,
        {"schema_version": 1},
        {"meta": {"by": 0}},
        {"schema_version": 1},
        {"schema_version": 1},
    ]


def test_changes_of_one_field_are_no_rows_of_an_entity(log, url, path):
    fill(log)
    log.commit([upsert("order", "1", {"n": 3}, changes=[set_field("n", 3)])])
    options = {"schema": "entity", "entity_type": "order"}
    assert read(url, **options) == read(path, **options)


def test_rows_of_an_entity_need_a_schema(log, url):
    log.commit([upsert("order", "1", {"n": 1})])
    with pytest.raises(InvalidOption, match="told no schema of 'order'"):
        read(url, schema="entity", entity_type="order")


@pytest.mark.parametrize(
    ("place", "options", "text"),
    [
        ("ws://127.0.0.1:9/ws", {"consumer": "c"}, "consumer is 'c', but must be left out, as it is for the log of a directory"),
        ("var/log", {"token": "secret"}, "token is '...', but must be left out, as it is for the log of a server"),
        ("ws://127.0.0.1:9/ws", {"partitions": 0}, "partitions is '0'"),
        ("https://127.0.0.1:9/ws", {}, "load\\('wss://host/ws'\\)"),
    ],
)  # fmt: skip
def test_options_of_the_other_kind_are_refused(place, options, text):
    made = source(place, **options)
    with pytest.raises(InvalidOption, match=text):
        made.reader(made.schema())
