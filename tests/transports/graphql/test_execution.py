"""What is executed, how often, and what is read for it."""

import asyncio
import contextlib
import gc
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from publishers import Content, Position, remove, upsert
from publishers.blocks.block import Block
from publishers.fanout.batch import Batch
from transports.graphql.errors import RequestRefused
from transports.graphql.execution import encode_response


def opened(engine, selection, name=None, head="", **variables):
    operation = engine.prepare(f"subscription X{head} {{ onChange {{ {selection} }} }}", name, variables)
    operation.open()
    return operation


def stored(log):
    """The slices of everything, as a subscriber gets them."""
    found = []

    class Taker:
        def on_subscribe(self, subscription):
            subscription.request(2**62)

        def on_next_batch(self, batch):
            assert isinstance(batch, Batch)
            found.extend(batch.slices)

        def on_next(self, change): ...

        def on_error(self, error):
            raise error

        def on_complete(self): ...

    import flow

    log.changes(since=log.oldest, until=log.head.version - 1, content=Content.BODY).subscribe(
        Taker(), executor=flow.INLINE
    )
    return found


async def everything(log, until):
    taken = stored(log)
    await until(lambda: sum(map(len, taken)) == log.history().changes[-1].count if taken else False)
    return taken


# What a body is.


@pytest.mark.parametrize(
    "text",
    [
        b'{"a":1.50,"b":12345678901234567890123,"c":1e400}',
        b'  {"a" : [ ] }  ',
        b'"\\u00fc\\ud83d\\ude00"',
        b"null",
        b"[1,2,3]",
        b"-0.0",
    ],
)
def test_json_goes_out_as_it_came_in(engine, log, text):
    log.commit([upsert("order", "1", text, before=text)])
    change = log.history(content=Content.BODY).changes[1]
    payload = opened(engine, "body before").payload(change)
    assert payload == b'{"data":{"onChange":{"body":%s,"before":%s}}}' % (text, text)


def test_every_field_of_a_change_is_told(engine, log):
    log.commit(
        [
            upsert("order", "1", {"a": 1}, before={"a": 0}, changed=["a"], meta={"m": 1}),
            remove("order", "2"),
        ],
        meta={"user": "ann"},
    )
    everything = (
        "version index count cursor timestamp area operation entityType key body before changed "
        "schemaVersion entryVersion origin meta __typename"
    )
    operation = opened(engine, everything)
    page = log.history(content=Content.BODY).changes
    first, second, third = (json.loads(operation.payload(change))["data"]["onChange"] for change in page)
    assert second.pop("timestamp").endswith("Z")
    assert second == {
        "version": "1",
        "index": 1,
        "count": 3,
        "cursor": str(log.token(page[1].after)),
        "area": "DATA",
        "operation": "UPSERT",
        "entityType": "order",
        "key": "1",
        "body": {"a": 1},
        "before": {"a": 0},
        "changed": ["a"],
        "schemaVersion": None,
        "entryVersion": "1",
        "origin": None,
        "meta": {"m": 1},
        "__typename": "Change",
    }
    assert (first["area"], first["operation"], first["meta"]) == (
        "INFRASTRUCTURE",
        "TRANSACTION",
        {"user": "ann"},
    )
    assert (third["operation"], third["key"], third["body"]) == ("REMOVE", "2", None)
    assert third["cursor"] == str(log.token(log.head))


def test_versions_are_text_because_javascript_has_53_bits(engine):
    from datetime import UTC, datetime

    from publishers import Area, Change, Operation

    change = Change(2**60 + 1, 1, 2, datetime.now(UTC), Area.DATA, Operation.UPSERT, entry_version=2**53 + 1)
    data = json.loads(opened(engine, "version entryVersion").payload(change))["data"]["onChange"]
    assert data == {"version": str(2**60 + 1), "entryVersion": str(2**53 + 1)}


def test_keys_that_are_no_utf_8_are_escaped(engine, log):
    log.commit([upsert("order", b"\xff\xfe".decode("utf-8", "surrogateescape"), {"a": 1})])
    payload = opened(engine, "key body").payload(log.history(content=Content.BODY).changes[1])
    assert payload == b'{"data":{"onChange":{"key":"\\udcff\\udcfe","body":{"a":1}}}}'


# Content: exactly what the selection needs.


