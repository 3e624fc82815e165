"""Errors: what they carry, and that they can be told."""

import inspect

import pytest

import publishers
from publishers import Content, InvalidChange, PenstockError, errors, upsert


class Unspeakable:
    """Something that not even ``repr`` can show."""

    def __repr__(self):
        raise RuntimeError("no words")


def test_every_error_can_be_caught_by_its_public_name():
    raised = {
        name for name, one in inspect.getmembers(errors, inspect.isclass) if issubclass(one, PenstockError)
    }
    assert raised == set(errors.__all__)
    assert raised <= set(publishers.__all__)


@pytest.mark.parametrize("value", [10**5000, Unspeakable()], ids=["long", "unspeakable"])
def test_a_value_that_cannot_be_shown_is_refused_like_any_other(value):
    """F24."""
    for body in (value, {"a": value}):
        with pytest.raises(InvalidChange, match="body is "):
            upsert("order", "1", body)


def test_a_change_that_is_not_in_a_list_is_refused_with_the_remedy(log):
    with pytest.raises(InvalidChange, match=r"log\.commit\(\[upsert"):
        log.commit(upsert("order", "1", {}))


@pytest.mark.parametrize("digits", [4300, 4301, 10_000])
def test_a_whole_number_of_any_length_is_read_back_by_its_digits(log, digits):
    """F24: also above the length up to which Python makes an ``int`` of text."""
    log.commit([upsert("order", "1", b'{"a":[1,%s,1.5]}' % (b"7" * digits))])
    change = log.history(content=Content.BODY).changes[1]
    assert change.error is None
    assert change.body["a"][0] == 1
    assert str(change.body["a"][1]) == "7" * digits
