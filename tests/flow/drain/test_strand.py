import asyncio
import gc
import queue
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest

import flow
from flow import UNBOUNDED, Drain
from tests.flow.probes import ManualExecutor, Probe, QueueFeed, wait_until


def started(probe, feed, **options):
    drain = Drain(probe, feed, **options)
    drain.start()
    return drain


class Rescue:
    """Keeps what it is to resubmit until the test says so."""

    def __init__(self):
        self.waiting = []

    def resubmit(self, run, executor, /):
        self.waiting.append((run, executor))

    def attempt(self):
        waiting, self.waiting = self.waiting, []
        for run, executor in waiting:
            try:
                executor.submit(run)
            except (queue.Full, flow.Rejected):
                self.waiting.append((run, executor))


def test_wake_ups_coalesce_into_one_scheduled_run():
    where = ManualExecutor()
    feed = QueueFeed()
    probe = Probe(first=UNBOUNDED)
    drain = started(probe, feed, executor=where)
    where.run_all()
    for number in range(100):
        feed.push(number)
        drain.signal()
        drain.request(1)
    assert len(where.tasks) == 1
    where.run_all()
    assert probe.items == list(range(100))


def test_all_four_signals_run_on_the_executor():
    feed = QueueFeed([1], complete=True)
    probe = Probe(first=5)
    failing = Probe()
    with ThreadPoolExecutor(1, thread_name_prefix="own") as pool:
        started(probe, feed, executor=pool)
        drain = started(failing, QueueFeed(), executor=pool)
        drain.fail(OSError())
        assert probe.ended.wait(60)
        assert failing.ended.wait(60)
    assert probe.signals == ["subscribe", "next", "complete"]
    assert failing.signals == ["subscribe", "error"]
    assert probe.threads == failing.threads == {"own_0"}


def test_unbounded_demand_gives_the_executor_back_after_each_turn():
    where = ManualExecutor()
    probes = [Probe(first=UNBOUNDED) for _ in range(2)]
    for probe in probes:
        started(probe, QueueFeed(range(1000)), executor=where)
    progress = []
    while where.run_one():
        progress.append([len(probe.items) for probe in probes])
    assert progress[:4] == [[256, 0], [256, 256], [512, 256], [512, 512]]
    assert progress[-1] == [1000, 1000]


def test_requests_of_one_do_not_hold_an_executor_for_longer_than_a_turn():
    where = ManualExecutor()
    probe = Probe(first=1, each=1)
    started(probe, QueueFeed(range(100)), executor=where, turn=10)
    where.run_one()
    assert len(probe.items) == 10


def test_a_held_flag_excludes_delivery_and_its_release_runs_what_was_signalled():
    feed = QueueFeed()
    probe = Probe(first=5)
    drain = started(probe, feed)
    assert drain.try_hold()
    assert not drain.try_hold()
    feed.push(1)
    drain.signal()
    assert probe.items == []
    drain.release_hold()
    assert probe.items == [1]
    assert drain.try_hold()
    drain.release_hold()
    feed.push(2)
    drain.signal()
    assert probe.items == [1, 2]


def test_a_held_flag_on_an_executor():
    """E28."""
    where = ManualExecutor()
    feed = QueueFeed()
    probe = Probe(first=5)
    drain = Drain(probe, feed, executor=where)
    assert not drain.try_hold()
    drain.start()
    assert not drain.try_hold()
    where.run_all()
    assert drain.try_hold()
    feed.push(1)
    drain.signal()
    assert not where.tasks
    drain.release_hold()
    assert len(where.tasks) == 1
    where.run_all()
    assert probe.items == [1]


def test_cancelling_a_held_drain_releases_with_the_hold():
    feed = QueueFeed()
    probe = Probe(first=5)
    drain = started(probe, feed)
    assert drain.try_hold()
    drain.cancel()
    assert feed.released == 0
    drain.release_hold()
    assert feed.released == 1
    assert not drain.try_hold()
    drain.signal()
    assert probe.signals == ["subscribe"]


def test_failing_a_held_drain_is_told_after_the_hold():
    probe = Probe()
    drain = started(probe, QueueFeed())
    assert drain.try_hold()
    drain.fail(OSError())
    assert probe.error is None
    drain.release_hold()
    assert isinstance(probe.error, OSError)