@pytest.mark.parametrize(
    ("selection", "variables", "content"),
    [
        ("key", {}, "HEADER"),
        ("body", {}, "BODY"),
        ("before", {}, "BODY"),
        ("x: body", {}, "BODY"),
        ("body: key", {}, "HEADER"),
        ("key ... { body }", {}, "BODY"),
        ("key ... on Change { before }", {}, "BODY"),
        ("...F", {}, "BODY"),
        ("key ...F @include(if: $yes)", {"yes": True}, "BODY"),
        ("key ...F @include(if: $yes)", {"yes": False}, "HEADER"),
        ("key body @skip(if: $yes)", {"yes": True}, "HEADER"),
        ("key body @skip(if: $yes)", {"yes": False}, "BODY"),
        ("key body @skip(if: $yes) @include(if: true)", {}, "BODY"),
        ("key body @include(if: false)", {}, "HEADER"),
        ("meta changed", {}, "HEADER"),
    ],
)
def test_bodies_are_read_exactly_if_they_are_selected(engine, selection, variables, content):
    """E57."""
    head = "($yes: Boolean = false)" if "$yes" in selection else ""
    fragment = " fragment F on Change { key body }" if "...F" in selection else ""
    operation = engine.prepare(
        f"subscription {head} {{ onChange {{ {selection} }} }}{fragment}", None, variables
    )
    operation.open()
    assert operation.view.content.name == content


async def test_the_record_of_a_body_is_not_touched_for_a_selection_without_it(
    engine, log, fill, until, monkeypatch
):
    fill(1, changes=20)
    parts = await everything(log, until)
    touched = []
    for name in ("body", "before"):
        real = getattr(Block, name)
        monkeypatch.setattr(
            Block, name, lambda self, index, real=real: touched.append(index) or real(self, index)
        )
    opened(engine, "key version meta changed").payloads(parts)
    assert touched == []
    opened(engine, "key body").payloads(parts)
    assert touched == list(range(21))


def test_history_reads_bodies_exactly_if_they_are_selected(engine, log, fill, monkeypatch):
    fill(1)
    contents = []
    real = type(log).history
    monkeypatch.setattr(
        type(log),
        "history",
        lambda *arguments, view, **more: contents.append(view.content) or real(*arguments, view=view, **more),
    )
    engine.prepare("{ history { changes { key } } }").run()
    engine.prepare("{ history { changes { key ...F } } } fragment F on Change { b: body }").run()
    engine.prepare(
        "query ($x: Boolean!) { history { changes { key body @include(if: $x) } } }", None, {"x": False}
    ).run()
    assert contents == [Content.HEADER, Content.BODY, Content.HEADER]


# Sharing.


async def test_operations_with_the_same_document_share_their_payloads(engine, log, fill, until):
    fill(1, changes=99)
    parts = await everything(log, until)
    head = "($since: Cursor, $until: Long)"
    query = f"subscription X{head} {{ onChange(since: $since, until: $until) {{ key cursor }} }}"
    operations = []
    for since, until_version in ((None, None), (str(log.token(log.oldest)), None), (None, "7"), (None, 9)):
        operation = engine.prepare(query.replace(" ", "  "), None, {"since": since, "until": until_version})
        operation.open()
        operations.append(operation)
    before = engine.encodings
    made = [operation.payloads(parts) for operation in operations]
    assert engine.encodings - before == 100
    assert len(made[0]) == 100
    for other in made[1:]:
        assert all(one is another for one, another in zip(made[0], other, strict=True))


@pytest.mark.parametrize(
    "other",
    [
        (
            "subscription X($b: Boolean!) { onChange { key cursor version @include(if: $b) } }",
            "X",
            {"b": False},
        ),
        ("subscription X($b: Boolean!) { onChange { k: key version @include(if: $b) } }", "X", {"b": True}),
        ("subscription Y($b: Boolean!) { onChange { key version @include(if: $b) } }", "Y", {"b": True}),
        ("subscription X($b: Boolean!) { onChange { key version @include(if: $b) } }", None, {"b": True}),
    ],
)
def test_whatever_may_look_different_is_not_shared(engine, other):
    """E57."""
    query = "subscription X($b: Boolean!) { onChange { key version @include(if: $b) } }"
    keys = {
        engine.prepare(*request).key
        for request in ((query, "X", {"b": True}), (query, "X", {"b": False}), other)
    }
    assert len(keys) == 3


async def test_what_is_shared_goes_with_its_block_and_is_weighed(engine, log, fill, until):
    fill(1, changes=10)
    parts = await everything(log, until)
    (block,) = {part.block for part in parts}
    before = block.nbytes
    payloads = opened(engine, "key body").payloads(parts)
    assert block.nbytes - before >= sum(map(len, payloads))


