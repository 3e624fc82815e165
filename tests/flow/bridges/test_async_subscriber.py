import asyncio
import concurrent.futures
import contextlib
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


class Hand:
    """A publisher that gives its elements at once, and notes that it was cancelled."""

    def __init__(self, elements=3, *, complete=False):
        self.elements = elements
        self.complete = complete
        self.subscribed = self.cancelled = False

    def subscribe(self, subscriber):
        self.subscribed = True
        subscriber.on_subscribe(self)
        for item in range(self.elements):
            subscriber.on_next(item)
        if self.complete:
            subscriber.on_complete()

    def request(self, n, /): ...

    def cancel(self):
        self.cancelled = True


class Parked:
    """A coroutine function that waits until it is cancelled, and notes that it was."""

    def __init__(self):
        self.begun = 0
        self.ended = 0

    async def __call__(self, item):
        self.begun += 1
        try:
            await asyncio.Event().wait()
        finally:
            self.ended += 1


def subscribed(loop, here, *args, **options):
    """What `subscribe_async` returns on the loop itself, or elsewhere."""
    if not here:
        return subscribe_async(*args, loop=loop, **options)

    made = []

    def on_the_loop():
        made.append(subscribe_async(*args, **options))
        loop.stop()

    loop.call_soon(on_the_loop)
    loop.run_forever()
    return made.pop()


TURNS = range(10)


@pytest.mark.parametrize("here", [True, False])
@pytest.mark.parametrize("concurrency", [1, 2, 5])
@pytest.mark.usefixtures("silence")
def test_a_loop_that_closes_wherever_it_was_cancels_all_that_was_begun(abandoned, concurrency, here):
    """Before the subscription, before the receiver is called, while it waits: no signal has to come."""
    most = 0
    for turns in TURNS:
        publisher, parked = Hand(), Parked()
        done = subscribed(abandoned.new(), here, publisher, parked, concurrency=concurrency)
        abandoned.run(turns)
        assert not done.done()
        assert not publisher.cancelled
        most = max(most, parked.begun)
        abandoned.close()
        assert done.cancelled()
        assert publisher.cancelled == publisher.subscribed
        assert parked.ended == parked.begun
    assert most == min(concurrency, 3)


@pytest.mark.usefixtures("silence")
def test_a_loop_that_closes_cancels_a_subscription_that_waits_for_elements(abandoned):
    publisher = Hand(0)
    future = subscribe_async(publisher, Parked(), loop=abandoned.new())
    abandoned.run(5)
    abandoned.close()
    assert future.cancelled()
    assert publisher.cancelled


@pytest.mark.parametrize("concurrency", [1, 2])
@pytest.mark.usefixtures("silence")
def test_a_stream_that_ended_before_the_loop_closed_has_ended_for_the_future_too(abandoned, concurrency):
    completed = []
    for turns in range(20):
        receiver = Receiver()
        future = subscribe_async(Hand(complete=True), receiver, loop=abandoned.new(), concurrency=concurrency)
        abandoned.run(turns)
        abandoned.close()
        assert future.done()
        assert future.cancelled() == ("end" not in receiver.story)
        completed.append(not future.cancelled())
    assert sorted(completed) == completed
    assert set(completed) == {False, True}


@pytest.mark.usefixtures("silence")
def test_a_thread_that_waits_for_the_future_is_woken_when_the_loop_closes(abandoned):
    for turns in (0, 5):
        future = subscribe_async(Hand(), Parked(), loop=abandoned.new())
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(concurrent.futures.wait, [future], 20)
            abandoned.run(turns)
            abandoned.close()
            assert waiting.result(60).done == {future}


@pytest.mark.usefixtures("silence")
def test_a_loop_that_closes_during_the_hand_over_is_refused_as_a_closed_one():
    class Closing(asyncio.SelectorEventLoop):
        def call_soon_threadsafe(self, *args, **options):
            self.close()
            return super().call_soon_threadsafe(*args, **options)

    loop = Closing()
    for _ in range(2):
        with pytest.raises(RuntimeError, match="closed"):
            subscribe_async(Hand(), Parked(), loop=loop)


@pytest.mark.usefixtures("silence")
def test_a_receiver_that_waits_on_its_way_out_of_a_closed_loop_is_closed(abandoned):
    story = []

    async def receive(item):
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            story.append("cancelled")
            await asyncio.sleep(0)
            story.append("never")
        finally:
            story.append("closed")

    future = subscribe_async(Hand(1), receive, loop=abandoned.new())
    abandoned.run(5)
    abandoned.close()
    assert story == ["cancelled", "closed"]
    assert future.cancelled()


@pytest.mark.parametrize("concurrency", [1, 2])
@pytest.mark.usefixtures("silence")
def test_what_a_receiver_raises_on_its_way_out_is_reported_and_harms_no_other(
    abandoned, concurrency, dropped
):
    async def receive(item):
        try:
            await asyncio.Event().wait()
        finally:
            raise OSError("on its way out")

    loop, parked = abandoned.new(), Parked()
    futures = [
        subscribe_async(Hand(1), each, loop=loop, concurrency=concurrency)
        for each in (parked, receive, parked)
    ]
    abandoned.run(8)
    del loop
    abandoned.close()
    assert [type(error) for error in dropped.errors] == [OSError]
    assert all(future.cancelled() for future in futures)
    assert parked.begun == parked.ended == 2


@pytest.mark.usefixtures("silence")
def test_a_receiver_that_swallows_the_cancellation_is_not_told_a_completion(abandoned):
    class Deaf(Receiver):
        async def on_next(self, item, /):
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.Event().wait()

    deaf = Deaf()
    subscribe_async(Hand(), deaf, loop=abandoned.new())
    abandoned.run(5)
    abandoned.close()
    assert [type(told) for told in deaf.story] == [RuntimeError]


@pytest.mark.usefixtures("silence")
def test_a_future_that_was_cancelled_before_the_loop_ran_subscribes_nothing(abandoned):
    publisher = Hand()
    future = subscribe_async(publisher, Parked(), loop=abandoned.new())
    future.cancel()
    abandoned.run(5)
    assert concurrent.futures.wait([future], 20).done == {future}
    assert not publisher.subscribed
    abandoned.close()


@pytest.mark.usefixtures("silence")
def test_a_future_that_is_cancelled_from_outside_cancels_the_subscription(abandoned):
    publisher, parked = Hand(), Parked()
    future = subscribe_async(publisher, parked, loop=abandoned.new())
    abandoned.run(5)
    future.cancel()
    abandoned.run(5)
    assert publisher.cancelled
    assert parked.begun == parked.ended == 1
    abandoned.close()
    assert not future.running()


@pytest.mark.usefixtures("silence")
async def test_a_receiver_is_not_called_for_an_element_that_is_cancelled_before_its_turn():
    """Its coroutine would never be awaited."""

    class Lossy(Hand):
        def subscribe(self, subscriber):
            super().subscribe(subscriber)
            subscriber.on_lagged(1)
            subscriber.on_next(1)

    class Strict(Receiver):
        async def on_lagged(self, missed, /):
            raise LookupError("no loss is borne")

    strict = Strict()
    with pytest.raises(LookupError, match="no loss"):
        await subscribe_async(Lossy(1), strict, concurrency=5)
    assert strict.story == []
