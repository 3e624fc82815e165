"""What a server lets its clients see: the widest view, and what may be asked about it."""

from contextlib import nullcontext

import pytest

from publishers import Content, Criterion, Drop, Images, View
from publishers.criteria.criteria import Criteria
from publishers.errors import InvalidOption
from transports import Forbidden, Grant, LogAction
from transports.access.grant import check_keys, check_rows, narrow

HIDES = View.of(Content.BODY, Images.AFTER, fields=["n", "card", "list"], mask={"card.number": "***"})


@pytest.mark.parametrize(
    ("wish", "widest", "refused"),
    [
        ({"keys": ["1"]}, View.of(mask={"$key": "***"}), "keys"),
        ({"key_globs": ["1*"]}, View.of(mask={"$key": Drop()}), "key_globs"),
        ({"keys": ["1"]}, View.of(mask={"card": "***"}), None),
        ({"changed": ["card"]}, HIDES, "changed"),
        ({"changed": ["card.number"]}, HIDES, "changed"),
        ({"changed": ["other"]}, HIDES, "changed"),
        ({"changed": ["n"]}, HIDES, None),
        ({"changed": ["n"]}, View.of(Content.BODY, Images.KEYS_ONLY), "changed"),
        ({"where": ["card.number == 1"]}, HIDES, "where"),
        ({"where": ["card exists"]}, HIDES, "where"),
        ({"where": ["customer.name == Ann"]}, HIDES, "where"),
        ({"where": ["n > 1"]}, HIDES, None),
        ({"where": ["list.0.x > 1"]}, HIDES, None),
        ({"where": ["card.0.number > 1"]}, HIDES, "where"),
        ({"where": ["before:n > 1"]}, HIDES, "where"),
        ({"where": ["n > 1"], "transitions": ["ENTERED"]}, HIDES, "where"),
        ({"where": ["n > 1"]}, View(), "where"),
        ({"where": ["n > 1"]}, View(Content.BODY, Images.CHANGE), "where"),
        ({"where": ["n > 1"], "transitions": ["ENTERED"]}, View(Content.BODY), None),
        ({"annotations": ["user == ann"]}, View.of(mask={"$meta.user": "***"}), "annotations"),
        ({"annotations": ["users.0.name == ann"]}, View.of(mask={"$meta.users.name": "***"}), "annotations"),
        ({"annotations": ["job == 7"]}, View.of(mask={"$meta.user": "***"}), None),
    ],
)
def test_conditions_on_what_may_not_be_seen_are_refused(wish, widest, refused):
    """F59: a filter would tell the value bit by bit."""
    criteria = Criteria.of(Criterion(entity_types=["other"]), Criterion(**wish))
    if refused is None:
        assert narrow(Grant(view=widest), View(), criteria) == (View().within(widest), criteria)
        return
    with pytest.raises(Forbidden) as caught:
        narrow(Grant(view=widest), View(), criteria)
    assert caught.value.path == refused
    assert narrow(Grant(), View(), criteria) == (View(), criteria)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"actions": "READ"}, "actions is 'READ', but must be a set of LogAction"),
        ({"actions": {"READ"}}, "a set of LogAction, such as {LogAction.READ}"),
        ({"actions": None}, "a set of LogAction"),
        ({"view": {"mask": "x"}}, "a View, as View.of"),
        ({"criteria": Criterion()}, "Criteria, as Criteria.of"),
        (
            {"actions": {LogAction.CONSUME}, "criteria": Criteria.of(Criterion(keys=["a"]))},
            "left out where actions hold CONSUME",
        ),
        ({"actions": {LogAction.CONSUME}, "slots": "stock"}, "patterns of names"),
        ({"actions": {LogAction.CONSUME}, "slots": 5}, "patterns of names"),
        ({"actions": {LogAction.CONSUME}, "slots": [5]}, "patterns of names"),
        (
            {"actions": {LogAction.MANAGE}, "criteria": Criteria.of(Criterion(keys=["a"]))},
            "left out where actions hold MANAGE",
        ),
        ({"actions": {LogAction.MANAGE}, "view": View()}, "left out where actions hold MANAGE"),
        ({"slots": ["stock"]}, "left out where actions do not hold CONSUME"),
        ({"actions": {LogAction.CONSUME}, "groups": "stock"}, "patterns of names"),
        ({"groups": ["stock"]}, "left out where actions do not hold CONSUME"),
        (
            {"actions": {LogAction.WRITE}, "criteria": Criteria.of(Criterion(keys=["a"]))},
            "left out where actions hold WRITE",
        ),
    ],
)
def test_a_grant_of_something_else_is_refused_in_words(given, says):
    """F140."""
    with pytest.raises(InvalidOption, match=says):
        Grant(**given)


