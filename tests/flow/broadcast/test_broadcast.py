import gc
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest

import flow
from flow.broadcast import Broadcast, BroadcastClosed, BroadcastStart, Lag, OfferResult
from tests.flow.probes import ManualExecutor, Probe

ALL = 2**63 - 1


class Listener(Probe):
    """Notes what it is told of losses, among the elements."""

    def __init__(self, first=0, each=0, on_item=None):
        super().__init__(first, each, on_item)
        self.story = []

    def on_next(self, item, /):
        self.story.append(item)
        super().on_next(item)

    def on_lagged(self, missed, /):
        with self._signal("lagged"):
            self.story.append(f"-{missed}")


class Hands:
    """A clock that tests set."""

    def __init__(self):
        self.time = 0.0

    def monotonic(self):
        return self.time

    def now_us(self):
        return int(self.time * 1e6)


class Thing:
    """Can be referred to weakly."""


def listen(broadcast, first=0, each=0, on_item=None, **options):
    listener = Listener(first, each, on_item)
    broadcast.subscribe(listener, **options)
    return listener


def offer(broadcast, items):
    return [broadcast.offer(item) for item in items]


# Who gets what.


def test_every_subscriber_gets_every_element_at_its_own_pace():
    broadcast = Broadcast(8)
    fast, slow = listen(broadcast, ALL), listen(broadcast, 1)
    offer(broadcast, range(5))
    assert fast.items == [0, 1, 2, 3, 4]
    assert slow.items == [0]
    slow.request(2)
    assert slow.items == [0, 1, 2]


def test_who_comes_late_begins_late():
    broadcast = Broadcast(8)
    first = listen(broadcast, ALL)
    offer(broadcast, range(3))
    second = listen(broadcast, ALL)
    offer(broadcast, range(3, 5))
    assert first.items == [0, 1, 2, 3, 4]
    assert second.items == [3, 4]


def test_what_waits_is_delivered_before_the_completion():
    broadcast = Broadcast(8)
    listener = listen(broadcast)
    offer(broadcast, range(2))
    broadcast.close()
    assert not listener.completed
    listener.request(2)
    assert listener.items == [0, 1]
    assert listener.completed


def test_a_failure_overtakes_what_waits():
    broadcast = Broadcast(8)
    listener = listen(broadcast)
    offer(broadcast, range(2))
    broadcast.fail(failure := ValueError("no"))
    assert listener.error is failure
    assert listener.items == []


def test_a_failure_overtakes_what_was_pulled_already():
    broadcast = Broadcast(8)
    failure = ValueError("no")
    listener = listen(broadcast, on_item=lambda item: broadcast.fail(failure))
    offer(broadcast, range(3))
    listener.request(3)
    assert listener.items == [0]
    assert listener.error is failure


def test_after_the_end_a_new_subscriber_is_told_of_it():
    completed, failed = Broadcast(2), Broadcast(2)
    completed.close()
    failed.fail(failure := ValueError("no"))
    assert listen(completed).signals == ["subscribe", "complete"]
    late = listen(failed)
    assert late.signals == ["subscribe", "error"]
    assert late.error is failure


def test_only_the_first_end_counts():
    broadcast = Broadcast(2)
    listener = listen(broadcast)
    broadcast.close()
    broadcast.fail(ValueError("late"))
    assert listener.signals == ["subscribe", "complete"]
    assert broadcast.offer(1) is OfferResult.CLOSED
    with pytest.raises(BroadcastClosed):
        broadcast.submit(1)


def test_none_is_no_element():
    broadcast = Broadcast(2)
    for write in (broadcast.offer, broadcast.submit):
        with pytest.raises(TypeError):
            write(None)


@pytest.mark.parametrize(
    "options",
    [{"capacity": 0}, {"capacity": True}, {"replay": -1}, {"capacity": 2, "replay": 3}, {"stall_timeout": 0}],
)
def test_what_is_out_of_its_bounds_is_refused(options):
    with pytest.raises(ValueError, match=list(options)[-1]):
        Broadcast(**options)


def test_a_subscriber_of_none_is_refused():
    with pytest.raises(TypeError):
        Broadcast().subscribe(None)


# The policies: which element goes.


def test_block_refuses_the_writer_and_loses_nothing():
    broadcast = Broadcast(3)
    listener = listen(broadcast, lag=Lag.BLOCK)
    assert offer(broadcast, range(4)) == [OfferResult.OK] * 3 + [OfferResult.FULL]
    listener.request(1)
    assert broadcast.offer(3) is OfferResult.OK
    listener.request(ALL)
    assert listener.story == [0, 1, 2, 3]


def test_drop_oldest_goes_on_at_the_oldest_that_is_kept():
    broadcast = Broadcast(3)
    listener = listen(broadcast, lag=Lag.DROP_OLDEST)
    assert set(offer(broadcast, range(10))) == {OfferResult.OK}
    listener.request(2)
    offer(broadcast, range(10, 13))
    listener.request(ALL)
    assert listener.story == ["-7", 7, 8, "-1", 10, 11, 12]


