"""Groups compared with a model, under generated moves and under threads."""

import threading
from collections import deque
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flow.broadcast import Broadcast, Lag
from tests.flow.broadcast.test_broadcast import ALL, listen
from tests.flow.probes import ManualExecutor, wait_until
from tests.harness.scale import scaled


@pytest.fixture(scope="module", params=[0, 16])
def apart(request):
    """After how many elements a subscription may come back into the group."""
    with mock.patch("flow.broadcast.subscription._APART", request.param):
        yield request.param


class Expected:
    """One subscriber that nothing hurries: all it should get, by its policy."""

    def __init__(self, lag, capacity):
        self.lag, self.capacity = lag, 1 if lag is Lag.LATEST else capacity
        self.waiting, self.demand, self.story = deque(), 0, []
        self.missed, self.ended = 0, False

    def write(self, items):
        if self.lag is Lag.LATEST and len(items) > 1:
            self.missed += len(items) - 1
            items = items[-1:]
        for item in items:
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

    def flow(self):
        while self.waiting and self.demand and not self.ended:
            if self.missed:
                self.story.append(f"-{self.missed}")
                self.missed = 0
            self.story.append(self.waiting.popleft())
            self.demand -= 1


moves = st.one_of(
    st.tuples(st.just("write"), st.integers(1, 3)),
    st.tuples(st.just("write"), st.integers(1, 3)),
    st.tuples(st.just("request"), st.integers(0, 9), st.sampled_from([1, 2, 5, 1000])),
    st.tuples(st.just("come"), st.sampled_from(Lag), st.sampled_from([0, 1, 7, 1000])),
    st.tuples(st.just("leave"), st.integers(0, 9)),
)


@settings(max_examples=scaled(200), deadline=None)
@given(capacity=st.integers(3, 5), script=st.lists(moves, max_size=80))
def test_a_group_delivers_what_each_would_get_alone(apart, capacity, script):
    broadcast, pairs, written = Broadcast(capacity), [], 0
    for move in script:
        if move[0] == "write":
            if any(
                model.lag is Lag.BLOCK and not model.ended and len(model.waiting) + move[1] > capacity
                for _, model in pairs
            ):
                continue
            items = list(range(written, written + move[1]))
            written += move[1]
            broadcast.submit_many(items)
            for _, model in pairs:
                model.write(items)
        elif move[0] == "come":
            pairs.append((listen(broadcast, move[2], lag=move[1]), Expected(move[1], capacity)))
            pairs[-1][1].demand = move[2]
        elif pairs and move[0] == "request":
            listener, model = pairs[move[1] % len(pairs)]
            listener.request(move[2])
            model.demand += move[2]
            model.flow()
        elif pairs:
            listener, model = pairs[move[1] % len(pairs)]
            listener.cancel()
            model.ended = True
        for listener, model in pairs:
            assert listener.story == model.story, model.lag
        living = [(listener, model) for listener, model in pairs if not model.ended]
        numbers = broadcast.statistics().subscribers
        assert [each.demand for each in numbers] == [model.demand for _, model in living]
        assert [each.delivered for each in numbers] == [len(listener.items) for listener, _ in living]
        assert [each.lag for each in numbers] == [len(model.waiting) for _, model in living]


@settings(max_examples=scaled(25), deadline=None)
@given(
    lags=st.lists(st.sampled_from(Lag), min_size=1, max_size=6),
    demands=st.lists(st.sampled_from([1, 2, 16, ALL]), min_size=6, max_size=6),
    elsewhere=st.sets(st.integers(0, 5)),
    capacity=st.sampled_from([1, 3, 64]),
)
def test_threads_that_write_request_and_cancel_break_no_rule(apart, lags, demands, elsewhere, capacity):
    broadcast, executor, count = Broadcast(capacity), ManualExecutor(), 150
    listeners = []
    for place, lag in enumerate(lags):
        where = executor if place in elsewhere else None
        listeners.append(
            listen(broadcast, demands[place], int(demands[place] < ALL), lag=lag, executor=where)
        )
    stop = threading.Event()

    def run():
        while not stop.is_set() or executor.tasks:
            executor.run_all()

    def write():
        for item in range(count):
            broadcast.submit(item, timeout=60)

    runner = threading.Thread(target=run)
    writers = [threading.Thread(target=write) for _ in range(2)]
    for thread in (runner, *writers):
        thread.start()
    listeners[0].cancel()
    for thread in writers:
        thread.join(60)
    broadcast.close()
    for listener in listeners[1:]:
        wait_until(listener.ended.is_set)
    stop.set()
    runner.join(60)
    assert all(listener.overlaps == 0 for listener in listeners)
    full = [x.items for lag, x in zip(lags[1:], listeners[1:], strict=True) if lag is Lag.BLOCK]
    assert all(len(items) == 2 * count and items == full[0] for items in full)
    for lag, listener in zip(lags[1:], listeners[1:], strict=True):
        lost = sum(int(each[1:]) for each in listener.story if isinstance(each, str))
        if lag is not Lag.ERROR:
            assert lost + len(listener.items) == 2 * count
