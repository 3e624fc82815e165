"""Signals a second from one writer to its subscribers, the cost of a request, and the memory of an idle subscriber.

The peers are those that a Python program would use instead: a reactivex ``Subject``, an eventkit ``Event``, aiostream, and a
bounded ``asyncio.Queue`` for each subscriber. The figures are CPU time, since no variant waits for I/O.
"""

import asyncio
import gc
import time
import tracemalloc
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

import aiostream
from reactivex import Subject

import flow
from benchmarks.harness import Table, Variant, compare

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it looks for a loop when it is imported
    import eventkit

SIZE = 10
"""Elements in a batch."""

ROUNDS = 5
DELIVERIES = 60_000
SUBSCRIBERS = (1, 10, 100, 1000)
IDLE = 2_000


class Counting:
    """Requests without bound, and counts elements."""

    __slots__ = ("count", "subscription")

    def __init__(self) -> None:
        self.count = 0

    def on_subscribe(self, subscription: flow.Subscription, /) -> None:
        self.subscription = subscription
        subscription.request(flow.UNBOUNDED)

    def on_next(self, _item: object, /) -> None:
        self.count += 1

    def on_error(self, error: Exception, /) -> None:
        raise AssertionError(error)

    def on_complete(self) -> None:
        return


class Batched(Counting):
    """Counts elements of batches."""

    __slots__ = ()

    def on_next_batch(self, items: Sequence[object], /) -> None:
        self.count += len(items)


class Asking(Counting):
    """Requests one element at a time."""

    __slots__ = ()

    def on_subscribe(self, subscription: flow.Subscription, /) -> None:
        self.subscription = subscription
        subscription.request(1)

    def on_next(self, _item: object, /) -> None:
        self.count += 1
        self.subscription.request(1)


class Idle(Counting):
    """Never requests."""

    __slots__ = ()

    def on_subscribe(self, subscription: flow.Subscription, /) -> None:
        self.subscription = subscription


def run(_directory: Path) -> dict[str, Table]:
    """1 to 1,000 subscribers; streams of one subscriber; coroutines; memory."""
    tables = {f"signals to {n}": signals(n) for n in SUBSCRIBERS}
    tables["a stream for one"] = streams()
    tables["coroutines"] = coroutines(100)
    tables["memory"] = memory()
    return tables


def cpu(work: Callable[[], int]) -> tuple[int, float]:
    """The number of units done, and the CPU seconds that they took."""
    gc.collect()
    began = time.process_time()
    done = work()
    return done, max(time.process_time() - began, 1e-9)


class Audience:
    """The subscribers of one writer, for each peer."""

    def __init__(self, subscribers: int, turns: int) -> None:
        self.turns = turns
        self.deliveries = turns * subscribers
        self.targets, self.single, self.observers, self.handlers = (
            [Counting() for _ in range(subscribers)] for _ in range(4)
        )
        self.tens, self.batch_targets = ([Batched() for _ in range(subscribers)] for _ in range(2))
        self.one, self.ten = flow.Broadcast[int](256), flow.Broadcast[int](256)
        self.subject, self.event = Subject[int](), eventkit.Event("change")
        for place in range(subscribers):
            self.one.subscribe(self.single[place])
            self.ten.subscribe(self.tens[place])
            self.subject.subscribe(self.observers[place].on_next)
            self.event.connect(self.handlers[place].on_next)

    def loop(self) -> int:
        for item in range(self.turns):
            for target in self.targets:
                target.on_next(item)
        return self.deliveries

    def loop_of_batches(self) -> int:
        for first in range(0, self.turns, SIZE):
            items = tuple(range(first, first + SIZE))
            for target in self.batch_targets:
                target.on_next_batch(items)
        return self.deliveries

    def each(self, give: Callable[[int], object]) -> int:
        for item in range(self.turns):
            give(item)
        return self.deliveries

    def batches(self) -> int:
        for first in range(0, self.turns, SIZE):
            self.ten.submit_many(range(first, first + SIZE))
        return self.deliveries

    def verify(self) -> None:
        for kind in (self.targets, self.single, self.tens, self.batch_targets, self.observers, self.handlers):
            assert all(target.count == ROUNDS * self.turns for target in kind)