def test_drop_latest_lets_the_incoming_go_and_keeps_what_waits():
    broadcast = Broadcast(3)
    listener, other = listen(broadcast, lag=Lag.DROP_LATEST), listen(broadcast, ALL)
    offer(broadcast, range(6))
    assert broadcast.statistics().buffered == 3
    listener.request(2)
    assert listener.story == ["-3", 0, 1]
    offer(broadcast, range(6, 10))
    listener.request(ALL)
    assert listener.story == ["-3", 0, 1, "-2", 2, 6, 7]
    offer(broadcast, [10])
    assert listener.items[-1] == 10
    assert other.items == list(range(11))


def test_latest_keeps_the_newest_only():
    broadcast = Broadcast(3)
    listener = listen(broadcast, lag=Lag.LATEST)
    offer(broadcast, range(10))
    listener.request(ALL)
    offer(broadcast, [10])
    assert listener.story == ["-9", 9, 10]


def test_error_ends_that_one_and_nobody_else():
    broadcast = Broadcast(3)
    listener, other = listen(broadcast, lag=Lag.ERROR), listen(broadcast, ALL)
    offer(broadcast, range(3))
    assert listener.error is None
    offer(broadcast, range(3, 5))
    assert isinstance(listener.error, flow.Lagged)
    assert listener.error.missed == 1
    assert other.items == [0, 1, 2, 3, 4]


def test_a_loss_at_the_end_is_told_before_the_completion():
    broadcast = Broadcast(1)
    listener = listen(broadcast, 1, lag=Lag.DROP_LATEST)
    listener.subscription.request(1)
    held = listen(broadcast, lag=Lag.DROP_LATEST)
    offer(broadcast, range(3))
    held.request(1)
    offer(broadcast, range(3, 4))
    broadcast.close()
    held.request(1)
    assert held.story == ["-2", 0, 3]
    assert held.signals[-1] == "complete"


def test_a_loss_spends_no_demand():
    broadcast = Broadcast(2)
    listener = listen(broadcast, lag=Lag.DROP_OLDEST)
    offer(broadcast, range(5))
    listener.request(1)
    assert listener.story == ["-3", 3]


def test_a_loss_is_silent_to_who_does_not_want_to_know():
    broadcast = Broadcast(1)
    probe = Probe()
    broadcast.subscribe(probe, lag=Lag.LATEST)
    offer(broadcast, range(3))
    probe.request(1)
    assert probe.signals == ["subscribe", "next"]
    assert probe.items == [2]


def test_a_lossy_subscriber_never_holds_up_the_writer():
    broadcast = Broadcast(2)
    for lag in (Lag.DROP_OLDEST, Lag.DROP_LATEST, Lag.LATEST, Lag.ERROR):
        listen(broadcast, lag=lag)
    assert set(offer(broadcast, range(100))) == {OfferResult.OK}


# Replay.


def test_replay_begins_with_the_last_elements():
    broadcast = Broadcast(4, replay=2)
    assert offer(broadcast, range(5)) == [OfferResult.OK] * 5
    assert listen(broadcast, ALL, from_=BroadcastStart.REPLAY).items == [3, 4]
    assert listen(broadcast, ALL, from_=BroadcastStart.LATEST).items == []
    broadcast.close()
    late = listen(broadcast, ALL, from_=BroadcastStart.REPLAY)
    assert late.items == [3, 4]
    assert late.completed


def test_without_subscribers_and_replay_an_element_goes_nowhere():
    broadcast = Broadcast(4)
    assert broadcast.offer(1) is OfferResult.NO_SUBSCRIBERS
    assert broadcast.submit(1) == 0
    assert broadcast.statistics().buffered == 0


# Ends of subscriptions.


def test_cancelling_inside_on_next_does_not_skip_the_neighbour():
    broadcast = Broadcast(4)
    first = Listener(ALL, on_item=lambda item: first.cancel())
    broadcast.subscribe(first)
    second = listen(broadcast, ALL)
    offer(broadcast, range(3))
    assert first.items == [0]
    assert second.items == [0, 1, 2]


def test_a_subscriber_that_raises_harms_nobody_else(dropped):
    broadcast = Broadcast(4)

    def fail(item):
        raise ValueError("mine")

    first, second = listen(broadcast, ALL, on_item=fail), listen(broadcast, ALL)
    offer(broadcast, range(2))
    assert first.items == [0]
    assert second.items == [0, 1]
    assert len(broadcast.statistics().subscribers) == 1
    assert [str(error) for error in dropped.errors] == ["mine"]


def test_an_interrupt_passes_and_the_neighbour_is_served():
    broadcast = Broadcast(4)

    def interrupt(item):
        raise KeyboardInterrupt

    listen(broadcast, ALL, on_item=interrupt)
    second = listen(broadcast, ALL)
    with pytest.raises(KeyboardInterrupt):
        broadcast.offer(0)
    assert second.items == [0]


