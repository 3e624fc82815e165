"""Loops over publishers: each is a subscription, which ends when the loop is left."""

import asyncio
import contextlib
import gc
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import flow
from tests.flow.probes import QueueFeed, wait_until

ROOT = Path(__file__).parents[3]


class Numbers(flow.IterablePublisher):
    """A publisher that gives 0, 1, 2 ... or what it is given, and counts its subscriptions."""

    def __init__(self, items=(0, 1, 2, 3, 4), *, ends=False):
        self.items = items
        self.ends = ends
        self.drains = []
        self.feeds = []
        self.cancelling = threading.Lock()
        self.cancelled_on = []

    def subscribe(self, subscriber, /):
        feed = QueueFeed()
        feed.push(*self.items)
        if self.ends:
            feed.end(flow.COMPLETED)
        self.feeds.append(feed)
        self.drains.append(flow.Drain(subscriber, feed))
        self.drains[-1].start(_Subscription(self, self.drains[-1]))

    @property
    def released(self):
        return [feed.released for feed in self.feeds]


class _Subscription:
    def __init__(self, numbers, drain):
        self.numbers = numbers
        self.request = drain.request
        self.drain = drain

    def cancel(self):
        # Like most publishers, it needs a lock of its own for that.
        assert self.numbers.cancelling.acquire(timeout=60)
        self.numbers.cancelling.release()
        self.numbers.cancelled_on.append(threading.get_ident())
        self.drain.cancel()


def test_a_loop_takes_everything_and_each_loop_is_a_subscription_of_its_own():
    """F128."""
    numbers = Numbers(ends=True)
    assert [(a, b) for a in numbers for b in numbers] == [(a, b) for a in range(5) for b in range(5)]
    assert numbers.released == [1] * 6


async def test_an_asynchronous_loop_takes_everything_and_each_is_a_subscription_of_its_own():
    """F128."""
    numbers = Numbers(ends=True)
    found = [(a, b) async for a in numbers async for b in numbers]
    assert found == [(a, b) for a in range(5) for b in range(5)]
    assert numbers.released == [1] * 6


@pytest.mark.parametrize("where", ["break", "raise", "return"])
def test_a_loop_that_is_left_cancels_at_once(where):
    numbers = Numbers()

    def consume():
        for number in numbers:
            if number == 2:
                if where == "break":
                    break
                if where == "raise":
                    raise LookupError
                return
        assert numbers.released == [1]

    if where == "raise":
        with pytest.raises(LookupError) as caught:
            consume()
        assert caught.value.__traceback__ is not None  # and so all frames, still
    else:
        consume()
    assert numbers.released == [1]
    assert numbers.cancelled_on == [threading.get_ident()]


@pytest.mark.parametrize("where", ["break", "raise", "return"])
async def test_an_asynchronous_loop_that_is_left_cancels_at_once(where):
    numbers = Numbers()

    async def consume():
        async for number in numbers:
            if number == 2:
                if where == "break":
                    break
                if where == "raise":
                    raise LookupError
                return

    with contextlib.suppress(LookupError):
        await consume()
    assert numbers.released == [1]


async def test_an_asynchronous_loop_in_a_task_that_is_cancelled_cancels_its_subscription_at_once():
    numbers = Numbers(items=())
    begun = asyncio.Event()

    async def consume():
        begun.set()
        async for _ in numbers:
            pass

    task = asyncio.create_task(consume())
    await begun.wait()
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    assert numbers.released == [1]


def test_a_context_closes_an_iterator_that_outlives_its_loop():
    numbers = Numbers()
    with contextlib.closing(iter(numbers)) as items:
        assert next(items) == 0
        for number in items:
            if number == 2:
                break
        assert numbers.released == [0]
        assert next(items) == 3
    assert numbers.released == [1]
    assert list(items) == []


async def test_a_context_closes_an_asynchronous_iterator_before_it_is_left():
    numbers = Numbers()
    async with contextlib.aclosing(aiter(numbers)) as items:
        async for number in items:
            if number == 2:
                break
        assert numbers.released == [0]
        assert await anext(items) == 3
    assert numbers.released == [1]


async def step(items):
    return await anext(items)


@pytest.mark.parametrize("kind", ["blocking", "asynchronous"])
def test_an_iterator_that_the_garbage_collector_finds_is_cancelled_though_a_lock_is_held_around_it(kind):
    """The collector may run inside of the publisher, which holds what cancelling needs."""
    numbers = Numbers()
    with asyncio.Runner() as runner:
        cycle = [iter(numbers) if kind == "blocking" else aiter(numbers)]
        cycle.append(cycle)
        assert (next(cycle[0]) if kind == "blocking" else runner.run(step(cycle[0]))) == 0
        del cycle
        collected_while_locked(numbers)


def collected_while_locked(numbers):
    assert numbers.released == [0]
    with numbers.cancelling:
        gc.collect()
        assert numbers.released == [0]
    wait_until(lambda: numbers.released == [1])
    assert numbers.cancelled_on != [threading.get_ident()]


def test_a_loop_that_was_not_left_when_the_interpreter_ends_keeps_it_from_nothing():
    program = "import flow\nitems = flow.iter_blocking(flow.from_iterable(range(9)))\nprint(next(items))\n"
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-c", program],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "0\n", "")


def test_an_iterator_that_could_not_be_made_says_nothing_when_it_is_collected():
    with pytest.raises(ValueError, match="on_lag"):
        flow.iter_blocking(Numbers(), on_lag="stop")
    with pytest.raises(ValueError, match="on_lag"):
        flow.aiter(Numbers(), on_lag="stop")
    gc.collect()


def test_an_error_of_the_stream_is_raised_from_the_loop():
    class Failing(flow.IterablePublisher):
        def subscribe(self, subscriber, /):
            flow.error(OSError("disk")).subscribe(subscriber)

    with pytest.raises(OSError, match="disk"):
        list(Failing())


@pytest.mark.parametrize(
    ("begin", "instead"),
    [
        (iter, "write: async for item in publisher$"),
        (lambda numbers: next(flow.iter_blocking(numbers)), "write: async with flow.aiter(publisher) as items$"),
        (lambda numbers: flow.iter_blocking(numbers).__enter__(), "write: async with flow.aiter(publisher) as items$"),
    ],
)  # fmt: skip
async def test_an_iteration_that_would_block_the_event_loop_is_refused_instead(begin, instead):
    numbers = Numbers()
    with pytest.raises(RuntimeError, match=instead.replace("(", r"\(").replace(")", r"\)")):
        begin(numbers)
    assert numbers.feeds == []
