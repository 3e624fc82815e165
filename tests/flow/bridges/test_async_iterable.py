"""Asynchronous iterables as publishers: nothing is pulled that nobody asked for, and nothing is left behind."""

import asyncio
import contextvars
import threading

import pytest

import flow
from tests.flow.probes import BatchProbe, Probe, wait_until
from tests.tck.places import running_loop

NAME = contextvars.ContextVar("NAME", default="nobody")


class Counting:
    """Makes asynchronous generators, and notes what happens to them."""

    def __init__(self, count, *, error=None):
        self.count = count
        self.error = error
        self.made = 0
        self.pulled = 0
        self.closed = 0
        self.names = []
        self.threads = set()

    async def __call__(self):
        self.made += 1
        self.names.append(NAME.get())
        self.threads.add(threading.get_ident())
        try:
            for number in range(self.count):
                self.pulled += 1
                yield number
                await asyncio.sleep(0)
            if self.error is not None:
                raise self.error
        finally:
            self.closed += 1


@pytest.fixture
def loop():
    with running_loop("debug") as loop:
        yield loop


async def some_turns():
    """Whatever is going to happen on a loop that nobody asks anything has happened by then."""
    for _ in range(50):
        await asyncio.sleep(0)
    return "served"


def collected(publisher, **demand):
    probe = Probe(**demand)
    publisher.subscribe(probe)
    wait_until(lambda: probe.subscription is not None)
    return probe


async def test_each_subscriber_gets_the_whole_stream_on_the_running_loop():
    numbers = Counting(5)
    publisher = flow.from_async_iterable(numbers)
    for _ in range(2):
        async with flow.aiter(publisher) as items:
            assert [item async for item in items] == [0, 1, 2, 3, 4]
    assert numbers.made == numbers.closed == 2
    assert numbers.threads == {threading.get_ident()}


def test_nothing_is_pulled_that_was_not_requested(loop):
    numbers = Counting(10)
    probe = collected(flow.from_async_iterable(numbers, loop=loop))
    asyncio.run_coroutine_threadsafe(some_turns(), loop).result(60)
    assert numbers.made == 0
    probe.request(3)
    wait_until(lambda: len(probe.items) == 3)
    asyncio.run_coroutine_threadsafe(some_turns(), loop).result(60)
    assert numbers.pulled == 3
    assert not probe.ended.is_set()


def test_with_lookahead_the_end_is_told_without_a_further_request(loop):
    probe = collected(flow.from_async_iterable(Counting(2), loop=loop, lookahead=True), first=2)
    assert probe.ended.wait(60)
    assert (probe.items, probe.completed) == ([0, 1], True)


def test_cancelling_closes_the_iterator_although_it_waits_for_something(loop):
    closed = threading.Event()

    async def endless():
        try:
            yield 1
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)  # closing may take its time
            closed.set()

    probe = collected(flow.from_async_iterable(endless, loop=loop), first=5)
    wait_until(lambda: probe.items)
    probe.cancel()
    assert closed.wait(60)
    assert probe.signals == ["subscribe", "next"]


def test_an_iterator_without_aclose_is_let_go_of(loop):
    class Plain:
        def __aiter__(self):
            return self

        async def __anext__(self):
            return 7

    probe = collected(flow.from_async_iterable(Plain(), loop=loop), first=2)
    wait_until(lambda: probe.items == [7, 7])
    probe.cancel()


def test_an_error_is_told_after_the_elements_before_it(loop):
    failure = ValueError("it fails")
    probe = collected(flow.from_async_iterable(Counting(2, error=failure), loop=loop), first=9)
    assert probe.ended.wait(60)
    assert (probe.items, probe.error) == ([0, 1], failure)


def test_what_closing_raises_is_reported(loop, dropped):
    async def stubborn():
        try:
            yield 1
        finally:
            raise OSError("it does not close")

    probe = collected(flow.from_async_iterable(stubborn, loop=loop), first=1)
    wait_until(lambda: probe.items)
    probe.cancel()
    wait_until(lambda: dropped.errors)
    assert [type(error) for error in dropped.errors] == [OSError]


def test_the_context_of_the_subscribe_goes_with_the_iterator(loop):
    numbers = Counting(1)
    NAME.set("somebody")
    probe = collected(flow.from_async_iterable(numbers, loop=loop), first=2)
    NAME.set("nobody")
    assert probe.ended.wait(60)
    assert numbers.names == ["somebody"]


def test_a_slow_executor_finds_at_most_256_waiting_and_takes_them_at_once(loop):
    numbers = Counting(10_000)
    gate, first = threading.Event(), threading.Event()

    class Slow(BatchProbe):
        def on_next_batch(self, items, /):
            super().on_next_batch(items)
            first.set()
            gate.wait(60)

    probe = Slow(first=flow.UNBOUNDED)
    publisher = flow.from_async_iterable(numbers, loop=loop)
    # INLINE: on the loop, which then cannot run ahead, or on the thread that requests, which then waits here.
    requesting = threading.Thread(target=lambda: publisher.subscribe(probe, executor=flow.INLINE))
    requesting.start()
    assert first.wait(60)
    assert numbers.pulled <= 257
    gate.set()
    assert probe.ended.wait(60)
    requesting.join()
    assert len(probe.items) == 10_000
    assert max(map(len, probe.batches)) <= 256


