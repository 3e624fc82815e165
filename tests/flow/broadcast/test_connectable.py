import gc
import itertools
import weakref

import pytest

import flow
from flow import operators as op
from flow.broadcast import Disconnected, Lag, publish, replay, share
from tests.flow.broadcast.test_broadcast import Listener
from tests.flow.probes import Probe

ALL = 2**63 - 1


class Spring:
    """A source that tests drive, and that notes what is asked of it."""

    def __init__(self):
        self.subscribers = []
        self.requests = []
        self.cancelled = 0

    def subscribe(self, subscriber, /):
        self.subscribers.append(subscriber)
        subscriber.on_subscribe(self)

    def request(self, n, /):
        self.requests.append(n)

    def cancel(self):
        self.cancelled += 1

    def give(self, *items):
        for item in items:
            self.subscribers[-1].on_next(item)


class Hand:
    """Alarms that ring when a test says so."""

    def __init__(self):
        self.set = []

    def monotonic(self):
        return 0.0

    def after(self, seconds, task, /):
        alarm = HandAlarm(seconds, task)
        self.set.append(alarm)
        return alarm


class HandAlarm:
    def __init__(self, seconds, task):
        self.seconds = seconds
        self.ring = task
        self.cancelled = False

    def cancel(self):
        self.cancelled = True


def listen(publisher, first=ALL, **options):
    listener = Listener(first)
    publisher.subscribe(listener, **options)
    return listener


def test_nothing_flows_before_connect_and_one_subscription_serves_all():
    spring = Spring()
    shared = publish(spring, 8)
    first, second = listen(shared), listen(shared)
    assert spring.subscribers == []
    shared.connect()
    shared.connect()
    assert len(spring.subscribers) == 1
    assert spring.requests == [8]
    spring.give(1, 2)
    assert first.items == second.items == [1, 2]


def test_no_more_is_requested_than_the_slowest_leaves_room_for():
    spring = Spring()
    shared = publish(spring, 8)
    fast, slow = listen(shared), listen(shared, 0)
    shared.connect()
    spring.give(*range(8))
    assert fast.items == list(range(8))
    assert spring.requests == [8]
    slow.request(5)
    assert spring.requests == [8]
    slow.request(1)
    assert spring.requests == [8, 6]
    slow.cancel()
    assert spring.requests == [8, 6]
    spring.give(*range(8, 14))
    assert spring.requests == [8, 6, 6]


def test_a_lossy_subscriber_does_not_slow_the_source():
    spring = Spring()
    shared = publish(spring, 4)
    lossy = listen(shared, 0, lag=Lag.DROP_OLDEST)
    shared.connect()
    spring.give(*range(4))
    spring.give(*range(4, 7))
    lossy.request(ALL)
    assert lossy.story == ["-3", 3, 4, 5, 6]


def test_once_connected_it_runs_without_subscribers():
    spring = Spring()
    shared = publish(spring, 4)
    shared.connect()
    spring.give(*range(4))
    assert sum(spring.requests) >= 7
    late = listen(shared)
    spring.give(4)
    assert late.items == [4]


def test_a_source_that_gives_too_much_is_cut_off():
    spring = Spring()
    shared = publish(spring, 2)
    listener = listen(shared, 0)
    shared.connect()
    spring.give(*range(3))
    assert isinstance(listener.error, RuntimeError)
    assert spring.cancelled == 1


def test_errors_overtake_and_completion_does_not():
    for end in ("on_error", "on_complete"):
        spring = Spring()
        shared = publish(spring, 4)
        listener = listen(shared, 0)
        shared.connect()
        spring.give(1)
        if end == "on_error":
            spring.subscribers[0].on_error(ValueError("no"))
            assert listener.signals == ["subscribe", "error"]
        else:
            spring.subscribers[0].on_complete()
            assert not listener.ended.is_set()
            listener.request(1)
            assert listener.signals == ["subscribe", "next", "complete"]


def test_after_the_end_a_new_subscriber_is_told_of_it_until_the_next_connect():
    shared = publish(flow.from_iterable([1, 2]))
    shared.connect()
    assert listen(shared).signals == ["subscribe", "complete"]
    cut = shared.connect()
    assert listen(shared).signals == ["subscribe", "complete"]
    cut()


def test_disconnecting_cancels_upstream_and_tells_who_still_listens():
    spring = Spring()
    shared = publish(spring)
    listener = listen(shared)
    disconnect = shared.connect()
    disconnect()
    disconnect()
    assert spring.cancelled == 1
    assert isinstance(listener.error, Disconnected)
    again = listen(shared)
    assert isinstance(again.error, Disconnected)
    shared.connect()
    fresh = listen(shared)
    spring.give(1)
    assert fresh.items == [1]


def test_a_second_subscription_is_cancelled():
    spring = Spring()
    publish(spring).connect()
    spring.subscribers[0].on_subscribe(other := Spring())
    assert (spring.cancelled, other.cancelled) == (0, 1)


@pytest.mark.parametrize("signal", ["on_subscribe", "on_next", "on_error"])
def test_none_is_refused(signal):
    spring = Spring()
    publish(spring).connect()
    with pytest.raises(TypeError):
        getattr(spring.subscribers[0], signal)(None)


