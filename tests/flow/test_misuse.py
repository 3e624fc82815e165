"""Every misuse of the public face gets an error that names the rule, if there is one, and what would be right."""

import asyncio
import concurrent.futures

import pytest

import flow
from flow import operators as op
from tests.flow.probes import Probe, dropped_errors

ONE = flow.from_iterable([1, 2, 3])
INTEGER = "an integer of at least 1 is expected"
FUNCTION = "a function is expected"
OR_NONE = "a function or None is expected"
PUBLISHER = "a publisher, which has subscribe(subscriber), is expected"
FOUND = "flow.from_iterable makes one of an iterable"


async def forever():
    while True:
        yield 1


def closed_broadcast():
    broadcast = flow.Broadcast()
    broadcast.close()
    return broadcast


def closed_loop():
    loop = asyncio.new_event_loop()
    loop.close()
    return loop


def closed_pool():
    pool = concurrent.futures.ThreadPoolExecutor(1)
    pool.shutdown()
    return pool


class Deaf:
    def on_subscribe(self, subscription, /): ...
    def on_next(self, item, /): ...


RAISED = {
    # Subscribing.
    "subscribe(None)": (lambda: ONE.subscribe(None), TypeError, "rule 1.9", "on_next, on_error"),
    "subscribe(None) behind a link": (lambda: op.tap()(ONE).subscribe(None), TypeError, "rule 1.9"),
    "subscribe(None) behind a queue": (lambda: op.limit_rate(4)(ONE).subscribe(None), TypeError, "rule 1.9"),
    "subscribe(None) to a broadcast": (lambda: flow.Broadcast().subscribe(None), TypeError, "rule 1.9"),
    "a subscriber that is none": (lambda: ONE.subscribe(object()), TypeError, "rule 1.9", "flow.subscribe"),
    "a function as subscriber": (lambda: op.tap()(ONE).subscribe(print), TypeError, "flow.subscribe"),
    "a subscriber without ends": (lambda: ONE.subscribe(Deaf()), TypeError, "no on_error and no on_complete"),
    "an executor that is none": (lambda: ONE.subscribe(Probe(), executor=5), TypeError, "an event loop"),
    "a list for a publisher": (lambda: flow.subscribe([1], print), TypeError, PUBLISHER, FOUND),
    "no callback": (lambda: flow.subscribe(ONE, 5), TypeError, f"on_next: 5; {FUNCTION}"),
    "no error callback": (lambda: flow.subscribe(ONE, print, 5), TypeError, f"on_error: 5; {OR_NONE}"),
    "prefetch=0": (lambda: flow.subscribe(ONE, print, prefetch=0), ValueError, f"prefetch: 0; {INTEGER}"),
    "prefetch=True": (lambda: flow.iter_blocking(ONE, True), ValueError, f"prefetch: True; {INTEGER}"),
    "low_tide > prefetch": (lambda: flow.aiter(ONE, 4, 5), ValueError, "low_tide: 5", "0 to prefetch (4)"),
    "on_lag": (lambda: flow.aiter(ONE, on_lag="no"), ValueError, "'fail', 'skip' or a callable"),
    "aiter of a generator": (lambda: flow.aiter(forever()), TypeError, "flow.from_async_iterable"),
    "iter_blocking of a list": (lambda: flow.iter_blocking([1]), TypeError, FOUND),
    "no concurrency": (lambda: flow.subscribe_async(ONE, print, concurrency=0), ValueError, INTEGER),
    "no receiver": (lambda: flow.subscribe_async(ONE, 5), TypeError, f"receiver: 5; {FUNCTION}"),
    "no loop": (lambda: flow.subscribe_async(ONE, print), RuntimeError, "loop="),
    "closed loop": (lambda: flow.subscribe_async(ONE, print, loop=closed_loop()), RuntimeError, "closed"),
    # Sources.
    "no iterable": (lambda: flow.from_iterable(None), TypeError, "an iterable is expected"),
    "asynchronous": (lambda: flow.from_iterable(forever()), TypeError, "flow.from_async_iterable"),
    "plain": (lambda: flow.from_async_iterable([1]), TypeError, "flow.from_iterable"),
    "generate([1])": (lambda: flow.generate([1]), TypeError, f"make: [1]; {FUNCTION}"),
    "error('no')": (lambda: flow.error("no"), TypeError, "an instance of Exception is expected"),
    "executor_of('x')": (lambda: flow.executor_of("x"), TypeError, "an executor with submit()"),
    "Drain(turn=0)": (lambda: flow.Drain(Probe(), None, turn=0), ValueError, f"turn: 0; {INTEGER}"),
    # Operators.
    "map(5)": (lambda: op.map(5), TypeError, f"f: 5; {FUNCTION}"),
    "filter(5)": (lambda: op.filter(5), TypeError, f"keep: 5; {FUNCTION}"),
    "scan(5)": (lambda: op.scan(5), TypeError, f"f: 5; {FUNCTION}"),
    "distinct(5)": (lambda: op.distinct_until_changed(5), TypeError, f"key: 5; {OR_NONE}"),
    "take_while(5)": (lambda: op.take_while(5), TypeError, f"keep: 5; {FUNCTION}"),
    "take(-1)": (lambda: op.take(-1), ValueError, "an integer of at least 0"),
    "skip(1.5)": (lambda: op.skip(1.5), ValueError, "an integer of at least 0"),
    "flat_map(5)": (lambda: op.flat_map(5), TypeError, f"f: 5; {FUNCTION}"),
    "flat_map(f, 0)": (lambda: op.flat_map(str, 0), ValueError, f"concurrency: 0; {INTEGER}"),
    "flat_map(f, 1, 0)": (lambda: op.flat_map(str, 1, 0), ValueError, f"prefetch: 0; {INTEGER}"),
    "limit_rate(0)": (lambda: op.limit_rate(0), ValueError, f"high: 0; {INTEGER}"),
    "buffer(0)": (lambda: op.buffer(0), ValueError, f"count: 0; {INTEGER}"),
    "buffer(1, 0)": (lambda: op.buffer(1, 0), ValueError, "seconds: 0; a positive number"),
    "merge of 5": (lambda: op.merge(5), TypeError, f"publisher 1: int; {PUBLISHER}"),
    "zip of a list": (lambda: op.zip(ONE, [1]), TypeError, "publisher 2: list", FOUND),
    "retry(-1)": (lambda: op.retry(-1), ValueError, "an integer of at least 0"),
    "retry(1, 5)": (lambda: op.retry(1, 5), TypeError, "backoff: 5", "RetryDelay is expected"),
    "retry(when=5)": (lambda: op.retry(when=5), TypeError, f"when: 5; {OR_NONE}"),
    "on_error_resume(5)": (lambda: op.on_error_resume(5), TypeError, f"fallback: 5; {FUNCTION}"),
    "timeout('1')": (lambda: op.timeout("1"), ValueError, "a positive number of seconds"),
    "tap(5)": (lambda: op.tap(5), TypeError, f"on_next: 5; {OR_NONE}"),
    "publish_on(5)": (lambda: op.publish_on(5), TypeError, "an event loop"),
    "publish_on(prefetch=0)": (lambda: op.publish_on(flow.INLINE, prefetch=0), ValueError, INTEGER),
    "on_backpressure_buffer(0)": (
        lambda: op.on_backpressure_buffer(0),
        ValueError,
        f"capacity: 0; {INTEGER}",
    ),
    "no policy": (lambda: op.on_backpressure_buffer(1, "ERROR"), ValueError, "a member of flow.Overflow"),
    "on_drop=5": (lambda: op.on_backpressure_drop(5), TypeError, f"on_drop: 5; {OR_NONE}"),
    "pipe(publisher, 5)": (lambda: flow.pipe(ONE, 5), TypeError, f"operator 1: 5; {FUNCTION}"),
    "an operator not called": (
        lambda: flow.pipe(ONE, op.concat),
        TypeError,
        "called first, as in op.map(str)",
    ),
    "pipe(list)": (lambda: flow.pipe([1], op.map(str)), TypeError, PUBLISHER, FOUND),
    "Flow(5)": (lambda: flow.Flow(5), TypeError, PUBLISHER),
    # Sharing.
    "Broadcast(0)": (lambda: flow.Broadcast(0), ValueError, f"capacity: 0; {INTEGER}"),
    "replay > capacity": (lambda: flow.Broadcast(4, replay=5), ValueError, "0 to the capacity (4)"),
    "lag='x'": (lambda: flow.Broadcast(4, lag="x"), ValueError, "lag: 'x'; a member of flow.Lag"),
    "from_='x'": (lambda: flow.Broadcast().subscribe(Probe(), from_="x"), ValueError, "flow.BroadcastStart"),
    "submit(None)": (lambda: flow.Broadcast().submit(None), TypeError, "rule 2.13", "leave it out"),
    "offer(None)": (lambda: flow.Broadcast().offer(None), TypeError, "rule 2.13", "leave it out"),
    "submit after close": (lambda: closed_broadcast().submit(1), flow.BroadcastClosed, "offer() answers"),
    "fail('x')": (lambda: flow.Broadcast().fail("x"), TypeError, "an instance of Exception"),
    "publish(prefetch=0)": (lambda: flow.publish(ONE, 0), ValueError, f"prefetch: 0; {INTEGER}"),
    "publish unbounded": (lambda: flow.publish(ONE, flow.UNBOUNDED), ValueError, "the size of a ring"),
    "publish(5)": (lambda: flow.publish(5), TypeError, PUBLISHER),
    "replay(-1)": (lambda: flow.replay(ONE, -1), ValueError, "an integer of at least 0"),
    "auto_connect(0)": (lambda: flow.publish(ONE).auto_connect(0), ValueError, f"n: 0; {INTEGER}"),
    "grace=-1": (lambda: flow.share(ONE, grace=-1), ValueError, "a number of seconds of at least 0"),
    "grace='x'": (lambda: flow.share(ONE, grace="x"), ValueError, "a number of seconds of at least 0"),
}


