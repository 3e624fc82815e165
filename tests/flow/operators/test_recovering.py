import gc
import itertools
import threading
import weakref

import pytest
from hypothesis import given
from hypothesis import strategies as st

import flow
from flow import operators as op
from tests.flow.operators.helpers import ManualTimers, Upstream, collect
from tests.flow.probes import Probe

STEADY = op.RetryDelay(first=1.0, factor=2.0, greatest=5.0, jitter=0.0)


def flaky(failures, items=(1, 2, 3)):
    """Fails after its elements, so many times."""
    left = itertools.count(failures, -1)

    def make():
        yield from items
        if next(left) > 0:
            raise OSError

    return flow.generate(make)


def test_a_publisher_that_fails_is_subscribed_to_again():
    probe = collect(op.retry(3, op.AT_ONCE)(flaky(2)))
    assert probe.items == [1, 2, 3] * 3
    assert probe.completed


def test_after_the_last_attempt_the_error_is_passed_on():
    upstream = Upstream()
    probe = collect(op.retry(2, op.AT_ONCE)(upstream))
    errors = [OSError(), OSError(), OSError()]
    for error in errors:
        upstream.fail(error)
    assert upstream.subscribed == 3
    assert probe.error is errors[2]
    assert probe.signals == ["subscribe", "error"]


def test_an_element_makes_the_attempts_count_anew():
    upstream = Upstream()
    probe = collect(op.retry(1, op.AT_ONCE)(upstream))
    for n in range(5):
        upstream.fail(OSError())
        upstream.send(n)
    assert probe.items == [0, 1, 2, 3, 4]
    assert upstream.subscribed == 6


def test_what_was_not_delivered_is_requested_again():
    upstream = Upstream()
    probe = collect(op.retry(1, op.AT_ONCE)(upstream), first=5)
    upstream.send(1, 2)
    upstream.fail(OSError())
    assert upstream.requests == [5, 3]
    probe.request(2)
    assert upstream.requests == [5, 3, 2]


def test_each_wait_is_longer_up_to_the_greatest():
    timers, upstream = ManualTimers(), Upstream()
    collect(op.retry(10, STEADY, timers=timers)(upstream))
    for wait in (1.0, 2.0, 4.0, 5.0, 5.0):
        upstream.fail(OSError())
        before = upstream.subscribed
        timers.advance(wait - 0.01)
        assert upstream.subscribed == before
        timers.advance(0.01)
        assert upstream.subscribed == before + 1


def test_a_request_while_waiting_reaches_the_next_attempt():
    timers, upstream = ManualTimers(), Upstream()
    probe = collect(op.retry(1, STEADY, timers=timers)(upstream), first=1)
    upstream.fail(OSError())
    probe.request(2)
    assert upstream.requests == [1]
    timers.advance(1)
    assert upstream.requests == [1, 3]


def test_a_cancel_while_waiting_calls_the_attempt_off():
    timers, upstream = ManualTimers(), Upstream()
    probe = collect(op.retry(1, STEADY, timers=timers)(upstream))
    upstream.fail(OSError())
    probe.cancel()
    assert timers.alarms == []
    assert upstream.subscribed == 1
    reference = weakref.ref(probe)
    del probe
    gc.collect()
    assert reference() is None


def test_rule_309_holds_while_waiting(dropped):
    timers, upstream = ManualTimers(), Upstream()
    probe = collect(op.retry(1, STEADY, timers=timers)(upstream))
    upstream.fail(OSError())
    probe.request(-1)
    assert isinstance(probe.error, flow.IllegalRequestError)
    assert timers.alarms == []
    assert dropped.errors == []


@pytest.mark.parametrize("operator", [op.retry(9, op.AT_ONCE), op.on_error_resume(lambda _: flow.never())])
def test_rule_309_an_illegal_request_is_no_failure_of_upstream(operator):
    probe = collect(operator(flow.never()), first=0)
    probe.request(0)
    assert isinstance(probe.error, flow.IllegalRequestError)


def test_rules_213_and_316_who_raises_when_told_of_that_is_reported(dropped):
    class Raising(Probe):
        def on_error(self, error, /):
            raise ValueError

    timers, upstream, probe = ManualTimers(), Upstream(), Raising(first=1)
    op.retry(1, STEADY, timers=timers)(upstream).subscribe(probe)
    upstream.fail(OSError())
    probe.request(0)
    assert [type(error) for error in dropped.errors] == [ValueError]


