"""Errors: what they carry, and that they can be told."""

import importlib
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
        SlotLost(Position(7), "stock"),
        errors.LogReplaced(LogIdentity(UUID(int=1), "3.x"), LogIdentity(UUID(int=2), "1.y")),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_comes_whole_out_of_another_process(error):
    """F143: a pool of processes pickles what its workers raise, and hangs if that cannot be undone."""
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), again.args) == (type(error), str(error), error.args)
    assert vars(again) == vars(error)


SAMPLES = {
    "LogIdentity": LogIdentity(UUID(int=1), "3.x"), "Position": Position(7, 2), "UUID": UUID(int=1), "Enum": Content.BODY,
    "Path": Path("/var/orders"), "OSError": OSError(5, "gone"), "BaseException": ValueError("why"), "bool": True, "int": 7,
    "float": 1.5, "dict": {"a": 1}, "list": ["a"], "Iterable": ["a"], "Literal['descriptors": "memory", "Literal['unknown": "unknown", "str": "a {b}", "object": "{c}",
}  # fmt: skip


MODULES = [
    importlib.import_module(f"{name}.errors")
    for name in (
        "publishers", "publishers.channels", "publishers.commits", "publishers.groups", "publishers.model", "publishers.slots",
        "publishers.spark", "transports", "transports.sinks",
    )
]  # fmt: skip
KINDS = sorted(
    {
        kind for module in MODULES for _, kind in inspect.getmembers(module, inspect.isclass)
        if issubclass(kind, PenstockError)
    },
    key=lambda kind: (kind.__module__, kind.__name__),
)  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("most", [False, True])
def test_every_error_has_its_data_a_sentence_and_another_process(kind, most):
    """F143: made of what it declares, whatever the values hold."""
    if kind.__init__ is PenstockError.__init__:
        declared = {
            name: annotation
            for base in kind.__mro__[::-1]
            if issubclass(base, PenstockError) and base is not PenstockError
            for name, annotation in base.__annotations__.items()
            if "ClassVar" not in str(annotation) and (most or name not in vars(base))
        }
    else:
        parameters = list(inspect.signature(kind).parameters.values())
        declared = {one.name: one.annotation for one in parameters if most or one.default is one.empty}
    given = {
        name: next(value for word, value in SAMPLES.items() if word in inspect.formatannotation(annotation))
        for name, annotation in declared.items()
    }
    error = kind(**given) if given or kind.says else kind("what")
    assert str(error)
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again)) == (kind, str(error))
    assert vars(again).keys() == vars(error).keys()


def test_an_error_takes_what_it_declares_and_nothing_else():
    for wrong in ({}, {"name": "a", "why": "b"}):
        with pytest.raises(TypeError, match="LogExists takes name"):
            errors.LogExists(**wrong)
    with pytest.raises(TypeError, match="LogExists takes name"):
        errors.LogExists("a", "b")


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
