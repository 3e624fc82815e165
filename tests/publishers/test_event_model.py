"""What happens to entities, as a writer says it and as a subscriber sees it."""

from datetime import UTC, datetime, timedelta, timezone
from zlib import crc32

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_cdc.errors import InvalidChange
from penstock_cdc.fields import set_field
from penstock_cdc.mutations import expire
from publishers import (
    Area,
    ChangeLog,
    Content,
    Criterion,
    Mutation,
    Operation,
    Position,
    rekey,
    remove,
    truncate,
    upsert,
)
from publishers.mutations.mutation import UPSERT, columns_of
from publishers.wal.format.columns import Column, Columns
from tests.harness.scale import scaled
from tests.publishers.support import QUICK, BatchProbe, in_threads, opened

MOMENT = datetime(2026, 11, 20, 12, 30, 0, 123456, UTC)


def past(log, *wishes):
    return log.history(wishes or None, content=Content.BODY, limit=10_000).changes


def followed(log):
    """What a subscriber to everything gets, from now on."""
    probe = BatchProbe(first=2**62)
    log.changes(content=Content.BODY).subscribe(probe, executor=None)
    return probe


def test_every_operation_is_a_change_with_entity_type_and_key(log):
    """F1, F2, F3, F5, F6: live and from the log the same."""
    live = followed(log)
    with log.transaction() as tx:
        tx.upsert("order", "1", {"total": 1})
        tx.upsert("order", "1", {"total": 2}, before={"total": 1}, changed=["total"])
        tx.remove("order", "1", before={"total": 2})
        tx.expire("order", "2", before={"total": 3}, expires_at=MOMENT)
        tx.truncate("order", meta={"why": "test"}, origin="here")
    _, *changes = past(log)
    assert [(change.operation.name, change.entity_type, change.key) for change in changes] == [
        ("UPSERT", "order", "1"),
        ("UPSERT", "order", "1"),
        ("REMOVE", "order", "1"),
        ("EXPIRE", "order", "2"),
        ("TRUNCATE", "order", None),
    ]
    assert [change.body for change in changes] == [{"total": 1}, {"total": 2}, None, None, None]
    assert [change.before for change in changes] == [None, {"total": 1}, {"total": 2}, {"total": 3}, None]
    assert (changes[4].meta, changes[4].origin) == ({"why": "test"}, "here")
    live.wait_for(6)
    assert tuple(live.changes) == past(log)


def test_an_expired_key_is_one_change_without_a_removal_beside_it(log):
    """F2."""
    log.commit([upsert("session", "s", {}, expires_at=MOMENT)])
    log.commit([expire("session", "s", expires_at=MOMENT)])
    changes = past(log, Criterion(entity_types={"session"}, keys={"s"}))
    assert [change.operation for change in changes] == [Operation.UPSERT, Operation.EXPIRE]
    assert [change.expires_at for change in changes] == [MOMENT, MOMENT]


def test_truncating_is_one_change_in_order_with_the_changes_around_it(log):
    """F3."""
    log.commit([upsert("a", "1", {}), truncate("a"), upsert("a", "2", {}), truncate("b")])
    state = {}
    for change in past(log):
        if change.operation is Operation.TRUNCATE:
            state = {at: body for at, body in state.items() if at[0] != change.entity_type}
        elif change.operation is Operation.UPSERT:
            state[change.entity_type, change.key] = change.body
    assert state == {("a", "2"): {}}


def test_runs_of_changes_tell_keyless_ones_from_those_with_an_empty_key(log, monkeypatch):
    """F3: however many are decoded at once. No empty key is committed any more, but some have been."""
    monkeypatch.setattr("publishers.log.transaction_writer.check_columns", lambda columns: columns)
    log.commit_columns([columns_of([Mutation(UPSERT, "a", b"", b"{}"), truncate("a")] * 10)])
    assert [change.key for change in past(log)] == [None, *["", None] * 10]
    assert [log.history(since=Position(1, n), limit=1).changes[0].key for n in (1, 2)] == ["", None]


