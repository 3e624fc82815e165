"""Image modes: golden files of six modes and WRITTEN over three operations, and what is said where the log lacks something."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from publishers import Change, Content, Drop, Images, Operation, View, remove, upsert
from publishers.blocks.block import Block
from publishers.mutations.mutation import columns_of
from publishers.mutations.rows import Mutation
from publishers.views.images import show_field

GOLDEN = Path(__file__).with_name("golden") / "images.json"
OLD = {"total": "10.00", "state": "NEW", "customer": {"name": "Ann", "zip": "1"}, "note": None}
NEW = {"total": "12.00", "state": "NEW", "customer": {"name": "Ann", "zip": "2"}, "tip": 1}


def written(
    operation: int, *, body: object = None, before: object = None, changed: object = None
) -> Mutation:
    def text(value: object) -> bytes | None:
        return None if value is None else json.dumps(value).encode()

    return Mutation(operation, "order", b"42", text(body), text(before), text(changed))


WITH_BEFORE = {
    "INSERT": upsert("order", "42", NEW, before=b"null"),
    "UPDATE": upsert("order", "42", NEW, before=OLD),
    "REMOVE": remove("order", "42", before=OLD),
}
CASES = {
    **WITH_BEFORE,
    "UPDATE, changed only": upsert("order", "42", NEW, changed=["total", "customer.zip", "note"]),
    "UPDATE, before and changed": upsert("order", "42", NEW, before=OLD, changed=["total"]),
    "UPDATE, neither": upsert("order", "42", NEW),
    "REMOVE, no before": remove("order", "42"),
    "EXPIRE": written(Operation.EXPIRE, before=OLD),
    "READ": written(Operation.READ, body=NEW),
    "TRUNCATE": Mutation(Operation.TRUNCATE, "order", b""),
}


def block(*mutations: Mutation) -> Block:
    return Block(
        columns_of(mutations),
        version=7,
        first_index=1,
        leads=True,
        ends=True,
        transaction_count=1 + len(mutations),
        transaction_bytes=321,
        committed_at=1_000_001,
        annotations=b'{"id":"8a3b","meta":{"user":"ann"}}',
    )


def shown(mutation: Mutation, view: View) -> Change:
    return block(mutation).change(1, view)


def plain(change: Change) -> dict[str, object]:
    told = {
        "body": change.body,
        "before": change.before,
        "changed": change.changed,
        "lacking": change.lacking,
    }
    return {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in told.items()
        if value not in (None, ())
    }


@pytest.mark.parametrize("images", Images, ids=lambda images: images.name)
@pytest.mark.parametrize("case", CASES)
def test_each_mode_shows_of_each_operation_what_the_golden_file_says(images, case):
    """F7, F5, F6: six modes and WRITTEN over insert, update and remove, and what is missing is named."""
    golden = json.loads(GOLDEN.read_text())
    assert plain(shown(CASES[case], View(Content.BODY, images))) == golden[case][images.name]


@pytest.mark.parametrize("images", Images, ids=lambda images: images.name)
def test_a_header_has_no_images_in_any_mode(images):
    """F8."""
    change = shown(CASES["UPDATE, before and changed"], View(Content.HEADER, images))
    assert (change.body, change.before, change.lacking) == (None, None, ())
    assert change.changed == (None if images is Images.KEYS_ONLY else ("total",))
    assert change.key == "42"


@pytest.mark.parametrize("images", Images, ids=lambda images: images.name)
def test_transaction_events_are_the_same_in_every_mode(images):
    """F7: the TRANSACTION event has no images, so no mode takes anything from it."""
    lens = {"fields": ["total"], "mask": {"id": "***"}}
    event = block(*WITH_BEFORE.values()).change(0, View.of(Content.BODY, images, **lens))
    assert event == block(*WITH_BEFORE.values()).change(0, View(Content.BODY))
    assert (event.body, event.meta) == ({"id": "8a3b", "bytes": 321}, {"user": "ann"})


def test_modes_that_compare_nothing_leave_bodies_alone(monkeypatch):
    """E8, F7: WRITTEN, AFTER, ALL, KEYS_ONLY and NOTHING never parse, and a HEADER view reads no body."""
    one = block(*CASES.values())
    parsed, read = [], []
    monkeypatch.setattr(Block, "parsed", lambda *place: parsed.append(place))
    for images in (Images.WRITTEN, Images.AFTER, Images.ALL, Images.KEYS_ONLY, Images.NOTHING):
        one.changes(range(len(CASES) + 1), View(Content.BODY, images))
    assert parsed == []
    real = Block.body
    monkeypatch.setattr(Block, "body", lambda self, index: read.append(index) or real(self, index))
    monkeypatch.setattr(Block, "before", lambda self, index: read.append(index))
    for images in Images:
        one.changes(range(len(CASES) + 1), View.of(Content.HEADER, images, fields=["total"]))
        one.changes(range(len(CASES) + 1), View.of(Content.BODY, Images.KEYS_ONLY, fields=["total"]))
    assert [index for index in read if index] == parsed == []


def test_a_body_is_parsed_once_for_all_views(monkeypatch):
    """E8: whatever the views, a body is taken apart at most once per change and block."""
    import publishers.blocks.block as module

    parsed = []
    real = module.fields_of
    monkeypatch.setattr(module, "fields_of", lambda text: parsed.append(text) or real(text))
    one = block(WITH_BEFORE["UPDATE"])
    for images in Images:
        for fields in (None, ["total"], ["customer.zip"]):
            one.change(1, View.of(Content.BODY, images, fields=fields, mask={"state": "?"}))
    assert len(parsed) == 2  # the body, and the image before


names = st.sampled_from("abcde")
entities = st.dictionaries(
    names, st.sampled_from([0, 1, 1.0, True, "1", None, [1], [1.0], {"x": 1}]), max_size=5
)


def same(one: object, other: object) -> bool:
    """Equal as JSON: numbers by value, and true is not 1."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    return one == other


