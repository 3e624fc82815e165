"""What holds for every operator that has a queue, an alarm, or more than one publisher."""

import gc
import weakref

import pytest

import flow
from flow import UNBOUNDED
from flow import operators as op
from tests.flow.operators.helpers import ManualTimers, Upstream, collect
from tests.flow.probes import BatchProbe, Probe

OPERATORS = {
    "publish_on": lambda: op.publish_on(flow.INLINE),
    "limit_rate": lambda: op.limit_rate(4),
    "on_backpressure_buffer": lambda: op.on_backpressure_buffer(100),
    "on_backpressure_latest": op.on_backpressure_latest,
    "on_backpressure_drop": op.on_backpressure_drop,
    "on_backpressure_error": op.on_backpressure_error,
    "flat_map": lambda: op.flat_map(lambda n: flow.from_iterable([n])),
    "merge": op.merge,
    "concat": op.concat,
    "zip": op.zip,
    "retry": lambda: op.retry(0),
    "on_error_resume": lambda: op.on_error_resume(flow.error),
    "buffer": lambda: op.buffer(1),
    "buffer with time": lambda: op.buffer(1, 10, timers=ManualTimers()),
    "timeout": lambda: op.timeout(10, timers=ManualTimers()),
}


@pytest.fixture(params=OPERATORS.values(), ids=OPERATORS.keys())
def operator(request):
    return request.param()


def test_signals_pass_and_the_end_is_told_without_demand(operator):
    upstream = Upstream()
    probe = collect(operator(upstream), first=3)
    upstream.send(1, 2, 3)
    upstream.complete()
    assert probe.signals == ["subscribe", "next", "next", "next", "complete"]
    error = OSError()
    probe = collect(operator(flow.error(error)), first=0)
    assert probe.signals == ["subscribe", "error"]
    assert probe.error is error


def test_rule_109_only_a_subscriber_that_is_none_raises(operator):
    with pytest.raises(TypeError):
        operator(flow.empty()).subscribe(None)


def test_rule_205_a_second_subscription_is_cancelled(operator):
    first, second = Upstream(), Upstream()
    probe = collect(operator(first))
    first.subscriber.on_subscribe(second)
    assert second.cancelled == 1
    assert first.cancelled == 0
    assert probe.signals == ["subscribe"]


def test_rule_213_none_raises_in_every_signal(operator):
    upstream = Upstream()
    collect(operator(upstream))
    subscriber = upstream.subscriber
    for signal in (subscriber.on_subscribe, subscriber.on_next, subscriber.on_error):
        with pytest.raises(TypeError, match=r"rule 2\.13"):
            signal(None)


@pytest.mark.parametrize("n", [0, -1, True, 1.5, "3"])
def test_rule_309_an_illegal_request_ends_in_an_error_and_cancels_upstream(operator, n):
    cancelled = []
    source = op.tap(on_cancel=lambda: cancelled.append(1))(flow.never())
    probe = collect(operator(source), first=0)
    probe.request(n)
    assert isinstance(probe.error, flow.IllegalRequestError)
    probe.request(1)
    assert probe.signals == ["subscribe", "error"]


def test_rules_108_and_306_silence_after_cancel(operator):
    upstream = Upstream()
    probe = collect(operator(upstream), first=2)
    upstream.send(1)
    before = list(upstream.requests)
    signals = list(probe.signals)
    probe.cancel()
    probe.cancel()
    probe.request(1)
    upstream.send(2)
    upstream.complete()
    upstream.fail(OSError())
    assert upstream.cancelled == 1
    assert upstream.requests == before
    assert probe.signals == signals


@pytest.mark.parametrize("end", ["complete", "fail"])
def test_rule_203_the_end_calls_nothing_upstream(operator, end):
    upstream = Upstream()
    probe = collect(operator(upstream), first=1)
    before = list(upstream.requests)
    if end == "complete":
        upstream.complete()
    else:
        upstream.fail(OSError())
    probe.request(1)
    probe.cancel()
    assert upstream.requests == before
    assert upstream.cancelled == 0


@pytest.mark.parametrize("end", ["cancel", "complete", "fail", "illegal"])
def test_rule_313_every_reference_to_the_subscriber_is_dropped_at_the_end(operator, end):
    upstream = Upstream()
    probe = collect(operator(upstream), first=1)
    upstream.send(1)
    if end == "cancel":
        probe.cancel()
    elif end == "complete":
        upstream.complete()
    elif end == "fail":
        upstream.fail(OSError())
    else:
        probe.request(0)
        if probe.error is None:  # upstream tells of it
            upstream.fail(probe.error or ValueError())
    reference = weakref.ref(probe)
    del probe
    gc.collect()
    assert reference() is None


def test_rule_303_requests_from_on_next_do_not_deepen_the_stack(operator):
    upstream = Upstream()
    probe = collect(operator(upstream), first=1, each=1)
    assert probe.deepest <= 1
    for n in range(2000):
        upstream.send(n)
    assert len(probe.items) == 2000
    assert probe.deepest == 1
    assert probe.overlaps == 0


def test_a_subscriber_that_raises_is_cancelled_and_reported_and_gets_no_error(operator, dropped):
    probe = Probe(first=UNBOUNDED, on_item=lambda _: 1 // 0)
    operator(flow.from_iterable([1, 2, 3])).subscribe(probe)
    assert probe.signals == ["subscribe", "next"]
    assert [type(error) for error in dropped.errors] == [ZeroDivisionError]


def test_a_subscriber_that_takes_batches_gets_nothing_else(operator):
    upstream, probe = Upstream(), BatchProbe(first=3)
    operator(upstream).subscribe(probe)
    upstream.send(1, 2, 3)
    upstream.complete()
    assert len(probe.items) == 3
    assert set(probe.signals) == {"subscribe", "batch", "complete"}
