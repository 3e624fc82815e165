"""Who a client is, and by what it shows that."""

import pytest

from publishers.errors import InvalidOption
from transports import Credentials, Principal


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"name": ""}, "a text that is not empty"),
        ({"name": None}, "a text that is not empty"),
        ({"name": "a", "roles": "reader"}, "a set of texts"),
        ({"name": "a", "roles": 1}, "a set of texts"),
        ({"name": "a", "roles": [1]}, "a set of texts"),
        ({"name": "a", "claims": ["x"]}, "claims is 'list', but must be a mapping"),
        ({"name": "a", "expires": True}, "Unix seconds"),
        ({"name": "a", "expires": "2026"}, "Unix seconds"),
    ],
)
def test_a_principal_of_something_else_is_refused_in_words(given, says):
    """F140."""
    with pytest.raises(InvalidOption, match=says):
        Principal(**given)


def test_a_principal_can_be_a_key_and_cannot_be_changed():
    """F140."""
    claims = {"tenant": "a"}
    one, other = Principal("ann", ["r", "s"], claims), Principal("ann", {"s", "r"}, {"tenant": "a"})
    claims["tenant"] = "b"
    assert (one, hash(one)) == (other, hash(other))
    assert one != Principal("ann", {"s", "r"}, {"tenant": "b"})
    with pytest.raises(TypeError):
        one.claims["tenant"] = "b"


def test_no_repr_shows_a_secret():
    """F141."""
    secret = {"x": "SECRET"}
    shown = repr(Principal("ann", claims=secret)) + repr(
        Credentials("SECRET", secret, secret, secret, first_message=secret, client="10.0.0.1")
    )
    assert "SECRET" not in shown
    assert "10.0.0.1" in shown