def test_replay_gives_late_subscribers_the_last_elements_and_never_overruns():
    spring = Spring()
    shared = replay(spring, 3, 2)
    shared.connect()
    spring.give(*range(5))
    late = listen(shared, 0)
    outstanding = sum(spring.requests) - 5
    spring.give(*range(5, 5 + outstanding))
    assert late.error is None
    late.request(ALL)
    assert late.items == list(range(2, 5 + outstanding))
    spring.subscribers[0].on_complete()
    after = listen(shared)
    assert after.items == late.items[-3:]
    assert after.completed


def test_auto_connect_waits_for_so_many_subscribers_and_stays():
    spring = Spring()
    warm = publish(spring).auto_connect(2)
    first = listen(warm)
    assert not spring.subscribers
    second = listen(warm)
    assert len(spring.subscribers) == 1
    spring.give(1)
    assert first.items == second.items == [1]
    first.cancel()
    second.cancel()
    assert spring.cancelled == 0


def test_ref_count_connects_with_the_nth_and_disconnects_with_the_last():
    spring = Spring()
    counted = publish(spring).ref_count(2)
    first = listen(counted)
    assert not spring.subscribers
    second = listen(counted)
    spring.give(1)
    first.cancel()
    spring.give(2)
    assert spring.cancelled == 0
    second.cancel()
    assert spring.cancelled == 1
    assert second.items == [1, 2]


def test_share_begins_anew_after_zero():
    spring = Spring()
    shared = share(spring)
    listen(shared).cancel()
    again = listen(shared)
    assert (len(spring.subscribers), spring.cancelled) == (2, 1)
    spring.give(1)
    assert again.items == [1]


def test_share_of_a_finished_source_begins_anew():
    shared = share(flow.from_iterable([1, 2, 3]))
    for _ in range(2):
        listener = listen(shared)
        assert listener.items == [1, 2, 3]
        assert listener.completed


def test_who_comes_within_the_grace_time_finds_the_connection():
    spring, hand = Spring(), Hand()
    counted = publish(spring).ref_count(grace=5, timers=hand)
    listen(counted).cancel()
    assert [alarm.seconds for alarm in hand.set] == [5]
    back = listen(counted)
    assert hand.set[0].cancelled
    hand.set[0].ring()
    assert spring.cancelled == 0
    spring.give(1)
    assert back.items == [1]
    back.cancel()
    hand.set[1].ring()
    assert spring.cancelled == 1
    listen(counted)
    assert len(spring.subscribers) == 2


def test_cancelling_inside_on_subscribe_leaves_no_connection():
    spring = Spring()

    class Shy(Probe):
        def on_subscribe(self, subscription, /):
            subscription.cancel()

    shared = share(spring)
    shared.subscribe(Shy())
    assert spring.subscribers == []
    listen(shared)
    assert len(spring.subscribers) == 1


def test_a_subscriber_that_is_none_does_not_count():
    spring = Spring()
    shared = share(spring)
    with pytest.raises(TypeError):
        shared.subscribe(None)
    listener = listen(shared)
    listener.cancel()
    assert spring.cancelled == 1


def test_ref_count_to_zero_and_back_from_many_threads_keeps_at_most_one_connection():
    import threading

    lock = threading.Lock()
    live = [0, 0]

    class Counting:
        def subscribe(self, subscriber, /):
            subscriber.on_subscribe(Link())

    class Link:
        def __init__(self):
            self.open = True
            with lock:
                live[0] += 1

        def request(self, n, /): ...

        def cancel(self):
            with lock:
                live[0] -= self.open
                live[1] += 1
                self.open = False

    shared = share(Counting(), 4)

    def come_and_go():
        for _ in range(150):
            listen(shared).cancel()

    threads = [threading.Thread(target=come_and_go) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert live[0] == 0
    assert live[1] > 0


def test_a_subscriber_that_left_is_forgotten():
    spring = Spring()
    shared = publish(spring)
    shared.connect()
    listener = listen(shared)
    listener.cancel()
    watched = weakref.ref(listener)
    del listener
    gc.collect()
    assert watched() is None


@pytest.mark.parametrize("make", [publish, share])
@pytest.mark.parametrize("prefetch", [0, True, 2**63])
def test_a_prefetch_bounds_a_ring(make, prefetch):
    with pytest.raises(ValueError, match="prefetch"):
        make(flow.never(), prefetch)


def test_numbers_out_of_their_bounds_are_refused():
    shared = publish(flow.never())
    with pytest.raises(ValueError, match="grace"):
        shared.ref_count(grace=-1)
    for build in (shared.auto_connect, shared.ref_count):
        with pytest.raises(ValueError, match="n:"):
            build(0)
    with pytest.raises(ValueError, match="replay"):
        replay(flow.never(), -1)


def test_the_last_who_leaves_a_shared_endless_source_ends_it_instead_of_running_it_on():
    asked = []
    source = flow.pipe(flow.from_iterable(itertools.count()), op.tap(on_request=asked.append))
    probe = Probe(first=3)
    share(source, 4).subscribe(probe)
    assert probe.items == [0, 1, 2]
    probe.cancel()
    assert sum(asked) <= 4 + 3
