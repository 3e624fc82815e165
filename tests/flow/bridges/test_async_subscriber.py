import asyncio
import threading

import pytest

import flow
from flow.bridges.async_subscriber import subscribe_async
from flow.broadcast import Broadcast, Lag


class Receiver:
    def __init__(self):
        self.story = []

    async def on_next(self, item, /):
        self.story.append(item)

    async def on_error(self, error, /):
        self.story.append(error)

    async def on_complete(self):
        self.story.append("end")

    async def on_lagged(self, missed, /):
        self.story.append(f"-{missed}")


async def test_a_coroutine_is_awaited_for_each_element_in_order():
    seen = []

    async def receive(item):
        await asyncio.sleep(0)
        seen.append(item)

    await subscribe_async(flow.from_iterable(range(100)), receive, prefetch=4)
    assert seen == list(range(100))


async def test_an_async_subscriber_is_told_elements_losses_and_the_end():
    broadcast, receiver = Broadcast(2, lag=Lag.DROP_OLDEST), Receiver()
    task = subscribe_async(broadcast, receiver, prefetch=1)
    await asyncio.sleep(0)
    for item in range(6):
        broadcast.offer(item)
    broadcast.close()
    await task
    assert receiver.story == [0, "-3", 4, 5, "end"]


async def test_a_failed_stream_is_told_or_raised():
    receiver = Receiver()
    await subscribe_async(flow.error(failure := ValueError("no")), receiver)
    assert receiver.story == [failure]

    async def receive(item): ...

    with pytest.raises(ValueError, match="no"):
        await subscribe_async(flow.error(failure), receive)


@pytest.mark.parametrize("concurrency", [1, 3])
async def test_what_the_receiver_raises_ends_the_subscription_and_the_task(concurrency):
    broadcast = Broadcast(8)

    async def receive(item):
        raise LookupError("mine")

    task = subscribe_async(broadcast, receive, concurrency=concurrency)
    await asyncio.sleep(0)
    broadcast.offer(1)
    with pytest.raises(LookupError, match="mine"):
        await task
    assert broadcast.statistics().subscribers == ()


async def test_no_more_are_in_work_than_may_be_and_all_are_done_before_the_end():
    inside, most, done = 0, 0, []

    class Slow(Receiver):
        async def on_next(self, item, /):
            nonlocal inside, most
            inside += 1
            most = max(most, inside)
            for _ in range(item % 4):
                await asyncio.sleep(0)
            inside -= 1
            done.append(item)

        async def on_complete(self):
            self.story.append(len(done))

    slow = Slow()
    await subscribe_async(flow.from_iterable(range(50)), slow, prefetch=8, concurrency=3)
    assert most == 3
    assert slow.story == [50]
    assert sorted(done) == list(range(50))


async def test_no_more_is_requested_than_prefetched():
    broadcast = Broadcast(100)
    release = asyncio.Event()

    async def receive(item):
        await release.wait()

    task = subscribe_async(broadcast, receive, prefetch=4)
    await asyncio.sleep(0)
    for item in range(20):
        broadcast.offer(item)
    [numbers] = broadcast.statistics().subscribers
    assert numbers.delivered == 4
    release.set()
    broadcast.close()
    await task


@pytest.mark.parametrize("concurrency", [1, 2])
async def test_cancelling_the_task_cancels_the_subscription(concurrency):
    broadcast = Broadcast(4)

    async def receive(item):
        await asyncio.Event().wait()

    task = subscribe_async(broadcast, receive, concurrency=concurrency)
    await asyncio.sleep(0)
    broadcast.offer(1)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert broadcast.statistics().subscribers == ()


async def test_the_loop_may_run_in_another_thread():
    loop = asyncio.get_running_loop()
    where = []

    async def receive(item):
        where.append(threading.get_ident())

    future = await asyncio.to_thread(subscribe_async, flow.from_iterable([1, 2]), receive, loop=loop)
    await asyncio.wrap_future(future)
    assert where == [threading.get_ident()] * 2


def test_numbers_out_of_their_bounds_are_refused_and_a_loop_is_needed():
    async def receive(item): ...

    for options in ({"prefetch": 0}, {"concurrency": 0}):
        with pytest.raises(ValueError, match=next(iter(options))):
            subscribe_async(flow.never(), receive, **options)
    with pytest.raises(RuntimeError):
        subscribe_async(flow.never(), receive)


async def test_a_low_tide_says_when_more_is_requested():
    asked, seen = [], []
    numbers = flow.Flow(flow.from_iterable(range(12))).tap(on_request=asked.append)

    async def receive(item):
        seen.append(item)

    await flow.subscribe_async(numbers, receive, prefetch=6, low_tide=2)
    assert seen == list(range(12))
    assert asked[:3] == [6, 2, 2]


@pytest.mark.parametrize("low_tide", [-1, 7, True, 1.5])
async def test_a_low_tide_is_at_most_the_prefetch(low_tide):
    with pytest.raises(ValueError, match="low_tide"):
        flow.subscribe_async(flow.empty(), print, prefetch=6, low_tide=low_tide)


def test_what_a_loop_leaves_behind_when_it_closes_can_be_collected():
    """Nobody can be waited for on a loop that has gone."""
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(
        lambda _loop, _context: None
    )  # tasks are destroyed while they wait: so it is meant
    begun = asyncio.Event()

    async def receive(_item: int) -> None:
        begun.set()
        await asyncio.Event().wait()

    async def begin() -> "asyncio.Task[None]":
        task = subscribe_async(flow.from_iterable(range(3)), receive, concurrency=2)
        await begun.wait()
        return task

    task = loop.run_until_complete(begin())
    loop.close()
    task.get_coro().close()
