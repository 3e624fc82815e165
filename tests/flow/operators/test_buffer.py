import pytest
from hypothesis import given
from hypothesis import strategies as st

import flow
from flow import UNBOUNDED
from flow import operators as op
from tests.flow.operators.helpers import ManualTimers, Upstream, collect, run


@given(st.lists(st.integers(), max_size=30), st.integers(1, 7), st.integers(1, 3))
def test_lists_have_so_many_elements_and_the_last_the_rest(numbers, count, each):
    expected = [numbers[at : at + count] for at in range(0, len(numbers), count)]
    for operator in (op.buffer(count), op.buffer(count, 10, timers=ManualTimers())):
        probe = run(numbers, operator, first=each, each=each)
        assert probe.items == expected
        assert probe.completed


def test_a_request_for_a_list_is_one_for_its_elements():
    """F67."""
    upstream = Upstream()
    probe = collect(op.buffer(3)(upstream), first=2)
    probe.request(UNBOUNDED)
    assert upstream.requests == [6, UNBOUNDED]


@given(st.integers(0, 30), st.integers(1, 7), st.integers(1, 5))
def test_rule_101_the_last_list_is_not_given_unasked(total, count, asked):
    probe = run(range(total), op.buffer(count), first=asked)
    assert len(probe.items) <= asked


def test_the_last_list_comes_before_the_end_and_calls_nothing_upstream():
    upstream = Upstream()
    probe = collect(op.buffer(3)(upstream), first=1, each=1)
    upstream.send(1)
    upstream.complete()
    assert probe.signals == ["subscribe", "next", "complete"]
    assert upstream.requests == [3]


def test_a_cancel_in_the_last_list_is_followed_by_nothing():
    upstream = Upstream()
    probe = collect(op.buffer(3)(upstream), first=1)
    probe.on_item = lambda _: probe.cancel()
    upstream.send(1)
    upstream.complete()
    assert probe.signals == ["subscribe", "next"]


@pytest.mark.parametrize("seconds", [None, 10])
def test_an_error_discards_the_list_that_was_begun(seconds):
    upstream = Upstream()
    probe = collect(op.buffer(3, seconds, timers=ManualTimers())(upstream))
    upstream.send(1)
    upstream.fail(OSError())
    assert probe.signals == ["subscribe", "error"]


def test_a_list_is_published_when_its_first_element_has_waited_long_enough():
    timers, upstream = ManualTimers(), Upstream()
    probe = collect(op.buffer(3, 5, timers=timers)(upstream))
    timers.advance(100)
    upstream.send(1)
    timers.advance(4)
    upstream.send(2)
    assert probe.items == []
    timers.advance(1)
    assert probe.items == [[1, 2]]
    upstream.send(3)
    timers.advance(4.9)
    assert probe.items == [[1, 2]]
    timers.advance(0.2)
    assert probe.items == [[1, 2], [3]]


def test_a_full_list_does_not_wait_and_calls_its_alarm_off():
    timers, upstream = ManualTimers(), Upstream()
    probe = collect(op.buffer(2, 5, timers=timers)(upstream))
    upstream.send(1, 2)
    assert probe.items == [[1, 2]]
    assert timers.alarms == []
    timers.advance(4)
    upstream.send(3)
    timers.advance(4)
    assert probe.items == [[1, 2]]


def test_while_no_list_is_asked_for_it_grows_up_to_its_count():
    timers, upstream = ManualTimers(), Upstream()
    probe = collect(op.buffer(3, 5, timers=timers)(upstream), first=0)
    assert upstream.requests == [3]
    upstream.send(1)
    timers.advance(5)
    upstream.send(2)
    assert probe.items == []
    probe.request(1)
    assert probe.items == [[1, 2]]
    assert upstream.requests == [3, 2]


@given(
    st.lists(st.one_of(st.just("send"), st.floats(0, 8), st.integers(1, 3)), max_size=40), st.integers(1, 4)
)
def test_with_time_nothing_is_lost_and_no_list_is_too_long(steps, count):
    timers, upstream = ManualTimers(), Upstream()
    probe = collect(op.buffer(count, 5, timers=timers)(upstream), first=0)
    sent, asked = 0, 0
    for step in steps:
        if step == "send":
            if upstream.requested > sent:
                upstream.send(sent)
                sent += 1
        elif isinstance(step, float):
            timers.advance(step)
        else:
            asked += step
            probe.request(step)
        assert len(probe.items) <= asked
        assert upstream.requested - sum(map(len, probe.items)) <= count
    upstream.complete()
    probe.request(1)
    assert [n for items in probe.items for n in items] == list(range(sent))
    assert all(0 < len(items) <= count for items in probe.items)
    assert probe.completed
    assert timers.alarms == []


@pytest.mark.parametrize("bad", [{"count": 0}, {"count": True}, {"seconds": 0}, {"seconds": "1"}])
def test_bounds_are_kept(bad):
    with pytest.raises(ValueError, match=f"{next(iter(bad))}: "):
        op.buffer(**bad)


def test_by_default_lists_have_256_elements():
    upstream = Upstream()
    collect(flow.pipe(upstream, op.buffer()), first=1)
    assert upstream.requests == [256]
