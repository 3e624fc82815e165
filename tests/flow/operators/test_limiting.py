import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

import flow
from flow import UNBOUNDED
from flow import operators as op
from tests.flow.operators.helpers import Upstream, collect, run

COUNTS = st.integers(0, 12)


@given(st.lists(st.integers(0, 9), max_size=10), COUNTS)
def test_the_operators_do_what_slices_do(numbers, count):
    assert run(numbers, op.take(count)).items == numbers[:count]
    assert run(numbers, op.skip(count)).items == numbers[count:]
    assert run(numbers, op.take_while(lambda n: n < 5)).items == list(
        itertools.takewhile(lambda n: n < 5, numbers)
    )


@given(COUNTS, st.lists(st.integers(1, 5), max_size=20))
def test_take_never_requests_more_than_it_takes(count, requests):
    upstream = Upstream()
    probe = collect(flow.pipe(upstream, op.take(count)), first=0)
    for n in requests:
        probe.request(n)
    assert upstream.requested == min(count, sum(requests))
    assert 0 not in upstream.requests


def test_take_stops_an_endless_source():
    source = itertools.count()
    assert run(source, op.take(5)).items == [0, 1, 2, 3, 4]
    assert next(source) == 5


def test_the_last_element_of_take_is_followed_by_the_end_at_once():
    upstream = Upstream()
    probe = collect(flow.pipe(upstream, op.take(2)))
    upstream.send("a", "b", "c")
    upstream.complete()
    assert probe.signals == ["subscribe", "next", "next", "complete"]
    assert upstream.cancelled == 1


def test_taking_nothing_completes_without_a_request():
    upstream = Upstream()
    probe = collect(flow.pipe(upstream, op.take(0)), first=0)
    assert probe.signals == ["subscribe", "complete"]
    assert upstream.requests == []
    assert upstream.cancelled == 1


def test_a_cancel_in_the_last_element_of_take_is_followed_by_nothing():
    probe = flow_probe = collect(flow.pipe(flow.from_iterable(range(5)), op.take(2)), first=0)
    probe.on_item = lambda item: item == 1 and flow_probe.cancel()
    probe.request(UNBOUNDED)
    assert probe.items == [0, 1]
    assert not probe.completed


def test_take_while_completes_and_cancels_at_the_first_refusal():
    upstream = Upstream()
    probe = collect(flow.pipe(upstream, op.take_while(lambda n: n < 2)))
    upstream.send(1, 2, 1)
    assert probe.signals == ["subscribe", "next", "complete"]
    assert upstream.cancelled == 1


def test_skip_requests_one_more_for_each_element_that_it_leaves_out():
    upstream = Upstream()
    probe = collect(flow.pipe(upstream, op.skip(2)), first=1)
    upstream.send(1, 2, 3)
    assert upstream.requests == [1, 1, 1]
    assert probe.items == [3]


@pytest.mark.parametrize("count", [-1, True, 1.5, "3", None])
def test_a_count_is_an_integer_and_not_negative(count):
    for operator in (op.take, op.skip):
        with pytest.raises(ValueError, match="count: "):
            operator(count)
