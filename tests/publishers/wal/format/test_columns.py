import ctypes
from array import array

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from publishers.wal.format.columns import Column, Columns, encode_payload
from publishers.wal.format.stored import decode_payload

values = st.lists(st.one_of(st.none(), st.binary(max_size=20)), max_size=40)


def columns_of(rows, types=("Product",)):
    """Columns of rows ``(kind, type id, key, body, before, changed, meta)``."""
    ids = None if len(types) == 1 else memoryview(array("H", [row[1] for row in rows]))
    optional = [
        None if all(row[at] is None for row in rows) else Column.of([row[at] for row in rows])
        for at in range(3, 7)
    ]
    return Columns(
        memoryview(bytes(row[0] for row in rows)), types, ids, Column.of([row[2] for row in rows]), *optional
    )


def rows_of(columns):
    optional = [list(column) if column else [None] * columns.count for column in columns.optional]
    ids = [0] * columns.count if columns.type_ids is None else list(columns.type_ids)
    return list(zip(columns.kinds, ids, columns.key, *optional, strict=True))


maybe = st.one_of(st.none(), st.binary(max_size=12))
rows = st.lists(
    st.tuples(st.integers(0, 255), st.integers(0, 2), st.binary(max_size=12), maybe, maybe, maybe, maybe),
    max_size=20,
)


@given(values)
def test_a_column_holds_the_values_it_was_made_of(given_values):
    column = Column.of(given_values)
    assert list(column) == given_values


@given(values, st.data())
def test_a_slice_of_a_column_is_the_slice_of_its_values(given_values, data):
    column = Column.of(given_values)
    start = data.draw(st.integers(0, len(given_values)))
    end = data.draw(st.integers(start, len(given_values)))
    part = column.slice(start, end)
    assert list(part) == given_values[start:end]
    assert part.offsets[0] == 0
    assert list(part.slice(0, len(part))) == given_values[start:end]


@given(rows, st.sampled_from([("Product",), ("Product", "Brand", "Größe")]), st.binary(max_size=30))
def test_a_payload_gives_back_its_columns_and_annotations(given_rows, types, annotations):
    if len(types) == 1:
        given_rows = [(row[0], 0, *row[2:]) for row in given_rows]
    payload = encode_payload(columns_of(given_rows, types), annotations)
    columns, text = decode_payload(payload, len(given_rows))
    assert rows_of(columns) == given_rows
    assert text == annotations
    assert columns.entity_types == types


@given(rows.filter(bool), st.data())
def test_slices_of_columns_are_encoded_like_columns_of_their_own(given_rows, data):
    types = ("A", "B", "C")
    start = data.draw(st.integers(0, len(given_rows) - 1))
    end = data.draw(st.integers(start, len(given_rows)))
    columns = columns_of(given_rows, types)
    part = columns.slice(start, end)
    assert rows_of(decode_payload(encode_payload(part), end - start)[0]) == given_rows[start:end]
    assert part.nbytes == columns.span(start, end)


@given(rows)
def test_every_buffer_of_a_payload_starts_on_eight_bytes(given_rows):
    payload = bytearray(encode_payload(columns_of(given_rows, ("A", "B", "C")), b"{}"))
    columns, _ = decode_payload(payload, len(given_rows))
    start = _address(memoryview(payload))
    buffers = [columns.kinds, columns.type_ids]
    for column in (columns.key, *columns.optional):
        if column is not None:
            buffers += [column.validity, column.offsets, column.data]
    for buffer in buffers:
        if buffer is not None and buffer.nbytes:
            assert (_address(buffer) - start) % 8 == 0


def _address(view):
    """Where the memory of a view begins."""
    return ctypes.addressof(ctypes.c_char.from_buffer(view))


@settings(max_examples=300)
@given(st.binary(max_size=200), st.integers(0, 12))
def test_nonsense_is_a_value_error_and_nothing_else(payload, count):
    try:
        columns, _ = decode_payload(payload, count)
    except ValueError:
        return
    rows_of(columns)


@settings(max_examples=300)
@given(rows, st.data())
def test_a_damaged_payload_is_a_value_error_or_readable(given_rows, data):
    payload = bytearray(encode_payload(columns_of(given_rows, ("A", "B", "C")), b"{}"))
    at = data.draw(st.integers(0, len(payload) - 1))
    payload[at] ^= data.draw(st.integers(1, 255))
    end = data.draw(st.integers(0, len(payload)))
    for damaged in (payload, payload[:end]):
        try:
            columns, _ = decode_payload(bytes(damaged), len(given_rows))
        except ValueError:
            continue
        rows_of(columns)