@pytest.mark.parametrize("misuse", RAISED.values(), ids=RAISED)
def test_a_misuse_raises_what_says_how_to_do_it_right(misuse):
    do, kind, *words = misuse
    with pytest.raises(kind) as raised:
        do()
    for word in words:
        assert word in str(raised.value)


def of(publisher, first=1, **where):
    probe = Probe(first=first)
    publisher.subscribe(probe, **where)
    return probe


def asking(n):
    probe = of(ONE, 0)
    probe.request(n)
    return probe


TOLD = {
    # What the rules forbid to raise is told.
    "request(0)": (lambda: asking(0), ValueError, "rule 3.9", "an integer of at least 1"),
    "request(-1)": (lambda: asking(-1), ValueError, "rule 3.9", "-1 (int)"),
    "request(True)": (lambda: asking(True), ValueError, "rule 3.9", "True (bool)"),
    "request(1.5)": (lambda: asking(1.5), ValueError, "rule 3.9", "1.5 (float)"),
    "request('3')": (lambda: asking("3"), ValueError, "rule 3.9", "str"),
    "None among the elements": (
        lambda: of(flow.from_iterable([None])),
        TypeError,
        "rule 2.13",
        "leave it out",
    ),
    "map to None": (lambda: of(op.map(lambda _: None)(ONE)), TypeError, "rule 2.13", "filter"),
    "flat_map to a list": (lambda: of(op.flat_map(lambda n: [n])(ONE)), TypeError, PUBLISHER, FOUND),
    "resume with a list": (
        lambda: of(op.on_error_resume(lambda _: [1])(flow.error(OSError()))),
        TypeError,
        PUBLISHER,
        FOUND,
    ),
    "a closed loop": (lambda: of(ONE, executor=closed_loop()), RuntimeError, "the event loop is closed"),
    "a closed pool": (lambda: of(ONE, executor=closed_pool()), RuntimeError, "after shutdown"),
    "no loop to iterate on": (lambda: of(flow.from_async_iterable(forever)), RuntimeError, "loop="),
    "more than was asked for": (
        lambda: of(op.on_backpressure_error()(flow.from_iterable(range(9)))),
        flow.Overflowed,
        "request more",
    ),
}


