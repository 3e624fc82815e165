import pytest
from hypothesis import given
from hypothesis import strategies as st

from flow import UNBOUNDED
from flow.demand import Tide, add, refusal, subtract
from flow.errors import IllegalRequestError


@given(st.integers(0, UNBOUNDED), st.integers(1, 2**80))
def test_rule_317_demand_never_exceeds_its_bound_and_never_shrinks_by_adding(demand, n):
    total = add(demand, n)
    assert total == min(demand + n, UNBOUNDED)
    assert total >= demand


@given(st.integers(1, UNBOUNDED - 1), st.data())
def test_what_is_delivered_is_subtracted_unless_unbounded(demand, data):
    n = data.draw(st.integers(0, demand))
    assert subtract(demand, n) == demand - n
    assert subtract(UNBOUNDED, n) == UNBOUNDED


class Whole(int):
    pass


@pytest.mark.parametrize("n", [1, 2**70, Whole(3)])
def test_positive_integers_can_be_requested(n):
    assert refusal(n) is None


@pytest.mark.parametrize("n", [0, -1, True, False, 1.0, "1", None, Whole(0)])
def test_rule_309_nothing_else_can(n):
    assert isinstance(refusal(n), IllegalRequestError)


@pytest.mark.parametrize(
    ("prefetch", "low_tide", "refill"),
    [(32, None, 24), (256, None, 192), (1, None, 1), (3, None, 3), (10, 4, 4), (10, 10, 10), (10, 0, 10)],
)
def test_low_tide_is_three_quarters_unless_named(prefetch, low_tide, refill):
    assert Tide(prefetch, low_tide).refill == refill


@given(st.integers(1, 300), st.data())
def test_a_tide_asks_for_what_was_consumed_and_never_for_more_than_the_buffer_holds(prefetch, data):
    low_tide = data.draw(st.one_of(st.none(), st.integers(0, prefetch)))
    tide = Tide(prefetch, low_tide)
    outstanding = tide.prefetch
    for step in data.draw(st.lists(st.integers(1, 400), max_size=30)):
        consumed = min(step, outstanding)
        if not consumed:
            continue
        outstanding -= consumed
        due = tide.consume(consumed)
        assert due % tide.refill == 0
        outstanding += due
        assert 0 < outstanding <= prefetch


def test_unbounded_prefetch_asks_once():
    tide = Tide(2**70)
    assert tide.prefetch == UNBOUNDED
    assert tide.consume(10**9) == 0


@pytest.mark.parametrize("prefetch", [0, -1, True, 1.5, "32", None])
def test_a_wrong_prefetch_is_named(prefetch):
    with pytest.raises(ValueError, match="prefetch: "):
        Tide(prefetch)


@pytest.mark.parametrize("low_tide", [-1, 33, True, 1.5])
def test_a_wrong_low_tide_is_named(low_tide):
    with pytest.raises(ValueError, match="low_tide: "):
        Tide(32, low_tide)
