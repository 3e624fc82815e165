"""Runs of changes are what single changes are."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_cdc.mutations import schema
from publishers import Content, Mutation, View, remove, truncate, upsert
from publishers.blocks.block import Block
from publishers.blocks.decode import attached_of
from publishers.mutations.mutation import REMOVE, columns_of
from publishers.wal.format.columns import encode_payload
from publishers.wal.format.stored import decode_payload

mutations = st.lists(
    st.one_of(
        st.builds(
            lambda kind, key, body, before, changed, origin, version: upsert(
                kind, key, body, before=before, changed=changed, origin=origin, schema_version=version
            ),
            st.sampled_from(["order", "item"]),
            st.binary(min_size=1, max_size=3) | st.text(min_size=1, max_size=3),
            st.sampled_from([{}, {"a": 1}, b"null"]),
            st.sampled_from([None, {"b": None}]),
            st.sampled_from([None, [], ["a", "b"]]),
            st.sampled_from([None, "here"]),
            st.sampled_from([None, 3]),
        ),
        st.builds(remove, st.just("order"), st.binary(min_size=1, max_size=2)),
        st.just(Mutation(REMOVE, "order", b"")),  # as it may be stored, although it is not committed any more
        st.builds(remove, st.just("log"), st.integers(100, 120).map(str), entry_version=st.just(7)),
        st.just(schema("item", {"a": 1})),
    ),
    max_size=12,
) | st.lists(st.sampled_from([remove("order", "1"), schema("item", {})]), min_size=9, max_size=12)


def block_of(columns, *, leads=False):
    return Block(
        columns,
        version=7,
        first_index=1 if leads else 4,
        leads=leads,
        ends=True,
        transaction_count=columns.count + (1 if leads else 4),
        transaction_bytes=5,
        committed_at=12,
        annotations=b'{"id":"x"}' if leads else b"",
    )


ALIKE = [upsert("order", str(n), {"n": n}) for n in range(10)]
RUNS = {
    "all alike": ALIKE,
    "keys that are not ASCII": [upsert("order", f"\u00e9{n}", {"n": n}, before={}) for n in range(10)],
    "no key, and some without a body": [*ALIKE, truncate("order"), remove("order", "1")],
    "all of it": [upsert("item", "1", {}, before={}, changed=["a"], origin="here"), *ALIKE],
    "another area": [schema("order", {})] * 10,
}


@pytest.mark.parametrize(
    "text", ["2026-01-01T00:00:00Z", "2026-01-01T02:00:00+02:00", "2025-12-31T18:30:00-05:30"]
)
def test_a_time_of_any_zone_is_the_same_moment(text):
    """F20: whoever wrote it."""
    found = attached_of(b'{"expires_at":"%s"}' % text.encode()).expires_at
    assert (found, found.tzinfo) == (datetime(2026, 1, 1, tzinfo=UTC), UTC)


@pytest.mark.parametrize("content", Content)
@pytest.mark.parametrize("rows", RUNS.values(), ids=RUNS)
def test_a_run_out_of_a_payload_equals_the_changes_one_by_one(rows, content):
    """F1, F5, F6, F8, F17, F24: without columns that were made for it."""
    payload, view = encode_payload(columns_of(rows)), View(content)
    run = block_of(decode_payload(payload, len(rows))[0])
    single = block_of(columns_of(rows))
    part = range(5, 14)
    assert list(run.changes(part, view)) == [single.change(index, view) for index in part]
    assert list(run.changes(run.indices, view)) == [single.change(index, view) for index in single.indices]


@given(mutations, st.booleans(), st.sampled_from(Content), st.data())
def test_a_run_of_changes_equals_the_changes_one_by_one(rows, leads, content, data):
    """F1, F5, F6, F17, F24: whichever way a change is made, it is the same."""

    def block():
        return block_of(columns_of(rows), leads=leads)

    one, other, view = block(), block(), View(content)
    single = [one.change(index, view) for index in one.indices]
    assert list(other.changes(other.indices, view)) == single
    chosen = sorted(data.draw(st.sets(st.sampled_from(list(one.indices))))) if single else []
    fresh = block()
    assert list(fresh.changes(chosen, view)) == [single[index - one.indices.start] for index in chosen]
    assert list(fresh.changes(fresh.indices, view)) == single
