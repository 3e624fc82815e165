"""Batches: sequences of references."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_cdc.types import Batch
from publishers import Position, View, upsert
from publishers.blocks.block import Block
from publishers.blocks.slices import Slice
from publishers.mutations.mutation import columns_of


def block(version, rows):
    return Block(
        columns_of([upsert("t", str(n), {}) for n in range(rows)]),
        version=version,
        first_index=1,
        leads=True,
        ends=True,
        transaction_count=rows + 1,
        transaction_bytes=1,
        committed_at=0,
    )


def batch(*sizes):
    slices = tuple(Slice(block(version, size), range(size + 1)) for version, size in enumerate(sizes, 1))
    return Batch(slices, Position(len(sizes) + 1, 0), View())


def test_a_batch_is_the_sequence_of_its_changes():
    one = batch(2, 0, 1)
    expected = [(1, 0), (1, 1), (1, 2), (2, 0), (3, 0), (3, 1)]
    assert [tuple(change.position) for change in one] == expected
    assert len(one) == 6
    assert [tuple(one[n].position) for n in range(-6, 0)] == expected
    assert [tuple(change.position) for change in one[1:4]] == expected[1:4]
    assert one[2] in one
    for bad in (6, -7):
        with pytest.raises(IndexError):
            one[bad]


def test_nothing_is_made_before_somebody_looks():
    one = batch(3)
    assert len(one) == 4
    assert one.slices[0].block.memo_bytes == 0
    _ = one[2]
    assert one.slices[0].block.memo_bytes > 0


def test_a_batch_knows_whether_its_last_transaction_is_finished():
    assert batch(1).boundary
    assert not Batch(batch(1).slices, Position(1, 1), View()).boundary


@given(st.lists(st.integers(0, 4), min_size=1, max_size=5), st.integers(1, 30))
def test_to_cut_a_batch_loses_and_repeats_nothing(sizes, events):
    whole = batch(*sizes)
    front, rest = whole.cut(events)
    assert len(front) == min(events, len(whole))
    assert [*front, *(rest or ())] == list(whole)
    if rest is None:
        assert front is whole
    else:
        assert front.end == rest[0].position
        assert rest.end == whole.end
