import pytest

import flow
from flow.errors import FlowError, IllegalRequestError, Lagged, Rejected


class Unspeakable:
    def __repr__(self):
        raise RuntimeError


@pytest.mark.parametrize(
    ("requested", "text"),
    [
        (0, "0 (int)"),
        (-5, "-5 (int)"),
        (True, "True (bool)"),
        (1.5, "1.5 (float)"),
        ("3", "str"),
        (None, "NoneType"),
    ],
)
def test_an_illegal_request_says_what_was_asked_for(requested, text):
    error = IllegalRequestError(requested)
    assert str(error).startswith(f"rule 3.9: non-positive subscription request: {text}")
    assert error.requested is requested
    assert isinstance(error, ValueError)
    assert not error.retryable


def test_an_illegal_request_can_always_be_described():
    assert "Unspeakable" in str(IllegalRequestError(Unspeakable()))
    assert "int" in str(IllegalRequestError(-(10**6000)))
    assert "float" in str(IllegalRequestError(float("nan")))


def test_errors_carry_data_and_say_whether_to_try_again():
    assert Lagged(3).missed == 3
    assert str(Lagged(1)).endswith("missed 1 element")
    assert str(Lagged(3)).endswith("missed 3 elements")
    assert Rejected().retryable
    assert not Lagged(1).retryable
    assert all(issubclass(error, FlowError) for error in (IllegalRequestError, Lagged, Rejected))
    assert flow.Lagged is Lagged
