"""Blocks and slices: changes made once, and pieces that fit their bounds."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from publishers import Area, Content, Operation, Position, View, remove, upsert
from publishers.blocks.block import Block
from publishers.blocks.slices import Slice
from publishers.mutations.mutation import columns_of

HEADER, BODY = View(Content.HEADER), View(Content.BODY)


def block(mutations, *, version=7, first_index=1, leads=True, ends=True, count=None, annotations=b""):
    return Block(
        columns_of(mutations),
        version=version,
        first_index=first_index,
        leads=leads,
        ends=ends,
        transaction_count=count or first_index + len(mutations),
        transaction_bytes=321,
        committed_at=1_000_001,
        annotations=annotations,
    )


MIXED = [
    upsert(
        "order", "1", {"a": 1}, before={"a": 0}, changed=["a"], meta={"x": 1}, schema_version=4, origin="o"
    ),
    remove("item", b"\xff"),
]


def test_a_block_tells_each_change_as_it_was_written():
    one = block(MIXED)
    first, second = one.change(1, BODY), one.change(2, BODY)
    assert (first.version, first.index, first.count) == (7, 1, 3)
    assert first.timestamp == datetime(1970, 1, 1, 0, 0, 1, 1, tzinfo=UTC)
    assert (first.area, first.operation, first.entity_type, first.key) == (
        Area.DATA,
        Operation.UPSERT,
        "order",
        "1",
    )
    assert (first.body, first.before, first.changed, first.meta) == ({"a": 1}, {"a": 0}, ("a",), {"x": 1})
    assert (first.schema_version, first.entry_version, first.origin) == (4, 7, "o")
    assert (second.operation, second.entity_type, second.body, second.before) == (
        Operation.REMOVE,
        "item",
        None,
        None,
    )
    assert second.key == "\udcff"
    assert second.changed is second.meta is second.origin is None


def test_a_header_carries_no_images():
    """F8."""
    header = block(MIXED).change(1, HEADER)
    assert header.body is header.before is None
    assert header.changed == ("a",)


def test_the_transaction_event_tells_of_the_transaction():
    """F15, F21: id, count, bytes, commit time, annotations."""
    annotations = b'{"id":"8a3b","meta":{"user":"ann"}}'
    event = block(MIXED, annotations=annotations).change(0, BODY)
    assert (event.index, event.count) == (0, 3)
    assert (event.area, event.operation) == (Area.INFRASTRUCTURE, Operation.TRANSACTION)
    assert event.entity_type is event.key is event.before is event.changed is None
    assert event.body == {"id": "8a3b", "bytes": 321}
    assert event.meta == {"user": "ann"}
    assert block(MIXED, annotations=annotations).change(0, HEADER).body is None
    assert block(MIXED, annotations=b'{"id":"1"}').change(0, BODY).meta is None


def test_zero_and_null_and_absent_are_kept_apart():
    """F24."""
    one = block([upsert("t", "k", b'{"zero":0,"null":null}', meta=b"null"), upsert("t", "k", b"null")])
    assert one.change(1, BODY).body == {"zero": 0, "null": None}
    assert one.change(1, BODY).meta_bytes == b"null"
    assert one.change(2, BODY).body_bytes == b"null"
    assert one.change(2, BODY).meta_bytes is None


def test_a_change_is_made_once_per_view():
    """E8: two views share the block, each has its change once."""
    one = block(MIXED)
    assert one.change(1, BODY) is one.change(1, BODY)
    assert one.change(1, BODY) is not one.change(1, HEADER)
    assert next(iter(one.changes([1, 2], BODY))) is one.change(1, BODY)


def test_what_is_made_from_a_block_counts_in_its_weight():
    one = block(MIXED)
    before = one.nbytes
    one.change(1, BODY)
    once = one.nbytes
    one.change(1, BODY)
    assert before < once == one.nbytes
    one.selection("key", lambda _: [1, 2])
    assert one.nbytes > once


def test_the_indices_of_a_continuation_begin_where_the_last_block_ended():
    more = block(MIXED, first_index=5, leads=False, ends=False, count=20)
    assert list(more.indices) == [5, 6]
    assert more.end == Position(7, 7)
    assert more.change(6, HEADER).entity_type == "item"
    assert more.change(6, HEADER).count == 20
    assert block(MIXED).end == Position(8, 0)
    assert list(block(MIXED).indices) == [0, 1, 2]


rows = st.lists(st.integers(0, 200).map(lambda n: upsert("t", "k", {"x": "y" * n})), min_size=1, max_size=20)


@given(rows, st.data())
def test_a_piece_fits_both_bounds_or_is_the_least(mutations, data):
    one = block(mutations)
    indices = sorted(data.draw(st.sets(st.sampled_from(list(one.indices)), min_size=1)))
    whole = Slice(one, indices)
    events = data.draw(st.integers(1, 25))
    nbytes = data.draw(st.integers(0, 4000))
    least = data.draw(st.integers(0, 1))
    piece = whole.first(events, nbytes, least=least)
    assert list(piece.indices) == indices[: len(piece)]
    assert least <= len(piece) <= events
    sizes = [one.size(index) for index in indices]
    if len(piece) > least:
        assert sum(sizes[: len(piece)]) <= nbytes
    if len(piece) < min(events, len(indices)):
        assert sum(sizes[: len(piece) + 1]) > nbytes


@given(rows, st.integers(0, 25))
def test_the_rest_of_a_slice_is_what_lies_at_or_after_an_index(mutations, index):
    whole = Slice(block(mutations), range(len(mutations) + 1))
    assert list(whole.since(index).indices) == [place for place in whole.indices if place >= index]


def test_a_piece_looks_only_at_what_it_takes(monkeypatch):
    """E34: to cut one change from a large block does not weigh the rest; to cut thousands halves the range a few times."""
    looked = []
    one = block([upsert("t", "k", {"x": "y" * 100})] * 10_000)
    size = Block.size_between
    monkeypatch.setattr(Block, "size_between", lambda *range_: looked.append(range_) or size(*range_))
    whole = Slice(one, range(1, 10_001))
    place = 1
    for _ in range(100):
        piece = whole.since(place).first(1, 1000)
        place = piece.indices[-1] + 1
        assert piece.nbytes > 0
    assert len(looked) <= 400
    looked.clear()
    assert 5_000 < len(whole.first(9_000, 1_000_000)) < 9_000
    assert len(looked) <= 20


@pytest.mark.parametrize("first_index", [1, 3])
def test_accessors_agree_with_the_change(first_index):
    one = block(MIXED, first_index=first_index, leads=first_index == 1)
    for index in one.indices:
        change = one.change(index, BODY)
        assert (one.area(index), one.operation(index)) == (change.area, change.operation)
        assert one.entity_type(index) == change.entity_type
        assert one.body(index) == (change.body_bytes if index else one.body(0))
