import json
from datetime import UTC, datetime, timedelta
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from publishers.blocks.block import Block
from publishers.blocks.slices import Slice
from publishers.fanout.batch import Batch
from publishers.model.position import Position, PositionToken
from publishers.mutations.mutation import columns_of, remove, upsert
from publishers.views.view import Content, View
from publishers.wal import Column
from transports.codec.events import EventEncoder, encode_change, encode_text, next_head
from transports.codec.replies import Next, read

LOG = UUID(int=7)
HEADER, BODY = View(), View(Content.BODY)


def token(position):
    return PositionToken(LOG, 3, position)


def block(*mutations, **options):
    return block_of(columns_of(mutations), **options)


def block_of(columns, version=41, ends=True, annotations=b""):
    count = columns.count + 1
    return Block(
        columns,
        version=version,
        first_index=1,
        leads=True,
        ends=ends,
        transaction_count=count if ends else count + 5,
        transaction_bytes=100,
        committed_at=1_772_366_400_123_456,
        annotations=annotations,
    )


def everything(made, view):
    return [json.loads(event) for event in EventEncoder(token).events([Slice(made, made.indices)], view)]


def test_an_event_holds_what_applies_and_its_cursor_is_the_place_after_it():
    """F131."""
    made = block(
        upsert(
            "order",
            "42",
            b'{"total": "12.00"}',
            before={"total": "10.00"},
            changed=["total"],
            schema_version=3,
        ),
        remove("order", "41", meta={"why": "test"}, origin="eu"),
        annotations=b'{"id":"1-2","meta":{"user":"ann"}}',
    )
    leading, first, second = everything(made, BODY)
    prefix = f"{LOG.hex}:3:"
    assert leading == {
        "cursor": prefix + "41:1",
        "version": 41,
        "index": 0,
        "count": 3,
        "timestamp": "2026-03-01T12:00:00.123456Z",
        "area": "INFRASTRUCTURE",
        "operation": "TRANSACTION",
        "body": {"id": "1-2", "bytes": 100},
        "meta": {"user": "ann"},
    }
    assert first == {
        "cursor": prefix + "41:2",
        "version": 41,
        "index": 1,
        "count": 3,
        "timestamp": "2026-03-01T12:00:00.123456Z",
        "area": "DATA",
        "operation": "UPSERT",
        "entity_type": "order",
        "key": "42",
        "body": {"total": "12.00"},
        "before": {"total": "10.00"},
        "changed": ["total"],
        "schema_version": 3,
    }
    assert second["cursor"] == prefix + "42:0"
    assert (second["operation"], second["meta"], second["origin"]) == ("REMOVE", {"why": "test"}, "eu")


def test_header_leaves_out_body_and_image():
    leading, first = everything(block(upsert("order", "1", {"a": 1}, before={"a": 0}, changed=["a"])), HEADER)
    assert "body" not in leading
    assert "body" not in first
    assert "before" not in first
    assert first["changed"] == ["a"]


def test_bodies_are_spliced_in_as_they_are_and_never_parsed():
    strange = b'{"n": 1.00000000000000000001, "n": 2 ,"\\u0041":[ ] }'
    made = block(upsert("order", "1", strange))
    (event,) = EventEncoder(token).events([Slice(made, [1])], BODY)
    assert strange in event


def test_events_are_encoded_once_and_views_share_nothing():
    made = block(upsert("order", "1", {"secret": 1}), upsert("order", "2", {"secret": 2}))
    encoder, other = EventEncoder(token), EventEncoder(token)
    header = encoder.events([Slice(made, made.indices)], HEADER)
    body = encoder.events([Slice(made, made.indices)], BODY)
    assert all(a is b for a, b in zip(header, other.events([Slice(made, made.indices)], HEADER), strict=True))
    assert all(a is b for a, b in zip(body, other.events([Slice(made, made.indices)], BODY), strict=True))
    assert not any(b"secret" in event for event in header)
    assert all(b"secret" in event for event in body[1:])
    assert made.memo_bytes >= sum(map(len, header)) + sum(map(len, body))


def test_only_the_head_differs_between_subscribers_with_the_same_batch():
    made = block(upsert("order", "1", {"a": 1}))
    batch = Batch((Slice(made, made.indices),), Position(42, 0), HEADER)
    encoder = EventEncoder(token)
    one, two = encoder.next(next_head("one"), batch), encoder.next(next_head('t"wo'), batch)
    assert one[len(next_head("one")) :] == two[len(next_head('t"wo')) :]
    assert json.loads(one) == {
        "type": "next",
        "id": "one",
        "events": everything(made, HEADER),
        "cursor": f"{LOG.hex}:3:42:0",
        "boundary": True,
    }
    assert json.loads(two)["id"] == 't"wo'


def test_a_batch_that_leaves_a_transaction_open_is_no_boundary():
    made = block(upsert("order", "1", {"a": 1}), ends=False)
    message = json.loads(
        EventEncoder(token).next(next_head("a"), Batch((Slice(made, [1]),), Position(41, 2), HEADER))
    )
    assert message["boundary"] is False
    assert message["cursor"] == f"{LOG.hex}:3:41:2"
    assert message["events"][0]["cursor"] == f"{LOG.hex}:3:41:2"


