"""What holds for every operator without a queue."""

import gc
import weakref

import pytest

import flow
from flow import UNBOUNDED
from flow import operators as op
from tests.flow.operators.helpers import Upstream, collect
from tests.flow.probes import BatchProbe, Probe

OPERATORS = {
    "map": op.map(lambda n: n),
    "filter": op.filter(lambda _: True),
    "scan": op.scan(lambda _, n: n),
    "distinct_until_changed": op.distinct_until_changed(),
    "take": op.take(100_000),
    "take_while": op.take_while(lambda _: True),
    "skip": op.skip(0),
    "tap": op.tap(),
}


@pytest.fixture(params=OPERATORS.values(), ids=OPERATORS.keys())
def operator(request):
    return request.param


def test_signals_pass_and_the_end_is_told_without_demand(operator):
    probe = collect(operator(flow.from_iterable([1, 2, 3])), first=3)
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
    for signal in (
        upstream.subscriber.on_subscribe,
        upstream.subscriber.on_next,
        upstream.subscriber.on_error,
    ):
        with pytest.raises(TypeError, match=r"rule 2\.13"):
            signal(None)


@pytest.mark.parametrize("n", [0, -1, True, 1.5, "3"])
def test_rule_309_an_illegal_request_ends_in_an_error(operator, n):
    probe = collect(operator(flow.from_iterable([1, 2, 3])), first=0)
    probe.request(n)
    assert isinstance(probe.error, flow.IllegalRequestError)
    probe.request(1)
    assert probe.signals == ["subscribe", "error"]


def test_rules_108_and_306_silence_after_cancel(operator):
    upstream = Upstream()
    probe = collect(operator(upstream), first=2)
    upstream.send(1)
    probe.cancel()
    probe.cancel()
    probe.request(1)
    upstream.send(2)
    upstream.complete()
    upstream.fail(OSError())
    assert upstream.cancelled == 1
    assert upstream.requests == [2]
    assert probe.signals == ["subscribe", "next"]


@pytest.mark.parametrize("end", ["complete", "fail"])
def test_rule_203_the_end_calls_nothing_upstream(operator, end):
    upstream = Upstream()
    probe = collect(operator(upstream), first=1)
    if end == "complete":
        upstream.complete()
    else:
        upstream.fail(OSError())
    probe.request(1)
    probe.cancel()
    assert upstream.requests == [1]
    assert upstream.cancelled == 0


@pytest.mark.parametrize("end", ["cancel", "complete", "fail"])
def test_rule_313_every_reference_to_the_subscriber_is_dropped_at_the_end(operator, end):
    upstream = Upstream()
    probe = collect(operator(upstream), first=1)
    upstream.send(1)
    if end == "cancel":
        probe.cancel()
    elif end == "complete":
        upstream.complete()
    else:
        upstream.fail(OSError())
    reference = weakref.ref(probe)
    del probe
    gc.collect()
    assert reference() is None


def test_rule_303_requests_from_on_next_do_not_deepen_the_stack(operator):
    probe = collect(operator(flow.from_iterable(range(20_000))), first=1, each=1)
    assert len(probe.items) == 20_000
    assert probe.deepest == 1
    assert probe.overlaps == 0


def test_a_subscriber_that_raises_is_cancelled_and_reported_and_gets_no_error(operator, dropped):
    probe = Probe(first=UNBOUNDED, on_item=lambda n: 1 // (2 - n))
    operator(flow.from_iterable([1, 2, 3])).subscribe(probe)
    assert probe.signals == ["subscribe", "next", "next"]
    assert [type(error) for error in dropped.errors] == [ZeroDivisionError]


def test_a_subscriber_that_takes_batches_gets_nothing_else(operator):
    probe = BatchProbe(first=3)
    operator(flow.from_iterable([1, 2, 3])).subscribe(probe)
    assert probe.items == [1, 2, 3]
    assert set(probe.signals) == {"subscribe", "batch", "complete"}
