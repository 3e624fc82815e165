"""What is told in children of ``fork``, and how iterators and executors go on there."""

import asyncio
import gc
import os
import threading

import pytest

import flow
from flow import forks
from flow.bridges.loop_tasks import when_closed
from flow.executors import RETRY, loop_executor
from flow.operators import ThreadTimers
from tests.flow.probes import ManualExecutor, Probe, QueueFeed, wait_until
from tests.forking import in_child, threads
from tests.harness.inside import lock_of


class Thing:
    def __init__(self, error=None):
        self.told = []
        self.error = error
        forks.register(self)

    def forked(self, pid, /):
        self.told.append((pid, os.getpid()))
        if self.error is not None:
            raise self.error


def test_what_is_registered_is_told_in_each_child_and_nowhere_else():
    thing, mine = Thing(), os.getpid()
    for _ in range(2):
        ((owner, here),) = in_child(lambda: thing.told)
        assert owner == mine
        assert here != mine
    assert thing.told == []


def test_a_grandchild_hears_only_of_what_its_parent_made():
    """What the grandparent had is not the grandchild's to let go of: its parent has done that, and may have gone on."""
    thing, mine = Thing(), os.getpid()

    def run():
        other = Thing()
        return os.getpid(), in_child(lambda: (thing.told, other.told))

    here, (told, others) = in_child(run)
    assert [owner for owner, _ in told] == [mine]
    assert [owner for owner, _ in others] == [here]


def test_what_is_forgotten_or_gone_is_not_told():
    thing, gone = Thing(), Thing()
    told = gone.told
    forks.forget(thing)
    forks.forget(thing)
    del gone
    gc.collect()
    assert in_child(lambda: (thing.told, told)) == ([], [])


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_one_that_raises_keeps_no_other_from_being_told():
    things = [Thing(RuntimeError("planned")) for _ in range(5)]
    assert in_child(lambda: [len(thing.told) for thing in things]) == [1] * 5


def test_what_was_opened_while_another_thread_forked_is_opened_again():
    """The child may have the descriptor, and was not told of it."""
    made, undone = [], []

    def make():
        if not made:
            forker = threading.Thread(target=in_child, args=(os.getpid,))
            forker.start()
            forker.join()
        made.append(len(made))
        return made[-1]

    assert forks.undisturbed(make, undone.append) == 1
    assert undone == [0]
    assert forks.undisturbed(make, undone.append) == 2
    assert undone == [0]


def test_an_iterator_raises_in_a_child_and_goes_on_in_the_parent():
    """F143: there nobody will ever signal, so to wait would be for ever."""
    mine = os.getpid()
    source = flow.Broadcast(64)

    def run():
        with pytest.raises(flow.Forked, match=f"process {mine}") as caught:
            next(items)
        assert caught.value.pid == mine
        assert list(items) == []
        return True

    with flow.iter_blocking(source) as items:
        source.submit(1)
        assert next(items) == 1
        assert in_child(run)
        source.submit(2)
        assert next(items) == 2


def test_an_iterator_that_has_ended_is_the_same_in_a_child():
    items = flow.iter_blocking(flow.from_iterable([1, 2]))
    assert list(items) == [1, 2]
    assert in_child(lambda: list(items)) == []
    closed = flow.iter_blocking(flow.never())
    with closed:
        pass
    assert in_child(lambda: list(closed)) == []


def test_an_asynchronous_iterator_raises_in_a_child():
    """F143."""

    async def refused(items):
        with pytest.raises(flow.Forked):
            await anext(items)
        await items.__aexit__(None, None, None)
        return True

    async def take(source):
        async with flow.aiter(source) as items:
            source.submit(1)
            assert await anext(items) == 1
            assert await asyncio.to_thread(in_child, lambda: asyncio.run(refused(items)))
            source.submit(2)
            assert await anext(items) == 2

    asyncio.run(take(flow.Broadcast(64)))


def test_leaving_an_iterator_in_a_child_cancels_nothing_and_waits_for_no_lock():
    """F143: whoever delivers holds the lock of the inbox just now, and is not there to release it."""
    source = flow.Broadcast(64)

    def run():
        items.__exit__(None, None, None)
        items.close()
        return True

    with flow.iter_blocking(source) as items:
        with lock_of(items._inbox):
            assert in_child(run)
        source.submit(1)
        assert next(items) == 1


def test_a_callback_is_neither_called_nor_cancelled_by_a_child():
    """F143."""
    seen = []
    source = flow.Broadcast(64)
    subscription = flow.subscribe(source, seen.append)

    def run():
        subscription.cancel()
        return subscription.active

    with lock_of(subscription):
        assert in_child(run) is False
    assert subscription.active
    source.submit(1)
    wait_until(lambda: seen == [1])
    subscription.cancel()


def test_a_child_may_subscribe_on_a_loop_whatever_the_parent_did_at_that_moment():
    loop = asyncio.new_event_loop()
    executor = loop_executor(loop)

    def run():
        ran = []
        assert loop_executor(loop) is executor
        executor.submit(lambda: ran.append(1))
        loop.run_until_complete(asyncio.sleep(0))
        return ran

    with lock_of(executor):
        assert in_child(run) == [1]
    loop.close()


def test_a_child_has_its_own_rescue_for_full_executors():
    """The thread of the parent's is not there, and what waits for it belongs to the parent."""
    full, subscriber = ManualExecutor(room=0), Probe(first=1)
    flow.Drain(subscriber, QueueFeed([1]), executor=full).start()
    wait_until(lambda: RETRY._serving)

    def run():
        assert not RETRY._waiting
        mine = Probe(first=1)
        executor = ManualExecutor(room=0)
        flow.Drain(mine, QueueFeed([2]), executor=executor).start()
        executor.room = 1
        wait_until(lambda: executor.tasks)
        executor.run_all()
        return mine.items

    with RETRY._condition:
        assert in_child(run) == [2]
    full.room = 1
    wait_until(lambda: full.tasks)


def test_children_that_are_forked_under_load_never_hang():
    """F143: threads deliver to iterators without a pause, and hold locks at any moment."""
    source = flow.Broadcast(1024, lag=flow.Lag.DROP_OLDEST)
    with flow.iter_blocking(source, on_lag="skip") as items, threads(lambda: source.submit(1)):
        for _ in range(30):
            next(items)
            assert in_child(lambda: items.close() or items._inbox.finished)


def test_a_child_has_its_own_alarms():
    """The thread that rings those of the parent is not there."""
    timers, rung = ThreadTimers(), []
    alarm = timers.after(3600.0, lambda: rung.append("parent"))

    def run():
        ringing = threading.Event()
        timers.after(0.0, ringing.set)
        alarm.cancel()
        return ringing.wait(60)

    with timers._condition:
        assert in_child(run)
    alarm.cancel()
    wait_until(lambda: not timers._serving)


def test_the_end_of_a_loop_that_a_child_has_inherited_calls_nobody_there():
    """F143: what was begun on it goes on in the parent."""
    loop, called = asyncio.new_event_loop(), []

    async def note(word):
        when_closed(lambda: called.append(word))

    loop.run_until_complete(note("parent"))
    loop_executor(loop).hand_over(lambda: called.append("run"), lambda: called.append("lost"))

    def run():
        loop.run_until_complete(note("child"))
        loop.close()
        gc.collect()
        return called

    assert in_child(run) == ["run", "child"], "the child has its own copy of what was to be run"
    loop.close()
    assert called == ["lost", "parent"]
