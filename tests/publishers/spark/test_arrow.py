from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from publishers.model.change import Operation
from publishers.spark.arrow import ContentDigest, column_of, columns_of, kind_of, pieces
from publishers.spark.errors import RowRefused
from publishers.spark.schema import Encoding
from publishers.wal.format.columns import encode_payload
from publishers.wal.format.stored import decode_payload

TYPES = [pa.binary(), pa.large_binary(), pa.string(), pa.large_string()]
UPSERTS = Encoding(key=("id",))


def batch_of(rows, **more):
    names = {
        "key": pa.array([key for key, _ in rows], pa.binary()),
        "body": pa.array([body for _, body in rows], pa.binary()),
    }
    return pa.RecordBatch.from_pydict(names | more)


def rows_of(columns):
    return list(zip(columns.key, columns.body or [None] * columns.count, strict=True))


@given(
    values=st.lists(st.none() | st.text(max_size=5), max_size=40),
    start=st.integers(0, 40),
    length=st.integers(0, 40),
    dtype=st.sampled_from(TYPES),
)
def test_a_slice_of_any_array_is_taken_over_as_it_is(values, start, length, dtype):
    binary = pa.types.is_binary(dtype) or pa.types.is_large_binary(dtype)
    plain = [None if value is None else value.encode() for value in values]
    array = pa.array(plain if binary else values, dtype).slice(start, length)
    column = column_of(array)
    assert list(column) == plain[start : start + length]
    assert column.offsets[0] == 0
    assert len(column.data) == column.offsets[len(column)]


@given(
    sizes=st.lists(st.tuples(st.integers(1, 20), st.integers(0, 3000)), max_size=60),
    cuts=st.lists(st.integers(0, 60), max_size=4),
    piece_bytes=st.integers(2048, 9000),
)
def test_pieces_hold_every_row_in_order_and_fit_a_frame(sizes, cuts, piece_bytes):
    rows = [(b"k" * key, b"b" * body) for key, body in sizes]
    whole = batch_of(rows)
    bounds = [0, *sorted(min(cut, len(rows)) for cut in cuts), len(rows)]
    batches = [whole.slice(a, b - a) for a, b in pairwise(bounds)]
    found = [columns_of(piece, UPSERTS, "n") for piece in pieces(batches, piece_bytes)]
    assert [row for columns in found for row in rows_of(columns)] == rows
    assert all(columns.count == 1 or columns.nbytes <= piece_bytes for columns in found)


def test_small_batches_of_many_partitions_share_a_frame():
    assert len(list(pieces([batch_of([(b"1", b"{}")])] * 50, 1 << 20))) == 1


def test_columns_survive_the_way_through_a_payload():
    whole = batch_of([(b"%d" % row, b'{"n":%d}' % row) for row in range(20)])
    columns = columns_of(whole.slice(3, 9), UPSERTS, "n")
    again, _ = decode_payload(encode_payload(columns), columns.count)
    assert rows_of(again) == [(b"%d" % row, b'{"n":%d}' % row) for row in range(3, 12)]
    assert bytes(again.kinds) == bytes([kind_of(Operation.UPSERT)]) * 9
    assert again.entity_types == ("n",)


def test_kinds_follow_the_operation_column_of_a_slice():
    encoding = Encoding(key=("id",), operation_column="op")
    operations = pa.array(["insert", "delete", "update", "remove", "upsert"])
    whole = batch_of([(b"k", b"{}")] * 5, operation=operations)
    kinds = columns_of(whole.slice(1, 3), encoding, "n").kinds
    assert list(kinds) == [kind_of(Operation.REMOVE), kind_of(Operation.UPSERT), kind_of(Operation.REMOVE)]


@pytest.mark.parametrize("strange", ["truncated", None])
def test_an_unknown_operation_is_named(strange):
    encoding = Encoding(key=("id",), operation_column="op")
    batch = batch_of([(b"k", b"{}")] * 2, operation=pa.array(["upsert", strange]))
    with pytest.raises(RowRefused, match=f"'op' names {strange!r}, but must be one of upsert, insert"):
        columns_of(batch, encoding, "n")


def test_entity_types_of_a_slice_are_only_those_in_it():
    encoding = Encoding(key=("id",), entity_type_column="kind")
    types = pa.array(["a", "b", "c", "b", "d"])
    columns = columns_of(batch_of([(b"k", b"{}")] * 5, entity_type=types).slice(1, 3), encoding, None)
    assert columns.entity_types == ("b", "c")
    assert list(columns.type_ids) == [0, 1, 0]


def test_a_null_entity_type_is_refused():
    encoding = Encoding(key=("id",), entity_type_column="kind")
    with pytest.raises(RowRefused, match="'kind' is null in 1 of 2 rows"):
        columns_of(batch_of([(b"k", b"{}")] * 2, entity_type=pa.array(["a", None])), encoding, None)


@pytest.mark.parametrize("strange", ["", "x" * 1025])
def test_a_text_that_is_no_entity_type_is_refused(strange):
    encoding = Encoding(key=("id",), entity_type_column="kind")
    with pytest.raises(RowRefused, match="'kind' has values that are no entity types"):
        columns_of(batch_of([(b"k", b"{}")] * 2, entity_type=pa.array(["a", strange])), encoding, None)


def test_an_empty_key_is_refused_with_the_name_of_its_column():
    with pytest.raises(RowRefused, match=r"'id' is empty in 1 of 2 rows.*filter them out"):
        columns_of(batch_of([(b"k", b"{}"), (b"", b"{}")]), UPSERTS, "n")


def test_a_null_key_is_refused_with_the_names_of_its_columns():
    with pytest.raises(RowRefused, match=r"'a, b' is null in 1 of 2 rows.*filter them out"):
        columns_of(batch_of([(b"k", b"{}"), (None, b"{}")]), Encoding(key=("a", "b")), "n")


def test_rows_without_any_body_make_no_body_column():
    columns = columns_of(
        batch_of([(b"1", None), (b"2", None)]), Encoding(key=("id",), operation=Operation.REMOVE), "n"
    )
    assert columns.body is None


def test_the_digest_does_not_depend_on_how_a_batch_was_cut():
    whole = batch_of([(b"%d" % row, b'{"n":%d}' % row) for row in range(100)])
    digests = []
    for size in (2048, 1 << 20):
        digest = ContentDigest()
        for piece in pieces([whole.slice(0, 30), whole.slice(30)], size):
            digest.add(columns_of(piece, UPSERTS, "n"))
        digests.append((digest.rows, str(digest)))
    assert digests[0] == digests[1]
    other = ContentDigest()
    other.add(columns_of(whole.slice(0, 99), UPSERTS, "n"))
    assert str(other) != digests[0][1]
