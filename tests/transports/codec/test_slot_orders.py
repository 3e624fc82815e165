"""What is asked of slots from afar, checked field by field."""

import pytest

from publishers.errors import InvalidCriteria, InvalidOption, PositionMalformed
from publishers.model.position import Position, Start
from transports.codec.slot_orders import SlotOrder
from transports.errors import InvalidRequest


def test_an_order_says_what_it_needs():
    """F88."""
    assert SlotOrder.of({"name": "stock"}) == SlotOrder("info", None, "stock")
    assert SlotOrder.of({"do": "list", "log": "orders"}) == SlotOrder("list", "orders")
    made = SlotOrder.of(
        {
            "do": "create",
            "name": "stock",
            "criteria": [{}],
            "granularity": "change",
            "copyFrom": "other",
            "paused": True,
        }
    )
    assert (made.granularity, made.copy_from, made.start, made.paused) == (
        "change",
        "other",
        Start.LATEST,
        True,
    )
    assert not SlotOrder.of({"do": "create", "name": "stock"}).paused
    assert SlotOrder.of({"do": "seek", "name": "stock", "start": {"version": 4}}).start == Position(4)


@pytest.mark.parametrize(
    ("payload", "path"),
    [
        ({"do": "fly", "name": "stock"}, "do"),
        ({"name": "stock", "log": 5}, "log"),
        ({"name": "stock", "criteria": []}, "criteria"),
        ({"do": "seek", "name": "stock", "granularity": "change"}, "granularity"),
        ({"do": "pause", "name": "stock", "since": "x"}, "since"),
        ({"do": "drop", "name": "stock", "start": "latest"}, "start"),
        ({"do": "create", "name": "stock", "granularity": "row"}, "granularity"),
        ({"do": "create", "name": "stock", "paused": 1}, "paused"),
        ({"do": "pause", "name": "stock", "paused": True}, "paused"),
        ({"do": "create", "name": "stock", "criteria": {}}, "criteria"),
        ({"do": "seek", "name": "stock", "start": "state"}, "start"),
        ({"do": "seek", "name": "stock", "start": "latest", "since": "x"}, "start"),
        ({"do": "seek", "name": "stock", "since": 5}, "since"),
    ],
)
def test_what_is_wrong_is_named(payload, path):
    with pytest.raises(InvalidRequest) as caught:
        SlotOrder.of(payload)
    assert caught.value.path == path


@pytest.mark.parametrize(
    ("payload", "error"),
    [
        ({}, InvalidOption),
        ({"name": "Stock"}, InvalidOption),
        ({"do": "create", "name": "stock", "copyFrom": 7}, InvalidOption),
        ({"do": "create", "name": "stock", "criteria": [{"nothing": 1}]}, InvalidCriteria),
        ({"do": "seek", "name": "stock", "since": "x"}, PositionMalformed),
    ],
)
def test_names_criteria_and_cursors_are_judged_as_everywhere(payload, error):
    with pytest.raises(error):
        SlotOrder.of(payload)
