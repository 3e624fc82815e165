"""F152: what planners and tasks of Spark do with a log, tried in this process and without Spark."""

import json
from dataclasses import replace
from datetime import UTC, datetime

import pyarrow as pa
import pytest

from tests.harness.inside import house_step_of

pytest.importorskip("pyspark")

from pyspark.sql.datasource import (
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadMaxBytes,
    ReadMaxFiles,
)
from pyspark.sql.types import LongType, StringType, StructType

from penstock_cdc.errors import (
    HistoryPruned,
    InvalidCriteria,
    InvalidOption,
    LogReplaced,
    NotALog,
    PositionAhead,
    PositionForeign,
    PositionForked,
)
from publishers import Area, ChangeLog, Criterion, Operation, Position, upsert
from publishers.errors import ConsumerBusy
from publishers.spark import SchemaRefused
from publishers.spark.source import ChangeSource
from publishers.spark.source_arrow import CHANGE_SCHEMA
from publishers.spark.source_log import LogRange
from publishers.spark.source_reader import FilteringReader
from tests.publishers.spark.source_rows import (
    batches,
    digest,
    fill,
    holds,
    joined,
    plain,
    read,
    source,
    stream,
    tasks,
    told,
)

SMALL = {"segment_bytes": 64 * 1024, "frame_bytes": 8192, "sync": "os"}
NARROW = Criterion(key_globs=["b1*"], where="n > 15")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "log"


@pytest.fixture(scope="module")
def full(tmp_path_factory):
    path = tmp_path_factory.mktemp("full") / "log"
    for compress in (False, True):
        with ChangeLog.open(path, **SMALL, compress=compress) as log:
            fill(log)
    return path


@pytest.fixture
def log(full):
    """For tests that commit nothing."""
    with ChangeLog.open(full, read_only=True) as opened:
        yield opened


def test_a_batch_has_the_rows_of_the_history_however_it_is_cut(log):
    """F152: rows, keys, bodies and positions, in order, over epochs, segments and frames, compressed or not."""
    want = told(log)
    for size in (1, 30_000, 10**9):
        assert plain(read(log.path, partitionBytes=size)) == want
    assert digest(read(log.path)) == digest(want)


def test_what_is_attached_to_changes_and_transactions_is_kept(log):
    """F152."""
    rows = read(log.path, since=log.head.version - 1)
    assert json.loads(rows[0]["attached"])["id"] == json.loads(rows[0]["body"])["id"]
    assert json.loads(rows[1]["attached"])["meta"] == {"why": "é"}
    assert [json.loads(row["attached"]).get("field") for row in rows[1:]] == [None, "a.b"]
    assert json.loads(read(log.path, since=2, until=2)[0]["attached"])["meta"] == {"number": 0}


def test_tasks_share_a_batch_and_a_large_transaction_is_cut_at_its_frames(path):
    """F152: no row is in two, and none is lost."""
    with ChangeLog.open(path, frame_bytes=8192) as log:
        log.commit(upsert("order", f"{n}", {"text": "x" * 500}) for n in range(1000))
        parts = tasks(source(path, partitionBytes=100_000).reader(CHANGE_SCHEMA))
    assert 4 <= len(parts) <= 7
    assert all(len(part) > 100 for part in parts)
    assert [row["index"] for part in parts for row in part] == list(range(1001))
    assert len({row["position"].rpartition(":")[0] for part in parts for row in part}) == 1


