"""Criteria as filters of entities; what sinks make of them is in tests/transports/sinks/test_leaving.py."""

import pytest

from penstock_cdc.fields import push
from publishers import Area, Content, Criteria, Criterion, Images, Operation, View, upsert
from publishers.criteria.entities import EntityFilter, with_leaving
from publishers.mutations.rows import flattened
from tests.publishers.criteria.plain_filter import block, row

OPEN = Criteria.of(Criterion(entity_types={"order"}, where="status == OPEN"))
IN, OUT = b'{"status":"OPEN"}', b'{"status":"SHUT"}'


@pytest.mark.parametrize(
    ("change", "outside"),
    [
        (row(body=IN), False),
        (row(body=OUT), True),
        (row(body=OUT, operation=Operation.READ), True),
        (row(body=IN, kind="bill"), True),
        (row(operation=Operation.REMOVE), False),
        (row(operation=Operation.TRUNCATE, key=""), False),
        (row(body=OUT, area=Area.SCHEMA), False),
        (row(body=b"nonsense"), False),  # what it is cannot be told
        (row(), False),
    ],
)
def test_a_change_may_leave_its_entity_outside(change, outside):
    """F180."""
    assert EntityFilter(OPEN).outside(block([change]), 1) is outside


def test_a_view_shows_a_change_that_leaves_as_a_removal():
    """F180: with the images of one, whichever are asked for."""
    made = block([row(body=OUT, before=IN, changed=b'["status"]'), row(body=IN, before=OUT)])
    for images in Images:
        change, stays = made.changes((1, 2), View(Content.BODY, images, outsiders=EntityFilter(OPEN)))
        removal, _ = block([row(operation=Operation.REMOVE, before=IN), row()]).changes(
            (1, 2), View(Content.BODY, images)
        )
        assert (change.operation, change.body_bytes, change.changed) == (Operation.REMOVE, None, None)
        assert (change.before_bytes, change.lacking) == (removal.before_bytes, removal.lacking)
        assert stays == made.change(2, View(Content.BODY, images))


def test_a_piece_of_an_entity_does_not_tell_where_the_entity_is():
    """F180."""
    rows = list(
        flattened([upsert("order", "1", {"status": "OPEN", "items": [1]}, changes=[push("items", 1)])])
    )
    made = block(rows)
    assert [EntityFilter(OPEN).outside(made, index) for index in (1, 2)] == [False, False]


def test_criteria_without_values_stay_as_they_are():
    """F180: so that sinks share what subscribers share."""
    for one in (
        Criterion(),
        Criterion(entity_types={"order"}),
        Criterion(areas={Area.SCHEMA}, where="n == 1"),
    ):
        assert with_leaving(Criteria.of(one), rows=True) == Criteria.of(one)
    assert with_leaving(OPEN).criterions > OPEN.criterions
    assert not EntityFilter(Criteria.of(Criterion(changed={"n"}))).leaves
