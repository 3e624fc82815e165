import flow
from flow import operators as op
from tests.flow.operators.helpers import Upstream, collect


def recorded(**raising):
    calls = []

    def recorder(name):
        def call(*arguments):
            calls.append((name, *arguments))
            if name in raising:
                raise raising[name]

        return call

    names = ("on_next", "on_error", "on_complete", "on_request", "on_cancel")
    return calls, op.tap(**{name: recorder(name) for name in names})


def test_tap_sees_everything_before_it_passes_on():
    calls, tap = recorded()
    collect(tap(flow.from_iterable(["a"])), first=2)
    assert calls == [("on_request", 2), ("on_next", "a"), ("on_complete",)]


def test_tap_sees_an_error_and_the_first_cancel():
    error = OSError()
    calls, tap = recorded()
    collect(tap(flow.error(error)), first=0)
    assert calls == [("on_error", error)]
    calls, tap = recorded()
    probe = collect(tap(flow.never()), first=0)
    probe.cancel()
    probe.cancel()
    assert calls == [("on_cancel",)]


def test_tap_sees_nothing_after_the_end():
    calls, tap = recorded()
    upstream = Upstream()
    probe = collect(tap(upstream), first=0)
    probe.cancel()
    calls.clear()
    upstream.send(1)
    upstream.complete()
    probe.request(1)
    assert calls == []


def test_without_functions_tap_changes_nothing():
    assert collect(op.tap()(flow.from_iterable([1, 2]))).signals == ["subscribe", "next", "next", "complete"]


def test_a_function_that_raises_ends_the_stream():
    failure = ValueError()
    _, tap = recorded(on_next=failure)
    upstream = Upstream()
    probe = collect(tap(upstream))
    upstream.send(1)
    assert probe.error is failure
    assert upstream.cancelled == 1
    _, tap = recorded(on_complete=failure)
    probe = collect(tap(flow.empty()))
    assert probe.signals == ["subscribe", "error"]


def test_an_error_is_not_hidden_by_that_of_who_was_told():
    error, failure = OSError(), ValueError()
    _, tap = recorded(on_error=failure)
    probe = collect(tap(flow.error(error)))
    assert isinstance(probe.error, ExceptionGroup)
    assert probe.error.exceptions == (error, failure)


def test_requests_and_cancels_return_normally_whatever_is_called(dropped):
    _, tap = recorded(on_request=ValueError(), on_cancel=KeyError())
    probe = collect(tap(flow.from_iterable([1, 2])), first=1)
    probe.cancel()
    assert probe.items == [1]
    assert [type(error) for error in dropped.errors] == [ValueError, KeyError]