@pytest.mark.parametrize(
    ("options", "wish"),
    [
        ({"entity_type": "order"}, Criterion(entity_types=["order"])),
        ({"entity_type": "flight/ñ, none", "operation": "UPSERT"}, Criterion(entity_types=["flight/ñ"], operations=["UPSERT"])),
        ({"key": "b7,b8,x"}, Criterion(keys=["b7", "b8", "x"])),
        ({"area": "INFRASTRUCTURE"}, Criterion(areas=[Area.INFRASTRUCTURE])),
        ({"AREA": "DATA"}, Criterion(areas=[Area.DATA])),
        ({"operation": "REMOVE,TRUNCATE"}, Criterion(operations=[Operation.REMOVE, Operation.TRUNCATE])),
        ({"criteria": json.dumps([NARROW.to_json()])}, NARROW),
    ],
)  # fmt: skip
def test_criteria_are_options(log, options, wish):
    """F152: the same changes as the log finds."""
    want = told(log, wish)
    assert want
    assert plain(read(log.path, **options)) == want
    assert plain(joined(batches(log.path, since="earliest", **options)[0])) == want


def test_columns_are_chosen_by_an_option_or_by_a_schema(log):
    """F152: in any order, as no column is pruned by Spark."""
    rows = read(log.path, columns="key, version", since=log.head.version - 2)
    assert [list(row.items())[:2] for row in rows][1] == [("key", None), ("version", log.head.version - 2)]
    assert set(map(len, rows)) == {2}
    chosen = StructType().add("operation", StringType()).add("index", LongType())
    (part,) = tasks(source(log.path, since=log.head.version - 1).reader(chosen))
    assert part == [{"operation": "TRANSACTION", "index": 0}] + [
        {"operation": "UPSERT", "index": n} for n in (1, 2)
    ]
    with pytest.raises(SchemaRefused, match="column 'what' is none of version, index"):
        source(log.path, columns="key,what").schema()
    wrong = source(log.path).reader(StructType().add("key", LongType()))
    with pytest.raises(SchemaRefused, match="column 'key' is bigint, but must be string"):
        tasks(wrong)


def test_content_header_leaves_images_out(log):
    """F152."""
    want = [{**row, "body": None, "before": None} for row in told(log)]
    assert plain(read(log.path, content="HEADER")) == want


def test_a_batch_begins_and_ends_where_it_is_told(log):
    """F152: at versions, tokens and words."""
    token = str(log.token(Position(42, 7)))
    assert plain(read(log.path, since=token)) == told(log, since=Position(42, 7))
    assert plain(read(log.path, since=42, until=42)) == [row for row in told(log) if row["version"] == 42]
    assert read(log.path, since="latest") == []
    assert read(log.path, until=0) == []
    assert len(read(log.path, since="earliest", until=10**9)) == len(told(log))
    assert tasks(source(log.path).reader(CHANGE_SCHEMA)) != []
    reader = source(log.path, since="latest").reader(CHANGE_SCHEMA)
    assert list(reader.read(InputPartition(None))) == []  # what Spark makes where there is no range


def test_an_empty_log_and_one_that_is_not_there(path, tmp_path):
    """F152."""
    with ChangeLog.open(path):
        assert read(path) == []
        assert batches(path)[0] == []
    with pytest.raises(NotALog, match="there is no such directory"):
        read(tmp_path / "none")


def test_places_that_are_not_good_are_refused(log, tmp_path):
    """F152: each by its name."""
    with ChangeLog.open(tmp_path / "other") as other:
        foreign = other.token(Position(1))
    ahead = log.token(log.head)._replace(position=Position(10**6))
    forked = log.token(Position(2))._replace(random=1)
    for since, error in (
        (foreign, PositionForeign), (ahead, PositionAhead), (forked, PositionForked), (log.head.version + 1, PositionAhead),
    ):  # fmt: skip
        with pytest.raises(error):
            read(log.path, since=since)
    with pytest.raises(InvalidOption, match="since is '0', but must be a version"):
        read(log.path, since=0)


def test_a_stream_resumes_exactly_from_every_offset(log):
    """F152: nothing twice and nothing lost, whatever the limits, with a planner that begins anew each time."""
    want = told(log)
    for options in (
        {"maxVersionsPerBatch": 7},
        {"maxBytesPerBatch": 3_000},
        {"maxBytesPerBatch": 200_000},
        {},
    ):
        found, _ = batches(log.path, since="earliest", **options)
        assert plain(joined(found)) == want, options
        for rows in found:
            assert rows[0]["index"] == 0
            assert rows[-1]["index"] == rows[-1]["count"] - 1
    assert len(batches(log.path, since="earliest", maxVersionsPerBatch=7)[0]) == -(
        -(log.head.version - 1) // 7
    )