def test_on_another_executor_the_iterator_runs_ahead_of_the_subscriber_and_no_further_than_a_turn(loop):
    import concurrent.futures

    numbers = Counting(10_000)
    gate = threading.Event()
    probe = Probe(first=flow.UNBOUNDED, on_item=lambda _: gate.wait(60))
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        flow.from_async_iterable(numbers, loop=loop).subscribe(probe, executor=pool)
        wait_until(lambda: numbers.pulled >= 200)
        asyncio.run_coroutine_threadsafe(some_turns(), loop).result(60)
        assert numbers.pulled <= 257
        gate.set()
        assert probe.ended.wait(60)
    assert probe.items == list(range(10_000))


def test_an_iterator_that_never_waits_leaves_the_loop_to_others(loop):
    stop = threading.Event()

    async def eager():
        while not stop.is_set():
            yield 1

    probe = collected(flow.from_async_iterable(eager, loop=loop), first=flow.UNBOUNDED)
    wait_until(lambda: len(probe.items) > 1000)
    assert asyncio.run_coroutine_threadsafe(some_turns(), loop).result(60) == "served"
    stop.set()
    assert probe.ended.wait(60)


def test_an_asynchronous_iterator_serves_one_subscriber_and_says_so(loop):
    publisher = flow.from_async_iterable(Counting(2)(), loop=loop)
    first, second = collected(publisher, first=9), collected(publisher, first=9)
    assert first.ended.wait(60)
    assert second.ended.wait(60)
    assert first.items == [0, 1]
    assert "rule 1.10" in str(second.error)
    assert "a function that makes an iterator for each" in str(second.error)


def test_without_a_loop_the_subscriber_is_told_how_to_name_one():
    probe = collected(flow.from_async_iterable(Counting(2)))
    assert "loop=" in str(probe.error)


def test_a_closed_loop_fails_the_subscriber_and_not_the_caller():
    closed = asyncio.new_event_loop()
    closed.close()
    probe = Probe(first=1)
    flow.from_async_iterable(Counting(2), loop=closed).subscribe(probe, executor=flow.INLINE)
    assert "closed" in str(probe.error)


def test_who_listens_elsewhere_is_told_when_the_loop_ends():
    probe = Probe(first=9)
    begun = threading.Event()

    async def waiting():
        begun.set()
        await asyncio.Event().wait()
        yield 1

    async def main():
        flow.from_async_iterable(waiting).subscribe(probe, executor=flow.INLINE)
        assert await asyncio.to_thread(begun.wait, 10)

    asyncio.run(main())
    assert isinstance(probe.error, RuntimeError)


@pytest.mark.usefixtures("silence")
@pytest.mark.parametrize("where", ["inline", "loop"])
def test_a_loop_that_closes_wherever_it_was_closes_the_iterator_and_ends_the_subscriber(abandoned, where):
    """The iterator may not have begun, wait for something, or for demand."""
    begun = closed = 0

    async def parked():
        nonlocal begun, closed
        begun += 1
        try:
            yield 1
            await asyncio.Event().wait()
        finally:
            closed += 1

    for first in (1, 5):
        for turns in range(8):
            loop, probe, before = abandoned.new(), Probe(first=first), begun
            publisher = flow.from_async_iterable(parked, loop=loop)
            publisher.subscribe(probe, executor=flow.INLINE if where == "inline" else loop)
            abandoned.run(turns)
            assert probe.error is None
            del loop, publisher
            abandoned.close()
            if where == "inline" or begun > before:
                assert isinstance(probe.error, RuntimeError)
            assert closed == begun
            assert probe.overlaps == 0
    assert begun > 8


@pytest.mark.usefixtures("silence")
def test_a_loop_that_closes_in_the_hand_over_fails_the_subscriber():
    class Closing(asyncio.SelectorEventLoop):
        def call_soon_threadsafe(self, *args, **options):
            self.close()
            return super().call_soon_threadsafe(*args, **options)

    probe = Probe(first=1)
    flow.from_async_iterable(Counting(2), loop=Closing()).subscribe(probe, executor=flow.INLINE)
    assert probe.signals == ["subscribe", "error"]
    assert "closed" in str(probe.error)


@pytest.mark.usefixtures("silence")
def test_an_iterator_that_waits_on_its_way_out_of_a_closed_loop_holds_up_no_end(abandoned, dropped):
    async def stubborn():
        try:
            yield 1
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)

    probe = Probe(first=2)
    flow.from_async_iterable(stubborn, loop=abandoned.new()).subscribe(probe, executor=flow.INLINE)
    abandoned.run(5)
    abandoned.close()
    assert isinstance(probe.error, RuntimeError)


@pytest.mark.parametrize(
    ("source", "text"),
    [([1, 2], "flow.from_iterable"), (None, "asynchronous iterable")],
)
def test_what_is_no_asynchronous_iterable_is_refused(source, text):
    with pytest.raises(TypeError, match=text):
        flow.from_async_iterable(source)


def test_what_is_no_loop_is_refused():
    with pytest.raises(TypeError, match="an event loop or None"):
        flow.from_async_iterable(Counting(1), loop="main")


def test_a_coroutine_function_is_told_from_a_generator_function(loop):
    async def forgot_to_yield():
        return [1]

    probe = collected(flow.from_async_iterable(forgot_to_yield, loop=loop), first=1)
    assert probe.ended.wait(60)
    assert "asynchronous generator function" in str(probe.error)


def test_none_is_no_element_here_either(loop):
    async def gap():
        yield 1
        yield None

    probe = collected(flow.from_async_iterable(gap, loop=loop), first=9)
    assert probe.ended.wait(60)
    assert probe.items == [1]
    assert "None is not an element" in str(probe.error)