def test_equal_grants_are_equal_in_whatever_form_their_actions_were_given():
    """F140."""
    assert Grant([LogAction.READ, LogAction.WRITE]) == Grant({LogAction.WRITE, LogAction.READ})
    assert Grant().actions == {LogAction.READ}


def test_what_is_asked_for_is_narrowed_to_the_criteria_of_the_grant():
    """F140: and seen apart from the changes that are hidden."""
    grant = Grant(criteria=Criteria.of(Criterion(key_globs=["a-*"])))
    view, criteria = narrow(grant, View(Content.BODY), Criteria.of(Criterion(entity_types=["order"])))
    assert view == View(Content.BODY, apart=True)
    assert criteria == Criteria.of(Criterion(entity_types=["order"], key_globs=["a-*"]))
    assert view.within(View()).apart
    assert View().within(view).apart


@pytest.mark.parametrize(
    ("granted", "refused"),
    [
        ([{"entity_types": ["order"]}], True),
        ([{"entity_types": ["order"]}, {"areas": ["INFRASTRUCTURE"], "annotations": ["job == 7"]}], True),
        ([{"entity_types": ["order"]}, {"areas": ["INFRASTRUCTURE"]}], False),
    ],
)
def test_annotations_may_be_asked_about_by_those_who_see_all_of_them(granted, refused):
    """F59, F164: a filter would tell them bit by bit, also those of transactions of which nothing may be seen."""
    grant = Grant(criteria=Criteria.from_json([*map(_wish, granted)]))
    wanted = Criteria.of(Criterion(annotations="user == ann"))
    if refused:
        with pytest.raises(Forbidden) as caught:
            narrow(grant, View(), wanted)
        assert caught.value.path == "annotations"
    else:
        assert narrow(grant, View(), wanted)[1].criterions
    narrow(grant, View(), Criteria.of(Criterion(keys=["1"])))


def _wish(told):
    return Criterion(**told).to_json()


def test_the_state_is_not_for_those_who_may_see_some_transactions_only():
    """F140, F164: of a row nothing tells from which transaction it is."""
    with pytest.raises(Forbidden, match="a place in the log"):
        check_rows(Grant(criteria=Criteria.of(Criterion(annotations="user == ann"))))


@pytest.mark.parametrize(
    ("wishes", "seen"),
    [
        (None, True),
        ([{"entity_types": ["order"], "keys": ["1"]}], True),
        ([{"entity_types": ["item"]}], False),
        ([{"keys": ["1"]}], False),
        ([{"operations": ["UPSERT"]}], True),
        ([{"areas": ["INFRASTRUCTURE"]}], False),
        ([{"areas": ["SCHEMA"]}], True),
        ([{"annotations": ["job == 7"]}], False),
        ([], False),
    ],
)
def test_schemas_are_for_those_whose_criteria_let_them_know_of_the_type(wishes, seen):
    """F140."""
    criteria = None if wishes is None else Criteria(frozenset(Criterion(**wish) for wish in wishes))
    assert Grant(criteria=criteria).shows_type("order") is seen


NARROW = {
    "everything": (Grant(), {"a-1", "b-1"}),
    "a view of less": (Grant(view=View.of(Content.BODY, fields=["n"])), {"a-1", "b-1"}),
    "no keys": (Grant(view=View.of(mask={"$key": "***"})), set()),
    "keys of a kind": (Grant(criteria=Criteria.of(Criterion(key_globs=["a-*"]))), {"a-1"}),
    "a pattern": (Grant(criteria=Criteria.of(Criterion(key_patterns=["b-[0-9]"]))), {"b-1"}),
    "one of several": (
        Grant(criteria=Criteria.of(Criterion(entity_types=["order"], keys=["a-1"]), Criterion(keys=["b-1"]))),
        {"a-1", "b-1"},
    ),
    "another type": (Grant(criteria=Criteria.of(Criterion(entity_types=["invoice"]))), set()),
    "another area": (Grant(criteria=Criteria.of(Criterion(areas=["SCHEMA"]))), set()),
    "some operations": (Grant(criteria=Criteria.of(Criterion(operations=["UPSERT"]))), set()),
    "some values": (Grant(criteria=Criteria.of(Criterion(entity_types=["order"], where=["n > 1"]))), set()),
    "some fields": (Grant(criteria=Criteria.of(Criterion(entity_types=["order"], changed=["n"]))), set()),
    "some transactions": (Grant(criteria=Criteria.of(Criterion(annotations=["user == ann"]))), set()),
}


@pytest.mark.parametrize(("grant", "seen"), NARROW.values(), ids=NARROW)
def test_only_entities_are_asked_about_of_which_every_change_is_seen(grant, seen):
    """F59: a refused expectation tells that one of its keys changed."""
    for keys in ({"a-1"}, {"b-1"}, {"a-1", "b-1"}):
        with nullcontext() if keys <= seen else pytest.raises(Forbidden):
            check_keys(grant, [("order", b""), *(("order", key.encode()) for key in keys)])