def test_limits_in_bytes_are_kept_and_a_larger_transaction_goes_whole(path):
    """F152."""
    with ChangeLog.open(path, **SMALL) as log:
        for number in range(300):
            log.commit([upsert("order", f"{number}", {"text": "x" * 1000})])
        log.commit(upsert("order", f"{n}", {"text": "x" * 500}) for n in range(500))
        log.commit([upsert("order", "last", {})])
        sizes = [
            len({row["version"] for row in rows})
            for rows in batches(path, since="earliest", maxBytesPerBatch=50_000)[0]
        ]
    assert sum(sizes) == 302
    assert sizes[-2:] == [1, 1]
    assert all(size > 30 for size in sizes[:-3])
    assert all(size * 1_100 < 50_000 for size in sizes)


def test_limits_are_asked_for_and_obeyed(log):
    """F152: all of it where Spark says so, and one version at least."""
    reader = stream(log.path, since="earliest", maxVersionsPerBatch=3, maxBytesPerBatch=1)
    start = reader.initialOffset()
    assert reader.getDefaultReadLimit() == ReadMaxBytes(1)
    assert reader.latestOffset(start, ReadMaxBytes(1)) == {"position": str(log.token(Position(2)))}
    assert reader.latestOffset(start, ReadAllAvailable()) == {"position": str(log.token(log.head))}
    assert reader.latestOffset() == reader.reportLatestOffset() == {"position": str(log.token(log.head))}
    reader.stop()
    assert stream(log.path, maxVersionsPerBatch=3).getDefaultReadLimit() == ReadMaxFiles(3)
    assert stream(log.path).getDefaultReadLimit() == ReadAllAvailable()
    stream(log.path).stop()  # which never looked at the log


def test_a_stream_begins_at_the_end_and_gets_what_comes(path):
    """F152."""
    with ChangeLog.open(path, **SMALL) as log:
        log.commit([upsert("order", "old", {})])
        reader = stream(path)
        start = reader.initialOffset()
        assert reader.latestOffset(start, ReadAllAvailable()) == start
        log.commit([upsert("order", "new", {"n": 1})])
        end = reader.latestOffset(start, ReadAllAvailable())
        assert [row["version"] for row in joined(tasks(reader, start, end))] == [2, 2]
        assert reader.partitions(end, end) == []
        reader.stop()


def test_available_now_ends_where_the_log_ended_then(path):
    """F152: what is committed later is for the next query."""
    with ChangeLog.open(path, **SMALL) as log:
        log.commit([upsert("order", "old", {})])
        reader = stream(path, since="earliest")
        start = reader.initialOffset()
        reader.prepareForTriggerAvailableNow()
        log.commit([upsert("order", "later", {})])
        end = reader.latestOffset(start, ReadAllAvailable())
        assert end == {"position": str(log.token(Position(2)))}
        assert reader.latestOffset(end, ReadAllAvailable()) == end
        reader.stop()


def grow(log, path):
    """Commits until retention has taken the beginning."""
    while True:
        log.commit(upsert("order", f"{n}", {"text": "x" * 1000}) for n in range(50))
        house_step_of(log)()
        if log.oldest > Position(1):
            return


def test_what_retention_took_is_told(path):
    """F152: of a stream that resumes, a batch, and a task whose range was planned before."""
    with ChangeLog.open(path, **SMALL, retain_bytes=1, retain_age=None) as log:
        log.commit([upsert("order", "1", {})])
        offset = stream(path, since="earliest").initialOffset()
        planned = source(path).reader(CHANGE_SCHEMA).partitions()
        grow(log, path)
        reader = stream(path)
        with pytest.raises(HistoryPruned, match="is no longer kept; start there"):
            reader.latestOffset(offset, ReadAllAvailable())
        with pytest.raises(HistoryPruned):
            reader.partitions(offset, reader.reportLatestOffset())
        with pytest.raises(HistoryPruned):
            list(stream(path).read(planned[0]))
        with pytest.raises(HistoryPruned):
            read(path, since=1)
        assert read(path)[0]["version"] == log.oldest.version
        reader.stop()


