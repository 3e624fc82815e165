"""Pings among the events, as demand."""

import math

from hypothesis import given
from hypothesis import strategies as st

from transports.protocol.fence import Fence


def test_a_ping_follows_each_so_many_events_until_so_many_are_unanswered():
    fence = Fence(every=3, width=2, timeout=10.0)
    assert [fence.count(1.0) for _ in range(6)] == [None, None, 1, None, None, 2]
    assert fence.shut
    assert fence.answered({"fence": 1})
    assert not fence.shut


def test_a_pong_answers_the_pings_before_its_own_too():
    fence = Fence(every=1, width=4, timeout=10.0)
    assert [fence.count(0.0) for _ in range(4)] == [1, 2, 3, 4]
    fence.answered({"fence": 3})
    assert not fence.shut
    assert [fence.count(0.0) for _ in range(3)] == [5, 6, 7]
    assert fence.shut


def test_pongs_without_payload_are_counted():
    fence = Fence(every=1, width=2, timeout=10.0)
    assert not fence.answered(None)  # nobody asked
    fence.count(0.0), fence.count(0.0)
    for payload in (None, {"fence": "1"}):
        assert fence.answered(payload)
    assert not fence.answered(None)


def test_a_client_that_never_answers_is_served_without_fence():
    fence = Fence(every=1, width=1, timeout=10.0)
    assert fence.due == math.inf
    fence.count(5.0)
    assert fence.due == 15.0
    assert not fence.expire(14.9)
    assert fence.shut
    assert fence.expire(15.0)
    assert not fence.shut
    assert fence.count(16.0) is None
    assert fence.due == math.inf


@given(
    every=st.integers(1, 7),
    width=st.integers(1, 5),
    steps=st.lists(st.sampled_from(["event", "echo", "blank"]), max_size=200),
)
def test_no_more_events_are_under_way_than_agreed(every, width, steps):
    """A client answers pings in order, each behind all events that came before it."""
    fence = Fence(every, width, timeout=10.0)
    wire, handled, sent = [], 0, 0
    for step in steps:
        if step == "event" and not fence.shut:
            sent += 1
            wire.append(None)
            number = fence.count(0.0)
            if number is not None:
                wire.append(number)
        elif step != "event" and wire:
            while wire:
                item = wire.pop(0)
                if item is not None:
                    fence.answered({"fence": item} if step == "echo" else None)
                    break
                handled += 1
        assert sent - handled <= every * width


def test_the_pong_to_another_ping_opens_nothing():
    fence = Fence(every=1, width=1, timeout=10.0)
    assert fence.count(0.0) == 1
    assert not fence.answered({"snapshot": {"a": []}})
    assert fence.shut
