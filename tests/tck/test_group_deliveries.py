"""The deliveries of a consumer of a group keep the rules."""

import asyncio
import shutil

import pytest

from flow import INLINE
from flow.drain import COMPLETED
from flow.tck import ENDLESS, PublisherVerification
from publishers import ChangeLog, upsert
from publishers.groups.subscription import DeliveryFeed, DeliverySubscription, ReadBounds
from tests.harness.inside import link_of
from tests.publishers.support import QUICK, scratch
from tests.tck.places import SILENCE, On, Placed, closed, needs_uvloop
from transports import Grant, Limits, LogAction, connect, serve
from transports.client.remote_groups import _DeliverySubscription

PLENTY = 1_200
"""Changes of the log."""


@pytest.fixture(scope="module", autouse=True)
def log():
    path = scratch()
    with ChangeLog.open(path / "log", **QUICK) as log:
        log.commit([upsert("order", str(number), {"n": str(number)}) for number in range(PLENTY)])
        log.groups.create(
            "consumers", since="earliest", max_consumer_pending=PLENTY, max_ack_pending=PLENTY, batch=PLENTY
        )
        Groups.log = Remote.log = log
        yield
    shutil.rmtree(path, ignore_errors=True)


class Ending(DeliverySubscription):
    """One that ends behind so many deliveries, which those of a consumer do not."""

    left = 0

    def deliver(self, consumer, most, **reading):
        found = self.group.deliver(consumer, min(most, self.left), **reading) if self.left else []
        self.left -= len(found)
        return found

    def set(self):
        if self.left:
            super().set()

    def outcome(self):
        with self._lock:
            ended = not self.left and not self._reading and not self._found
        return COMPLETED if ended else None


class Source:
    """The group, as a subscription that ends sees it."""

    def __init__(self, group):
        self.group = group

    def __getattr__(self, name):
        return getattr(self.group, name)

    def deliver(self, *arguments, **named):
        return self.subscription.deliver(*arguments, **named)


class Groups(Placed, PublisherVerification):
    kind = "inline"
    timeout = SILENCE
    strict = True
    reports = True
    plenty = PLENTY
    rounds = 40

    def joined(self):
        """A consumer of the group, at its beginning; whatever was delivered before is forgotten."""
        self.log.groups.seek("consumers", "earliest")
        return self.log.groups.join("consumers", "one")

    def make_publisher(self, n):
        member = self.joined()
        if n == ENDLESS:
            return On(member.deliveries(), self.executor or INLINE)

        def subscribe(subscriber, executor):
            source = Source(member._group)
            ending = source.subscription = Ending(
                source, self.log.groups._log, member._consumer, subscriber, executor, ReadBounds(PLENTY)
            )
            ending.group, ending.left = member._group, n
            ending.start()

        return On(DeliveryFeed(subscribe), self.executor or INLINE)

    def make_failed_publisher(self):
        feed = self.joined().deliveries()
        self.joined()
        return On(feed, self.executor or INLINE)

    def make_stranded_publisher(self):
        if self.kind == "inline":
            return None
        return On(self.make_publisher(3).source, closed(self.kind))


class TestDeliveriesInline(Groups):
    pass


class TestDeliveriesOnAPool(Groups):
    kind = "pool"


class TestDeliveriesOnALoopInDebugMode(Groups):
    kind = "debug"


class EndingRemotely(_DeliverySubscription):
    """One that ends behind so many deliveries, which those of a consumer do not."""

    def ends_behind(self, count):
        self.left = count
        return self

    def begin(self, subscriber, executor):
        super().begin(subscriber, executor)
        if not self.left:
            self.end(None)

    def buffer(self, events, cursor):
        taken = events[: self.left]
        self.left -= len(taken)
        super().buffer(taken, cursor)
        if not self.left:
            self.end(None)


class Remote(Placed, PublisherVerification):
    kind = "debug"
    timeout = 0.05
    strict = True
    reports = True
    plenty = PLENTY
    rounds = 20

    @classmethod
    def setup_class(cls):
        super().setup_class()
        worker = Grant({LogAction.CONSUME}, groups=["consumers", "unknown"])
        server = serve(cls.log, port=0, limits=Limits(messages_per_second=1_000_000), authorise=worker)
        cls.stack.callback(server.stop)

        def call(coroutine):
            return asyncio.run_coroutine_threadsafe(coroutine, cls.executor).result(60)

        cls.remote = connect(server.url)
        call(cls.remote.open())
        cls.stack.callback(lambda: call(cls.remote.close()))

    def make_publisher(self, n):
        self.log.groups.seek("consumers", "earliest")
        member = self.remote.group("consumers", "one")
        if n == ENDLESS:
            return member.deliveries()

        def subscribe(subscriber, executor):
            link = link_of(self.remote)
            ending = EndingRemotely(link, link.consumer(member._payload), 100).ends_behind(n)
            ending.begin(subscriber, executor or self.executor)

        return DeliveryFeed(subscribe)

    def make_failed_publisher(self):
        return self.remote.group("unknown", "one").deliveries()

    def make_stranded_publisher(self):
        return On(self.make_publisher(3), closed(self.kind))


class TestRemoteDeliveriesInDebugMode(Remote):
    pass


@needs_uvloop
class TestRemoteDeliveriesOnUvloop(Remote):
    kind = "uvloop"