def test_retention_beneath_a_consumer_of_hard_links_takes_nothing(path):
    """F152: from plan to commit and while the query is down; what was processed is given up."""
    with ChangeLog.open(path, **SMALL, retain_bytes=1, retain_age=None) as log:
        held = log.links.add("spark")
        log.commit([upsert("order", "1", {})])
        reader = stream(path, consumer="spark", since="earliest")
        offset = reader.initialOffset()
        with pytest.raises(ConsumerBusy):
            stream(path, consumer="spark").initialOffset()
        reader.stop()
        grow(log, path)
        grow(log, path)
        before = len(list(held.glob("*.log")))
        found, _ = batches(path, offset=offset, consumer="spark", maxVersionsPerBatch=2)
        rows = joined(found)
        assert [row["version"] for row in rows if not row["index"]] == list(range(1, log.head.version))
        assert digest([row for row in rows if row["version"] >= log.oldest.version]) == digest(told(log))
        assert len(list(held.glob("*.log"))) < before


def test_a_consumer_that_comes_to_a_gap_is_told(path):
    """F152."""
    with ChangeLog.open(path, **SMALL) as log:
        held = log.links.add("spark")
        for _ in range(4):
            log.commit(upsert("order", f"{n}", {"text": "x" * 1000}) for n in range(50))
        sorted(held.glob("*.log"))[1].unlink()
        with pytest.raises(HistoryPruned):
            read(path, consumer="spark")
    with pytest.raises(InvalidOption, match="consumer is 'nobody'"):
        read(path, consumer="nobody")


def test_a_range_is_judged_anew_where_the_log_was_opened_again(path):
    """F152: it goes on in the same history, and not in another one."""
    with ChangeLog.open(path, **SMALL) as log:
        log.commit(upsert("order", f"{n}", {"n": n}) for n in range(10))
    reader = source(path).reader(CHANGE_SCHEMA)
    (planned,) = reader.partitions()
    with ChangeLog.open(path) as log:
        assert [row["key"] for batch in reader.read(planned) for row in batch.to_pylist()][1:] == [
            f"{n}" for n in range(10)
        ]
    token = planned.end._replace(random=planned.end.random ^ 1)
    with pytest.raises(PositionForked):
        list(reader.read(LogRange(planned.start, token, planned.opening, planned.prefixes)))
    beyond = planned.end._replace(position=Position(9))
    with ChangeLog.open(path) as log:
        opening = (log.log_id, reader.partitions()[0].opening[1])
        with pytest.raises(PositionAhead):
            list(reader.read(replace(planned, end=beyond, opening=opening)))


def test_a_log_that_is_replaced_ends_a_stream_and_a_task(path):
    """F152."""
    with ChangeLog.open(path, **SMALL) as log:
        log.commit(upsert("order", f"{n}", {"n": n}) for n in range(10))
    reader = stream(path, since="earliest")
    offset = reader.initialOffset()
    planned = reader.partitions(offset, reader.reportLatestOffset())
    rows = stream(path).read(planned[0])
    path.rename(path.with_name("old"))
    with ChangeLog.open(path):
        with pytest.raises(LogReplaced):
            reader.latestOffset(offset, ReadAllAvailable())
        with pytest.raises(PositionForeign):
            next(rows)
        with pytest.raises(PositionForeign):
            stream(path).latestOffset(offset, ReadAllAvailable())
    reader.stop()


