import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

import flow
from flow import UNBOUNDED, Drain
from tests.flow.probes import On, QueueFeed, wait_until


class Hand:
    def __init__(self):
        self.feed = QueueFeed()
        self.drain = None

    def subscribe(self, subscriber, /):
        self.drain = Drain(subscriber, self.feed)
        self.drain.start()

    def push(self, *items):
        self.feed.push(*items)
        self.drain.signal()


@pytest.mark.parametrize("prefetch", [1, 2, 32, 256, UNBOUNDED])
@pytest.mark.parametrize("threaded", [True, False])
def test_all_elements_in_order_whatever_the_prefetch(prefetch, threaded):
    with ThreadPoolExecutor(1) as pool:
        source = On(flow.from_iterable(range(2000)), pool if threaded else None)
        with flow.iter_blocking(source, prefetch) as items:
            assert list(items) == list(range(2000))


def test_it_works_without_a_with_statement_too():
    assert list(flow.iter_blocking(flow.from_iterable(range(100)))) == list(range(100))
    assert next(flow.iter_blocking(flow.from_iterable([7]))) == 7


def test_leaving_cancels_and_the_iteration_has_ended():
    hand = Hand()
    with flow.iter_blocking(hand) as items:
        hand.push(1, 2)
        assert next(items) == 1
    assert hand.feed.released == 1
    with pytest.raises(StopIteration):
        next(items)


def test_an_error_is_raised_once_and_overtakes():
    hand = Hand()
    with flow.iter_blocking(hand) as items:
        hand.push(1, 2)
        hand.drain.fail(OSError("disk"))
        with pytest.raises(OSError, match="disk"):
            next(items)
        assert list(items) == []


def test_lag_is_raised_in_order():
    hand = Hand()
    with flow.iter_blocking(hand) as items:
        hand.push(1)
        hand.drain.notify("lag", lambda subscriber: subscriber.on_lagged(7))
        hand.push(2)
        assert next(items) == 1
        with pytest.raises(flow.Lagged):
            next(items)
        assert next(items) == 2


def test_a_waiting_thread_is_woken_by_each_element_and_by_the_end():
    hand = Hand()
    got = []

    def consume():
        with flow.iter_blocking(hand) as items:
            got.extend(items)

    thread = threading.Thread(target=consume)
    thread.start()
    wait_until(lambda: hand.drain is not None)
    for number in range(200):
        hand.push(number)
    hand.feed.end(flow.COMPLETED)
    hand.drain.signal()
    thread.join(60)
    assert not thread.is_alive()
    assert got == list(range(200))


def test_close_from_another_thread_ends_a_waiting_iteration():
    hand = Hand()
    items = flow.iter_blocking(hand)
    got = []
    thread = threading.Thread(target=lambda: got.extend(items))
    thread.start()
    wait_until(lambda: items._inbox._waiting)
    items.close()
    thread.join(60)
    assert not thread.is_alive()
    assert hand.feed.released == 1


def test_a_keyboard_interrupt_while_waiting_cancels():
    hand = Hand()
    items = flow.iter_blocking(hand)

    def interrupt():
        wait_until(lambda: items._inbox._waiting)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    iter(items)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        next(items)
    thread.join()
    assert hand.drain.ended
    assert hand.feed.released == 1
