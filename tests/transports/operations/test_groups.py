"""What is asked of groups from afar, checked field by field."""

import pytest

from publishers.errors import InvalidCriteria, InvalidOption, PositionMalformed
from transports.errors import InvalidRequest
from transports.operations.groups import (
    GROUPS,
    CreateGroup,
    DiscardDead,
    ListDead,
    ListPending,
    ReleaseGroup,
    ResetGroup,
)


def test_an_order_says_what_it_needs():
    """F86."""
    assert GROUPS.read({"name": "pickers"}) == ListPending(name="pickers")
    made = GROUPS.read(
        {"do": "create", "name": "pickers", "log": "orders", "criteria": [{}], "options": {"ack": "all"}}
    )
    assert made == CreateGroup(name="pickers", log="orders", criteria=[{}], options={"ack": "all"})
    moved = GROUPS.read({"do": "reset", "name": "pickers", "start": {"version": 4}})
    assert moved == ResetGroup(name="pickers", start={"version": 4})
    asked = GROUPS.read({"do": "dead", "name": "pickers", "limit": 5, "after": "42:1"})
    assert asked == ListDead(name="pickers", limit=5, after="42:1")
    released = GROUPS.read({"do": "release", "name": "pickers", "minIdleMs": 1_500})
    assert released == ReleaseGroup(name="pickers", min_idle_ms=1_500)
    gone = GROUPS.read({"do": "discard", "name": "pickers", "positions": ["42:1", "7:0"]})
    assert gone == DiscardDead(name="pickers", positions=("42:1", "7:0"))


@pytest.mark.parametrize(
    ("payload", "path"),
    [
        ({}, "name"),
        ({"name": "Pickers"}, "name"),
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
        GROUPS.read(payload)
    assert caught.value.path == path


@pytest.mark.parametrize(
    ("payload", "error"),
    [
        ({"do": "create", "name": "pickers", "options": {"batch": "x"}}, InvalidOption),
        ({"do": "create", "name": "pickers", "options": {"speed": 1}}, InvalidOption),
        ({"do": "create", "name": "pickers", "criteria": [{"nothing": 1}]}, InvalidCriteria),
        ({"do": "reset", "name": "pickers", "since": "x"}, PositionMalformed),
    ],
)
def test_what_is_no_group_is_refused(payload, error):
    with pytest.raises(error):
        GROUPS.read(payload)
