"""Rows of a DataFrame, and then every change."""

import pytest

from penstock_cdc.errors import InvalidOption, SourceFailed, SourceRowRefused
from publishers import ChangeLog, Content, Criterion, Operation, upsert
from publishers.errors import InvalidChange
from publishers.snapshots.source import PageRequest
from publishers.spark import ChangeSink, FrameSource, SchemaRefused
from publishers.spark import frame_source as module
from tests.harness.constants import set_constant
from tests.publishers.support import QUICK

pytestmark = pytest.mark.timeout(600)
ORDERS = Criterion(areas={"DATA"}, entity_types={"order"})
KEY = ["shop", "code"]


@pytest.fixture
def log(tmp_path):
    with ChangeLog.open(tmp_path / "log", **QUICK) as made:
        yield made


@pytest.fixture
def frame(spark):
    rows = [(shop, code, "1.10") for shop in (2, 10) for code in ("b", "a/b", "a")]
    texts = spark.createDataFrame(rows, "shop INT, code STRING, total STRING")
    return texts.selectExpr("shop", "code", "CAST(total AS DECIMAL(10,2)) AS total").repartition(2)


def followed(log, source, since="state"):
    return log.changes(ORDERS, since=since, source=source, snapshot="initial_only", content=Content.BODY)


def test_rows_have_the_keys_and_bodies_that_a_sink_gives_them(log, frame):
    """F88, F89, F93: page by page, each as of the moment, in the order of the bytes of keys."""
    ChangeSink(log, entity_type="order", key=KEY, producer="p")(frame, 0)
    written = sorted((c.key, c.body) for c in log.history(ORDERS, 1, content=Content.BODY).changes)
    source = FrameSource(frame, entity_type="order", key=KEY, page_rows=4, marker=lambda: log.visible)
    assert not source.as_of
    found = []
    for change in followed(log, source):
        found.append(change)
        if len(found) == 2:  # in the midst of a page
            log.commit([upsert("order", "2/b", {"new": True})])
    told = [(c.operation.name, c.key, c.body) for c in found]
    assert told[:4] == [("READ", *row) for row in written[:4]]
    assert ("UPSERT", "2/b", {"new": True}) in told
    # The next page may be under way when its row is changed, and then has it no more.
    rows = [one[1] for one in told if one[0] == "READ" and one[1] != "2/b"]
    assert rows == [key for key, _ in written if key != "2/b"]
    rest = followed(log, source, since=found[2].cursor)
    assert [c.key for c in rest if c.operation is Operation.READ] == [key for key, _ in written[3:]]


def test_rows_as_of_a_version_are_computed_once_and_come_range_by_range(log, frame, monkeypatch):
    """F88, F89: whatever is committed meanwhile."""
    log.commit([upsert("order", "1", {})])
    asked = []

    def as_of(version):
        asked.append(version)
        return frame

    named = {"entity_type": "order", "key": KEY, "body": ["total"], "page_rows": 2, "collect_bytes": 100}
    source = FrameSource(as_of, **named)
    found = []
    for change in followed(log, source):
        found.append(change)
        if len(found) == 1:
            log.commit([upsert("order", "1", {})])
    assert asked == [1]
    rows = [c for c in found if c.operation is Operation.READ]
    assert [c.key for c in rows] == sorted(c.key for c in rows)
    assert [c.body for c in rows] == [{"total": "1.10"}] * 6
    rest = followed(log, source, since=rows[3].cursor)
    assert [c.key for c in rest if c.operation is Operation.READ] == [c.key for c in rows[4:]]
    assert asked == [1, 1]
    ranged = source.read(PageRequest("10/a", "2/a", 10, 7))
    assert [key for key, _ in ranged] == [b"10/a%2Fb", b"10/b", b"2/a"]
    set_constant(monkeypatch, module, "_RUNS", 1)
    for version in (8, 9):  # of two snapshots one is kept
        next(source.read(PageRequest(None, None, 1, version)))
    assert [place[0] for place in source._runs] == [9]


@pytest.mark.parametrize("as_of", [False, True])
def test_rows_that_pages_would_leave_out_are_refused(spark, log, as_of):
    """F88: also where the twin is on the next page."""
    for rows, key in (
        ([("a",), ("b",), ("b",)], "b"),
        ([("a",), (None,)], None),
    ):
        frame = spark.createDataFrame(rows, "id STRING").selectExpr("id", "1 AS n")
        given = (lambda _, frame=frame: frame) if as_of else frame
        source = FrameSource(given, entity_type="order", key="id", page_rows=2)
        with pytest.raises(SourceRowRefused) as refused:
            list(followed(log, source))
        assert (refused.value.entity_type, refused.value.key) == ("order", key)
        if key is None:  # also by a subscriber that goes on in the midst
            with pytest.raises(SourceRowRefused):
                list(source.read(PageRequest("a", None, 2, 1 if as_of else None)))


def test_what_is_no_source_is_refused(spark, log, frame):
    named = {"frame": frame, "entity_type": "order", "key": KEY}
    for wrong, error in (
        ({"frame": 3}, InvalidOption),
        ({"marker": 3}, InvalidOption),
        ({"page_rows": 0}, InvalidOption),
        ({"collect_bytes": 0}, InvalidOption),
        ({"key": []}, InvalidOption),
        ({"body": 3}, InvalidOption),
        ({"entity_type": ""}, InvalidChange),
        ({"key": "nothing"}, SchemaRefused),
    ):
        with pytest.raises(error):
            FrameSource(**{**named, **wrong})
    with pytest.raises(SourceFailed, match="answers a DataFrame"):
        list(followed(log, FrameSource(lambda _: 3, entity_type="order", key="id")))

    class Connected(type(frame)):
        """As Spark Connect has it."""

    Connected.__module__ = "pyspark.sql.connect.dataframe"
    connected = Connected(frame._jdf, spark)
    with pytest.raises(InvalidOption, match="not of Spark Connect"):
        FrameSource(connected, entity_type="order", key="id")
