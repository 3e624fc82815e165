"""What a server lets its clients see: the widest view, and what may be asked about it."""

import pytest

from publishers import Content, Criterion, Drop, Images, View
from publishers.criteria.criteria import Criteria
from transports import Caller, Forbidden
from transports.access.policy import narrow

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
    ],
)
def test_conditions_on_what_may_not_be_seen_are_refused(wish, widest, refused):
    """F59: a filter would tell the value bit by bit."""
    criteria = Criteria.of(Criterion(entity_types=["other"]), Criterion(**wish))
    if refused is None:
        assert narrow(widest, Caller("shop"), View(), criteria) == View().within(widest)
        return
    with pytest.raises(Forbidden) as caught:
        narrow(widest, Caller("shop"), View(), criteria)
    assert caught.value.path == refused
    assert narrow(None, Caller("shop"), View(), criteria) == View()


def test_a_policy_that_answers_with_something_else_lets_nobody_in():
    """F59: rather an error than everything."""
    with pytest.raises(TypeError, match="a policy answers with a View"):
        narrow(lambda _: None, Caller("shop"), View(), Criteria.of())


def test_the_token_of_a_caller_is_in_no_repr():
    assert "secret" not in repr(Caller("shop", "secret"))
