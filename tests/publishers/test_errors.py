"""Errors: what they carry, and that they can be told."""

import inspect
import pickle
from pathlib import Path
from uuid import UUID

import pytest

import penstock_cdc.errors
from penstock_cdc.errors import InvalidChange, NoSuchSlot, PenstockError, SlotLost
from penstock_cdc.types import LogIdentity
from publishers import Content, Position, errors, upsert
from publishers.model.errors import HIDDEN


class Unspeakable:
    """Something that not even ``repr`` can show."""

    def __repr__(self):
        raise RuntimeError("no words")


def test_every_error_can_be_caught_by_its_public_name():
    raised = {
        name for name, one in inspect.getmembers(errors, inspect.isclass) if issubclass(one, PenstockError)
    }
    assert raised == set(errors.__all__)
    assert raised <= set(penstock_cdc.errors.__all__)


@pytest.mark.parametrize(
    "error",
    [
        errors.LogForked(Path("/var/orders"), 7),
        errors.LogBusy(Path("/var/orders"), 7),
        errors.NoSuchLog("orders", ["users"]),
        errors.InvalidOption("limit", 0, "a whole number"),
        errors.InvalidOption("token", HIDDEN, "a text"),
        errors.HistoryPruned(Position(7, 2)),
        errors.LogFailed("unknown", "EIO"),
        errors.LogGone(Path("/var/orders")),
        NoSuchSlot("stack", ["stock"]),
        SlotLost("stock", Position(7)),
        errors.LogReplaced(LogIdentity(UUID(int=1), "3.x"), LogIdentity(UUID(int=2), "1.y")),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_comes_whole_out_of_another_process(error):
    """F143: a pool of processes pickles what its workers raise, and hangs if that cannot be undone."""
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), again.args) == (type(error), str(error), error.args)
    assert vars(again) == vars(error)


def test_the_error_of_a_fork_says_where_it_was_opened_and_what_would_be_right():
    """F143."""
    told = str(errors.LogForked(Path("/var/orders"), 7))
    assert told == "/var/orders was opened in process 7; open it here with read_only=True"


def test_the_error_of_a_hidden_value_is_a_sentence_without_it():
    """F24: the value may be a secret."""
    error = errors.InvalidOption("token", HIDDEN, "a text that is not empty")
    assert str(error) == "token must be a text that is not empty"
    assert error.right == "a text that is not empty"


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
