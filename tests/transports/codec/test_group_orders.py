"""What is asked of groups from afar, checked field by field."""

import pytest

from publishers.errors import InvalidCriteria, InvalidOption, PositionMalformed
from publishers.groups import GroupSettings
from publishers.model.position import Position, Start
from transports.codec.group_orders import GroupOrder
from transports.errors import InvalidRequest


def test_an_order_says_what_it_needs():
    """F86."""
    assert GroupOrder.of({"name": "pickers"}) == GroupOrder("pending", "pickers")
    made = GroupOrder.of(
        {"do": "create", "name": "pickers", "log": "orders", "criteria": [{}], "options": {"ack": "all"}}
    )
    assert (made.log, made.start, made.settings) == ("orders", Start.LATEST, GroupSettings(ack="all"))
    assert GroupOrder.of({"do": "reset", "name": "pickers", "start": {"version": 4}}).start == Position(4)
    asked = GroupOrder.of({"do": "dead", "name": "pickers", "limit": 5, "after": "42:1"})
    assert (asked.limit, asked.after) == (5, Position(42, 1))
    assert GroupOrder.of({"do": "release", "name": "pickers", "minIdleMs": 1_500}).min_idle == 1.5
    gone = GroupOrder.of({"do": "discard", "name": "pickers", "positions": ["42:1", "7:0"]})
    assert gone.positions == (Position(42, 1), Position(7, 0))


@pytest.mark.parametrize(
    ("payload", "path"),
    [
        ({"do": "fly", "name": "pickers"}, "do"),
        ({"do": 5, "name": "pickers"}, "do"),
        ({"name": "pickers", "log": 5}, "log"),
        ({"name": "pickers", "criteria": []}, "criteria"),
        ({"name": "pickers", "limit": 0}, "limit"),
        ({"name": "pickers", "limit": 1_001}, "limit"),
        ({"name": "pickers", "limit": True}, "limit"),
        ({"do": "pause", "name": "pickers", "since": "x"}, "since"),
        ({"do": "drop", "name": "pickers", "start": "latest"}, "start"),
        ({"do": "info", "name": "pickers", "limit": 5}, "limit"),
        ({"do": "info", "name": "pickers", "minIdleMs": 5}, "minIdleMs"),
        ({"do": "release", "name": "pickers", "minIdleMs": -1}, "minIdleMs"),
        ({"do": "reset", "name": "pickers", "options": {}}, "options"),
        ({"do": "reset", "name": "pickers", "start": "state"}, "start"),
        ({"do": "create", "name": "pickers", "criteria": {}}, "criteria"),
        ({"do": "create", "name": "pickers", "options": []}, "options"),
        ({"do": "dead", "name": "pickers", "after": 5}, "after"),
        ({"do": "dead", "name": "pickers", "after": "4²:1"}, "after"),
        ({"do": "dead", "name": "pickers", "after": "1" * 30 + ":1"}, "after"),
        ({"do": "discard", "name": "pickers", "positions": "42:1"}, "positions"),
        ({"do": "discard", "name": "pickers", "positions": ["42"]}, "positions"),
        ({"do": "discard", "name": "pickers", "positions": ["1:1"] * 1_001}, "positions"),
    ],
)
def test_what_is_wrong_is_named(payload, path):
    with pytest.raises(InvalidRequest) as caught:
        GroupOrder.of(payload)
    assert caught.value.path == path


@pytest.mark.parametrize(
    ("payload", "error"),
    [
        ({}, InvalidOption),
        ({"name": "Pickers"}, InvalidOption),
        ({"do": "create", "name": "pickers", "options": {"batch": "x"}}, InvalidOption),
        ({"do": "create", "name": "pickers", "options": {"speed": 1}}, InvalidOption),
        ({"do": "create", "name": "pickers", "criteria": [{"nothing": 1}]}, InvalidCriteria),
        ({"do": "reset", "name": "pickers", "since": "x"}, PositionMalformed),
    ],
)
def test_what_is_no_group_is_refused(payload, error):
    with pytest.raises(error):
        GroupOrder.of(payload)
