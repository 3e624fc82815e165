"""The view in a ``subscribe`` message."""

import pytest

from publishers import Content, Drop, Images, Redact, View
from publishers.errors import InvalidOption
from transports.codec.messages import SubscribeRequest, view_json
from transports.errors import InvalidRequest
from transports.limits import Limits
from transports.problems import describe


def wish(**payload):
    return SubscribeRequest.of({"criteria": [], "credits": 1} | payload, Limits())


@pytest.mark.parametrize(
    ("payload", "view"),
    [
        ({}, View()),
        ({"content": "BODY", "images": "CHANGED_WITH_OLD"}, View(Content.BODY, Images.CHANGED_WITH_OLD)),
        ({"fields": ["b", "a.c"]}, View.of(fields=["a.c", "b"])),
        ({"mask": {"a": "***"}}, View.of(mask={"a": Redact()})),
        ({"mask": {"a": {"rule": "DROP"}}, "fields": ["a"]}, View.of(fields=["a"], mask={"a": Drop()})),
        ({"mask": {}, "fields": None}, View()),
    ],
)
def test_a_view_is_asked_for_and_told_in_the_same_words(payload, view):
    """F7, F59: what the client writes is what the server reads."""
    assert wish(**payload).view == view
    assert wish(**view_json(view)).view == view


@pytest.mark.parametrize(
    ("payload", "path"),
    [
        ({"fields": []}, "fields"),
        ({"fields": ["a", "b."]}, "fields[1]"),
        ({"fields": [1]}, "fields[0]"),
        ({"mask": {"a": 1}}, "mask[a]"),
        ({"mask": {"": "x"}}, "mask"),
        ({"mask": {"$other": "x"}}, "mask"),
    ],
)
def test_what_is_no_path_and_no_rule_is_named(payload, path):
    """F59."""
    with pytest.raises(InvalidOption) as caught:
        wish(**payload)
    assert describe(caught.value)[0] == "INVALID_REQUEST"
    assert caught.value.parameter == path


@pytest.mark.parametrize(("payload", "path"), [({"fields": "a"}, "fields"), ({"mask": ["a"]}, "mask")])
def test_what_has_the_wrong_shape_is_named(payload, path):
    with pytest.raises(InvalidRequest) as caught:
        wish(**payload)
    assert caught.value.path == path