# Memory.


def test_execution_leaves_nothing_behind(engine, log, fill):
    fill(1, changes=50)
    operation = opened(engine, "version index cursor key changed ... { area operation meta }")
    changes = log.history(content=Content.BODY).changes

    def execute(rounds):
        for _ in range(rounds):
            for change in changes:
                operation.payload(change)
        gc.collect()
        return len(gc.get_objects())

    before = execute(2)
    after = execute(60)
    assert after - before < 100, "3,000 events must not leave objects behind"


# Requests that are refused.


@pytest.mark.parametrize(
    ("query", "variables", "code"),
    [
        ("{", {}, "INVALID_REQUEST"),
        ("", {}, "INVALID_REQUEST"),
        ("{ nonsense }", {}, "INVALID_REQUEST"),
        ("mutation { a }", {}, "INVALID_REQUEST"),
        ("fragment F on Change { key }", {}, "INVALID_REQUEST"),
        ("subscription { onChange { key } again: onChange { key } }", {}, "INVALID_REQUEST"),
        ("subscription ($x: Long!) { onChange(until: $x) { key } }", {}, "INVALID_REQUEST"),
        ("subscription ($x: Long!) { onChange(until: $x) { key } }", {"x": "1.5"}, "INVALID_REQUEST"),
        ("subscription ($x: Long!) { onChange(until: $x) { key } }", {"x": 2**63}, "INVALID_REQUEST"),
        ("subscription ($x: Cursor) { onChange(since: $x) { key } }", {"x": 1}, "INVALID_REQUEST"),
        ("subscription { onChange(criteria: [{areas: [DATUM]}]) { key } }", {}, "INVALID_REQUEST"),
        ("subscription { onChange(criteria: [{colour: 1}]) { key } }", {}, "INVALID_REQUEST"),
        (
            'subscription { onChange(criteria: [{areas: [INFRASTRUCTURE], entityTypes: ["a"]}]) { key } }',
            {},
            "INVALID_CRITERIA",
        ),
        ('subscription { onChange(since: "x") { key } }', {}, "CURSOR_INVALID"),
        ('subscription { onChange(log: "x") { key } }', {}, "LOG_NOT_FOUND"),
        ("{ " + " ".join(f"a{n}: __typename" for n in range(33)) + " }", {}, "TOO_COSTLY"),
        ("{ " + "__typename " * 2_000 + "}", {}, "TOO_COSTLY"),
        ("{ __typename @skip(if: " + "[" * 1500 + "]" * 400 + ") }", {}, "INVALID_REQUEST"),
    ],
)
def test_a_request_that_is_wrong_is_refused_in_the_words_of_the_one_table(engine, query, variables, code):
    for _ in range(2):  # also from what is kept
        with pytest.raises(RequestRefused) as caught:
            engine.prepare(query, None, variables).open()
        assert caught.value.errors
        for error in caught.value.errors:
            assert error["message"]
            assert error["extensions"]["code"] == code
            assert error["extensions"]["retryable"] is False


@pytest.mark.parametrize(
    ("wish", "path"),
    [
        ('areas: [INFRASTRUCTURE], entityTypes: ["a"]', "entityTypes"),
        ('keyPatterns: ["("]', "keyPatterns"),
        ("transitions: [LEFT]", "transitions"),
        ('where: [{path: "a", compare: EXISTS}, {path: "a", compare: LT, value: true}]', "where[1].value"),
        ('where: [{path: "", compare: EXISTS}]', "where[0].path"),
        ('annotations: [{path: "a", compare: EQ}]', "annotations[0].value"),
        ('annotations: [{path: "a", compare: EXISTS, image: BEFORE}]', "annotations"),
        ('where: [{path: "a", compare: EQ}]', "where[0].value"),
        ('where: [{path: "a", compare: EQ, value: {b: 1}}]', "where[0].value"),
    ],
)
def test_a_criterion_names_its_fields_in_the_words_of_the_schema(engine, wish, path):
    """E11."""
    with pytest.raises(RequestRefused) as caught:
        engine.prepare(f"subscription {{ onChange(criteria: [{{}}, {{{wish}}}]) {{ key }} }}").open()
    assert caught.value.errors[0]["extensions"]["path"] == f"criteria[1].{path}"


