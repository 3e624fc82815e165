"""Equality: ``!=`` says the contrary of ``==``, and what is equal has one hash."""

import importlib
import inspect
import pkgutil
from datetime import UTC, datetime
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

import flow
import publishers
import transports
from penstock_cdc.types import Comparison, PositionToken, Projection
from penstock_flights.digest import StreamDigest
from publishers import (
    Area,
    Change,
    Content,
    Criteria,
    Criterion,
    Mask,
    Operation,
    Position,
    View,
    Where,
    remove,
    upsert,
)
from transports.codec.replies import RemoteChange

TIMES = [datetime(2026, 1, day, tzinfo=UTC) for day in (1, 2)]
LOGS = [UUID(int=1), UUID(int=2)]
few = st.integers(1, 2)
texts = st.sampled_from(["1", "1.0", "a"])


def change(version, index, time, key, body, cursor):
    fields = version, index, 3, time, Area.DATA, Operation.UPSERT, "order", key, body
    return Change(*fields) if cursor is None else RemoteChange(*fields, cursor=cursor)


changes = st.builds(
    change,
    few,
    few,
    st.sampled_from(TIMES),
    texts,
    st.sampled_from([None, b"1"]),
    st.sampled_from([None, "", "here"]),
)
wheres = st.builds(Where, texts, st.just(Comparison.EQ), st.sampled_from([1, 1.0, "1", True, None]))
criterions = st.builds(
    Criterion,
    entity_types=st.sets(texts, max_size=2),
    keys=st.sets(texts, max_size=2),
    where=st.lists(wheres, max_size=1),
)
VALUES = {
    "changes, remote or not": changes,
    "conditions": wheres,
    "criterions": criterions,
    "criteria": st.lists(criterions, max_size=2).map(lambda wishes: Criteria.of(*wishes)),
    "views": st.builds(View.of, st.sampled_from(Content), fields=st.none() | st.sets(texts, min_size=1)),
    "masks": st.dictionaries(texts, texts, min_size=1).map(Mask.of),
    "projections": st.lists(texts, min_size=1, max_size=2).map(Projection.of),
    "mutations": st.builds(upsert, texts, texts, st.just({})) | st.builds(remove, texts, texts),
    "positions": st.builds(Position, few, few),
    "tokens": st.builds(PositionToken, st.sampled_from(LOGS), few, st.builds(Position, few, few)),
    "digests": st.builds(StreamDigest, few, few),
}


@pytest.mark.parametrize("kind", VALUES)
@given(data=st.data())
def test_two_values_are_either_equal_or_unequal_and_equal_ones_have_one_hash(kind, data):
    """E1."""
    one, other = data.draw(VALUES[kind]), data.draw(VALUES[kind])
    assert (one == other) is not (one != other)
    assert (one == other) is (other == one)
    assert one == one
    assert not one != one  # noqa: SIM202 - it is != that is asked
    assert one != "something else"
    if one == other and type(one).__hash__ is not None:
        assert hash(one) == hash(other)


def classes():
    """Every class that the packages define."""
    for package in (flow, publishers, transports):
        for found in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
            if not found.name.endswith("__main__"):
                module = importlib.import_module(found.name)
                yield from (
                    one
                    for _, one in inspect.getmembers(module, inspect.isclass)
                    if one.__module__ == found.name
                )


def place(kind, name):
    """How far up among the ancestors of a class a method is defined."""
    return next(level for level, one in enumerate(kind.__mro__) if name in vars(one))


def test_no_class_with_an_equality_of_its_own_inherits_an_inequality_that_does_not_ask_it():
    """E1: but that of ``object`` asks it."""
    asked = [kind for kind in classes() if "__eq__" in vars(kind)]
    assert Change in asked
    for kind in asked:
        inherited = kind.__mro__[place(kind, "__ne__")]
        assert inherited is object or place(kind, "__ne__") <= place(kind, "__eq__"), kind
