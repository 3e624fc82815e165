"""What is asked of slots from afar, checked field by field."""

import pytest

from publishers.errors import InvalidCriteria, PositionMalformed
from transports.errors import InvalidRequest
from transports.operations.slots import SLOTS, CreateSlot, ListSlots, SeekSlot, ShowSlot


def test_an_order_says_what_it_needs():
    """F88."""
    assert SLOTS.read({"name": "stock"}) == ShowSlot(name="stock")
    assert SLOTS.read({"do": "list", "log": "orders"}) == ListSlots(log="orders")
    made = SLOTS.read(
        {
            "do": "create",
            "name": "stock",
            "criteria": [{}],
            "granularity": "change",
            "copyFrom": "other",
            "paused": True,
        }
    )
    assert made == CreateSlot(
        name="stock", criteria=[{}], granularity="change", copy_from="other", paused=True
    )
    assert SLOTS.read({"do": "create", "name": "stock"}) == CreateSlot(name="stock")
    moved = SLOTS.read({"do": "seek", "name": "stock", "start": {"version": 4}})
    assert moved == SeekSlot(name="stock", start={"version": 4})


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
        ({}, "name"),
        ({"name": "Stock"}, "name"),
        ({"name": "stock\n"}, "name"),
        ({"do": "create", "name": "stock", "copyFrom": 7}, "copyFrom"),
    ],
)
def test_what_is_wrong_is_named(payload, path):
    with pytest.raises(InvalidRequest) as caught:
        SLOTS.read(payload)
    assert caught.value.path == path


@pytest.mark.parametrize(
    ("payload", "error"),
    [
        ({"do": "create", "name": "stock", "criteria": [{"nothing": 1}]}, InvalidCriteria),
        ({"do": "seek", "name": "stock", "since": "x"}, PositionMalformed),
    ],
)
def test_criteria_and_cursors_are_judged_as_everywhere(payload, error):
    with pytest.raises(error):
        SLOTS.read(payload)
