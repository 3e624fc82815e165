"""Batches that are compared with the state of their log: what is new, what differs, and what is known already."""

import json
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock_cdc.errors import ExpectationFailed, InvalidOption, StateOff
from penstock_cdc.mutations import expire
from publishers import ChangeLog, Content, Criterion, Operation, remove, truncate, upsert
from publishers.mutations.mutation import columns_of
from publishers.spark import BatchChanged, ChangeSink, ComparisonTooLarge
from publishers.spark.comparison import BatchComparison, StateReads
from tests.harness.constants import without_bounds
from tests.publishers.support import QUICK, opened

pytestmark = pytest.mark.timeout(600)
STATED = {"state": True, "state_interval": 0.0}
KEYS = st.sampled_from(["a", "b", "c"])
BODIES = st.fixed_dictionaries({"n": st.integers(0, 2)}, optional={"m": st.integers(0, 1)})
ROWS = st.one_of(
    st.builds(upsert, st.just("e"), KEYS, BODIES),
    st.builds(remove, st.just("e"), KEYS),
    st.builds(expire, st.just("e"), KEYS),
    st.builds(truncate, st.just("e")),
)


@pytest.fixture
def log(tmp_path):
    with ChangeLog.open(tmp_path / "log", **without_bounds({**QUICK, **STATED})) as made:
        yield made


def told(log, since=1):
    wish = Criterion(areas={"DATA"})
    found = log.history(wish, since, limit=1_000, content=Content.BODY).changes
    return [
        (c.key, c.operation.name, c.body, c.before_bytes and json.loads(c.before_bytes), c.changed)
        for c in found
    ]


def decided(log, *rows, limit=10**6):
    reads = StateReads(log)
    comparison = BatchComparison(log, reads, limit, 20)
    columns = [one for window in comparison.decided([[columns_of(rows)]]) for one in window]
    return comparison, columns, reads.expect()


def test_each_row_becomes_what_it_changes(spark, log):
    """F6: by the state that all commits before have left, those of others included."""
    log.commit(
        [
            upsert("order", "1", b'{ "total": "1.00", "id": 1 }'),
            upsert("order", "2", {"id": 2, "total": "2.00"}),
        ]
    )
    sink = ChangeSink(
        log, entity_type="order", key="id", operation_column="op", order_by="id", producer="p", compare=True
    )

    def commit(batch, *rows):
        sink(spark.createDataFrame(rows, "id INT, total STRING, op STRING").repartition(2), batch)

    first = [(1, "1.00", "upsert"), (2, "9.00", "upsert"), (3, "3.00", "upsert"), (4, None, "delete")]
    commit(0, *first)
    assert told(log, 2) == [
        ("2", "UPSERT", {"id": 2, "total": "9.00"}, {"id": 2, "total": "2.00"}, ("total",)),
        ("3", "UPSERT", {"id": 3, "total": "3.00"}, None, ("id", "total")),
    ]
    assert log.history(None, 2, 3, content=Content.BODY).changes[2].before_bytes is not None
    figures = sink.statistics()
    assert (figures.rows, figures.unchanged, figures.version) == (2, 2, 2)
    annotations = log.history(None, 2, 1, content=Content.BODY).changes[0].meta["spark"]
    assert (annotations["rows"], annotations["unchanged"], annotations["content"][:2]) == (2, 2, "4:")

    commit(1, *first)  # all of it is known by now
    assert (log.head.version, sink.statistics().unchanged) == (3, 6)
    commit(2, (2, "9.00", "delete"), (3, "3.00", "upsert"))
    assert told(log, 3) == [("2", "REMOVE", None, {"id": 2, "total": "9.00"}, None)]


def test_a_batch_that_runs_again_is_not_compared_with_what_it_has_left(spark, source, log):
    sink = ChangeSink(log, entity_type="n", key="id", name="n", compare=True)
    source.add({"id": 1, "name": "a"})
    source.add({"id": 1, "name": "b"})
    source.run(sink)
    log.commit([upsert("n", "1", {"id": 1, "name": "c"})])
    source.forget_newest_commit()
    source.run(sink)
    assert [one[2]["name"] for one in told(log)] == ["a", "b", "c"]
    assert (sink.statistics().batches, sink.statistics().repeated) == (2, 1)

    named = ChangeSink(log, entity_type="n", key="id", producer="p", compare=True)
    frame = spark.createDataFrame([(1, "d"), (2, "e")], "id INT, name STRING")
    named(frame, 0)
    named(frame.repartition(2), 0)
    ChangeSink(log, entity_type="n", key="id", producer="p")(frame, 0)  # whether it compares or not
    assert named.statistics().repeated == 1
    others = spark.createDataFrame([(1, "d"), (2, "e"), (3, "f")], "id INT, name STRING")
    with pytest.raises(BatchChanged):
        named(others, 0)
    ChangeSink(log, entity_type="n", key="id", producer="plain")(frame, 0)
    plain = ChangeSink(log, entity_type="n", key="id", producer="plain", compare=True)
    plain(frame, 0)
    assert plain.statistics().repeated == 1