@given(
    st.datetimes(
        datetime.fromisoformat("0002-01-01"),
        datetime.fromisoformat("9998-01-01"),
        timezones=st.just(timezone(timedelta(hours=-7))),
    )
)
def test_the_time_of_expiry_comes_back(moment):
    """F20."""
    with opened() as log:
        log.commit([upsert("session", "1", {}, expires_at=moment), expire("session", "2", expires_at=moment)])
        _, one, other = past(log)
        assert one.expires_at == other.expires_at == moment
        assert one.expires_at.tzinfo is UTC


@pytest.mark.parametrize(
    "moment",
    [datetime.fromisoformat("2026-01-01"), "2026-01-01", 7, datetime.max.replace(tzinfo=timezone.min)],
)
def test_a_time_of_expiry_must_name_a_moment(moment):
    with pytest.raises(InvalidChange) as refused:
        upsert("session", "1", {}, expires_at=moment)
    assert refused.value.parameter == "expires_at"


@given(st.binary(min_size=1, max_size=4), st.text(min_size=1, max_size=4))
def test_a_key_change_is_a_removal_and_a_creation_that_name_each_other(old, new):
    """F23: in order, also with keys that are no text."""
    if old == new.encode("utf-8", "surrogatepass"):
        return
    try:
        new.encode()
    except UnicodeEncodeError:
        return
    with opened() as log:
        with log.transaction() as tx:
            tx.rekey("order", old, new, {"total": 2}, before={"total": 1}, changed="auto", entry_version=4)
        _, gone, made = past(log)
        assert (gone.operation, made.operation) == (Operation.REMOVE, Operation.UPSERT)
        assert gone.key.encode("utf-8", "surrogateescape") == old
        assert (gone.linked, made.linked) == (made.key, gone.key)
        assert (gone.body, made.body, gone.before, made.before) == (
            None,
            {"total": 2},
            {"total": 1},
            {"total": 1},
        )
        assert (gone.changed, made.changed) == (None, ("total",))
        assert gone.entry_version == made.entry_version == 4


def test_a_key_that_stays_is_no_key_change():
    with pytest.raises(InvalidChange, match="another key"):
        rekey("order", "1", b"1", {})


@given(st.text(st.characters(codec="utf-8"), min_size=1, max_size=6), st.integers(1, 64))
def test_changes_of_a_key_are_in_one_partition_that_any_program_can_tell(key, partitions):
    """F16."""
    with opened() as log:
        log.commit([upsert("a", key, {"n": 1}), remove("b", key), truncate("a")])
        _, one, other, whole = past(log)
        assert one.partition(partitions) == other.partition(partitions) == crc32(key.encode()) % partitions
        assert whole.partition(partitions) == 0
        with pytest.raises(ValueError, match="partitions"):
            one.partition(0)


def test_partitions_are_of_about_one_size(log):
    """F16."""
    log.commit([upsert("a", f"key-{n}", {}) for n in range(4_000)])
    counts = [0] * 8
    for change in past(log)[1:]:
        counts[change.partition(8)] += 1
    assert min(counts) > 400


def test_idempotency_keys_are_equal_over_replays_and_never_shared(log):
    """F22: the same after another opening of the log, and different in another log."""
    log.commit([upsert("a", "1", {}), upsert("a", "1", {})])
    first = [log.idempotency_key(change) for change in past(log)]
    assert first == [log.idempotency_key(change) for change in past(log)]
    path = log.path
    log.close()
    with ChangeLog.open(path) as again:
        assert [again.idempotency_key(change) for change in past(again)] == first
        again.commit([upsert("a", "1", {})])
        keys = [again.idempotency_key(change) for change in past(again)]
    assert len(set(keys)) == len(keys)
    with opened() as other:
        other.commit([upsert("a", "1", {}), upsert("a", "1", {})])
        assert not {other.idempotency_key(change) for change in past(other)} & set(keys)


