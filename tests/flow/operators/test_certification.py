"""Every operator keeps the rules, as a publisher and as a subscriber."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

import flow
from flow import operators as op
from flow.drain.feed import GONE
from flow.overflow import Overflow
from flow.tck import ProcessorVerification, PublisherVerification
from tests.flow.operators.helpers import ManualTimers


class Through:
    """A processor made of an operator, for one subscriber."""

    def __init__(self, operator: Any) -> None:
        self._behind = operator(_Entrance(self))
        self.inside: Any = None
        self.upstream: Any = None
        self.end: Any = None

    def subscribe(self, subscriber: Any, /) -> None:
        self._behind.subscribe(subscriber)

    def on_subscribe(self, subscription: Any, /) -> None:
        if self.inside is not None:
            self.inside.on_subscribe(subscription)
        elif subscription is None:
            raise TypeError
        elif self.upstream is not None:
            subscription.cancel()
        else:
            self.upstream = subscription

    def on_next(self, item: Any, /) -> None:
        self.inside.on_next(item)

    def on_error(self, error: Any, /) -> None:
        if self.inside is not None:
            self.inside.on_error(error)
        else:
            self.end = lambda inside: inside.on_error(error)

    def on_complete(self) -> None:
        if self.inside is not None:
            self.inside.on_complete()
        else:
            self.end = lambda inside: inside.on_complete()


class _Entrance:
    def __init__(self, processor: Through) -> None:
        self._processor = processor

    def subscribe(self, inside: Any, /) -> None:
        processor = self._processor
        processor.inside = inside
        if processor.end is not None:
            inside.on_subscribe(GONE)
            processor.end(inside)
        elif processor.upstream is not None:
            _Held(processor.upstream).give(inside)


class _Held:
    """Keeps requests until on_subscribe has returned, as a drain does that gives it in its turn."""

    def __init__(self, upstream: Any) -> None:
        self._upstream = upstream
        self._requests: list[Any] | None = []

    def give(self, inside: Any) -> None:
        inside.on_subscribe(self)
        requests, self._requests = self._requests, None
        for n in requests or ():
            self._upstream.request(n)

    def request(self, n: Any, /) -> None:
        if self._requests is None:
            self._upstream.request(n)
        else:
            self._requests.append(n)

    def cancel(self) -> None:
        self._upstream.cancel()


def first_of(operator):
    return lambda publisher: op.map(lambda items: items[0])(operator(publisher))


ONE_BY_ONE = {
    "Map": op.map(lambda n: n),
    "Filter": op.filter(lambda _: True),
    "Scan": op.scan(lambda _, n: n),
    "DistinctUntilChanged": op.distinct_until_changed(),
    "FlatMap": op.flat_map(lambda n: flow.from_iterable([n]), 16),
    "Take": op.take(flow.UNBOUNDED),
    "TakeWhile": op.take_while(lambda _: True),
    "Skip": op.skip(0),
    "LimitRate": op.limit_rate(16),
    "Zip": first_of(op.zip(prefetch=16)),
    "Buffer": first_of(op.buffer(1)),
    "PublishOn": op.publish_on(flow.INLINE, prefetch=16),
    "Concat": op.concat(),
    "Merge": op.merge(prefetch=16),
    "Retry": op.retry(0),
    "OnErrorResume": op.on_error_resume(flow.error),
    "Timeout": op.timeout(1000, timers=ManualTimers()),
    "Tap": op.tap(),
}


class Verified(ProcessorVerification):
    """Everything runs on the thread of the test, so silence needs no waiting."""

    operator: ClassVar[Any]
    timeout = 0.001
    plenty = 2000
    rounds = 5
    max_subscribers = 1

    def make_processor(self, buffer_size):
        assert buffer_size == 16
        return Through(self.operator)


class VerifiedPublisher(PublisherVerification):
    """For operators that ask for everything, or only for what one list or one publisher takes, at their own pace."""

    operator: ClassVar[Any]
    timeout = 0.001
    rounds = 5
    max_elements = 1000
    multicast = "cold"

    def make_publisher(self, n):
        return self.operator(flow.from_iterable(range(n)))

    def make_failed_publisher(self):
        return self.operator(flow.error(RuntimeError("it fails")))


for _name, _operator in ONE_BY_ONE.items():
    globals()[f"Test{_name}"] = type(f"Test{_name}", (Verified,), {"operator": staticmethod(_operator)})


class TestPublishOnAPool(VerifiedPublisher):
    """With threads, silence takes its time."""

    timeout = 0.01
    pool: ClassVar[ThreadPoolExecutor]

    @classmethod
    def setup_class(cls):
        cls.pool = ThreadPoolExecutor(2)
        cls.pool.submit(int).result()  # it has a thread from now on, whichever test needs it first

    @classmethod
    def teardown_class(cls):
        cls.pool.shutdown()

    def operator(self, publisher):
        return op.publish_on(self.pool, prefetch=4)(publisher)

    def make_stranded_publisher(self):
        closed = ThreadPoolExecutor(1)
        closed.shutdown()
        return op.publish_on(closed)(flow.from_iterable([1]))


class TestBufferWithTime(VerifiedPublisher):
    operator = staticmethod(op.buffer(1, 10, timers=ManualTimers()))


class TestFlatMapInOrder(VerifiedPublisher):
    operator = staticmethod(op.flat_map(lambda n: flow.from_iterable([n]), 1))


class TestOnBackpressureBuffer(VerifiedPublisher):
    operator = staticmethod(op.on_backpressure_buffer(1000))


class TestOnBackpressureBufferUnbounded(VerifiedPublisher):
    operator = staticmethod(op.on_backpressure_buffer(1, Overflow.BUFFER))
