"""The bridges keep the rules on the side where there are rules."""

import asyncio
import itertools

import pytest

import flow
from flow.bridges.inbox import Inbox
from flow.demand import Tide
from flow.overflow import Overflow
from flow.tck import ENDLESS, PublisherVerification, SubscriberVerification
from tests.flow.probes import wait_until
from tests.tck.places import SILENCE, On, Placed, closed, needs_uvloop

reactivex = pytest.importorskip("reactivex")
NewThreadScheduler = pytest.importorskip("reactivex.scheduler").NewThreadScheduler

PLENTY = 1_000


def pushing(n):
    """An observable of n elements; for the endless one, enough of them and no end."""
    if n == ENDLESS:
        return reactivex.concat(reactivex.range(1, PLENTY + 1), reactivex.never())
    return reactivex.range(1, n + 1)


class FromObservable(Placed, PublisherVerification):
    timeout = 0.005
    strict = True
    multicast = "cold"
    reports = True
    plenty = PLENTY
    rounds = 20
    overflow = Overflow.BUFFER

    def make_publisher(self, n):
        return On(flow.from_observable(pushing(n), overflow=self.overflow), self.executor)

    def make_failed_publisher(self):
        return On(flow.from_observable(reactivex.throw(RuntimeError("it fails"))), self.executor)

    def make_stranded_publisher(self):
        if self.kind == "inline":
            return None
        return On(flow.from_observable(pushing(3), overflow=self.overflow), closed(self.kind))


class TestFromObservableInline(FromObservable):
    pass


class TestFromObservableOnAPool(FromObservable):
    kind = "pool"
    timeout = SILENCE


class TestFromObservableOnALoop(FromObservable):
    kind = "debug"
    timeout = SILENCE


class TestThereAndBack(FromObservable):
    def make_publisher(self, n):
        there = flow.to_observable(flow.from_iterable(range(1, min(n, PLENTY) + 1)), prefetch=16)
        if n == ENDLESS:
            there = reactivex.concat(there, reactivex.never())
        return flow.from_observable(there, overflow=Overflow.BUFFER)


class Catch:
    """A publisher that keeps its subscriber for the test."""

    def subscribe(self, subscriber):
        self.subscriber = subscriber


class LossyObservable(FromObservable):
    """What an observable pushes beyond the demand goes: nothing is counted, all else holds."""

    timeout = SILENCE
    strict = False
    lossy = True
    rounds = 10

    def make_publisher(self, n):
        return On(flow.from_observable(hurried(n), overflow=self.overflow, capacity=4), self.executor)


def hurried(n):
    """An observable whose elements come on a thread, whoever has asked."""
    if n == ENDLESS:
        return reactivex.from_iterable(itertools.count(1), scheduler=NewThreadScheduler())
    return pushing(n)


class TestDropOldestObservable(LossyObservable):
    overflow = Overflow.DROP_OLDEST


class TestDropLatestObservable(LossyObservable):
    overflow = Overflow.DROP_LATEST


class TestLatestObservable(LossyObservable):
    overflow = Overflow.LATEST


class Blackbox(SubscriberVerification):
    whitebox = False
    timeout = 0.005


class TestToObservable(Blackbox):
    def make_subscriber(self, probe=None):
        catch = Catch()
        flow.to_observable(catch, prefetch=8).subscribe(lambda _: None, lambda _: None)
        return catch.subscriber


class TestCallbacks(Blackbox):
    def make_subscriber(self, probe=None):
        catch = Catch()
        flow.subscribe(catch, lambda _: None, lambda _: None, prefetch=8)
        return catch.subscriber


class Receiver:
    """An asynchronous subscriber with every method."""

    async def on_next(self, item, /):
        await asyncio.sleep(0)

    async def on_error(self, error, /):
        await asyncio.sleep(0)

    async def on_complete(self):
        await asyncio.sleep(0)


class OnALoop(Placed, Blackbox):
    """Coroutines on a loop in another thread; a test has the subscriber when the task has subscribed."""

    kind = "debug"
    timeout = SILENCE
    receiver = Receiver
    concurrency = 1

    def make_subscriber(self, probe=None):
        catch = Catch()
        flow.subscribe_async(
            catch, self.receiver(), prefetch=8, low_tide=3, concurrency=self.concurrency, loop=self.executor
        )
        wait_until(lambda: hasattr(catch, "subscriber"))
        return catch.subscriber


class TestAsyncSubscriber(OnALoop):
    pass


class TestSeveralCoroutinesAtATime(OnALoop):
    concurrency = 3


class TestACoroutineFunction(OnALoop):
    @staticmethod
    def receiver():
        async def receive(item):
            await asyncio.sleep(0)

        return receive


@needs_uvloop
class TestAsyncSubscriberOnUvloop(OnALoop):
    kind = "uvloop"


class TestTheInboxOfTheIterators(Blackbox):
    def make_subscriber(self, probe=None):
        return Taking(Inbox(Tide(8), lambda: None, "fail"))


class Taking:
    """An inbox whose consumer takes what comes at once."""

    def __init__(self, inbox):
        self.inbox = inbox
        self.on_subscribe, self.on_error, self.on_complete = (
            inbox.on_subscribe,
            inbox.on_error,
            inbox.on_complete,
        )

    def on_next(self, item, /):
        self.inbox.on_next(item)
        self.inbox.take()