def test_a_batch_is_compared_again_if_another_writer_comes_between(spark, log, monkeypatch):
    frame = spark.createDataFrame([(1, "mine")], "id INT, name STRING")
    looked = threading.local()
    find = type(log.state).find

    def then_others(state, places):
        page = find(state, places)
        looked.times = getattr(looked, "times", 0) + 1
        if looked.times == 1:
            log.commit([upsert("n", "1", {"id": 1, "name": "theirs"}), upsert("n", "2", {"id": 2})])
        return page

    monkeypatch.setattr(type(log.state), "find", then_others)
    ChangeSink(log, entity_type="n", key="id", producer="p", compare=True)(frame, 0)
    assert told(log, 2) == [
        ("1", "UPSERT", {"id": 1, "name": "mine"}, {"id": 1, "name": "theirs"}, ("name",))
    ]
    assert looked.times == 2

    def always_others(state, places):
        page = find(state, places)
        log.commit([upsert("n", "2", {"id": looked.times})])
        return page

    monkeypatch.setattr(type(log.state), "find", always_others)
    hurried = ChangeSink(log, entity_type="n", key="id", producer="q", compare=True, stall_timeout=0.001)
    with pytest.raises(ExpectationFailed, match="key '2' of 'n' changed"):
        hurried(spark.createDataFrame([(2, "mine")], "id INT, name STRING"), 0)


@settings(max_examples=60, deadline=None)
@given(before=st.lists(ROWS, max_size=4), batch=st.lists(ROWS, min_size=1, max_size=8))
def test_what_is_decided_leads_to_the_same_state_and_says_nothing_in_vain(before, batch):
    def applied(state, changes):
        for one in changes:
            if one.operation == Operation.TRUNCATE:
                state = {}
            elif one.operation == Operation.UPSERT:
                state = {**state, one.key: json.loads(one.body)}
            else:
                state = {key: body for key, body in state.items() if key != one.key}
        return state

    with opened(**STATED) as log:
        if before:
            log.commit(before)
        state = applied({}, before)
        wanted = applied(state, batch)
        comparison, columns, expect = decided(log, *batch)
        if columns:
            log.commit_columns(columns, expect=expect)
        changes = log.history(
            Criterion(areas={"DATA"}), 2 if before else 1, 100, content=Content.BODY
        ).changes
        assert comparison.unchanged == len(batch) - len(changes)
        for change in changes:
            key = change.key and change.key.encode()
            if change.operation is Operation.TRUNCATE:
                state = {}
                continue
            old = state.pop(key, None)
            assert json.loads(change.before_bytes) == old
            if change.operation is Operation.UPSERT:
                assert old != change.body
                names = (old or {}).keys() | change.body.keys()
                assert set(change.changed) == {
                    n for n in names if (old or {}).get(n, ()) != change.body.get(n, ())
                }
                state[key] = change.body
            else:
                assert old is not None
        assert state == wanted


def test_a_body_that_is_no_object_is_replaced_without_names_of_fields(log):
    log.commit([upsert("e", "a", b"[1]"), upsert("e", "b", b"null")])
    _, (columns,), _ = decided(log, upsert("e", "a", {"n": 1}), upsert("e", "b", {"n": 1}))
    log.commit_columns([columns])
    assert [one[3:] for one in told(log, 2)] == [([1], None), (None, None)]


def test_of_many_keys_the_whole_log_is_expected_to_be_as_it_was(log):
    _, columns, many = decided(log, *(upsert("e", str(key), {"n": key}) for key in range(1_001)))
    assert many == str(log.token(log.head))
    _, _, few = decided(log, upsert("e", "1", {"n": 1}))
    assert few == (str(log.token(log.head)), {("e", b"1")})
    assert decided(log, truncate("e"))[2] is StateReads(log).expect() is None
    log.commit([upsert("other", "1", {})])
    with pytest.raises(ExpectationFailed):
        log.commit_columns(columns, expect=many)
    log.commit_columns(columns, expect=few)


def test_more_changes_than_may_be_held_are_refused(spark, log):
    sink = ChangeSink(log, entity_type="e", key="id", producer="p", compare=True, compare_bytes=1_000)
    with pytest.raises(ComparisonTooLarge, match=r"compare_bytes \(1000\).*maxFilesPerTrigger") as refused:
        sink(spark.range(4), 0)
    assert refused.value.limit == 1_000
    assert log.head.version == 1


def test_what_cannot_be_compared_is_refused_at_once(tmp_path, log):
    named = {"entity_type": "e", "key": "id", "compare": True}
    with ChangeLog.open(tmp_path / "plain", **QUICK) as plain, pytest.raises(StateOff, match="state=True"):
        ChangeSink(plain, **named)
    for wrong, text in (
        ({"log": "ws://127.0.0.1:1/ws"}, "the state of a server's log is not here"),
        ({"before": "old"}, "'old'.*finds the images before"),
        ({"compare": 1}, "compare"),
        ({"compare_bytes": 0}, "compare_bytes"),
    ):
        with pytest.raises(InvalidOption, match=text):
            ChangeSink(**{"log": log, **named, **wrong})