def signals(subscribers: int) -> Table:
    """Elements written one by one, and ten at a time."""
    to = Audience(subscribers, max(SIZE, DELIVERIES // subscribers // SIZE * SIZE))
    figures = compare(
        f"one writer, S={subscribers}, B=1 and {SIZE}, no durability",
        "deliveries/CPU-s",
        [
            Variant("a loop that calls on_next", lambda: cpu(to.loop)),
            Variant("a loop that calls on_next_batch", lambda: cpu(to.loop_of_batches)),
            Variant("flow.Broadcast, on_next", lambda: cpu(lambda: to.each(to.one.submit))),
            Variant("flow.Broadcast, on_next_batch", lambda: cpu(to.batches)),
            Variant("reactivex Subject", lambda: cpu(lambda: to.each(to.subject.on_next))),
            Variant("eventkit Event", lambda: cpu(lambda: to.each(to.event.emit))),
        ],
        ROUNDS,
    )
    to.verify()
    figures.reach("flow.Broadcast, on_next", ">=", 2, "reactivex Subject")
    if subscribers >= 100:
        figures.reach("flow.Broadcast, on_next", ">=", 0.8, "a loop that calls on_next")
        figures.reach("flow.Broadcast, on_next", ">=", 1.5, "eventkit Event")
        figures.reach("flow.Broadcast, on_next_batch", ">=", 15, "reactivex Subject")
    print()
    return figures


def streams() -> Table:
    """From an iterable to one subscriber: the cost of demand."""

    def through(make: Callable[[], Counting], *operators: flow.Operator[int, int]) -> Callable[[], int]:
        def work() -> int:
            target = make()
            flow.pipe(flow.from_iterable(range(DELIVERIES)), *operators).subscribe(target)
            assert target.count == DELIVERIES
            return DELIVERIES

        return work

    def loop() -> int:
        target = Counting()
        for item in range(DELIVERIES):
            target.on_next(item)
        return DELIVERIES

    def pulled() -> int:
        async def main() -> int:
            count = 0
            async with aiostream.stream.range(DELIVERIES).stream() as items:
                async for _ in items:
                    count += 1
            return count

        return asyncio.run(main())

    def iterated() -> int:
        async def main() -> int:
            count = 0
            async with flow.aiter(flow.from_iterable(range(DELIVERIES)), 256) as items:
                async for _ in items:
                    count += 1
            return count

        return asyncio.run(main())

    mapped = flow.operators.map(int)
    figures = compare(
        "a stream for one subscriber",
        "elements/CPU-s",
        [
            Variant("a loop that calls on_next", lambda: cpu(loop)),
            Variant("from_iterable, unbounded demand", lambda: cpu(through(Counting))),
            Variant("from_iterable, request(1) for each", lambda: cpu(through(Asking))),
            Variant("from_iterable, on_next_batch", lambda: cpu(through(Batched))),
            Variant("map(int), on_next", lambda: cpu(through(Counting, mapped))),
            Variant("map(int), on_next_batch", lambda: cpu(through(Batched, mapped))),
            Variant("flow.aiter, prefetch 256", lambda: cpu(iterated)),
            Variant("aiostream", lambda: cpu(pulled)),
        ],
        ROUNDS,
    )
    rates = {figure.variant: figure.rate for figure in figures}
    cost = 1e9 / rates["from_iterable, request(1) for each"] - 1e9 / rates["from_iterable, unbounded demand"]
    figures.note(f"request(1) costs {cost:,.0f} ns an element more than unbounded demand")
    figures.reach("flow.aiter, prefetch 256", ">=", 1, "aiostream")
    print()
    return figures


def coroutines(subscribers: int) -> Table:
    """Tasks that receive element by element, by demand or from a bounded queue each."""
    turns = DELIVERIES // subscribers

    async def by_demand() -> int:
        broadcast, counts = flow.Broadcast[int](256), [0] * subscribers

        async def take(place: int) -> None:
            async with flow.aiter(broadcast, 256) as items:
                async for _ in items:
                    counts[place] += 1

        tasks = [asyncio.create_task(take(place)) for place in range(subscribers)]
        await asyncio.sleep(0)
        for item in range(turns):
            await broadcast.asubmit(item)
            if item % SIZE == 0:
                await asyncio.sleep(0)
        broadcast.close()
        await asyncio.gather(*tasks)
        assert counts == [turns] * subscribers
        return turns * subscribers

    async def by_queue() -> int:
        queues = [asyncio.Queue[int](256) for _ in range(subscribers)]  # noqa: TID251 - the peer
        counts = [0] * subscribers

        async def take(place: int) -> None:
            while await queues[place].get() >= 0:
                counts[place] += 1

        tasks = [asyncio.create_task(take(place)) for place in range(subscribers)]
        for item in [*range(turns), -1]:
            for queue in queues:
                await queue.put(item)
            if item % SIZE == 0:
                await asyncio.sleep(0)
        await asyncio.gather(*tasks)
        assert counts == [turns] * subscribers
        return turns * subscribers

    figures = compare(
        f"coroutines, S={subscribers}, B={SIZE}",
        "deliveries/CPU-s",
        [
            Variant("asyncio.Queue(256) for each", lambda: cpu(lambda: asyncio.run(by_queue()))),
            Variant("flow.Broadcast and flow.aiter", lambda: cpu(lambda: asyncio.run(by_demand()))),
        ],
        ROUNDS,
    )
    figures.reach("flow.Broadcast and flow.aiter", ">=", 3, "asyncio.Queue(256) for each")
    print()
    return figures


def memory() -> Table:
    """Bytes for one subscriber that waits, as a callback and as a task."""
    found = Table(
        "memory of an idle subscriber",
        "bytes",
        {
            "callback, to a broadcast": [weigh(callbacks)],
            "task, to a broadcast": [asyncio.run(weigh_tasks())],
        },
    ).show()
    found.reach("callback, to a broadcast", "<=", 400)
    found.reach("task, to a broadcast", "<=", 2048)
    print()
    return found


def weigh(make: Callable[[], object]) -> float:
    """Bytes for each object that ``make`` returns and keeps alive."""
    make()  # creates shared objects, which do not count
    gc.collect()
    tracemalloc.start()
    try:
        kept = make()
        gc.collect()
        return tracemalloc.get_traced_memory()[0] / (IDLE if kept else 1)
    finally:
        tracemalloc.stop()


def callbacks() -> object:
    broadcast = flow.Broadcast[int](256)
    subscribers = [Idle() for _ in range(IDLE)]
    for subscriber in subscribers:
        broadcast.subscribe(subscriber)
    return broadcast, subscribers


async def weigh_tasks() -> float:
    broadcast = flow.Broadcast[int](256)

    async def wait() -> None:
        async with flow.aiter(broadcast) as items:
            async for _ in items:
                pass

    async def begin() -> list["asyncio.Task[None]"]:
        tasks = [asyncio.create_task(wait()) for _ in range(IDLE)]
        for _ in range(3):
            await asyncio.sleep(0)
        return tasks

    gc.collect()
    tracemalloc.start()
    try:
        tasks = await begin()
        gc.collect()
        found = tracemalloc.get_traced_memory()[0] / IDLE
    finally:
        tracemalloc.stop()
    broadcast.close()
    await asyncio.gather(*tasks)
    return found
