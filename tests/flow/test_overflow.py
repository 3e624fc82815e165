from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

import flow
from flow.overflow import KEPT, Backlog, Overflow

BOUNDED = [Overflow.ERROR, Overflow.DROP_OLDEST, Overflow.DROP_LATEST]
STEPS = st.lists(st.one_of(st.just("put"), st.integers(1, 5)), max_size=80)


def filled(overflow, capacity, count):
    backlog = Backlog(overflow, capacity)
    gone = [backlog.put(item) for item in range(count)]
    return backlog.take(1000), [item for item in gone if item is not KEPT]


@pytest.mark.parametrize(
    ("overflow", "kept", "gone"),
    [
        (Overflow.ERROR, [0, 1, 2], [3, 4]),
        (Overflow.DROP_OLDEST, [2, 3, 4], [0, 1]),
        (Overflow.DROP_LATEST, [0, 1, 2], [3, 4]),
        (Overflow.LATEST, [4], [0, 1, 2, 3]),
        (Overflow.BUFFER, [0, 1, 2, 3, 4], []),
    ],
)
def test_each_policy_lets_the_element_go_that_its_name_says(overflow, kept, gone):
    assert filled(overflow, 3, 5) == (kept, gone)


@given(st.sampled_from(Overflow), st.integers(1, 6), STEPS)
def test_every_element_is_taken_or_returned_once_and_in_order(overflow, capacity, steps):
    backlog = Backlog(overflow, capacity)
    taken, gone, count = [], [], 0
    for step in steps:
        if step == "put":
            evicted = backlog.put(count)
            count += 1
            if evicted is not KEPT:
                gone.append(evicted)
        else:
            some = backlog.take(step)
            assert len(some) <= step
            taken += some
        assert backlog.capacity is None or len(backlog) <= backlog.capacity
    taken += backlog.take(1000)
    assert taken == sorted(taken)
    assert gone == sorted(gone)
    assert sorted(taken + gone) == list(range(count))


@given(st.sampled_from(BOUNDED), st.integers(1, 6), STEPS)
def test_a_bounded_backlog_behaves_as_its_model(overflow, capacity, steps):
    backlog = Backlog(overflow, capacity)
    model = deque()
    for number, step in enumerate(steps):
        if step == "put":
            expected = KEPT
            if len(model) == capacity:
                expected = model.popleft() if overflow is Overflow.DROP_OLDEST else number
            if expected != number:
                model.append(number)
            assert backlog.put(number) == expected
        else:
            assert backlog.take(step) == [model.popleft() for _ in range(min(step, len(model)))]
        assert len(backlog) == len(model)


@given(st.integers(1, 1000), st.integers(1, 20))
def test_latest_holds_one_and_buffer_holds_all_whatever_the_capacity(capacity, count):
    assert filled(Overflow.LATEST, capacity, count)[0] == [count - 1]
    assert filled(Overflow.BUFFER, capacity, count)[0] == list(range(count))
    assert Backlog(Overflow.LATEST, capacity).capacity == 1
    assert Backlog(Overflow.BUFFER, capacity).capacity is None


def test_clearing_forgets_everything():
    backlog = Backlog(Overflow.ERROR, 2)
    backlog.put("a")
    backlog.clear()
    assert len(backlog) == 0
    assert backlog.take(5) == []


@pytest.mark.parametrize("capacity", [0, -1, True, 1.5, "3", None])
def test_a_capacity_is_a_positive_integer(capacity):
    with pytest.raises(ValueError, match="capacity: "):
        Backlog(Overflow.BUFFER, capacity)


def test_the_policy_is_named_by_its_member():
    with pytest.raises(ValueError, match=r"overflow: 'LATEST'; a member of flow\.Overflow"):
        Backlog("LATEST", 1)
    assert flow.Overflow is Overflow