def test_a_million_idempotency_keys_are_a_million(log):
    """F22."""
    log.commit([upsert("a", "1", {})])
    change = past(log)[0]
    total = scaled(1_000_000)
    side = 1_000
    keys = {
        log.idempotency_key(msgspec.structs.replace(change, version=number // side, index=number % side))
        for number in range(total)
    }
    assert len(keys) == total


def test_entry_versions_may_not_fall_inside_a_transaction(log):
    """F17."""
    rising = [
        upsert("a", "1", {}, entry_version=3, changes=[set_field("x", 1)]),
        upsert("b", "1", {}, entry_version=1),
        upsert("a", "1", {}),
        remove("a", "1", entry_version=4),
    ]
    log.commit(rising)
    assert [change.entry_version for change in past(log)] == [None, 3, 3, 1, 3, 4]
    with pytest.raises(InvalidChange) as refused:
        log.commit([upsert("a", "1", {}, entry_version=4), upsert("a", "1", {}, entry_version=3)])
    assert refused.value.parameter == "entry_version"
    assert len(past(log)) == 6


def test_the_origin_of_a_change_is_kept_when_it_is_written_to_a_second_and_a_third_log(log):
    """F18: over two hops."""
    log.commit([upsert("a", "1", {"n": 1}, origin="Rome", entry_version=7)])
    seen = past(log)
    for _ in range(2):
        with opened() as copy:
            copy.commit(
                upsert(c.entity_type, c.key, c.body_bytes, origin=c.origin, entry_version=c.entry_version)
                for c in seen[1:]
            )
            seen = past(copy)
    assert (seen[1].origin, seen[1].entry_version, seen[1].body) == ("Rome", 7, {"n": 1})


def test_annotations_of_a_transaction_carry_what_the_application_says(log):
    """F21, F139: a user, a request, a trace."""
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    with log.transaction(meta={"user": "ann", "traceparent": trace}) as tx:
        tx.upsert("a", "1", {})
    (event,) = past(log, Criterion(areas={Area.INFRASTRUCTURE}))
    assert event.meta == {"user": "ann", "traceparent": trace}


class Jumping:
    """A clock that goes back and forth."""

    def __init__(self):
        self.moments = [
            1_700_000_000_000_000,
            1_600_000_000_000_000,
            1_700_000_000_000_000,
            5,
            1_800_000_000_000_000,
        ]

    def now_us(self):
        return self.moments.pop(0) if len(self.moments) > 1 else self.moments[0]

    def monotonic(self):
        return 0.0


def test_times_never_fall_in_a_log_and_are_one_in_a_transaction(tmp_path):
    """F12: also when the clock jumps back."""
    clock = Jumping()
    with ChangeLog.open(tmp_path / "log", clock=clock, **QUICK) as log:
        for _ in range(7):
            log.commit([upsert("a", "1", {}), upsert("a", "2", {})])
        times = {}
        for change in past(log):
            times.setdefault(change.version, set()).add(change.timestamp)
    assert all(len(found) == 1 for found in times.values())
    moments = [found.pop() for _, found in sorted(times.items())]
    assert moments == sorted(set(moments))


@pytest.mark.parametrize(
    "options", [{}, {"spool_bytes": 1 << 16, "frame_bytes": 4096}], ids=["memory", "spool"]
)
def test_times_never_fall_whichever_way_transactions_are_written(tmp_path, options):
    """F12, F52: groups of submitted ones, and ones that are spooled, in one frame or many."""
    clock = Jumping()
    body = {"text": "x" * (40_000 if options else 1)}
    with ChangeLog.open(tmp_path / "log", clock=clock, **QUICK, **options) as log:
        for _ in range(3):
            clock.moments += [1_750_000_000_000_000, 7, 1_850_000_000_000_000, 9]
            made = [log.submit([upsert("a", str(n), body) for n in range(3)]) for _ in range(8)]
            versions = [one.result().version for one in made]
            assert versions == sorted(versions)
            log.commit([upsert("a", "1", body), upsert("a", "2", body)])
        moments = [log.time_of(version) for version in range(1, log.head.version)]
        assert moments == sorted(set(moments))
        for version, moment in enumerate(moments, 1):
            assert log.position_at(moment) == Position(version)


def test_each_change_of_a_transaction_in_many_frames_knows_its_index_and_the_size_of_the_whole(tmp_path):
    """F14."""
    wide = {"text": "x" * 3000}
    with ChangeLog.open(tmp_path / "log", **QUICK, frame_bytes=4096) as log:
        log.commit([upsert("a", str(n), wide) for n in range(20)])
    with ChangeLog.open(tmp_path / "log", read_only=True) as log:
        found = log.history(None, "earliest", limit=99).changes
        assert [(one.index, one.count) for one in found] == [(index, 21) for index in range(21)]
        assert found[-1].after == log.head


def damaged(**columns):
    """Three changes, the second of which is not as it should be."""
    sound = columns_of(
        [upsert("a", str(n), {"n": n}, before={"n": 0}, changed=["n"], origin="x") for n in range(3)]
    )
    made = {name: list(getattr(sound, name)) for name in ("body", "before", "changed", "meta")}
    for name, value in columns.items():
        made[name][1] = value
    return Columns(
        sound.kinds, sound.entity_types, None, sound.key, *(Column.of(made[name]) for name in made)
    )


DAMAGE = [
    ({"body": b'{"n":'}, "body"),
    ({"body": b'{"n":"\xff"}'}, "body"),
    ({"body": b""}, "body"),
    ({"before": b"nonsense"}, "before"),
    ({"changed": b'"n"'}, "changed"),
    ({"changed": b"[1"}, "changed"),
    ({"meta": b"{"}, "meta"),
    ({"meta": b'{"schema_version":"x"}'}, "meta"),
    ({"meta": b'{"meta":"\xff"}'}, "meta"),
    ({"meta": b'{"expires_at":"2026-01-01T00:00:00"}'}, "meta"),
]


@pytest.mark.parametrize(("columns", "where"), DAMAGE)
def test_a_change_that_cannot_be_rendered_is_marked_and_its_neighbours_are_intact(log, columns, where):
    """F19: live, from the log, in a run and alone."""
    live = followed(log)
    log.commit_columns([damaged(**columns)])
    live.wait_for(4)
    _, one, broken, other = past(log)
    assert (one.error, other.error) == (None, None)
    assert (one.body, other.body) == ({"n": 0}, {"n": 2})
    assert broken.error.startswith(where + ": ")
    assert (broken.operation, broken.entity_type, broken.key) == (Operation.UPSERT, "a", "1")
    if where != "body":
        assert broken.body == {"n": 1}
    alone = log.history(since=Position(1, 2), limit=1, content=Content.BODY).changes[0]
    assert alone == broken
    assert live.changes[2].error == broken.error
    block = live.batches[0].slices[0].block
    assert block.error(2) == broken.error
    assert block.error(1) is None


def test_a_damaged_change_is_found_by_header_readers_as_far_as_they_read_it(log):
    """F19."""
    log.commit_columns([damaged(body=b"{", meta=b"[")])
    header = log.history().changes[2]
    assert header.error.startswith("meta: ")
    assert header.origin is None


def test_threads_that_tell_of_different_entities_do_not_disturb_each_other(log):
    """F4, F12: what follows a change stays with it under concurrent commits."""

    def write(number):
        for n in range(20):
            log.commit([upsert("a", str(number), {"n": n}, changes=[set_field("n", n), set_field("m", n)])])

    in_threads(*(lambda number=number: write(number) for number in range(4)))
    by_version = {}
    for change in past(log):
        by_version.setdefault(change.version, []).append(change)
    for _, entity, *parts in by_version.values():
        assert [part.field for part in parts] == ["n", "m"]
        assert {part.key for part in parts} == {entity.key}
