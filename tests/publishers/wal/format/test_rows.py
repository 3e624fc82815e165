import pytest
from hypothesis import given
from hypothesis import strategies as st

from publishers.wal.format.columns import COLUMN_NAMES, encode_payload
from publishers.wal.format.rows import ROWS_MAX, Rows
from publishers.wal.format.stored import decode_payload
from tests.publishers.wal.format.test_columns import columns_of, rows_of

maybe = st.one_of(st.none(), st.binary(max_size=12))
row = st.tuples(
    *(st.integers(0, 255), st.sampled_from(["Product", "Brand", "Größe", ""]), st.binary(max_size=12)),
    *[maybe] * 4,
)
small = st.lists(row, min_size=1, max_size=ROWS_MAX)


def encoded(given_rows, annotations=b"{}"):
    kinds, types, keys, *optional = zip(*given_rows, strict=True)
    return Rows(bytes(kinds), types, keys, *optional, annotations=annotations)


def as_columns(given_rows):
    names = tuple(dict.fromkeys(one[1] for one in given_rows))
    return columns_of([(one[0], names.index(one[1]), *one[2:]) for one in given_rows], names)


@given(small, st.binary(max_size=30))
def test_rows_are_encoded_to_the_bytes_that_columns_of_the_same_changes_are(given_rows, annotations):
    rows, columns = encoded(given_rows, annotations), as_columns(given_rows)
    assert rows.payload == encode_payload(columns, annotations)
    decoded, text = decode_payload(rows.payload, len(given_rows))
    assert (rows_of(decoded), text) == (rows_of(columns), annotations)


@given(small, st.sampled_from(["kinds", "entity_types", "type_ids", "optional", "key", "nbytes"]))
def test_rows_become_columns_when_somebody_asks_for_them(given_rows, first):
    rows, columns = encoded(given_rows), as_columns(given_rows)
    getattr(rows, first)
    assert (rows.count, rows.nbytes) == (len(given_rows), columns.nbytes)
    assert rows.entity_types == columns.entity_types
    assert rows_of(rows) == rows_of(columns)
    assert rows.values is None
    assert [getattr(rows, name) is None for name in COLUMN_NAMES] == [
        getattr(columns, name) is None for name in COLUMN_NAMES
    ]


@pytest.mark.parametrize("keys", [[None], ["k"], [bytearray(b"k")], [1]])
def test_what_is_no_bytes_is_refused(keys):
    with pytest.raises(TypeError):
        Rows(b"\x11", ["P"], keys, [b"{}"], annotations=b"")
    with pytest.raises(TypeError):
        Rows(b"\x11", ["P"], [b"k"], [key or 1 for key in keys], annotations=b"")


def test_rows_have_nothing_that_columns_lack():
    rows = encoded([(17, "P", b"k", b"{}", None, None, None)])
    with pytest.raises(AttributeError, match="rows_of"):
        _ = rows.rows_of
    assert rows.values is not None
