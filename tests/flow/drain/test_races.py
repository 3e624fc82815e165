import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from flow import Drain
from tests.flow.probes import Probe, QueueFeed, wait_until


def started(probe, feed, **options):
    drain = Drain(probe, feed, **options)
    drain.start()
    return drain


@pytest.fixture
def restless():
    """Switch threads as often as possible."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("restless")
def test_no_wake_up_is_lost_while_two_threads_request_and_a_third_signals():
    rounds = 20_000
    feed = QueueFeed()
    probe = Probe()
    with ThreadPoolExecutor(1) as pool:
        drain = started(probe, feed, executor=pool)
        wait_until(lambda: probe.subscription)

        def request():
            for _ in range(rounds // 2):
                drain.request(1)

        def signal():
            for number in range(rounds):
                feed.push(number)
                drain.signal()

        threads = [threading.Thread(target=work) for work in (request, request, signal)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        # No further signal and no further request: what was said is enough.
        wait_until(lambda: len(probe.items) == rounds)
        wait_until(lambda: drain.demand == 0)
    assert probe.items == list(range(rounds))
    assert probe.overlaps == 0


@pytest.mark.usefixtures("restless")
def test_no_wake_up_is_lost_in_lock_step():
    rounds = 2_000
    feed = QueueFeed()
    arrived = threading.Semaphore(0)
    probe = Probe(on_item=lambda item: arrived.release())
    with ThreadPoolExecutor(1) as pool:
        drain = started(probe, feed, executor=pool)
        barrier = threading.Barrier(2)

        def request():
            for _ in range(rounds):
                barrier.wait(60)
                drain.request(1)

        thread = threading.Thread(target=request)
        thread.start()
        for number in range(rounds):
            barrier.wait(60)
            feed.push(number)
            drain.signal()
            assert arrived.acquire(timeout=60), f"round {number} lost its wake-up"
        thread.join()
    assert len(probe.items) == rounds


@pytest.mark.usefixtures("restless")
@pytest.mark.parametrize("inline", [True, False])
def test_requests_of_eight_threads_while_another_cancels(inline):
    for _ in range(20):
        feed = QueueFeed(range(100_000))
        probe = Probe()
        with ThreadPoolExecutor(1) as pool:
            drain = started(probe, feed, executor=None if inline else pool)
            go = threading.Barrier(9)

            def request(drain=drain, go=go):
                go.wait(60)
                for _ in range(200):
                    drain.request(1)

            def cancel(drain=drain, go=go, probe=probe):
                go.wait(60)
                wait_until(lambda: len(probe.items) > 20)
                drain.cancel()
                drain.cancel()

            threads = [threading.Thread(target=request) for _ in range(8)]
            threads.append(threading.Thread(target=cancel))
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        assert feed.released == 1
        assert drain.ended
        assert len(probe.items) <= 1600
        assert probe.items == list(range(len(probe.items)))
        assert probe.overlaps == 0
        assert set(probe.signals) <= {"subscribe", "next"}