def test_an_error_that_was_not_foreseen_is_told_by_an_id_only(engine, log, monkeypatch, caplog):
    monkeypatch.setattr(type(log), "history", lambda *_, **__: {}["secret"])
    response = json.loads(encode_response(engine.prepare("{ history { next } }").run()))
    (error,) = response["errors"]
    assert response["data"] is None
    assert error["extensions"]["code"] == "INTERNAL"
    assert "secret" not in json.dumps(response)
    assert error["extensions"]["id"] in caplog.text


@pytest.mark.parametrize("limit", [0, -1, 1001])
def test_a_page_is_bounded(engine, limit):
    response = json.loads(
        encode_response(
            engine.prepare("query ($n: Int!) { history(limit: $n) { next } }", None, {"n": limit}).run()
        )
    )
    assert response["errors"][0]["extensions"] == {
        "code": "INVALID_REQUEST",
        "retryable": False,
        "path": "limit",
    }


def test_pages_of_history_meet_without_gap_or_overlap(engine, log, fill):
    fill(7, changes=3)
    query = "query ($since: Cursor) { history(since: $since, limit: 5) { next changes { version index } } }"
    cursor, found = None, []
    while True:
        page = json.loads(encode_response(engine.prepare(query, None, {"since": cursor}).run()))["data"][
            "history"
        ]
        found += [(int(change["version"]), change["index"]) for change in page["changes"]]
        cursor = page["next"]
        if not page["changes"]:
            break
    assert found == [(version, index) for version in range(1, 8) for index in range(4)]
    assert cursor == str(log.token(log.head))


@pytest.mark.parametrize("reverse", [False, True])
def test_history_is_read_in_either_direction(engine, log, fill, reverse):
    """E52: reversed too; the resolved start is echoed, and "has next" is looked up."""
    fill(7, changes=3)
    query = (
        "query ($since: Cursor, $reverse: Boolean!) { history(since: $since, limit: 5, reverse: $reverse) "
        "{ since next hasNext changes { version index } } }"
    )
    cursor, found = None, []
    while True:
        prepared = engine.prepare(query, None, {"since": cursor, "reverse": reverse})
        page = json.loads(encode_response(prepared.run()))["data"]["history"]
        assert page["since"] == (cursor or str(log.token(Position(7) if reverse else log.oldest)))
        found += [(int(change["version"]), change["index"]) for change in page["changes"]]
        cursor = page["next"]
        if not page["hasNext"]:
            break
    indices = (0, 3, 2, 1) if reverse else (0, 1, 2, 3)
    versions = range(7, 0, -1) if reverse else range(1, 8)
    assert found == [(version, index) for version in versions for index in indices]


def test_the_logs_are_told_with_their_ends(engine, log, fill):
    fill(2)
    response = json.loads(encode_response(engine.prepare("{ logs { name epoch oldest head } }").run()))
    told = {
        "name": "shop",
        "epoch": log.epoch,
        "oldest": str(log.token(log.oldest)),
        "head": str(log.token(log.head)),
    }
    assert response == {"data": {"logs": [told]}}


@given(st.text(max_size=300))
def test_no_text_breaks_the_engine(text):
    from transports import Limits
    from transports.graphql.execution import Engine

    with contextlib.suppress(RequestRefused):
        Engine({}, Limits()).prepare(text)


async def test_the_schema_works_under_other_servers_too(log, fill):
    from publishers.criteria.criteria import Criteria
    from transports.graphql.sources import OperationSource

    fill(2)
    source = OperationSource(log, Criteria.of(), log.oldest, log.head.version - 1)
    assert [(event.version, event.index) async for event in source] == [(1, 0), (1, 1), (2, 0), (2, 1)]


async def test_under_other_servers_a_wait_that_is_given_up_ends_nothing(log, fill):
    from publishers.criteria.criteria import Criteria
    from transports.graphql.sources import OperationSource

    events = aiter(OperationSource(log, Criteria.of(), log.oldest, None))
    given_up = asyncio.ensure_future(anext(events))
    await asyncio.sleep(0)
    given_up.cancel()
    await asyncio.wait([given_up])
    fill(1)
    assert [(event.version, event.index) for event in (await anext(events), await anext(events))] == [
        (1, 0),
        (1, 1),
    ]


async def test_another_server_that_cannot_tell_of_a_gap_does_not_jump_over_one(log, fill):
    """E37: never in silence."""
    from publishers.criteria.criteria import Criteria
    from transports.errors import InvalidRequest
    from transports.graphql.sources import OperationSource

    fill(1)
    source = OperationSource(log, Criteria.of(), log.oldest, 1, jump=True)
    with pytest.raises(InvalidRequest, match="onGap is 'JUMP'"):
        [event async for event in source]