def test_when_says_which_errors_are_worth_it():
    upstream = Upstream()
    probe = collect(op.retry(9, op.AT_ONCE, when=lambda e: isinstance(e, OSError))(upstream))
    upstream.fail(OSError())
    upstream.fail(KeyError())
    assert upstream.subscribed == 2
    assert isinstance(probe.error, KeyError)
    upstream = Upstream()
    probe = collect(op.retry(9, op.AT_ONCE, when=lambda _: 1 // 0)(upstream))
    upstream.fail(OSError())
    assert isinstance(probe.error, ZeroDivisionError)


def test_rule_303_thousands_of_attempts_do_not_deepen_the_stack():
    probe = collect(op.retry(5000, op.AT_ONCE)(flaky(5000, ())), first=0)
    assert probe.signals == ["subscribe", "complete"]


@given(
    st.floats(0.001, 10),
    st.floats(1, 5),
    st.floats(0, 100),
    st.floats(0, 1),
    st.integers(0, 2000),
    st.floats(0, 1),
)
def test_a_wait_is_within_its_bounds(first, factor, more, jitter, attempt, chance):
    backoff = op.RetryDelay(first, factor, first + more, jitter)
    longest = backoff.wait(attempt, 0)
    assert first <= longest <= first + more
    assert longest * (1 - jitter) <= backoff.wait(attempt, chance) + 1e-9 <= longest + 1e-9
    assert backoff.wait(attempt + 1, 0) >= longest


@pytest.mark.parametrize("bad", [{"first": -1}, {"factor": 0.5}, {"greatest": 0.01}, {"jitter": 2}])
def test_a_backoff_out_of_bounds_is_refused(bad):
    with pytest.raises(ValueError, match=f"{next(iter(bad))}: "):
        op.RetryDelay(**bad)


# on_error_resume


def test_another_publisher_takes_over():
    error = OSError()
    seen = []

    def fallback(reason):
        seen.append(reason)
        return flow.from_iterable([7, 8, 9])

    upstream = Upstream()
    probe = collect(op.on_error_resume(fallback)(upstream), first=3)
    upstream.send(1)
    upstream.fail(error)
    assert seen == [error]
    assert probe.items == [1, 7, 8]
    probe.request(1)
    assert probe.completed


def test_a_fallback_is_asked_once_and_its_error_passed_on():
    second = KeyError()
    probe = collect(op.on_error_resume(lambda _: flow.error(second))(flow.error(OSError())), first=0)
    assert probe.signals == ["subscribe", "error"]
    assert probe.error is second


@pytest.mark.parametrize("fallback", [lambda _: 1 // 0, lambda _: 3, lambda _: None])
def test_a_fallback_that_gives_no_publisher_ends_the_stream(fallback):
    probe = collect(op.on_error_resume(fallback)(flow.error(OSError())), first=0)
    assert probe.signals == ["subscribe", "error"]
    assert isinstance(probe.error, ZeroDivisionError | AttributeError | TypeError)


# timeout


def test_an_element_that_does_not_come_in_time_ends_the_stream():
    timers, upstream = ManualTimers(), Upstream()
    probe = collect(op.timeout(5, timers=timers)(upstream))
    timers.advance(4.9)
    upstream.send(1)
    timers.advance(4.9)
    assert probe.signals == ["subscribe", "next"]
    timers.advance(0.2)
    assert isinstance(probe.error, TimeoutError)
    assert upstream.cancelled == 1
    upstream.send(2)
    upstream.complete()
    assert probe.signals == ["subscribe", "next", "error"]


def test_time_stands_still_while_nothing_is_asked_for():
    timers, upstream = ManualTimers(), Upstream()
    probe = collect(op.timeout(5, timers=timers)(upstream), first=1)
    upstream.send(1)
    timers.advance(100)
    probe.request(1)
    timers.advance(4.9)
    assert probe.error is None
    timers.advance(0.2)
    assert isinstance(probe.error, TimeoutError)


@pytest.mark.parametrize("end", ["cancel", "complete", "fail"])
def test_the_alarm_is_called_off_at_the_end(end):
    timers, upstream = ManualTimers(), Upstream()
    probe = collect(op.timeout(5, timers=timers)(upstream))
    assert len(timers.alarms) == 1
    if end == "cancel":
        probe.cancel()
    elif end == "complete":
        upstream.complete()
    else:
        upstream.fail(OSError())
    assert timers.alarms == []


def test_there_is_one_alarm_however_many_elements_come():
    timers, upstream = ManualTimers(), Upstream()
    collect(op.timeout(5, timers=timers)(upstream))
    upstream.send(*range(100))
    assert len(timers.alarms) == 1


def test_an_alarm_that_rings_during_a_signal_ends_nothing():
    timers, upstream = ManualTimers(), Upstream()
    entered, leave = threading.Event(), threading.Event()
    probe = Probe(first=5, on_item=lambda _: (entered.set(), leave.wait(60)))
    op.timeout(5, timers=timers)(upstream).subscribe(probe)
    thread = threading.Thread(target=upstream.send, args=(1,))
    thread.start()
    assert entered.wait(60)
    timers.advance(100)
    assert probe.error is None
    leave.set()
    thread.join()
    timers.advance(4.9)
    assert probe.error is None
    timers.advance(0.2)
    assert isinstance(probe.error, TimeoutError)
    assert probe.overlaps == 0


@pytest.mark.parametrize("seconds", [0, -1, True, "3", None, float("inf"), float("nan")])
def test_a_timeout_is_a_positive_number(seconds):
    with pytest.raises(ValueError, match="seconds: "):
        op.timeout(seconds)