# -- full and closed executors -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("refusal", [queue.Full, flow.Rejected, flow.Rejected("no room")])
def test_a_full_executor_neither_throws_nor_loses_the_wake_up(refusal):
    where, rescue = ManualExecutor(), Rescue()
    feed = QueueFeed()
    probe = Probe(first=9)
    drain = started(probe, feed, executor=where, rescue=rescue)
    where.run_all()
    where.refusal = refusal
    feed.push(1)
    drain.signal()
    drain.signal()
    drain.request(1)
    assert len(rescue.waiting) == 1
    rescue.attempt()
    assert len(rescue.waiting) == 1
    assert probe.items == []
    where.refusal = None
    rescue.attempt()
    where.run_all()
    assert probe.items == [1]


def test_five_hundred_drains_on_an_executor_with_room_for_a_hundred_all_get_their_element():
    where = ManualExecutor(room=100)
    feeds = [QueueFeed() for _ in range(500)]
    probes = [Probe(first=1) for _ in range(500)]
    drains = [started(probe, feed, executor=where) for probe, feed in zip(probes, feeds, strict=True)]

    def run_until(condition):
        def step():
            where.run_all()
            return condition()

        wait_until(step)

    run_until(lambda: all(probe.signals for probe in probes))
    where.refused = 0
    for number, (feed, drain) in enumerate(zip(feeds, drains, strict=True)):
        feed.push(number)
        drain.signal()
    assert where.refused >= 400
    run_until(lambda: all(probe.items for probe in probes))
    assert [probe.items for probe in probes] == [[number] for number in range(500)]


def test_a_strand_that_resubmits_itself_to_a_full_executor_goes_on_later():
    where, rescue = ManualExecutor(), Rescue()
    probe = Probe(first=UNBOUNDED)
    started(probe, QueueFeed(range(20)), executor=where, rescue=rescue, turn=10)
    where.refusal = queue.Full
    where.run_all()
    assert len(probe.items) == 10
    where.refusal = None
    rescue.attempt()
    where.run_all()
    assert len(probe.items) == 20


def test_cancelled_while_the_rescue_waits_everything_is_dropped_and_the_late_run_does_nothing():
    where, rescue = ManualExecutor(), Rescue()
    feed = QueueFeed([1])
    probe = Probe(first=1)
    where.refusal = queue.Full
    drain = started(probe, feed, executor=where, rescue=rescue)
    drain.cancel()
    assert feed.released == 1
    where.refusal = None
    rescue.attempt()
    where.run_all()
    assert probe.signals == []
    assert feed.released == 1


def test_a_closed_executor_ends_the_subscriber_on_the_rescue_and_the_caller_is_unharmed():
    where, rescue = ManualExecutor(), Rescue()
    feed = QueueFeed()
    probe = Probe(first=9)
    drain = started(probe, feed, executor=where, rescue=rescue)
    where.run_all()
    where.refusal = RuntimeError("closed")
    feed.push(1)
    drain.signal()
    assert probe.error is None
    rescue.attempt()
    assert probe.error is where.refusal
    assert probe.signals == ["subscribe", "error"]
    assert feed.released == 1


def test_an_executor_that_closes_while_the_rescue_waits_ends_the_subscriber():
    where, rescue = ManualExecutor(), Rescue()
    probe = Probe(first=9)
    where.refusal = queue.Full
    started(probe, QueueFeed([1]), executor=where, rescue=rescue)
    where.refusal = RuntimeError("closed")
    rescue.attempt()
    assert rescue.waiting == []
    assert probe.signals == ["subscribe", "error"]


def test_a_rescue_that_fails_ends_the_subscriber_and_not_the_caller():
    class Broken:
        def resubmit(self, run, executor, /):
            raise RuntimeError("can't start new thread")

    where = ManualExecutor()
    where.refusal = queue.Full
    probe = Probe()
    started(probe, QueueFeed(), executor=where, rescue=Broken())
    assert probe.signals == ["subscribe", "error"]


def test_a_shut_down_pool_ends_the_subscriber_inline():
    pool = ThreadPoolExecutor(1)
    feed = QueueFeed()
    probe = Probe(first=9)
    drain = started(probe, feed, executor=pool)
    wait_until(drain.try_hold)
    drain.release_hold()
    pool.shutdown()
    feed.push(1)
    drain.signal()
    assert isinstance(probe.error, RuntimeError)
    assert probe.items == []
    late = Probe()
    started(late, QueueFeed(), executor=pool)
    assert late.signals == ["subscribe", "error"]


