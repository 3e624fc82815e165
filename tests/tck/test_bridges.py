"""The bridges keep the rules on the side where there are rules."""

import pytest

import flow
from flow.bridges.inbox import Inbox
from flow.demand import Tide
from flow.overflow import Overflow
from flow.tck import ENDLESS, PublisherVerification, SubscriberVerification
from tests.tck.places import SILENCE, On, Placed, closed

reactivex = pytest.importorskip("reactivex")

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


class TestTheInboxOfTheIterators(Blackbox):
    def make_subscriber(self, probe=None):
        return Taking(Inbox(Tide(8), lambda: None, "raise"))


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
