"""The rules of chapter 3: request and cancel, from anywhere."""

import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flow
from flow import UNBOUNDED
from tests.flow.drain.test_drain import started
from tests.flow.probes import Probe, QueueFeed, wait_until
from tests.harness.scale import scaled


def test_rule_302_and_303_request_inside_on_next_does_not_deepen_the_stack():
    depths = set()

    def measure(item):
        frame, depth = sys._getframe(), 0
        while frame is not None:
            frame, depth = frame.f_back, depth + 1
        depths.add(depth)

    probe = Probe(first=1, each=1, on_item=lambda item: item % 9973 == 0 and measure(item))
    started(probe, QueueFeed(range(100_000), complete=True))
    assert len(probe.items) == 100_000
    assert probe.completed
    assert probe.deepest == 1
    assert probe.overlaps == 0
    assert len(depths) == 1


def test_rule_303_request_inside_on_subscribe_only_records():
    order = []

    class Ordered(Probe):
        def on_subscribe(self, subscription, /):
            subscription.request(1)
            order.append("subscribed")

        def on_next(self, item, /):
            order.append(item)

    started(Ordered(), QueueFeed([1]))
    assert order == ["subscribed", 1]


def test_rules_304_and_305_request_and_cancel_return_while_on_next_blocks():
    inside, go_on = threading.Event(), threading.Event()

    def block(item):
        inside.set()
        assert go_on.wait(60)

    feed = QueueFeed(range(10))
    probe = Probe(first=1, on_item=block)
    with ThreadPoolExecutor(1) as pool:
        drain = started(probe, feed, executor=pool)
        assert inside.wait(60)
        drain.request(5)
        drain.signal()
        drain.cancel()
        assert feed.released == 0
        go_on.set()
        wait_until(lambda: feed.released == 1)
    assert probe.items == [0]


def test_rules_306_and_307_request_and_cancel_after_cancel_have_no_effect():
    feed = QueueFeed(range(5))
    probe = Probe(first=1)
    drain = started(probe, feed)
    for _ in range(3):
        drain.cancel()
        drain.request(2)
    assert probe.items == [0]
    assert feed.released == 1


@settings(max_examples=scaled(150), deadline=None)
@given(
    st.lists(st.one_of(st.integers(1, 9), st.just(UNBOUNDED), st.just(None)), max_size=12), st.integers(0, 40)
)
def test_rule_308_requests_add_up_after_any_sequence(steps, available):
    feed = QueueFeed()
    probe = Probe()
    drain = started(probe, feed)
    requested = pushed = 0
    for step in [*steps, None]:
        if step is None:
            feed.push(*range(pushed, pushed + available))
            pushed += available
            drain.signal()
        else:
            requested = min(requested + step, UNBOUNDED)
            drain.request(step)
        assert probe.items == list(range(min(requested, pushed)))
        assert drain.demand == (requested if requested == UNBOUNDED else requested - len(probe.items))


@pytest.mark.parametrize(
    "n", [0, -1, -(2**70), pytest.param(-(10**6000), id="huge"), True, False, 1.5, "3", None, object()]
)
def test_rule_309_and_316_an_illegal_request_ends_in_on_error_and_never_raises(n):
    feed = QueueFeed(range(5))
    probe = Probe(first=1)
    started(probe, feed)
    probe.request(n)
    assert isinstance(probe.error, flow.IllegalRequestError)
    assert isinstance(probe.error, ValueError)
    assert str(probe.error).startswith("rule 3.9: non-positive subscription request")
    assert probe.signals == ["subscribe", "next", "error"]
    assert feed.released == 1


def test_rule_309_from_inside_on_next_does_not_overlap_it():
    probe = Probe(first=5, each=-1)
    started(probe, QueueFeed(range(5)))
    assert probe.signals == ["subscribe", "next", "error"]
    assert probe.overlaps == 0
    assert probe.deepest == 1


def test_rule_312_cancel_stops_although_demand_is_left():
    feed = QueueFeed(range(1000))
    probe = Probe(on_item=lambda item: probe.cancel())
    drain = started(probe, feed)
    drain.request(15)
    assert probe.items == [0]


def test_rule_317_demand_saturates_instead_of_failing():
    feed = QueueFeed()
    probe = Probe()
    drain = started(probe, feed)
    drain.request(UNBOUNDED // 2)
    drain.request(UNBOUNDED // 2)
    drain.request(1)
    assert drain.demand == UNBOUNDED
    drain.request(2**70)
    for _ in range(10):
        drain.request(UNBOUNDED - 1)
    feed.push(*range(1000))
    drain.signal()
    assert len(probe.items) == 1000
    assert drain.demand == UNBOUNDED
    assert probe.error is None
