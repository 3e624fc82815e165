"""Which changes match: truth tables, transitions, and every field against a plain filter."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from publishers import Area, Criteria, Criterion, Operation
from publishers.criteria.conditions import Where
from publishers.criteria.predicate import Predicate
from tests.publishers.criteria.plain_filter import (
    FIELDS,
    alone,
    block,
    criterions,
    plain,
    row,
    rows_of,
    told_of,
)


@given(rows_of, st.lists(criterions, max_size=4), st.booleans(), told_of)
def test_a_predicate_selects_what_a_plain_filter_selects(rows, wishes, leads, told):
    """F15, F25, F53, F54, F55, F56, F58, F164, E10: every field alone and combined, against a plain filter."""
    criteria = Criteria.of(wishes)
    first = 1 if leads else 5
    found = Predicate(criteria).select(block(rows, leads=leads, first_index=first, told=told))
    assert list(found) == plain(criteria, rows, leads=leads, first_index=first, told=told)


@pytest.mark.parametrize("name", FIELDS)
@settings(max_examples=60)
@given(data=st.data(), rows=rows_of, told=told_of)
def test_each_field_by_itself_selects_what_a_plain_filter_selects(name, data, rows, told):
    """F53, F54, F55, F56, F164, E10, E15: all of its conditions, any of its values, and no name that begins alike."""
    criteria = Criteria.of(data.draw(alone(name)))
    assert list(Predicate(criteria).select(block(rows, told=told))) == plain(criteria, rows, told=told)


@given(rows_of, st.lists(criterions, min_size=1, max_size=4), told_of)
def test_what_is_left_out_because_another_wish_implies_it_changes_nothing(rows, wishes, told):
    """F57: fewer wishes, the same changes."""
    one = block(rows, told=told)
    kept, all_of_them = Criteria.of(wishes), Criteria(frozenset(wishes))
    assert kept.criterions <= all_of_them.criterions or kept.unconditional
    assert list(Predicate(kept).select(one)) == plain(all_of_them, rows, told=told)


def selects(wishes, *rows):
    criteria = Criteria.of([wish if isinstance(wish, Criterion) else Criterion(**wish) for wish in wishes])
    return list(Predicate(criteria).select(block(list(rows), leads=False)))


@pytest.mark.parametrize(
    ("wishes", "matches"),
    [
        # An empty field holds for every change.
        ([{}], True),
        # OR between the values of a field.
        ([{"entity_types": {"order", "item"}}], True),
        ([{"entity_types": {"person", "item"}}], False),
        ([{"operations": {"UPSERT", "REMOVE"}}], True),
        ([{"areas": {"SCHEMA", "DATA"}}], True),
        ([{"keys": {"41", "42"}}], True),
        ([{"key_globs": {"x*", "4?"}}], True),
        ([{"key_patterns": {"x.*", r"\d+"}}], True),
        ([{"changed": {"price", "total"}}], True),
        # AND between the fields of one.
        ([{"entity_types": {"order"}, "operations": {"UPSERT"}}], True),
        ([{"entity_types": {"order"}, "operations": {"REMOVE"}}], False),
        ([{"entity_types": {"item"}, "operations": {"UPSERT"}}], False),
        ([{"keys": {"42"}, "key_globs": {"4*"}}], True),
        ([{"keys": {"42"}, "key_globs": {"5*"}}], False),
        ([{"keys": {"42"}, "key_patterns": {"5."}}], False),
        ([{"areas": {"SCHEMA"}, "keys": {"42"}}], False),
        ([{"changed": {"total"}, "keys": {"41"}}], False),
        ([{"changed": {"total"}, "where": "total > 9"}], True),
        ([{"changed": {"total"}, "where": "total > 10"}], False),
        # AND between conditions.
        ([{"where": ["total == 10", "note is null"]}], True),
        ([{"where": ["total == 10", "note exists", "note == x"]}], False),
        # OR between criteria.
        ([{"entity_types": {"item"}}, {"operations": {"UPSERT"}}], True),
        ([{"entity_types": {"item"}}, {"operations": {"REMOVE"}}], False),
        ([{"where": "total > 10"}, {"where": "total < 11"}], True),
        # Names are compared whole.
        ([{"entity_types": {"orde"}}], False),
        ([{"entity_types": {"orders"}}], False),
        ([{"key_patterns": {"4"}}], False),
    ],
)
def test_truth_table_of_criteria(wishes, matches):
    """E10, F53."""
    one = row(body=b'{"total":10,"note":null}', changed=b'["total"]')
    assert selects(wishes, one) == ([1] if matches else [])


@pytest.mark.parametrize(
    ("wishes", "leads"),
    [
        ([{}], True),
        ([{"areas": {"INFRASTRUCTURE"}}], True),
        ([{"operations": {"TRANSACTION"}}], True),
        ([{"areas": {"DATA"}}], False),
        ([{"operations": {"UPSERT"}}], False),
        ([{"entity_types": {"order"}}], False),
        ([{"keys": {"42"}}], False),
        ([{"key_globs": {"*"}}], False),
        ([{"key_patterns": {".*"}}], False),
        ([{"changed": {"bytes"}}], False),
        ([{"where": "bytes exists"}], False),
        ([{"entity_types": {"order"}}, {"areas": {"INFRASTRUCTURE"}}], True),
    ],
)
def test_transaction_events_are_left_out_by_whoever_names_entities(wishes, leads):
    """F15: boundaries can be asked for or left out."""
    criteria = Criteria.of([Criterion(**wish) for wish in wishes])
    assert (0 in Predicate(criteria).select(block([row()]))) is leads


def test_d10_a_changed_field_is_named_exactly():
    """D10, E15: never a part of a name, never an entity-level change that does not say what it touched."""
    rows = [
        row(changed=b'["quantity"]'),
        row(changed=b'["quantityOnStock"]'),
        row(changed=b'["price","quantityOnStock"]'),
        row(changed=b"[]"),
        row(changed=None),
        row(operation=Operation.REMOVE, changed=None),
        row(changed=b'["QuantityOnStock"]'),
    ]
    assert selects([{"changed": {"quantityOnStock"}}], *rows) == [2, 3]
    assert selects([{"changed": {"quantity"}}], *rows) == [1]
    assert selects([{"changed": {"quantity", "price"}}], *rows) == [1, 3]


def test_d10_one_name_and_a_list_of_one_behave_alike():
    """D10, E15: they are the same wish."""
    assert Criterion(changed="price") == Criterion(changed=["price"]) == Criterion(changed={"price"})
    assert Criteria.from_json([{"changed": "price"}]) == Criteria.from_json([{"changed": ["price"]}])


def schema_rows():
    def part(name, kind, entity_type="product", operation=Operation.UPSERT):
        return row(Area.SCHEMA, operation, entity_type, name, b"{}", changed=b'["%s"]' % kind.encode())

    return [
        part("quantityOnStock", "attribute"),
        part("ean", "attribute"),
        part("brand", "reference"),
        part("brand", "attribute", operation=Operation.REMOVE),
        part("quantityOnStock", "attribute", "order"),
        row(Area.SCHEMA, Operation.UPSERT, "product", "entity", b"{}"),
        row(Area.DATA, Operation.UPSERT, "product", "quantityOnStock", b"{}", changed=b'["attribute"]'),
    ]


@pytest.mark.parametrize(
    ("wish", "found"),
    [
        ({"changed": {"attribute"}}, [1, 2, 4, 5]),
        ({"changed": {"reference"}}, [3]),
        ({"changed": {"attribute"}, "entity_types": {"product"}}, [1, 2, 4]),
        ({"changed": {"attribute"}, "entity_types": {"product"}, "keys": {"quantityOnStock"}}, [1]),
        ({"keys": {"brand"}}, [3, 4]),
        ({"keys": {"brand"}, "operations": {"REMOVE"}}, [4]),
        ({"changed": {"attribute", "reference"}, "key_globs": {"b*"}}, [3, 4]),
        ({"changed": {"attr"}}, []),
    ],
)
def test_d11_exactly_the_asked_part_of_a_schema_arrives(wish, found):
    """D11, E16: by kind (the names of what changed) and by name (the key) of the schema part."""
    assert selects([Criterion(areas={Area.SCHEMA}, **wish)], *schema_rows()) == found


OPEN, CLOSED = b'{"status":"OPEN"}', b'{"status":"CLOSED"}'


@pytest.mark.parametrize(
    ("before", "after", "move"),
    [
        (None, OPEN, "ENTERED"),
        (CLOSED, OPEN, "ENTERED"),
        (b"{}", OPEN, "ENTERED"),
        (OPEN, OPEN, "STAYED"),
        (OPEN, CLOSED, "LEFT"),
        (OPEN, b"{}", "LEFT"),
        (OPEN, None, "LEFT"),
        (CLOSED, CLOSED, None),
        (CLOSED, None, None),
        (b"null", CLOSED, None),
        # The log does not know whether it was in the filter.
        (None, CLOSED, "MAYBE_LEFT"),
        (None, None, "MAYBE_LEFT"),
        (b"nonsense", CLOSED, "MAYBE_LEFT"),
    ],
)
def test_rows_enter_leave_and_stay_in_a_filter(before, after, move):
    """F58: also where an image is missing."""
    one = row(operation=Operation.UPSERT if after else Operation.REMOVE, body=after, before=before)
    for transition in ("ENTERED", "LEFT", "STAYED", "MAYBE_LEFT"):
        wish = Criterion(where="status == OPEN", transitions={transition})
        assert selects([wish], one) == ([1] if transition == move else [])
    both = Criterion(where="status == OPEN", transitions={"ENTERED", "LEFT"})
    assert selects([both], one) == ([1] if move in ("ENTERED", "LEFT") else [])


def test_conditions_may_look_at_both_images():
    """F58."""
    wish = Criterion(where=[Where("total", ">", 100), Where("total", "<=", 100, image="BEFORE")])
    rows = [
        row(body=b'{"total":150}', before=b'{"total":100}'),
        row(body=b'{"total":150}', before=b'{"total":101}'),
        row(body=b'{"total":150}'),
    ]
    assert selects([wish], *rows) == [1]


def test_a_selection_is_found_once_per_block():
    """F57."""
    one = block([row()] * 3)
    criteria = Criteria.of(Criterion(keys={"42"}))
    assert Predicate(criteria).select(one) is Predicate(Criteria.of(Criterion(keys=["42"]))).select(one)
