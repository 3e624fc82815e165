"""Each policy against a plain model: one bounded backlog for each subscriber."""

from collections import deque

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flow
from flow.broadcast import Broadcast, BroadcastStart, Lag, OfferResult
from tests.flow.broadcast.test_broadcast import Listener
from tests.harness.scale import scaled


class Model:
    """What one subscriber should see: its story, and how it ends."""

    def __init__(self, lag, capacity, waiting=()):
        self.lag = lag
        self.capacity = 1 if lag is Lag.LATEST else capacity
        self.waiting = deque(waiting)
        if lag is Lag.LATEST and self.waiting:
            self.missed = len(self.waiting) - 1
            self.waiting = deque([self.waiting[-1]])
        else:
            self.missed = 0
        self.demand = 0
        self.story = []
        self.ended = False

    @property
    def gates(self):
        return self.lag is Lag.BLOCK and not self.ended and len(self.waiting) >= self.capacity

    def write(self, item):
        if self.ended:
            return
        if len(self.waiting) < self.capacity:
            self.waiting.append(item)
        elif self.lag is Lag.ERROR:
            self.ended = True
        else:
            self.missed += 1
            if self.lag is not Lag.DROP_LATEST:
                self.waiting.popleft()
                self.waiting.append(item)
        self.flow()

    def request(self, n):
        self.demand += n
        self.flow()

    def flow(self):
        while self.waiting and self.demand and not self.ended:
            if self.missed:
                self.story.append(f"-{self.missed}")
                self.missed = 0
            self.story.append(self.waiting.popleft())
            self.demand -= 1


steps = st.one_of(
    st.just(("write",)),
    st.just(("write",)),
    st.tuples(st.just("request"), st.integers(0, 9), st.integers(1, 5)),
    st.tuples(st.just("come"), st.sampled_from(Lag), st.sampled_from(BroadcastStart)),
    st.tuples(st.just("leave"), st.integers(0, 9)),
)


@settings(max_examples=scaled(200), deadline=None)
@given(capacity=st.integers(1, 4), replay=st.integers(0, 4), script=st.lists(steps, max_size=60))
def test_each_subscriber_sees_what_its_policy_says(capacity, replay, script):
    replay = min(replay, capacity)
    broadcast, written, pairs = Broadcast(capacity, replay=replay), [], []
    for step in script:
        if step[0] == "write":
            result = broadcast.offer(len(written))
            if any(model.gates for _, model in pairs):
                assert result is OfferResult.FULL
                continue
            assert result is not OfferResult.FULL
            for _, model in pairs:
                model.write(len(written))
            written.append(len(written))
        elif step[0] == "come":
            kept = (
                written[len(written) - min(replay, len(written)) :]
                if step[2] is BroadcastStart.REPLAY
                else []
            )
            listener = Listener()
            broadcast.subscribe(listener, lag=step[1], from_=step[2])
            pairs.append((listener, Model(step[1], capacity, kept)))
        elif pairs and step[0] == "request":
            listener, model = pairs[step[1] % len(pairs)]
            listener.request(step[2])
            model.request(step[2])
        elif pairs:
            listener, model = pairs[step[1] % len(pairs)]
            listener.cancel()
            model.ended = True
        for listener, model in pairs:
            assert listener.story == model.story
        living = [model for _, model in pairs if not model.ended]
        assert [each.lag for each in broadcast.statistics().subscribers] == [
            len(model.waiting) for model in living
        ]
        assert broadcast.statistics().buffered <= capacity
    broadcast.close()
    for listener, model in pairs:
        if model.ended:
            assert not listener.completed
            continue
        model.request(100)
        listener.request(100)
        assert [each for each in listener.story if isinstance(each, int)] == [
            each for each in model.story if isinstance(each, int)
        ]
        assert listener.completed
    assert broadcast.statistics().subscribers == ()


@pytest.mark.parametrize("lag", [Lag.DROP_OLDEST, Lag.DROP_LATEST, Lag.LATEST])
@given(stalls=st.lists(st.integers(0, 7), max_size=20))
@settings(deadline=None)
def test_what_was_delivered_and_what_was_told_as_lost_is_everything(lag, stalls):
    broadcast, listener, count = Broadcast(3, lag=lag), Listener(), 0
    broadcast.subscribe(listener)
    for stall in stalls:
        for _ in range(stall):
            broadcast.submit(count)
            count += 1
        listener.request(1)
    broadcast.close()
    listener.request(flow.UNBOUNDED)
    lost = sum(int(each[1:]) for each in listener.story if isinstance(each, str))
    assert lost + len(listener.items) == count
    assert listener.items == sorted(listener.items)
    assert listener.completed