def test_a_pool_that_throws_away_what_was_submitted_ends_the_subscriber():
    inside, go_on = threading.Event(), threading.Event()
    pool = ThreadPoolExecutor(1)
    pool.submit(lambda: (inside.set(), go_on.wait(60)))
    assert inside.wait(60)
    probe = Probe(first=1)
    feed = QueueFeed([1])
    started(probe, feed, executor=pool)
    pool.shutdown(wait=False, cancel_futures=True)
    assert probe.ended.wait(60)
    assert isinstance(probe.error, RuntimeError)
    assert probe.signals == ["subscribe", "error"]
    go_on.set()
    pool.shutdown()


def test_an_interrupt_inside_submit_cancels_and_passes():
    where = ManualExecutor()
    feed = QueueFeed()
    drain = started(Probe(), feed, executor=where)
    where.run_all()
    where.refusal = KeyboardInterrupt
    with pytest.raises(KeyboardInterrupt):
        drain.signal()
    assert drain.ended
    assert feed.released == 1


def test_an_interrupt_inside_the_submit_of_the_next_turn_passes_and_is_not_replaced():
    where = ManualExecutor()
    feed = QueueFeed([1, 2])
    probe = Probe(first=9)
    drain = started(probe, feed, executor=where, turn=1)
    where.refusal = KeyboardInterrupt
    with pytest.raises(KeyboardInterrupt):
        where.run_one()
    assert drain.ended
    assert probe.items == [1]
    assert feed.released == 1


# -- loops -------------------------------------------------------------------------------------------------------------


async def test_signals_run_on_the_loop():
    probe = Probe(first=9)
    feed = QueueFeed()
    done = asyncio.get_running_loop().create_future()
    probe.on_item = done.set_result
    drain = started(probe, feed, executor=asyncio.get_running_loop())

    def push():
        feed.push(7)
        drain.signal()

    thread = threading.Thread(target=push)
    thread.start()
    assert await asyncio.wait_for(done, 60) == 7
    thread.join()
    assert probe.threads == {threading.current_thread().name}


def test_a_closed_loop_ends_that_subscriber_and_the_caller_is_unharmed():
    loop = asyncio.new_event_loop()
    feed, other_feed = QueueFeed(), QueueFeed()
    probe, other = Probe(first=9), Probe(first=9)
    drain = started(probe, feed, executor=loop)
    neighbour = started(other, other_feed)
    loop.run_until_complete(asyncio.sleep(0))
    assert probe.signals == ["subscribe"]
    loop.close()
    for each in (feed, other_feed):
        each.push(1)
    for each in (drain, neighbour):
        each.signal()
    assert isinstance(probe.error, RuntimeError)
    assert other.items == [1]
    assert feed.released == 1


def test_a_loop_that_closes_over_a_scheduled_run_ends_the_subscriber_with_the_next_signal():
    loop = asyncio.new_event_loop()
    feed = QueueFeed()
    probe = Probe(first=9)
    drain = started(probe, feed, executor=loop)
    loop.run_until_complete(asyncio.sleep(0))
    feed.push(1)
    drain.signal()
    loop.close()
    assert probe.error is None
    drain.signal()
    assert isinstance(probe.error, RuntimeError)
    assert probe.items == []
    assert feed.released == 1


def test_a_drain_does_not_keep_its_loop_alive_after_the_loop_was_closed():
    loop = asyncio.new_event_loop()
    drain = started(Probe(), QueueFeed(), executor=loop)
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    reference = weakref.ref(loop)
    del loop
    gc.collect()
    assert reference() is None
    drain.signal()
    assert drain.ended


def test_a_closed_loop_asks_the_rescue_once_however_often_it_is_signalled():
    loop, rescue = asyncio.new_event_loop(), Rescue()
    probe = Probe()
    drain = started(probe, QueueFeed(), executor=loop, rescue=rescue)
    loop.close()
    for _ in range(5):
        drain.signal()
    assert len(rescue.waiting) == 1
    assert probe.signals == []
    rescue.attempt()
    assert probe.signals == ["subscribe", "error"]
