"""Changes that go from log to log: entry versions and origins are the same everywhere."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flow.executors import INLINE
from penstock_cdc.errors import InvalidChange, InvalidOption
from penstock_cdc.fields import push, set_field
from penstock_cdc.mutations import copied, expire, schema
from publishers import Area, Content, Criterion, Operation, Position, rekey, remove, truncate, upsert
from tests.harness.scale import scaled
from tests.publishers.support import Probe, opened, wait_until

DATA = (Criterion(areas={Area.DATA, Area.SCHEMA}),)
kinds = st.sampled_from(["upsert", "remove", "expire", "rekey", "truncate", "fields", "schema"])
keys = st.sampled_from(["1", "2", "3"])


class Copier(Probe):
    """Commits each version of one log to another, as a replica does."""

    def __init__(self, target):
        super().__init__(first=2**62)
        self.target = target
        self.rows = []

    def on_next(self, change, /):
        super().on_next(change)
        if change.index:
            self.rows.append(copied(change))
        if change.index + 1 == change.count and self.rows:
            self.target.commit(self.rows)
            self.rows = []


def copy_to(source, target):
    copier = Copier(target)
    source.changes(since="earliest", content=Content.BODY).subscribe(copier, executor=INLINE)
    return copier


def write(log, version):
    rows = []
    for number, (kind, key) in enumerate(version):
        match kind:
            case "upsert":
                rows.append(upsert("a", key, {"n": number}, before={"n": 0}, changed="auto", meta={"m": 1}))
            case "remove":
                rows.append(remove("a", key, before=b"[1.50]"))
            case "expire":
                rows.append(expire("a", key))
            case "rekey":
                rows.append(rekey("a", key, b"\xff" + key.encode(), {"n": number}))
            case "truncate":
                rows.append(truncate("a"))
            case "fields":
                parts = [set_field("n", number), push("l", None)]
                rows.append(upsert("a", key, {"n": number, "l": [None]}, changes=parts))
            case "schema":
                rows.append(
                    schema("a", {"number": number}, part=f"{len(log.history(limit=1000).changes)}.{number}")
                )
    log.commit(rows)


def told(log):
    """What must be equal everywhere: all but where it lies."""
    places = ("version", "index", "count", "timestamp")
    changes = log.history(DATA, limit=10_000, content=Content.BODY).changes
    return [
        {name: getattr(change, name) for name in change.__struct_fields__ if name not in places}
        for change in changes
    ]


@settings(max_examples=scaled(25), deadline=None)
@given(st.lists(st.lists(st.tuples(kinds, keys), min_size=1, max_size=4), min_size=1, max_size=5))
def test_entry_versions_rise_per_key_and_are_equal_on_source_and_replica(versions):
    """F17, F18: over two hops; the versions of the logs themselves differ, and so may what the middle one adds."""
    with opened(origin="rome") as first, opened(origin="oslo") as second, opened(origin="bern") as third:
        second.commit([upsert("b", "1", {}), upsert("b", "2", {})])  # so that their versions differ
        here, there = copy_to(first, second), copy_to(second, third)
        for version in versions:
            write(first, version)
        wait_until(lambda: second.head.version == 2 + len(versions))
        second.commit([upsert("b", "1", {})])
        wait_until(lambda: third.head == second.head)
        assert here.error is there.error is None
        source = told(first)
        assert {change["origin"] for change in source} == {"rome"}
        assert [change for change in told(second) if change["entity_type"] == "a"] == source
        assert told(third) == told(second)
        assert {change["origin"] for change in told(third) if change["entity_type"] == "b"} == {"oslo"}
        newest = {}
        for change in first.history(DATA, limit=10_000).changes:
            if change.area is Area.DATA:
                assert change.entry_version == change.version >= newest.get(change.key, 0)
                newest[change.key] = change.entry_version
            else:
                assert change.entry_version is None


@pytest.mark.parametrize("single", [True, False])
def test_a_log_stamps_what_tells_no_origin(single):
    """F18: on each way to commit, beside schemas, and what tells one keeps it."""
    with opened(origin="r\u00f6m") as log:
        more = [] if single else [upsert("a", "2", {}, origin="oslo", meta={"m": 1})]
        log.commit([upsert("a", "1", {}), *more])
        log.commit([schema("a", {"x": 1}), *more, upsert("a", "1", {})])
        log.commit([upsert("a", "1", {}), *more])
        changes = log.history(limit=100).changes
        assert {change.origin for change in changes if change.key == "2"} == ({"oslo"} if more else set())
        assert {change.origin for change in changes if change.key in ("1", "entity")} == {"r\u00f6m"}
        assert {change.origin for change in changes if change.operation is Operation.TRANSACTION} == {None}
        assert changes[-1 - len(more)].schema_version == 1


def test_without_an_origin_nothing_is_stored():
    """F18."""
    with opened() as log:
        log.commit([upsert("a", "1", {})])
        assert log.history().changes[1].origin is None
        assert copied(log.history(content=Content.BODY).changes[1], origin="rome").meta == (
            b'{"entry_version":1,"origin":"rome"}'
        )


@pytest.mark.parametrize("origin", ["", "x" * 257, 7, b"rome", "\ud800"])
def test_an_origin_is_a_text(origin):
    """F18."""
    with pytest.raises(InvalidOption) as refused, opened(origin=origin):
        pass
    assert refused.value.parameter == "origin"


def test_what_cannot_be_copied_is_refused():
    """F107: each log makes its own TRANSACTION events, and a change without its body would be another one."""
    with opened() as log:
        log.commit([upsert("a", "1", {})])
        event, change = log.history().changes
    for given_, parameter in (
        (event, "change"),
        (change, "change.body"),
        (None, "change"),
        (upsert("a", "1", {}), "change"),
    ):
        with pytest.raises(InvalidChange) as refused:
            copied(given_)
        assert refused.value.parameter == parameter


def test_one_entry_version_for_a_key_holds_for_what_follows_in_the_transaction():
    """F17: what is left out goes on with the last one, and nothing may begin without."""
    with opened() as log:
        log.commit(
            [upsert("a", "1", {}, entry_version=9), remove("a", "1"), remove("b", "1"), schema("a", {})]
        )
        found = log.history(since=Position(1, 1)).changes
        assert [change.entry_version for change in found] == [9, 9, 1, None]
        with pytest.raises(InvalidChange, match="given for the key from its first change"):
            log.commit([upsert("a", "1", {}), remove("a", "1", entry_version=3)])
