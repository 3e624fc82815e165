"""Deliveries as a stream: demand bounds what is in flight, and whatever is not given goes back."""

import asyncio
import threading

import pytest

import flow
from publishers import ChangeLog
from publishers.errors import LogClosed
from publishers.groups.errors import ConsumerFenced, GroupLost
from publishers.groups.state import GroupState
from tests.publishers.support import QUICK, Probe, opened, order, scratch, wait_until
from tests.simulation.workload import Clock


@pytest.fixture
def log():
    with opened() as log:
        yield log


class Taker(Probe):
    """Keeps what it is given."""

    def take(self, delivery):
        self.changes.append(delivery)
        self.positions.append(delivery.position)

    @property
    def keys(self):
        return [int(one.change.key) for one in list(self.changes)]


def subscribed(member, first=0, executor=None):
    probe = Taker(first)
    member.deliveries().subscribe(probe, executor=executor)
    return probe


def test_no_more_is_taken_from_the_group_than_was_requested(log):
    """F75, F82."""
    group = log.groups.create("stock", since="earliest")
    log.commit([order(n) for n in range(9)])
    one, two = group.join("one"), group.join("two")
    probe = subscribed(one, 2)
    probe.wait_for(2)
    assert group.info().pending == 2
    other = subscribed(two, 3)
    other.wait_for(3)
    assert (probe.keys, other.keys) == ([0, 1], [2, 3, 4])
    probe.request(1)
    probe.wait_for(3)
    assert one.ack(*probe.changes) == 3
    assert group.info().pending == 3


def test_a_subscriber_waits_for_commits_refusals_time_outs_and_for_a_pause_to_end():
    """F78, F80: and is there however long it waits."""
    clock = Clock()
    with opened(clock=clock) as log:
        group = log.groups.create("stock", consumer_ttl=100.0)
        member = group.join("one")
        probe = subscribed(member, 9)
        log.commit([order(1)])
        probe.wait_for(1)
        assert member.nack(probe.changes[0], 5.0)
        clock.now += 5_000_000
        probe.wait_for(2)
        clock.now += 31_000_000
        clock.now += 1_500_000  # the delay behind the second time-out
        wait_until(lambda: group.info().pending == 0, group.info)
        clock.now += 9_000_000
        probe.wait_for(3)
        assert [one.count for one in probe.changes] == [1, 2, 3]
        assert member.ack(probe.changes[2]) == 1
        group.pause()
        log.commit([order(2)])
        clock.now += 1000_000_000
        group.resume()
        probe.wait_for(4)
        assert probe.keys == [1, 1, 1, 2]
        assert not probe.terminals


def test_what_was_read_and_not_given_counts_as_not_delivered(log):
    """F163."""
    group = log.groups.create("stock", since="earliest", max_deliver=1)
    log.commit([order(n) for n in range(5)])
    member = group.join("one")
    pool = Held()
    probe = subscribed(member, executor=pool)
    pool.run()
    probe.request(4)
    pool.run()
    wait_until(lambda: group.info().pending == 4, group.info)
    probe.subscription.cancel()
    pool.run_until(lambda: group.info().pending == 0)
    assert [one.count for one in member.read(wait=0)] == [1] * 5
    assert probe.keys == []


class Held:
    """An executor that runs what it is given when it is told to."""

    def __init__(self):
        self.tasks = []

    def submit(self, task):
        self.tasks.append(task)

    def run(self):
        while self.tasks:
            self.tasks.pop(0)()

    def run_until(self, condition):
        def done():
            self.run()
            return condition()

        wait_until(done)


def test_it_completes_when_the_consumer_leaves_and_fails_when_it_has_joined_again(log):
    """F84."""
    group = log.groups.create("stock", since="earliest")
    first = group.join("one")
    left = subscribed(first, 1)
    first.leave()
    left.ended.wait(60)
    assert (left.completed, left.error) == (True, None)
    second = group.join("one")
    fenced = subscribed(second)  # which hears of it although it has requested nothing
    group.join("one")
    fenced.ended.wait(60)
    assert isinstance(fenced.error, ConsumerFenced)


def test_it_fails_when_the_group_is_lost_and_when_the_log_is_closed():
    path = scratch() / "log"
    with ChangeLog.open(path, **QUICK) as log:
        group = log.groups.create("stock", since="earliest")
        lost = subscribed(group.join("one"), 1)
        with group.book.lock:
            group.book.state = GroupState.LOST
        group.notify()
        lost.ended.wait(60)
        assert isinstance(lost.error, GroupLost)
        with group.book.lock:
            group.book.state = GroupState.SERVING
        probe = subscribed(group.join("two"), 1)
    probe.ended.wait(60)
    assert isinstance(probe.error, LogClosed)
    late = subscribed_after(group)
    late.ended.wait(60)
    assert isinstance(late.error, LogClosed)


def subscribed_after(group):
    """A subscriber of a consumer of a log that is closed."""
    consumer = group.book.machine.join("late", 99)
    probe = Taker(1)
    group.serve(consumer, probe, None).start()
    return probe


def test_a_loop_takes_deliveries_and_a_coroutine_too(log):
    """F75."""
    group = log.groups.create("stock", since="earliest")
    log.commit([order(n) for n in range(40)])
    found = []
    with group.join("one") as member:
        for delivery in member.deliveries():
            found.append(int(delivery.change.key))
            member.ack(delivery)
            if len(found) == 20:
                break

    async def go_on():
        with group.join("one") as member:
            async with flow.aiter(member.deliveries(), prefetch=1) as deliveries:
                async for delivery in deliveries:
                    found.append(int(delivery.change.key))
                    assert group.info().pending <= 2
                    member.ack(delivery)
                    if len(found) == 40:
                        return

    asyncio.run(go_on())
    assert found == list(range(40))
    assert group.info().floor == log.head


def test_what_is_read_while_its_subscription_ends_goes_back(log, monkeypatch):
    group = log.groups.create("stock", since="earliest", max_deliver=1)
    log.commit([order(0)])
    member = group.join("one")
    deliver, reading, go_on = group.deliver, threading.Event(), threading.Event()

    def slow(*arguments, **named):
        found = deliver(*arguments, **named)
        reading.set()
        assert go_on.wait(60)
        return found

    monkeypatch.setattr(group, "deliver", slow)
    probe = subscribed(member, 1)
    assert reading.wait(60)
    probe.subscription.cancel()
    go_on.set()
    wait_until(lambda: group.info().pending == 0, group.info)
    monkeypatch.setattr(group, "deliver", deliver)
    assert [one.count for one in member.read(wait=0)] == [1]
