"""Changes as JSON: what is read, and how what is wrong is named."""

import contextlib
import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_cdc.errors import InvalidChange
from publishers import remove, upsert
from transports.codec.changes import read_array, read_change, read_lines, read_objects
from transports.errors import InvalidInput

ORDER = {"entity_type": "order", "key": "1", "body": {"n": 1}}


def text(value):
    return json.dumps(value).encode()


def test_an_array_and_lines_and_objects_are_the_same_changes():
    """F145: whatever way they come."""
    given = [
        ORDER,
        {"operation": "TRANSACTION", "version": 1},
        {"operation": "REMOVE", "entity_type": "order", "key": "2"},
    ]
    wanted = [upsert("order", "1", {"n": 1}), remove("order", "2")]
    lines = b"\n".join(map(text, given)) + b"\n\n"
    for found in (
        read_array(text(given)),
        list(read_lines(lines.splitlines(keepends=True))),
        read_objects(given),
    ):
        assert [
            (one.operation, one.entity_type, one.key, one.body and json.loads(one.body)) for one in found
        ] == [(one.operation, one.entity_type, one.key, one.body and json.loads(one.body)) for one in wanted]
    assert read_change(text({"operation": "TRANSACTION"})) is None


def test_a_row_of_a_state_is_put_and_a_gap_of_a_file_is_no_change():
    """F101, F145: what sinks write to files is read."""
    row = read_change(text({**ORDER, "operation": "READ", "version": 7}))
    assert (row.operation, row.key) == (upsert("order", "1", {}).operation, b"1")
    gap = {"gap": {"first": "x:1", "next": "x:2"}}
    assert read_change(text(gap)) is None
    with pytest.raises(InvalidChange, match="alone in its line"):
        read_change(text({**ORDER, **gap}))


def test_bodies_stay_the_bytes_that_came():
    """F145: nothing is lost in a number."""
    (found,) = read_array(
        b'[{"entity_type":"order","key":"1","body":{"n": 1.10, "big":12345678901234567890}}]'
    )
    assert found.body == b'{"n": 1.10, "big":12345678901234567890}'


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (b"", "changes is"),
        (b"{}", "an array of changes"),
        (b"[1]", r"changes\[0\] is .*Expected `object`"),
        (text([ORDER, {"entity_type": "order"}]), r"changes\[1\]\.key is None, but must be given"),
        (
            text([ORDER, ORDER, ORDER | {"key": ""}]),
            r"changes\[2\]\.key is '', but must be at least one character",
        ),
        (text([ORDER | {"colour": 1}]), r"changes\[0\] is .*unknown field `colour`"),
        (text([ORDER | {"operation": "EAT"}]), r"changes\[0\] is .*EAT"),
        (b"[" * 100_000, "changes is"),
        (b'[{"entity_type":"\xff","key":"1","body":{}}]', "changes"),
    ],
)
def test_what_is_wrong_in_an_array_is_named_by_place_field_and_value(given, says):
    """F145."""
    with pytest.raises(InvalidChange, match=says):
        read_array(given)


def test_what_is_wrong_in_a_line_is_named_by_its_number():
    """F145."""
    with pytest.raises(InvalidInput, match="line 3: key is None") as found:
        list(read_lines([text(ORDER), b"\n", text({"entity_type": "order"})]))
    assert found.value.line == 3


def test_objects_may_have_keys_of_bytes_and_no_fields_of_their_own():
    """F145: as MessagePack has them."""
    packed = msgspec.msgpack.encode(
        [ORDER | {"key": b"\xff"}, {"operation": "REKEY", **ORDER, "new_key": b"\xfe"}]
    )
    first, second = read_objects(msgspec.msgpack.decode(packed))
    assert first.key == b"\xff"
    assert second.follows[0].key == b"\xfe"
    for wrong, says in (
        (7, r"changes\[0\] is 7"),
        ({"colour": 1}, "unknown field"),
        ({"key": 7}, "Expected `str"),
        ({"entity_type": "a", "key": b"", "body": {}}, "key is"),
        ({1: 2}, "must be one of the fields"),
    ):
        with pytest.raises(InvalidChange, match=says):
            read_objects([wrong])


@given(st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
def test_nothing_that_comes_raises_anything_else(data):
    """F145: neither from an array nor from lines."""
    with contextlib.suppress(InvalidChange):
        read_array(data)
    with contextlib.suppress(InvalidInput):
        list(read_lines([data]))
