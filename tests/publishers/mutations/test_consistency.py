"""The image before a change, with the change applied, is the image after it: in whatever way the change is told."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock_cdc.errors import InvalidChange
from penstock_cdc.fields import FieldChange, add, apply_field, discard, push, remove_field, set_field
from publishers import Content, Images, Position, upsert
from publishers.model.change import Action
from tests.harness.scale import scaled
from tests.publishers.support import opened

names = st.sampled_from(["a", "b", "c.d", ""])
values = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["", "x", 1.5, 2**70]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=6,
)
entities = st.dictionaries(names, values, max_size=4)


def applied(before, change):
    """The entity after a change that tells what changed, with names of fields that are gone."""
    entity = dict(before)
    for name in change.changed:
        if name in (change.body or {}):
            entity[name] = change.body[name]
        else:
            del entity[name]
    return entity


@settings(max_examples=scaled(60), deadline=None)
@given(entities, entities, st.sampled_from(["auto", ["a"], None]), st.booleans())
def test_before_with_the_change_applied_is_after(before, after, changed, spaced):
    """F6: in every image mode, from columns and from a single frame, whatever the writer lists as changed."""
    rows = [
        upsert("e", "1", json.dumps(after, indent=spaced or None).encode(), before=before, changed=changed)
    ]
    with opened() as log:
        log.commit(rows * (1 + spaced))

        def seen(images):
            return log.history(since=Position(1, 1), limit=1, content=Content.BODY, images=images).changes[0]

        for images in (Images.WRITTEN, Images.ALL):
            assert (seen(images).before, seen(images).body) == (before, after)
        assert (seen(Images.AFTER).before, seen(Images.AFTER).body) == (None, after)
        change, both = seen(Images.CHANGE), seen(Images.CHANGED_WITH_OLD)
        assert applied(before, change) == applied(before, both) == after
        assert {name: before[name] for name in both.changed if name in before} == both.before
        assert set(both.changed) == {
            name
            for name in before.keys() | after.keys()
            if json.dumps(before.get(name, ...), default=str) != json.dumps(after.get(name, ...), default=str)
            and not _equal(before.get(name, ...), after.get(name, ...))
        }
        assert both.lacking == change.lacking == ()


def _equal(one, other):
    """As JSON values: numbers by value, and true is not 1."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_equal(one[name], other[name]) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_equal, one, other))
    return one == other


@settings(max_examples=scaled(60), deadline=None)
@given(entities, entities)
def test_before_with_the_field_level_changes_replayed_is_after(before, after):
    """F6, F4: over their own images too, which tell what was there before each of them."""
    with opened() as log:
        log.commit([upsert("e", "1", after, before=before, changes="auto")])
        entity, *parts = log.history(since=Position(1, 1), limit=1_000, content=Content.BODY).changes
    state = entity.before
    for part in parts:
        state = apply_field(state, part)
    assert state == entity.body == after


def test_field_level_changes_that_lead_elsewhere_are_refused():
    """F6, F4: with an image before there are two ways to the image after, and they must be one."""
    before, after = {"a": 1, "l": [1, {"x": 1.0}]}, {"a": 2, "l": [1, {"x": 1.0}, 3]}
    good = [set_field("a", 2, before=1), push("l", 3)]
    assert len(upsert("e", "1", after, before=before, changes=good).follows) == 2
    assert upsert("e", "1", after, before=before, changes=iter(good)).follows
    assert upsert("e", "1", b'{"a":2.0,"l":[1,{"x":1},3e0]}', before=before, changes=good).follows
    for wrong, parameter, text in (
        ([], "changes", "but must be such as lead from before to body, also in 'a'"),
        (good[:1], "changes", "also in 'l'"),
        ([*good, push("l", 3)], "changes", "also in 'l'"),
        ([set_field("a", 2, before=5), push("l", 3)], "changes[0].before", "the value at its path in before"),
        ([set_field("b", 2, before=None), *good], "changes[0].before", "the value at its path"),
        ([*good, remove_field("z")], "changes[2]", "a path that before has"),
        ([*good, remove_field("l[7]")], "changes[2]", "a path that before has"),
        ([*good, push("a", 1)], "changes[2]", "a path that before has"),
        ([*good, set_field("x.y", 1)], "changes[2]", "a path that before has"),
        ([*good, "a"], "changes", "what set_field()"),
        ([set_field("a", True), push("l", 3)], "changes", "also in 'a'"),
    ):
        with pytest.raises(InvalidChange) as refused:
            upsert("e", "1", after, before=before, changes=wrong)
        assert refused.value.parameter == parameter
        assert text in str(refused.value)
    sets = [add("l", 1), add("l", 3), discard("l", {"x": 1.0}), set_field("a", 2)]
    assert upsert("e", "1", {"a": 2, "l": [1, 3]}, before=before, changes=sets).follows


def test_without_an_image_before_nothing_can_be_compared():
    """F6: nothing is guessed."""
    assert upsert("e", "1", {"a": 2}, changes=[set_field("b", 1)]).follows
    assert upsert("e", "1", {"a": 2}, before=b"null", changes=[set_field("b", 1)]).follows
    assert upsert("e", "1", b"[1]", before={}, changes=[set_field("b", 1)]).follows


@pytest.mark.parametrize(
    ("path", "action", "value", "parameter"),
    [
        (("a",), Action.SET, None, "value"),
        (("a",), Action.PUSH, None, "value"),
        (("a",), Action.REMOVE, b"1", "value"),
        (("a",), "SET", b"1", "action"),
        (("a",), None, b"1", "action"),
        ((), Action.SET, b"1", "path"),
        ("a", Action.SET, b"1", "path"),
        ((1,), Action.SET, b"1", "path"),
        (None, Action.SET, b"1", "path"),
        (["a"], Action.SET, b"1", "path"),
    ],
)
def test_a_field_level_change_is_whole_or_refused(path, action, value, parameter):
    """F4: also one that is made without set_field() and the like."""
    with pytest.raises(InvalidChange) as refused:
        FieldChange(path, action, value)
    assert refused.value.parameter == parameter