def test_columns_that_disagree_are_refused():
    kinds = memoryview(b"\x11\x11")
    one, two = Column.of([b"a"]), Column.of([b"a", b"b"])
    with pytest.raises(ValueError, match="does not fit 2 changes"):
        encode_payload(Columns(kinds, ("A",), None, one))
    with pytest.raises(ValueError, match="does not fit 2 changes"):
        encode_payload(Columns(kinds, ("A",), None, two, one))
    with pytest.raises(ValueError, match="need as many type ids"):
        encode_payload(Columns(kinds, ("A", "B"), None, two))
    with pytest.raises(ValueError, match="at most 65536"):
        encode_payload(Columns(kinds, ("A",) * 65537, memoryview(array("H", [0, 1])), two))
    with pytest.raises(ValueError, match="never missing"):
        encode_payload(Columns(kinds, ("A",), None, Column.of([b"a", None])))
    shifted = Column(None, memoryview(array("i", [1, 2, 3])), memoryview(b"abc"))
    with pytest.raises(ValueError, match="from 1 does not fit"):
        encode_payload(Columns(kinds, ("A",), None, shifted))


def test_a_column_from_arrow_keeps_its_bitmap():
    column = Column(memoryview(b"\x05"), memoryview(array("i", [0, 1, 1, 2])), memoryview(b"ac"))
    assert list(column) == [b"a", None, b"c"]
    assert list(column.slice(1, 3)) == [None, b"c"]


class Huge(bytes):
    def __len__(self):
        return 2**31


def test_a_column_of_two_gigabytes_is_refused():
    with pytest.raises(ValueError, match="less than 2 GiB"):
        Column.of([Huge()])


def test_wrong_offsets_of_names_and_wrong_type_ids_are_refused():
    payload = bytearray(encode_payload(columns_of([(1, 0, b"k", None, None, None, None)])))
    payload[12] = 1
    with pytest.raises(ValueError, match="do not rise from 0"):
        decode_payload(payload, 1)
    payload = bytearray(encode_payload(columns_of([(1, 1, b"k", None, None, None, None)], ("A", "B"))))
    payload[payload.index(b"\x01\x00\x00\x00\x00\x00\x00\x00", 32)] = 2
    payload[40] = 9
    with pytest.raises(ValueError, match="entity type id"):
        decode_payload(payload, 1)
    payload = bytearray(encode_payload(columns_of([(1, 1, b"k", None, None, None, None)], ("A", "B"))))
    payload[16] = 200
    with pytest.raises(ValueError, match="do not rise from 0"):
        decode_payload(payload, 1)


def test_a_piece_of_a_column_is_its_values_unless_some_may_be_missing():
    """Of columns that were made, and of those in a payload, which take out no column for it."""
    given_rows = [(17, 0, b"k%d" % n, b"body" * n, None, None if n else b"[]", None) for n in range(4)]
    made = columns_of(given_rows)
    stored, _ = decode_payload(encode_payload(made), 4)
    for columns in (made, stored):
        assert columns.piece("key", 1, 3) == (b"k1k2", [0, 2, 4])
        assert columns.piece("body", 0, 2) == (b"body", [0, 0, 4])
        assert columns.piece("before", 0, 4) is columns.piece("changed", 0, 4) is None
    assert stored.before is stored.meta is None
    assert not {"key", "body", "changed"} & {name for name in Columns.__slots__ if taken_out(stored, name)}
    assert list(stored.changed) == [b"[]", None, None, None]
    assert taken_out(stored, "changed")
    with pytest.raises(AttributeError, match="colour"):
        stored.colour  # noqa: B018 - asked for, and not there


def taken_out(stored, name):
    """Whether a slot is filled: what is asked for past `__getattr__`."""
    try:
        object.__getattribute__(stored, name)
    except AttributeError:
        return False
    return True


def test_a_missing_value_is_none_wherever_it_is_asked_for():
    column = Column.of([b"a", None, b"", None])
    assert [column[place] for place in range(4)] == [b"a", None, b"", None] == list(column)
    assert column.slice(1, 3)[0] is None