@pytest.mark.parametrize("misuse", TOLD.values(), ids=TOLD)
def test_a_misuse_after_the_subscribe_is_told_and_not_raised(misuse):
    do, kind, *words = misuse
    probe = do()
    assert probe.ended.wait(60)
    assert isinstance(probe.error, kind)
    for word in words:
        assert word in str(probe.error)


@pytest.mark.parametrize("signal", ["on_next", "on_error", "on_subscribe"])
@pytest.mark.parametrize("behind", [op.tap(), op.limit_rate(4)], ids=["a link", "a queue"])
def test_rule_213_a_signal_with_none_is_refused(signal, behind):
    class Source:
        def subscribe(self, subscriber, /):
            self.subscriber = subscriber

    source = Source()
    behind(source).subscribe(Probe())
    with pytest.raises(TypeError, match=r"rule 2\.13: the \w+ is None"):
        getattr(source.subscriber, signal)(None)


def test_rule_205_a_second_on_subscribe_cancels_the_second():
    class Subscription:
        cancelled = 0

        def request(self, n, /): ...

        def cancel(self):
            self.cancelled += 1

    first, second = Subscription(), Subscription()
    subscriber = flow.subscribe(flow.never(), print)
    subscriber.on_subscribe(second)
    assert (first.cancelled, second.cancelled) == (0, 1)


def test_connecting_twice_is_one_connection():
    begun = []

    def source():
        begun.append(1)
        return [1]

    connectable = flow.publish(op.concat(flow.never())(flow.generate(source)))
    assert connectable.connect() == connectable.connect()
    assert begun == [1]


async def test_an_asynchronous_iterator_says_how_to_be_used():
    items = flow.aiter(ONE)
    async with items:
        pass
    with pytest.raises(RuntimeError, match=r"call flow\.aiter again"):
        await items.__aenter__()


def test_a_blocking_iterator_is_entered_once():
    with flow.iter_blocking(ONE) as items:
        assert list(items) == [1, 2, 3]
    with pytest.raises(RuntimeError, match=r"call flow\.iter_blocking again"):
        items.__enter__()


def test_a_subscriber_that_raises_is_cancelled_and_the_error_is_reported():
    with dropped_errors() as dropped:
        probe = Probe(first=3, on_item=lambda _: 1 / 0)
        ONE.subscribe(probe)
    assert probe.signals == ["subscribe", "next"]
    assert [type(error) for error in dropped.errors] == [ZeroDivisionError]
