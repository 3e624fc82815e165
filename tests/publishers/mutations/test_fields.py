"""Field-level changes: what they are called, what they do, and that they lead from one image to the other."""

import json
from copy import deepcopy

import pytest
from hypothesis import given
from hypothesis import strategies as st

import flow
from penstock_cdc.errors import InvalidChange
from penstock_cdc.fields import (
    add,
    apply_field,
    changed_fields,
    discard,
    field_changes,
    field_value,
    push,
    remove_field,
    set_field,
)
from publishers import Action, Content, Operation, Position, upsert
from publishers.blocks.block import Block
from publishers.mutations.fields import path_names
from publishers.mutations.mutation import columns_of
from publishers.views.view import View
from tests.publishers.support import Probe, opened

names = st.sampled_from(["a", "b", "c.d", "", "-", "[0]", "\\", "ü\n"]) | st.text(
    st.characters(codec="utf-8"), max_size=3
)
leaves = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
values = st.recursive(
    leaves | st.text(st.characters(codec="utf-8"), max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=6,
)
objects = st.dictionaries(names, values, max_size=4)


def changes_of(*mutations):
    """The changes of a transaction as a subscriber sees them."""
    columns = columns_of(mutations)
    block = Block(
        columns,
        version=1,
        first_index=1,
        leads=False,
        ends=True,
        transaction_count=1 + columns.count,
        transaction_bytes=0,
        committed_at=0,
    )
    return [block.change(index, View(Content.BODY)) for index in block.indices]


def same(one, other):
    """Equal as JSON, where 1, 1.0 and true differ."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def replayed(entity, changes):
    for change in changes:
        entity = apply_field(entity, change)
    return entity


@given(objects, objects)
def test_replaying_field_level_changes_over_the_before_image_gives_the_after_image(before, after):
    """F4, F5, F6: found out from the images."""
    entity, *parts = changes_of(upsert("order", "1", after, before=before, changes="auto", changed="auto"))
    assert same(replayed(entity.before, parts), entity.body)
    assert {part.changed for part in parts} == {(name,) for name in entity.changed}


class Model:
    """What the actions mean, said as plainly as possible: a reference that shares nothing with the code."""

    def __init__(self, state):
        self.state = deepcopy(state)

    def act(self, action, name, value):
        state = self.state
        if action == "set":
            state[name] = value
        elif action == "remove":
            state.pop(name)
        elif action == "push":
            state[name] = [*state.get(name, []), value]
        elif action == "add":
            state[name] = [*state.get(name, []), value]
            if any(same(value, item) for item in state[name][:-1]):
                state[name].pop()
        else:
            state[name] = [item for item in state.get(name, []) if not same(item, value)]


MADE = {"set": set_field, "push": push, "add": add, "discard": discard}


@given(
    st.dictionaries(st.sampled_from("abc"), st.lists(leaves, max_size=3), max_size=3),
    st.lists(st.tuples(st.sampled_from([*MADE, "remove"]), st.sampled_from("abc"), leaves), max_size=12),
)
def test_each_action_does_what_the_reference_does(before, steps):
    """F4."""
    model, made = Model(before), []
    for action, name, value in steps:
        if action == "remove":
            if name in model.state:
                model.act(action, name, None)
                made.append(remove_field([name]))
            continue
        given = [value] if action == "set" else value  # so that the field stays an array
        model.act(action, name, given)
        made.append(MADE[action]([name], given))
    entity, *parts = changes_of(upsert("order", "1", model.state, before=before, changes=made))
    assert same(replayed(entity.before, parts), entity.body)
    assert [part.action.name.lower() for part in parts] == [
        "remove" if change.action is Action.REMOVE else change.action.name.lower() for change in made
    ]


def test_a_field_level_change_follows_its_entity_and_says_which_field_it_is():
    """F4: path, action, operation, and images that hold nothing but the field."""
    entity, price, city, tag, gone, item = changes_of(
        upsert(
            "order",
            "42",
            {"address": {"city": "Rome"}, "lines": [{"price": 5}], "tags": ["new"]},
            changes=[
                set_field("lines[0].price", 5, before=4),
                set_field(["address", "city"], "Rome"),
                push("tags", "new"),
                remove_field("note", before=None),
                discard("tags", "old"),
            ],
            schema_version=3,
            entry_version=7,
            origin="here",
        )
    )
    assert entity.field is entity.action is None
    assert (price.field, price.action, price.operation) == ("lines[0].price", Action.SET, Operation.UPSERT)
    assert (price.body, price.before) == ({"lines": [{"price": 5}]}, {"lines": [{"price": 4}]})
    assert (field_value(price), field_value(price, price.before)) == (5, 4)
    assert (city.field, city.body, city.before) == ("address.city", {"address": {"city": "Rome"}}, None)
    assert (tag.action, tag.body, tag.changed) == (Action.PUSH, {"tags": "new"}, ("tags",))
    assert (gone.action, gone.operation, gone.body) == (Action.REMOVE, Operation.REMOVE, None)
    assert gone.before == {"note": None}
    assert (item.action, item.operation, item.body) == (Action.DISCARD, Operation.REMOVE, {"tags": "old"})
    for part in (price, city, tag, gone, item):
        assert (part.entity_type, part.key) == ("order", "42")
        assert (part.schema_version, part.entry_version, part.origin) == (3, 7, "here")


def test_four_hundred_changes_of_one_entity_have_positions_of_their_own_and_each_can_be_resumed_from():
    """E4, E5, D2, D3: also in a ring that is smaller than the transaction."""
    with opened(ring_events=16) as log:
        log.commit([upsert("order", "1", {"n": 0})])
        log.commit([upsert("order", "2", {"n": 399}, changes=[set_field("n", n) for n in range(400)])])
        log.commit([upsert("order", "3", {"n": 0})])
        whole = log.history(content=Content.BODY, limit=10_000).changes
        positions = [change.position for change in whole]
        assert positions == sorted(set(positions))
        assert len([change for change in whole if change.field == "n"]) == 400
        for start in range(0, len(whole), 37):
            rest = log.history(since=positions[start], content=Content.BODY, limit=10_000).changes
            assert rest == whole[start:]
        assert log.history(since=Position(2, 401), limit=1).changes[0].field == "n"


def test_a_subscriber_resumes_inside_the_changes_of_one_entity():
    """E4, D3: from any of its positions, with demand for a few at a time and a ring that has long moved on."""
    with opened(ring_events=4) as log:
        log.commit([upsert("order", "1", {}, changes=[set_field("n", n) for n in range(60)])])
        log.commit([upsert("order", "2", {})])
        whole = log.history(content=Content.BODY, limit=1_000).changes
        for start in range(0, len(whole), 7):
            probe = Probe(first=3, each=1)
            feed = log.changes(since=whole[start].position, until=2, content=Content.BODY)
            feed.subscribe(probe, executor=flow.INLINE)
            probe.wait_for_end()
            assert probe.completed
            assert tuple(probe.changes) == whole[start:]


def test_the_value_of_an_item_is_read_whatever_its_place():
    """F4: the only item of a sparse array stands for the one at that place."""
    (_, part) = changes_of(upsert("order", "1", {}, changes=[set_field("lines[2].price", 7, before=5)]))
    assert (part.body, part.before) == ({"lines": [{"price": 7}]}, {"lines": [{"price": 5}]})
    assert (field_value(part), field_value(part, part.before)) == (7, 5)


@given(st.lists(names | st.integers(0, 20), min_size=1, max_size=4))
def test_the_text_of_a_path_can_be_read_back(steps):
    """F4."""
    steps = [str(steps[0]), *steps[1:]]
    change = set_field(steps, 1)
    assert path_names(change.field) == change.path == tuple(steps)


@pytest.mark.parametrize(
    "path",
    ["", ".", "a.", ".a", "a..b", "[0]", "a[x]", "a[0", "a\\", (), (0,), (1.5,), 7, ["a", -1], ["a", True]],
)
def test_what_is_no_path_is_refused(path):
    with pytest.raises(InvalidChange) as refused:
        set_field(path, 1)
    assert refused.value.parameter == "path"


@pytest.mark.parametrize(
    ("entity", "change"),
    [
        ({}, set_field("a.b", 1)),
        ({}, remove_field("a")),
        ({"a": "text"}, push("a", 1)),
        ({"a": {}}, discard("a", 1)),
        ({"a": []}, set_field("a[0]", 1)),
        ({"a": {}}, set_field("a[0]", 1)),
        ({"a": 7}, set_field("a.b.c", 1)),
    ],
)
def test_a_change_that_does_not_fit_the_entity_says_so(entity, change):
    (_, part) = changes_of(upsert("order", "1", {}, changes=[change]))
    with pytest.raises(ValueError, match="does not fit"):
        apply_field(entity, part)


def test_items_of_arrays_are_replaced_and_removed_by_their_place():
    _, *parts = changes_of(
        upsert("order", "1", {}, changes=[set_field("a[1]", "y"), remove_field("a[0]"), push("a", "z")])
    )
    entity = {"a": ["p", "q"]}
    assert replayed(entity, parts) == {"a": ["y", "z"]}
    assert entity == {"a": ["p", "q"]}, "what it was applied to stays as it was"


def test_an_entity_change_cannot_be_applied_as_if_it_were_field_level():
    (entity,) = changes_of(upsert("order", "1", {}))
    for use in (field_value, lambda change: apply_field({}, change)):
        with pytest.raises(ValueError, match="no field-level change"):
            use(entity)


def test_only_field_level_changes_may_follow():
    with pytest.raises(InvalidChange, match="set_field"):
        upsert("order", "1", {}, changes=["a"])
    with pytest.raises(InvalidChange, match="'auto'"):
        upsert("order", "1", {}, changes="all")
    with pytest.raises(InvalidChange, match="NaN"):
        set_field("a", float("nan"))


@given(objects, objects)
def test_changed_fields_are_exactly_the_names_whose_values_differ(before, after):
    """F53: the names that a filter on changed fields sees."""
    missing = object()
    wanted = {
        name
        for name in before.keys() | after.keys()
        if (name in before) != (name in after)
        or not same(before.get(name, missing), after.get(name, missing))
    }
    assert changed_fields(before, after) == tuple(sorted(wanted))


def test_changed_fields_keep_apart_what_is_easily_taken_for_the_same():
    assert changed_fields({"a": None}, {}) == ("a",)
    assert changed_fields({"a": 1}, {"a": True}) == ("a",)
    assert changed_fields(b'{"a":1.0,"b":0.10000000000000000001}', b'{"a":1,"b":0.1}') == ("a", "b")
    assert changed_fields(b'{"a": [1, {"b": 2}]}', {"a": [1, {"b": 2}]}) == ()
    assert changed_fields(None, {"b": 1, "a": None}) == ("a", "b")
    assert upsert("order", "1", {"a": 1, "b": 2}, before={"a": 1}, changed="auto").changed == b'["b"]'
    with pytest.raises(InvalidChange, match="an object"):
        changed_fields(b"[1]", {})


def test_field_changes_push_what_was_appended_and_set_the_rest():
    found = field_changes(
        {"t": [1], "u": [1], "v": {"x": 1, "y": 2}}, {"t": [1, 2, 3], "u": [2], "v": {"x": 1}}
    )
    assert [(change.field, change.action.name) for change in found] == [
        ("t", "PUSH"),
        ("t", "PUSH"),
        ("u", "SET"),
        ("v.y", "REMOVE"),
    ]
