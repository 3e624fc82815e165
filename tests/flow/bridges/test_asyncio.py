import asyncio
import contextlib
import gc
import itertools
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest

import flow
from flow import UNBOUNDED, Lagged
from tests.flow.probes import On, QueueFeed


class Hand:
    """A publisher whose drain the test moves by hand."""

    def __init__(self, executor=None):
        self.feed = QueueFeed()
        self.executor = executor
        self.drain = None
        self.requests = []

    def subscribe(self, subscriber, /):
        self.drain = flow.Drain(subscriber, self.feed, executor=self.executor)
        self.drain.start(self)

    def request(self, n, /):
        self.requests.append(n)
        self.drain.request(n)

    def cancel(self):
        self.drain.cancel()

    def push(self, *items):
        self.feed.push(*items)
        self.drain.signal()


@pytest.mark.parametrize("prefetch", [1, 2, 3, 32, 256, UNBOUNDED])
async def test_all_elements_in_order_whatever_the_prefetch(prefetch):
    async with flow.aiter(flow.from_iterable(range(1000)), prefetch) as items:
        assert [item async for item in items] == list(range(1000))


@pytest.mark.parametrize("low_tide", [None, 0, 1, 32])
async def test_elements_from_another_thread(low_tide):
    with ThreadPoolExecutor(1) as pool:
        source = On(flow.from_iterable(range(5000)), pool)
        async with flow.aiter(source, 32, low_tide) as items:
            assert [item async for item in items] == list(range(5000))


async def test_elements_on_the_loop_itself():
    source = On(flow.from_iterable(range(1000)), asyncio.get_running_loop())
    async with flow.aiter(source) as items:
        assert [item async for item in items] == list(range(1000))


async def test_it_requests_the_prefetch_and_then_three_quarters_each_time_they_were_consumed():
    hand = Hand()
    async with flow.aiter(hand) as items:
        assert hand.requests == [32]
        hand.push(*range(100))
        for _ in range(23):
            await anext(items)
        assert hand.requests == [32]
        await anext(items)
        assert hand.requests == [32, 24]
        for _ in range(24):
            await anext(items)
        assert hand.requests == [32, 24, 24]


async def test_never_more_than_the_prefetch_is_under_way():
    hand = Hand()
    async with flow.aiter(hand, 10) as items:
        hand.push(*range(1000))
        taken = 0
        async for _ in items:
            taken += 1
            given = sum(hand.requests)
            assert given - taken <= 10
            if taken == 500:
                break


async def test_an_error_is_raised_and_overtakes_what_is_buffered():
    failure = OSError("disk")
    hand = Hand()
    async with flow.aiter(hand) as items:
        hand.push(1, 2, 3)
        assert await anext(items) == 1
        hand.drain.fail(failure)
        with pytest.raises(OSError, match="disk") as caught:
            await anext(items)
        assert caught.value is failure
        with pytest.raises(StopAsyncIteration):
            await anext(items)


async def test_completion_comes_after_what_is_buffered():
    hand = Hand()
    async with flow.aiter(hand) as items:
        hand.feed.end(flow.COMPLETED)
        hand.push(1, 2)
        assert [item async for item in items] == [1, 2]
        with pytest.raises(StopAsyncIteration):
            await anext(items)


@pytest.mark.parametrize("where", ["break", "raise", "return"])
async def test_leaving_cancels_the_subscription(where):
    hand = Hand()

    async def consume():
        async with flow.aiter(hand) as items:
            hand.push(*range(5))
            async for item in items:
                if item == 2:
                    if where == "break":
                        break
                    if where == "raise":
                        raise LookupError
                    return

    if where == "raise":
        with pytest.raises(LookupError):
            await consume()
    else:
        await consume()
    assert hand.drain.ended
    assert hand.feed.released == 1


async def test_cancelling_the_task_cancels_the_subscription():
    hand = Hand()
    entered = asyncio.Event()

    async def consume():
        async with flow.aiter(hand) as items:
            entered.set()
            async for _ in items:
                pass

    task = asyncio.create_task(consume())
    await entered.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert hand.feed.released == 1


class Handed(Hand, flow.IterablePublisher): ...


@pytest.mark.parametrize(
    "begin",
    [flow.aiter, aiter, lambda hand: flow.aiter(hand).__aenter__()],
    ids=["bare", "of a loop", "entered"],
)
async def test_a_wait_that_is_given_up_loses_no_element_and_ends_nothing(begin):
    hand = Handed()
    items = begin(hand)
    if asyncio.iscoroutine(items):
        items = await items
    async with contextlib.aclosing(items):
        for number in range(3):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(anext(items), 0)
            given_up = asyncio.ensure_future(anext(items))
            await asyncio.sleep(0)
            given_up.cancel()
            await asyncio.wait([given_up])
            hand.push(number)
            assert await anext(items) == number
        assert hand.feed.released == 0
    assert hand.feed.released == 1


async def test_the_first_element_of_an_iterator_that_nothing_else_holds_comes_and_then_its_subscription_ends():
    hand = Handed()
    waiting = asyncio.ensure_future(anext(aiter(hand)))
    await asyncio.sleep(0)
    gc.collect()
    hand.push(1)
    assert await asyncio.wait_for(waiting, 60) == 1
    assert hand.feed.released == 1