@given(entities, entities)
def test_a_difference_laid_over_the_old_image_gives_the_new_one(old, new):
    """F6, F7: CHANGED_WITH_OLD holds exactly the fields that differ, old and new, removed ones too."""
    change = shown(upsert("order", "1", new, before=old), View(Content.BODY, Images.CHANGED_WITH_OLD))
    assert {name: old[name] for name in change.changed if name in old} == change.before
    rest = {name: value for name, value in old.items() if name not in change.changed}
    laid = {**rest, **change.body}
    assert laid.keys() == new.keys()
    assert all(same(laid[name], new[name]) for name in new)
    assert all(
        name not in old or name not in new or not same(old[name], new[name]) for name in change.changed
    )
    assert shown(upsert("order", "1", new, before=old), View(Content.BODY, Images.CHANGE)).body == change.body


def test_numbers_keep_every_digit_they_were_written_with():
    """F24: what a mode leaves of a body is the text that was written."""
    body = b'{"a": 1.10, "b": 123456789012345678901234567890, "c": {"d": 1e400, "e": 1}, "f": 2}'
    before = b'{"a": 1.1, "f": 1}'
    view = View(Content.BODY, Images.CHANGE)
    made = shown(upsert("order", "1", body, before=before), view).body_bytes
    assert made == b'{"b":123456789012345678901234567890,"c":{"d": 1e400, "e": 1},"f":2}'
    made = shown(upsert("order", "1", body), View.of(Content.BODY, fields=["c.d", "a"])).body_bytes
    assert made == b'{"a":1.10,"c":{"d":1e400}}'


@pytest.mark.parametrize(
    "body", [b'{"a":', b"[1,", b'{"a":"\\ud800","b":1}', b'{"\\ud800":1}', b"\xff", b"{}}"]
)
@pytest.mark.parametrize("images", [Images.CHANGE, Images.CHANGED_WITH_OLD, Images.ALL, Images.AFTER])
def test_what_cannot_be_read_is_not_shown_through_a_lens(images, body):
    """F59: a body that is no readable JSON is left out and named, never passed on past a mask."""
    row = Mutation(Operation.UPSERT, "order", b"1", body, b'{"a":1}')
    change = shown(row, View.of(Content.BODY, images, mask={"a": "***"}))
    assert change.body_bytes is None
    assert "body" in change.lacking


def test_values_without_fields_are_shown_whole():
    for images in (Images.CHANGE, Images.CHANGED_WITH_OLD):
        change = shown(upsert("order", "1", b"[1]", before=b"[0]"), View(Content.BODY, images))
        assert change.body == [1]
        assert change.before == ([0] if images is Images.CHANGED_WITH_OLD else None)
    change = shown(upsert("order", "1", b"[1]"), View(Content.BODY, Images.CHANGED_WITH_OLD))
    assert (change.body, change.lacking) == ([1], ("before",))


