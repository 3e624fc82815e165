"""A change: immutable, with exactly the fields that were promised."""

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from penstock_cdc.fields import discard, set_field
from publishers import Action, Area, Change, Content, Images, Operation, Position
from publishers.model.change import time_of

NOW = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)


def change(**fields):
    stated = {
        "version": 3,
        "index": 1,
        "count": 3,
        "timestamp": NOW,
        "area": Area.DATA,
        "operation": Operation.UPSERT,
        "entity_type": "order",
        "key": "42",
        "body_bytes": b'{"total":1}',
    }
    return Change(**{**stated, **fields})


def test_a_change_has_exactly_the_fields_of_the_contract():
    """E1."""
    promised = ["version", "index", "count", "timestamp", "area", "operation", "entity_type", "key", "body"]
    promised += ["before", "changed", "schema_version", "entry_version", "origin", "meta"]
    promised += ["expires_at", "linked", "field", "action", "error", "lacking"]
    stored = [name.removesuffix("_bytes").removesuffix("_text") for name in Change.__struct_fields__]
    assert stored == promised
    assert all(hasattr(Change, name) for name in ("body", "before", "meta", "error"))


@pytest.mark.parametrize("name", [*Change.__struct_fields__, "body", "before", "meta", "error", "new"])
def test_a_change_is_immutable(name):
    """E1."""
    with pytest.raises(AttributeError):
        setattr(change(), name, None)


def test_the_timestamp_is_not_part_of_equality():
    """E1."""
    other = change(timestamp=NOW + timedelta(days=1))
    assert change() == other
    assert hash(change()) == hash(other)
    assert change() != 7


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("version", 4),
        ("index", 2),
        ("count", 9),
        ("area", Area.SCHEMA),
        ("operation", Operation.REMOVE),
        ("entity_type", "item"),
        ("key", "43"),
        ("body_bytes", None),
        ("before_bytes", b"{}"),
        ("changed", ("a",)),
        ("schema_version", 1),
        ("entry_version", 1),
        ("origin", "here"),
        ("meta_bytes", b"1"),
        ("lacking", ("body",)),
        ("expires_at", NOW),
        ("linked", "41"),
        ("field", "total"),
        ("action", Action.SET),
        ("error_text", "meta: no JSON"),
    ],
)
def test_every_other_field_is_part_of_equality(name, value):
    """E1."""
    assert change() != change(**{name: value})


def test_what_does_not_apply_is_none():
    plain = change(entity_type=None, key=None, body_bytes=None)
    assert plain.body is plain.before is plain.meta is plain.changed is plain.origin is None


def test_bodies_are_parsed_when_they_are_read_and_only_then():
    broken = change(body_bytes=b"{", before_bytes=b'{"a":1.50}', meta_bytes=b'"x"')
    assert broken.before == {"a": 1.5}
    assert broken.meta == "x"
    with pytest.raises(msgspec.DecodeError):
        _ = broken.body


def test_the_position_after_a_change_is_the_next_one_to_read():
    assert change().position == Position(3, 1)
    assert change().after == Position(3, 2)
    assert change(index=2).after == Position(4, 0)
    assert change(index=0, count=1).after == Position(4, 0)


def test_a_time_keeps_its_microseconds():
    assert time_of(0) == datetime(1970, 1, 1, tzinfo=UTC)
    assert time_of(1_767_323_045_678_901) == NOW
    assert time_of(2**53 - 1).microsecond == (2**53 - 1) % 1_000_000
    assert time_of(-1).year == 1969


def test_a_change_says_what_it_is():
    assert repr(change()) == "<Change 3:1 UPSERT order 42>"
    assert repr(change(key="\udcff")) == r"<Change 3:1 UPSERT order \udcff>"
    assert "TRANSACTION" in repr(change(operation=Operation.TRANSACTION, entity_type=None, key=None))


def test_a_change_says_whether_it_has_no_body_or_does_not_show_it(log):
    """E1: what was not asked for is told from what there is not."""
    with log.transaction() as tx:
        tx.upsert("order", "1", {"n": 1}, changes=[set_field("n", 1), discard("m", 2)])
        tx.remove("order", "2")
        tx.truncate("visit")

    def told(**view):
        return [repr(found).partition(",")[2] for found in log.history(**view).changes]

    hidden = " body not shown>"
    assert told(content=Content.BODY) == [""] * 6
    assert told() == [hidden] * 4 + [""] * 2
    assert told(content=Content.BODY, images=Images.KEYS_ONLY) == [""] + [hidden] * 3 + [""] * 2
