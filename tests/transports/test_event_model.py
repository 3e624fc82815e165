"""What a change says arrives over every wire as it was written."""

import json
from datetime import UTC, datetime
from decimal import Decimal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flow.bridges.iterators import aiter as iterate
from penstock_cdc.errors import InvalidOption
from penstock_cdc.fields import push, remove_field, set_field
from penstock_cdc.mutations import expire, schema
from publishers import ChangeLog, Content, Integers, rekey, truncate, upsert
from publishers.blocks.slices import Slice
from publishers.lossless import reader
from publishers.mutations.mutation import columns_of
from publishers.views.view import View
from publishers.wal.format.columns import Column, Columns
from tests.harness.inside import service_of
from tests.publishers.support import QUICK, opened
from transports import Limits, connect
from transports.codec.events import EventEncoder, encode_change
from transports.codec.messages import SubscribeRequest
from transports.codec.replies import Next, read
from transports.errors import InvalidRequest
from transports.graphql.execution import Engine, encode_response

MOMENT = datetime(2026, 11, 20, 12, 30, 0, 123456, UTC)
ANNOTATIONS = {"user": "ann", "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
FIELDS = (
    "version index count area operation entityType key body before changed schemaVersion entryVersion origin meta "
    "expiresAt linked field action error cursor"
)


def write(log, key=b"\xff\x00"):
    """One of everything that a writer can say."""
    log.commit(
        [
            schema("order", {"type": "struct", "fields": [{"name": "total", "type": "decimal(10,2)"}]}),
            upsert(
                "order",
                "1",
                {"total": Decimal("1.00"), "tags": ["a"]},
                before={"total": Decimal("0.50"), "note": None},
                changed="auto",
                changes=[set_field("total", "1.00", before="0.50"), push("tags", "a"), remove_field("note")],
                expires_at=MOMENT,
                entry_version=7,
                origin="rome",
                meta={"m": [1.50, None]},
            ),
            rekey("order", "1", key, {"total": "1.00"}),
            expire("order", "2", expires_at=MOMENT),
            truncate("order"),
        ],
        meta=ANNOTATIONS,
    )


def damaged(log):
    """Seven changes of which every second one cannot be rendered."""
    sound = columns_of(
        [upsert("a", str(n), {"n": n}, before={"n": 0}, changed=["n"], origin="x") for n in range(7)]
    )
    made = {name: list(getattr(sound, name)) for name in ("body", "before", "changed", "meta")}
    made["body"][1], made["before"][3], made["changed"][5], made["meta"][5] = (
        b'{"n":',
        b'"\xff"',
        b"[1]",
        b"{",
    )
    columns = [Column.of(made[name]) for name in ("body", "before", "changed", "meta")]
    log.commit_columns([Columns(sound.kinds, sound.entity_types, None, sound.key, *columns)])


def past(log):
    return log.history(content=Content.BODY, limit=10_000).changes


async def remote(serving, since="earliest"):
    """Everything of the first version, as our client gets it over a WebSocket."""
    async with connect(serving().url) as client:
        feed = client.changes(since=since, until=1, content=Content.BODY)
        async with iterate(feed) as changes:
            return [change async for change in changes]


def over_graphql(log, selection=FIELDS, arguments=""):
    """Everything, as both ways to make a payload tell it."""
    engine = Engine({log.name: log}, Limits())
    operation = engine.prepare(f"subscription {{ onChange{arguments} {{ {selection} }} }}")
    operation.open()
    told = []
    for block in blocks(log):
        for index in block.indices:
            spliced = json.loads(operation._make(block, index, operation.view))
            executed = json.loads(operation.payload(block.change(index, operation.view)))
            assert spliced == executed
            told.append(spliced["data"]["onChange"])
    return told


def blocks(log):
    location = service_of(log).frames.locate(1, 0)
    found = []
    while location is not None and (frame := service_of(log).frames.read(location)) is not None:
        block, location = frame
        found.append(block)
    return found


async def test_every_operation_arrives_over_a_web_socket(log, serving):
    """F1, F2, F3, F4, F11, F17, F18, F20, F21, F23, F139: equal to what a subscriber in process gets."""
    write(log)
    found = await remote(serving)
    assert tuple(found) == past(log)
    assert found[0].meta == ANNOTATIONS
    assert [change.field for change in found if change.field] == ["total", "tags", "note"]
    gone, made = (change for change in found if change.linked is not None)
    assert (
        (gone.linked, made.linked)
        == (made.key, gone.key)
        == (b"\xff\x00".decode("utf-8", "surrogateescape"), "1")
    )
    assert found[2].expires_at == MOMENT
    assert found[-1].key is None


async def test_idempotency_keys_travel(log, serving):
    """F22: over the WebSocket, and by the cursor over GraphQL."""
    write(log)
    wanted = [log.idempotency_key(change) for change in past(log)]
    assert [change.idempotency_key for change in await remote(serving)] == wanted
    told = over_graphql(log)
    assert [
        f"{event['cursor'].rsplit(':', 2)[0]}:{event['version']}:{event['index']}" for event in told
    ] == wanted


def test_every_operation_arrives_over_graphql(log):
    """F1, F2, F3, F4, F11, F17, F18, F20, F21, F23, F139."""
    write(log)
    for change, event in zip(past(log), over_graphql(log), strict=True):
        assert (event["version"], event["index"]) == (str(change.version), change.index)
        assert (event["area"], event["operation"]) == (change.area.name, change.operation.name)
        assert (event["entityType"], event["body"], event["before"]) == (
            change.entity_type,
            change.body,
            change.before,
        )
        assert (event["field"], event["action"]) == (change.field, change.action and change.action.name)
        assert (event["origin"], event["meta"], event["error"]) == (change.origin, change.meta, None)
        assert event["expiresAt"] == (change.expires_at and "2026-11-20T12:30:00.123456Z")
        assert (event["key"], event["linked"]) == (change.key, change.linked)
        assert event["changed"] == (None if change.changed is None else list(change.changed))


async def test_a_damaged_change_is_marked_over_a_web_socket_and_its_neighbours_are_intact(log, serving):
    """F19."""
    damaged(log)
    here, there = past(log), await remote(serving)
    for change, found in zip(here, there, strict=True):
        assert (change.position, change.key, change.error) == (found.position, found.key, found.error)
        if change.error is None:
            assert change == found
    assert [bool(change.error) for change in there[1:]] == [False, True, False, True, False, True, False]
    assert (there[2].body, there[2].before) == (None, {"n": 0})
    assert (there[4].body, there[4].before) == ({"n": 3}, None)


def test_a_damaged_change_is_marked_over_graphql_and_its_neighbours_are_intact(log):
    """F19."""
    damaged(log)
    for change, event in zip(past(log), over_graphql(log), strict=True):
        assert (event["index"], event["key"], event["error"]) == (change.index, change.key, change.error)
        if change.error is None:
            assert (event["body"], event["before"]) == (change.body, change.before)
    assert over_graphql(log, "error")[2]["error"].startswith("body: ")


def test_events_of_changes_that_lie_in_no_block_are_the_same(log):
    """F4, F20, F23: what pages of history say is what subscribers get."""
    write(log)
    encoder = EventEncoder(log.token)
    (block,) = blocks(log)
    view = View(Content.BODY)
    events = encoder.events([Slice(block, block.indices)], view)
    for change, event in zip(past(log), events, strict=True):
        assert msgspec.json.decode(
            _plain(encode_change(change, encoder.cursor(change.after)))
        ) == msgspec.json.decode(_plain(event))


def _plain(event):
    """Lone surrogates, which stand for bytes, as other characters, since no strict reader takes them."""
    return event.replace(b"\\udcff", b"?")


SCHEMA = {
    "type": "struct",
    "fields": [
        {"name": "long", "type": "long"},
        {"name": "decimal", "type": "decimal(38,6)"},
        {"name": "double", "type": "double"},
        {"name": "binary", "type": "binary"},
        {"name": "at", "type": "timestamp"},
        {"name": "day", "type": "date"},
        {"name": "text", "type": "string"},
        {"name": "list", "type": {"type": "array", "elementType": "decimal(9,3)"}},
    ],
}


def _unfolded(moment):
    return moment.replace(fold=0)  # which means nothing in UTC


rows = st.fixed_dictionaries(
    {},
    optional={
        "long": st.none() | st.integers(-(2**63), 2**63 - 1),
        "decimal": st.none() | st.decimals(places=6, allow_nan=False, allow_infinity=False),
        "double": st.none() | st.floats(allow_nan=False, allow_infinity=False),
        "binary": st.none() | st.binary(max_size=8),
        "at": st.none() | st.datetimes(timezones=st.just(UTC), allow_imaginary=False).map(_unfolded),
        "day": st.none() | st.dates(),
        "text": st.none() | st.text(st.characters(codec="utf-8"), max_size=8),
        "list": st.none()
        | st.lists(st.none() | st.decimals(-999_999, 999_999, places=3), max_size=3),  # as wide as their type
    },
)


@given(st.lists(rows, min_size=1, max_size=4))
def test_values_survive_every_wire_format(values):
    """F24: fuzzed; read back by the schema from the WebSocket's events and from GraphQL's payloads."""
    with opened() as log:
        log.commit([schema("row", SCHEMA), *(upsert("row", str(n), row) for n, row in enumerate(values))])
        back = reader(log.schema("row").body)
        batch = EventEncoder(log.token)
        (block,) = blocks(log)
        events = batch.events([Slice(block, block.indices)], View(Content.BODY))
        message = b'{"type":"next","id":"a","events":[%s],"cursor":"c","boundary":true}' % b",".join(events)
        reply = read(message)
        assert isinstance(reply, Next)
        assert [repr(back(change.body)) for change in reply.changes()[2:]] == [repr(row) for row in values]
        told = over_graphql(log, "body")
        assert [back(event["body"]) for event in told[2:]] == values


@given(st.lists(rows, min_size=1, max_size=4), st.integers(0, 2**63 - 1))
def test_values_survive_as_text_too(values, number):
    """F24: the same with whole numbers beyond 2^53 as text, on the wire's own fields as well; and no longer number is left."""
    with opened() as log:
        log.commit(
            [
                schema("row", SCHEMA),
                *(
                    upsert("row", str(n), row, before=row, meta={"n": number}, entry_version=number)
                    for n, row in enumerate(values)
                ),
            ]
        )
        back = reader(log.schema("row").body)
        (block,) = blocks(log)
        view = View.of(Content.BODY, integers=Integers.TEXT)
        encoder = EventEncoder(log.token)
        events = encoder.events([Slice(block, block.indices)], view)
        changes = log.history(view=view).changes
        for change, event in zip(changes, events, strict=True):
            assert not list(_beyond(json.loads(event, parse_float=str)))
            assert encode_change(change, encoder.cursor(change.after), Integers.TEXT) == event
        message = b'{"type":"next","id":"a","events":[%s],"cursor":"c","boundary":true}' % b",".join(events)
        seen = read(message).changes()
        assert tuple(seen) == changes
        assert [repr(back(change.body)) for change in seen[2:]] == [repr(row) for row in values]
        assert {change.entry_version for change in seen[2:]} == {number}
        assert {int(change.meta["n"]) for change in seen[2:]} == {number}
        told = over_graphql(log, "body before meta entryVersion", "(integers: TEXT)")
        assert not list(_beyond(told))
        assert [back(event["body"]) for event in told[2:]] == values


def _beyond(value):
    """The whole numbers of a value that a double may round."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from _beyond(item)
    elif isinstance(value, int) and abs(value) > 2**53:
        yield value


async def test_text_is_asked_for_over_a_web_socket_and_in_history(log, serving):
    """F24: and a wrong word is refused with what would be right."""
    body = {"n": 2**53 + 1, "m": 2**53}
    log.commit([upsert("row", "1", body)])
    told = {"n": str(2**53 + 1), "m": 2**53}
    async with connect(serving().url) as client:
        feed = client.changes(since="earliest", until=1, content=Content.BODY, integers=Integers.TEXT)
        async with iterate(feed) as changes:
            assert [change.body async for change in changes][1] == told
        with pytest.raises(InvalidOption):
            client.changes(integers="text")
    query = "{ history(integers: TEXT) { changes { body } } }"
    answer = json.loads(encode_response(Engine({log.name: log}, Limits()).prepare(query).run()))
    assert answer["data"]["history"]["changes"][1]["body"] == told
    with pytest.raises(InvalidRequest, match="integers"):
        SubscribeRequest.of({"criteria": [{}], "credits": 1, "integers": "text"}, Limits())


def test_a_follower_sees_the_same(tmp_path):
    """F1, F4, F22, F23."""
    with ChangeLog.open(tmp_path / "log", **QUICK) as log:
        write(log)
        with ChangeLog.open(tmp_path / "log", read_only=True) as follower:
            assert past(follower) == past(log)
            change = past(log)[1]
            assert follower.idempotency_key(change) == log.idempotency_key(change)


async def test_keys_that_are_no_text_leave_the_json_beside_them_as_it_was(log, serving):
    """F24: also where bodies hold the characters that stand in for them meanwhile."""
    body = (
        rb'{"a":1.50,"b":1e400,"c":"\uf880 \uE080 \ud83d\udc80 \\udc80 ',
        "\ue080".encode(),
        b'","d":1234567890123456789}',
    )
    body = b"".join(body)
    log.commit([upsert("order", b"\x80\\udc80\xff", body, before=body), upsert("order", b"\xfe", b"1.50")])
    found = await remote(serving)
    assert tuple(found) == past(log)
    assert found[1].body_bytes == body