def test_after_the_last_has_left_it_ends_if_it_was_told_to():
    broadcast = Broadcast(4, auto_cancel=True)
    first, second = listen(broadcast, ALL), listen(broadcast, ALL)
    first.cancel()
    assert broadcast.offer(0) is OfferResult.OK
    second.cancel()
    assert broadcast.offer(1) is OfferResult.CLOSED


def test_an_illegal_request_ends_that_subscription():
    broadcast = Broadcast(4)
    listener, other = listen(broadcast), listen(broadcast, ALL)
    listener.request(0)
    assert isinstance(listener.error, flow.IllegalRequestError)
    offer(broadcast, [1])
    assert other.items == [1]


@pytest.mark.parametrize("lag", Lag)
def test_a_cancelled_subscriber_is_forgotten(lag):
    broadcast = Broadcast(2)
    listener = listen(broadcast, 1, lag=lag)
    offer(broadcast, range(5))
    listener.cancel()
    watched = weakref.ref(listener)
    del listener
    gc.collect()
    assert watched() is None
    assert broadcast.statistics().subscribers == ()


@pytest.mark.parametrize("lag", Lag)
def test_what_all_have_passed_is_let_go_of(lag):
    broadcast = Broadcast(4, lag=lag)
    seen = []
    broadcast.subscribe(Seen(seen))
    thing = Thing()
    seen.append(weakref.ref(thing))
    broadcast.offer(thing)
    del thing
    gc.collect()
    assert [each() for each in seen] == [None]


class Seen:
    """Requests everything and keeps nothing."""

    def __init__(self, seen):
        self.seen = seen

    def on_subscribe(self, subscription, /):
        subscription.request(ALL)

    def on_next(self, item, /): ...

    def on_error(self, error, /): ...

    def on_complete(self): ...


@pytest.mark.parametrize("lag", Lag)
def test_who_left_takes_along_what_waited_for_it(lag):
    broadcast = Broadcast(4)
    listener = listen(broadcast, lag=lag)
    thing = Thing()
    watched = weakref.ref(thing)
    broadcast.offer(thing)
    del thing
    assert watched() is not None
    listener.cancel()
    gc.collect()
    assert watched() is None


# Depth, threads, numbers.


def test_requests_inside_on_next_do_not_deepen_the_stack():
    broadcast = Broadcast(10_000)
    listener = listen(broadcast, each=1)
    offer(broadcast, range(10_000))
    listener.request(1)
    assert len(listener.items) == 10_000
    assert listener.deepest == 1


def test_offering_inside_on_next_does_not_deepen_the_stack():
    broadcast = Broadcast(4)
    listener = listen(broadcast, ALL, on_item=lambda item: item < 5000 and broadcast.offer(item + 1))
    broadcast.offer(0)
    assert listener.items == list(range(5001))
    assert listener.deepest == 1


def test_a_subscription_may_run_on_an_executor_of_its_own():
    broadcast, executor = Broadcast(8), ManualExecutor()
    listener = listen(broadcast, ALL, executor=executor)
    offer(broadcast, range(3))
    assert listener.signals == []
    executor.run_all()
    assert listener.items == [0, 1, 2]


def test_many_writers_and_readers_lose_and_reorder_nothing():
    writers, count = 3, 400
    with ThreadPoolExecutor(3) as pool:
        broadcast = Broadcast(7, executor=pool)
        listeners = [listen(broadcast, 5, 1) for _ in range(3)]
        lossy = listen(broadcast, 5, 1, lag=Lag.DROP_OLDEST)

        def write(me):
            for number in range(count):
                broadcast.submit((me, number), timeout=60)

        threads = [threading.Thread(target=write, args=(me,)) for me in range(writers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        broadcast.close()
        for listener in (*listeners, lossy):
            assert listener.ended.wait(60)
            assert listener.overlaps == 0
    for listener in listeners:
        assert len(listener.items) == writers * count
        assert listener.items == listeners[0].items
        for me in range(writers):
            assert [number for who, number in listener.items if who == me] == list(range(count))
    missed = sum(int(each[1:]) for each in lossy.story if isinstance(each, str))
    assert missed + len(lossy.items) == writers * count


def test_the_numbers_of_a_broadcast():
    broadcast = Broadcast(3, clock=Hands())
    listen(broadcast, 1, lag=Lag.DROP_OLDEST)
    listen(broadcast)
    offer(broadcast, range(4))
    numbers = broadcast.statistics()
    assert (numbers.capacity, numbers.buffered, numbers.submitted, numbers.refused) == (3, 3, 3, 1)
    assert not numbers.closed
    first, second = numbers.subscribers
    assert (first.policy, first.lag, first.demand, first.delivered, first.dropped) == (
        Lag.DROP_OLDEST,
        2,
        0,
        1,
        0,
    )
    assert (second.policy, second.lag, second.demand, second.delivered, second.dropped) == (
        Lag.BLOCK,
        3,
        0,
        0,
        0,
    )
    with pytest.raises(AttributeError):
        numbers.submitted = 0