@pytest.mark.parametrize("key", [b"plain", "schön ☃".encode(), b'q"uote\\', b"\xff\xfe\x00", b"", b"a\nb"])
def test_every_key_survives_the_way_to_the_client(key):
    named = upsert("order", key or b"none", {"a": 1}, before={"a": 0}, meta={"m": 1})
    made = block(msgspec.structs.replace(named, key=key))  # an empty one may be stored
    text = EventEncoder(token).next(next_head("a"), Batch((Slice(made, [1]),), Position(42, 0), BODY))
    reply = read(text)
    assert isinstance(reply, Next)
    (change,) = reply.changes()
    assert change.key.encode("utf-8", "surrogateescape") == key
    assert (change.body, change.before, change.meta) == ({"a": 1}, {"a": 0}, {"m": 1})


KEYS = st.one_of(st.text(min_size=1), st.binary(min_size=1, max_size=12))
MUTATIONS = st.lists(
    st.one_of(
        st.builds(
            upsert,
            st.text(min_size=1, max_size=5),
            KEYS.filter(lambda key: isinstance(key, bytes) or key.isprintable()),
            st.dictionaries(st.text(max_size=4), st.integers(-5, 5), max_size=3),
            before=st.none() | st.just({"b": None}),
            changed=st.none() | st.lists(st.text(max_size=4), max_size=3),
            meta=st.none() | st.just({"m": [1]}),
            schema_version=st.none() | st.integers(0, 9),
            origin=st.none() | st.text(max_size=4),
        ),
        st.builds(remove, st.text(min_size=1, max_size=5), st.binary(min_size=1, max_size=8)),
    ),
    min_size=1,
    max_size=6,
)


@given(MUTATIONS, st.sampled_from([HEADER, BODY]))
def test_what_a_client_reads_equals_what_the_log_delivers(mutations, view):
    made = block(*mutations)
    batch = Batch((Slice(made, made.indices),), Position(42, 0), view)
    reply = read(EventEncoder(token).next(next_head("a"), batch))
    assert isinstance(reply, Next)
    assert [_plain(change) for change in reply.changes()] == [_plain(change) for change in batch]
    # And the other way of encoding makes the same events.
    again = [json.loads(encode_change(change, str(token(change.after)))) for change in batch]
    assert again == everything(made, view)


@given(MUTATIONS, st.sampled_from([HEADER, BODY]), st.booleans())
def test_a_run_of_changes_is_encoded_to_the_bytes_of_its_changes_one_by_one(mutations, view, ends):
    run, single = block(*mutations, ends=ends), block(*mutations, ends=ends)
    encoder = EventEncoder(token)
    one_by_one = encoder.events([Slice(single, [index]) for index in single.indices], view)
    assert encoder.events([Slice(run, run.indices[1:])], view) == one_by_one[1:]
    assert encoder.events([Slice(run, run.indices)], view) == one_by_one
    assert run.memo_bytes == single.memo_bytes


@pytest.mark.parametrize("name", ["body", "before", "changed"])
def test_what_is_damaged_in_a_run_is_left_out_with_its_error(name):
    sound = upsert("order", "1", {"a": 1}, before={"a": 0}, changed=["a"], schema_version=3)
    columns = columns_of([sound, sound, sound])
    column = Column.of([value if row != 1 else b'{"a":' for row, value in enumerate(getattr(columns, name))])
    setattr(columns, name, column)
    first, second, third = everything(block_of(columns), BODY)[1:]
    assert name not in second
    assert second["error"].startswith(f"{name}: ")
    assert "error" not in first
    assert (third["body"], third["before"], "error" in third) == ({"a": 1}, {"a": 0}, False)


def test_an_attachment_in_a_run_that_cannot_be_read_is_an_error_of_its_change_alone():
    columns = columns_of([upsert("order", "1", {"a": 1}, schema_version=3)] * 3)
    columns.meta = Column.of([b'{"schema_version":3}', b"{", b'{"schema_version":3}'])
    first, second, third = everything(block_of(columns), BODY)[1:]
    assert second["error"].startswith("meta: ")
    assert [one.get("schema_version") for one in (first, second, third)] == [3, None, 3]
    assert "error" not in first
    assert "error" not in third


def _plain(change):
    """JSON by value: of keys that are not UTF-8 the client keeps the bodies' values, not their spaces."""
    names = ("body_bytes", "before_bytes", "meta_bytes")
    plain = {
        name: getattr(change, name)
        for name in type(change).__struct_fields__
        if name not in (*names, "cursor")
    }
    return plain | {
        name: None if getattr(change, name) is None else json.loads(getattr(change, name)) for name in names
    }


def test_times_always_have_microseconds():
    made = block(upsert("order", "1", {}))
    made.committed_at = 1_772_366_400_000_000
    assert everything(made, HEADER)[0]["timestamp"] == "2026-03-01T12:00:00.000000Z"
    change = made.change(1, HEADER)
    assert change.timestamp == datetime(2026, 3, 1, 12, tzinfo=UTC) + timedelta(0)


def test_lone_surrogates_are_escaped():
    assert encode_text("a\udcffb") == b'"a\\udcffb"'