async def test_a_waiting_coroutine_is_woken_from_any_thread():
    hand = Hand()
    async with flow.aiter(hand) as items:
        for number in range(50):
            thread = threading.Thread(target=hand.push, args=(number,))
            waiting = asyncio.ensure_future(anext(items))
            await asyncio.sleep(0)
            thread.start()
            assert await asyncio.wait_for(waiting, 60) == number
            thread.join()


async def test_the_end_is_told_to_a_waiting_coroutine_from_another_thread():
    hand = Hand()
    async with flow.aiter(hand) as items:
        waiting = asyncio.ensure_future(anext(items))
        await asyncio.sleep(0)
        thread = threading.Thread(target=hand.drain.fail, args=(OSError(),))
        thread.start()
        with pytest.raises(OSError):  # noqa: PT011 - it has no text
            await asyncio.wait_for(waiting, 60)
        thread.join()


async def test_closing_from_another_task_ends_a_waiting_iteration():
    iterator = flow.aiter(flow.never())
    async with iterator as items:
        waiting = asyncio.ensure_future(anext(items))
        await asyncio.sleep(0)
    with pytest.raises(StopAsyncIteration):
        await waiting


async def test_two_tasks_cannot_wait_for_one_iterator():
    async with flow.aiter(flow.never()) as items:
        first = asyncio.ensure_future(anext(items))
        await asyncio.sleep(0)
        with pytest.raises(RuntimeError, match="another task"):
            await anext(items)
        first.cancel()


async def test_it_is_entered_once():
    iterator = flow.aiter(flow.from_iterable([1]))
    async with iterator:
        pass
    with pytest.raises(RuntimeError, match="only once"):
        async with iterator:
            pass
    with pytest.raises(StopAsyncIteration):
        await anext(iterator)


async def test_an_iteration_that_never_waits_still_lets_others_run():
    others = 0

    async def other():
        nonlocal others
        while True:
            others += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    async with flow.aiter(flow.generate(itertools.count), UNBOUNDED // 2**55) as items:
        async for item in items:
            if item == 5000:
                break
    assert others >= 10
    task.cancel()


async def test_where_elements_are_missing_lagged_is_raised_in_order_and_one_can_go_on():
    hand = Hand()
    async with flow.aiter(hand) as items:
        hand.push(1)
        hand.drain.notify("lag", lambda subscriber: subscriber.on_lagged(7))
        hand.drain.notify("lag", lambda subscriber: subscriber.on_lagged(3))
        hand.push(2)
        assert await anext(items) == 1
        with pytest.raises(Lagged) as caught:
            await anext(items)
        assert caught.value.missed == 10
        assert await anext(items) == 2


async def test_lag_can_be_skipped_or_called_back():
    missed = []
    for on_lag in ("skip", missed.append):
        hand = Hand()
        async with flow.aiter(hand, on_lag=on_lag) as items:
            hand.push(1)
            hand.drain.notify("lag", lambda subscriber: subscriber.on_lagged(7))
            hand.push(2)
            assert [await anext(items), await anext(items)] == [1, 2]
    assert missed == [7]
    with pytest.raises(ValueError, match="on_lag: 'stop'"):
        flow.aiter(flow.never(), on_lag="stop")  # type: ignore[arg-type]


@pytest.mark.usefixtures("silence")
@pytest.mark.parametrize("waiting", [True, False])
def test_a_loop_that_closes_cancels_the_subscription(abandoned, waiting):
    """No signal has to come, nor does the coroutine have to be collected."""
    loop, hand = abandoned.new(), Hand()
    iterator = flow.aiter(hand)

    async def begin():
        await iterator.__aenter__()

    loop.run_until_complete(begin())
    if waiting:
        task = loop.create_task(anext(iterator))
        task._log_destroy_pending = False
        abandoned.run(2)
    del loop
    abandoned.close()
    assert hand.drain.ended
    assert hand.feed.released == 1
    hand.push(1)
    if waiting:
        task.get_coro().close()


@pytest.mark.usefixtures("silence")
def test_an_iteration_that_goes_on_although_the_loop_has_closed_fails_and_does_not_end(abandoned):
    hand = Hand()
    iterator = flow.aiter(hand)

    async def begin():
        await iterator.__aenter__()
        hand.push(1, 2)

    abandoned.new().run_until_complete(begin())
    abandoned.close()
    with pytest.raises(RuntimeError, match="loop closed before the iteration ended"):
        anext(iterator).send(None)


@pytest.mark.usefixtures("silence")
def test_an_iterator_that_was_left_is_forgotten_by_its_loop(abandoned):
    hands = [Hand() for _ in range(3)]
    loop = abandoned.new()

    async def begin():
        for hand in hands:
            async with flow.aiter(hand):
                hand.push(1)

    loop.run_until_complete(begin())
    references = [weakref.ref(hand) for hand in hands]
    hands.clear()
    gc.collect()
    assert [reference() for reference in references] == [None] * 3
    del loop
    abandoned.close()


async def test_rule_313_what_was_buffered_is_dropped_on_leaving():
    class Element:
        pass

    hand = Hand()
    elements = [Element(), Element()]
    references = [weakref.ref(element) for element in elements]
    async with flow.aiter(hand) as items:
        hand.push(*elements)
        elements.clear()
        await anext(items)
    gc.collect()
    assert [reference() for reference in references] == [None, None]
    assert hand.feed.released == 1
    assert items._inbox.finished