FILTERS = [
    EqualTo(("version",), 42),
    EqualTo(("entity_type",), "order"),
    GreaterThan(("index",), 5),
    GreaterThanOrEqual(("version",), 43),
    LessThan(("version",), 9),
    LessThanOrEqual(("version",), 9),
    GreaterThan(("version",), 50),
    In(("key",), ("b7", "x", "none")),
    IsNull(("key",)),
    IsNotNull(("before",)),
    StringStartsWith(("key",), "b1"),
    StringEndsWith(("key",), "7"),
    StringContains(("entity_type",), "/ñ"),
    Not(EqualTo(("entity_type",), "order")),
    Not(In(("key",), ("b7",))),
    Not(IsNull(("entity_type",))),
]  # fmt: skip


@pytest.mark.parametrize("one", FILTERS, ids=str)
def test_filters_that_are_handed_down_hold_as_in_sql(log, one):
    """F152."""
    reader = FilteringReader(source(log.path).reader(CHANGE_SCHEMA)._options, CHANGE_SCHEMA)
    assert list(reader.pushFilters([one])) == []
    want = [row for row in read(log.path) if holds(one, row)]
    assert want
    assert joined(tasks(reader)) == want


def test_filters_are_joined_and_those_on_versions_spare_reading(log):
    """F152."""
    reader = FilteringReader(source(log.path).reader(CHANGE_SCHEMA)._options, CHANGE_SCHEMA)
    assert list(reader.pushFilters([EqualTo(("version",), 42), GreaterThan(("index",), 890)])) == []
    (planned,) = reader.partitions()
    assert (planned.start.position, planned.end.position) == (Position(42), Position(43))
    assert [row["index"] for row in joined(tasks(reader))] == list(range(891, 901))


@pytest.mark.parametrize(
    "one",
    [
        EqualTo(("body", "n"), 1),
        EqualTo(("timestamp",), datetime(2026, 1, 1, tzinfo=UTC)),
        In(("key",), ("a", None)),
        Not(In(("key",), ("a", None))),
        EqualTo(("none",), 1),
        EqualTo(("version",), 1.5),
    ],
    ids=str,
)
def test_filters_that_are_not_understood_are_left_to_spark(path, one):
    """F152."""
    reader = FilteringReader(source(path).reader(CHANGE_SCHEMA)._options, CHANGE_SCHEMA)
    assert list(reader.pushFilters([one, EqualTo(("version",), 1)])) == [one]


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"path": "https://host/log"}, InvalidOption, "path is 'https://host/log', but must be the directory of a log on this machine"),
        ({"path": ""}, InvalidOption, "load\\('/path/to/log'\\)"),
        ({"sinec": "1"}, InvalidOption, "sinec is '1', but must be left out: the options are path, since"),
        ({"content": "ALL"}, InvalidOption, "content is 'ALL', but must be BODY or HEADER"),
        ({"until": "-1"}, InvalidOption, "until is '-1', but must be a whole number from 0"),
        ({"maxBytesPerBatch": "0"}, InvalidOption, "maxBytesPerBatch is '0', but must be a whole number from 1"),
        ({"operation": "upsert"}, InvalidCriteria, "one of UPSERT"),
        ({"criteria": "["}, InvalidOption, "JSON, a list of criteria"),
        ({"criteria": "[]", "key": "1"}, InvalidOption, "left out where there is key"),
    ],
)  # fmt: skip
def test_options_that_are_wrong_are_refused_when_the_source_is_made(options, error, text):
    """F152: in one line."""
    with pytest.raises(error, match=text):
        ChangeSource({"path": "/log", **options}).schema()


def test_a_record_batch_stays_within_bounds(path):
    """F152: also of many small frames with large bodies."""
    with ChangeLog.open(path) as log:
        for number in range(12):
            log.commit([upsert("order", f"{number}", {"text": "x" * 1_000_000})])
    reader = source(path).reader(CHANGE_SCHEMA)
    found = [batch for one in reader.partitions() for batch in reader.read(one)]
    assert len(found) >= 2
    assert max(batch.nbytes for batch in found) < 6_000_000
    assert isinstance(found[0], pa.RecordBatch)
