"""Telling repeats from new changes."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_cdc.errors import InvalidOption, PositionMalformed
from publishers import ChangeLog, Deduplicator, Position, upsert
from tests.harness.constants import set_bounds
from tests.publishers.support import fill

LOG = "0" * 31 + "1:3.AAAAAAAAAAE"


def name(version, index=0, log=LOG):
    return f"{log}:{version}:{index}"


def test_repeats_of_a_log_are_told_however_old(log):
    """F87."""
    fill(log, 50)
    ids = [log.idempotency_key(change) for change in log.history().changes]
    known = Deduplicator(window=10)
    assert [known.add(one) for one in ids] == [True] * len(ids)
    assert len(known) == 10
    assert [known.add(one) for one in ids] == [False] * len(ids)
    assert all(one in known for one in ids)
    fill(log, 1)
    assert log.idempotency_key(log.history(since=51).changes[0]) not in known


@given(st.integers(0, 2**32), st.integers(1, 200), st.integers(1, 50))
def test_repeats_and_reorder_within_the_window_give_each_change_once(seed, count, window):
    """F87: random repeats of anything that came before, and changes that overtake each other."""
    rng = random.Random(seed)
    logs = [LOG, "0" * 31 + "2", LOG[:-1] + "I"]
    known = Deduplicator(window=window)
    given = []
    for log in logs:
        order = sorted(range(count), key=lambda n: n + rng.uniform(0, max(window // 2 - 1, 0)))
        given.append([name(n // 3 + 1, n % 3, log) for n in order])
    fresh, sent = [], []
    for ids in zip(*given, strict=True):
        for one in ids:
            sent.append(one)
            again = rng.choices(sent, k=rng.randrange(3))
            fresh += [each for each in (one, *again) if known.add(each)]
    assert sorted(fresh) == sorted(sent)
    assert len(fresh) == len(set(fresh))
    assert len(known) <= window * len(logs)


def test_it_is_kept_in_a_file_on_request(tmp_path):
    """F87: whole or not at all, and bounded as it is read."""
    path = tmp_path / "known"
    known = Deduplicator(path)
    for version in range(1, 101):
        known.add(name(version))
    assert name(7) not in Deduplicator(path)
    known.save()
    again = Deduplicator(path)
    assert len(again) == 100
    assert all(name(version) in again for version in range(1, 101))
    assert again.add(name(101))
    old = Deduplicator(tmp_path / "old", window=5)
    for version in range(1, 101):
        old.add(name(version))
    old.save()
    later = Deduplicator(tmp_path / "old", window=5)
    assert [later.add(name(version)) for version in range(1, 101)] == [False] * 100
    narrow = Deduplicator(path, window=5)
    assert len(narrow) == 5
    assert name(3) in narrow
    assert name(101) not in narrow
    with pytest.raises(InvalidOption, match="path"):
        Deduplicator().save()


def test_a_damaged_file_is_refused(tmp_path):
    """F87: never read as another one."""
    path = tmp_path / "known"
    known = Deduplicator(path)
    known.add(name(1))
    known.save()
    whole = path.read_bytes()
    for at in range(len(whole)):
        for damaged in (whole[:at], whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :]):
            path.write_bytes(damaged)
            with pytest.raises(InvalidOption):
                Deduplicator(path)


def test_histories_are_bounded(tmp_path):
    known = Deduplicator(tmp_path / "known", sources=2)
    first, second, third = (f"{n:032x}:1.AAAAAAAAAAE" for n in range(3))
    for log in (first, second, first, third):
        known.add(name(1, log=log))
    assert name(1, log=first) in known
    assert name(1, log=second) not in known  # unused for longest
    known.save()
    assert name(1, log=third) in Deduplicator(tmp_path / "known", sources=1)
    for bounds in ({"window": 0}, {"sources": 0}, {"window": "x"}):
        with pytest.raises(InvalidOption):
            Deduplicator(**bounds)


@pytest.mark.parametrize("bad", [None, 7, "", "x", "a:b", "a:1:x", "a:b:c:1:2", "ü:1:2", "x" * 200 + ":1:2"])
def test_what_is_no_id_is_refused(bad):
    known = Deduplicator()
    with pytest.raises(PositionMalformed):
        known.add(bad)
    with pytest.raises(PositionMalformed):
        bad in known  # noqa: B015 - it raises


def test_no_row_of_a_snapshot_is_taken_for_a_repeat(tmp_path):
    """F87, F88: all rows of a page have one position, that of the next transaction, which is none either."""
    known, key = Deduplicator(), "k:" * 200
    set_bounds(state_interval=0.0)
    with ChangeLog.open(tmp_path / "log", state=True, sync="os") as log:
        log.commit([upsert("order", one, {}) for one in ("1", "2", key)])
        feed = iter(log.changes(since="state"))
        ids = [log.idempotency_key(next(feed)) for _ in range(3)]
        place = str(log.token(Position(2)))
        assert ids == [f"r1:{place}:order:{one}" for one in ("1", "2", key)]
        assert [known.add(one) for one in ids * 2] == [True] * 6
        assert not any(one in known for one in ids)
        assert len(known) == 0
        log.commit([upsert("order", "4", {})])
        change = log.idempotency_key(next(feed))
        assert change not in known
        assert [known.add(change), known.add(change)] == [True, False]
        feed.close()