def test_a_field_that_is_not_shown_is_not_told_to_have_changed():
    """F59: names of changed fields are seen through the lenses too."""
    row = upsert("order", "42", NEW, before=OLD, changed=["total", "customer", "tip", "x.y"])
    assert shown(row, View.of(fields=["total", "customer.zip"])).changed == ("total", "customer")
    assert shown(row, View.of(mask={"tip": {"rule": "DROP"}, "total": "?"})).changed == (
        "total",
        "customer",
        "x.y",
    )
    assert shown(row, View.of(mask={"x": {"rule": "DROP"}})).changed == ("total", "customer", "tip")
    listed = upsert("order", "42", NEW, changed=["total", "tip"])
    seen = shown(listed, View.of(Content.BODY, Images.CHANGE, mask={"tip": Drop()}))
    assert (seen.body, seen.changed) == ({"total": "12.00"}, ("total",))
    seen = shown(row, View.of(Content.BODY, Images.CHANGE, fields=["customer.name", "state", "total"]))
    assert (seen.body, seen.changed) == ({"total": "12.00"}, ("total",))


def test_a_masked_field_is_compared_by_what_was_stored():
    """F59: that it changed is told, what it was and is is not."""
    view = View.of(
        Content.BODY, Images.CHANGED_WITH_OLD, mask={"total": "***", "customer.zip": {"rule": "DROP"}}
    )
    seen = shown(WITH_BEFORE["UPDATE"], view)
    assert (seen.body, seen.before) == ({"total": "***", "tip": 1}, {"total": "***", "note": None})
    assert seen.changed == ("total", "tip", "note")


@pytest.mark.parametrize(
    ("field", "lens", "told"),
    [
        ("lines[0].price", {"fields": ["lines.price"]}, True),
        ("lines[0].price", {"fields": ["lines"]}, True),
        ("lines[0].price", {"fields": ["lines.count"]}, False),
        ("lines[0].price", {"mask": {"lines.price": {"rule": "DROP"}}}, False),
        ("lines[0].price", {"mask": {"lines.price": "***"}}, True),
        ("a\\.b.c", {"mask": {"a\\.b": {"rule": "DROP"}}}, False),
        ("a\\.b.c", {"mask": {"a.b": {"rule": "DROP"}}}, True),
    ],
)
def test_the_path_of_a_field_level_change_is_told_if_its_value_may_be_seen(field, lens, told):
    """F4, F59."""
    assert show_field(field, View.of(**lens)) == (field if told else None)


def test_a_field_level_change_is_what_changed():
    """F4, F7: its images hold nothing but the field, so CHANGE shows them whole and nothing is lacking."""
    from publishers.mutations.fields import set_field

    parent = upsert(
        "order", "42", NEW, changes=[set_field("customer.zip", "2", before="1"), set_field("tip", 1)]
    )
    one = block(parent, *parent.follows)
    view = View(Content.BODY, Images.CHANGE)
    assert [one.change(index, view).body for index in (2, 3)] == [{"customer": {"zip": "2"}}, {"tip": 1}]
    both = View(Content.BODY, Images.CHANGED_WITH_OLD)
    assert one.change(2, both).before == {"customer": {"zip": "1"}}
    assert one.change(3, both).lacking == ()
    masked = View.of(Content.BODY, Images.ALL, mask={"customer.zip": {"rule": "DROP"}})
    hidden = one.change(2, masked)
    assert (hidden.field, hidden.body, hidden.before) == (None, {"customer": {}}, {"customer": {}})


def test_lenses_are_for_entities_and_leave_schemas_as_they_are():
    """F59: a schema tells names, which a path into an entity would meet by accident."""
    from publishers.mutations.mutation import schema

    one = block(schema("order", {"name": "order", "total": "string"}, 1))
    view = View.of(Content.BODY, Images.CHANGE, fields=["state"], mask={"name": "***", "$key": Drop()})
    told = one.change(1, View.of(Content.BODY, fields=["state"], mask={"name": "***", "$key": Drop()}))
    assert (told.key, told.body) == ("entity", {"name": "order", "total": "string"})
    assert one.change(1, view).lacking == ("before", "changed")


@pytest.mark.parametrize(
    "images", [Images.WRITTEN, Images.CHANGE, Images.ALL], ids=lambda images: images.name
)
def test_what_is_nested_too_deeply_is_not_shown_through_a_lens(images):
    """F59: neither an error nor a way past the mask."""
    deep = b'{"a":' + b"[" * 900 + b'{"card":"SECRET"}' + b"]" * 900 + b"}"
    view = View.of(Content.BODY, images, mask={"a.card": "***"})
    change = shown(upsert("order", "1", deep, changed=["a"]), view)
    assert b"SECRET" not in (change.body_bytes or b"")
    assert change.lacking or b"***" in change.body_bytes
