"""The feed of a change log, and that of a remote one, keep the rules."""

import asyncio
import shutil
from dataclasses import dataclass

import pytest

from flow import INLINE
from flow.tck import ENDLESS, PublisherVerification
from publishers import ChangeLog, Criterion, Position, upsert
from tests.publishers.support import QUICK, scratch
from tests.tck.places import SILENCE, On, Placed, closed, needs_uvloop
from transports import Limits, connect, serve

PLENTY = 1_200
"""Versions of the log, with one change of data each; its feed without ``until`` does not end."""


@dataclass
class Order:
    n: str


ORDERS = Criterion(entity_types={"order"})
NOTHING = Criterion(entity_types={"nothing"})


@pytest.fixture(scope="module", autouse=True)
def log():
    path = scratch()
    with ChangeLog.open(path / "log", **QUICK) as log:
        for number in range(PLENTY):
            log.commit([upsert("order", str(number), {"n": str(number)})])
        Feed.log = Remote.log = log
        yield
    shutil.rmtree(path, ignore_errors=True)


class Feed(Placed, PublisherVerification):
    kind = "inline"
    timeout = SILENCE
    strict = True
    multicast = "cold"
    reports = True
    plenty = PLENTY
    rounds = 40

    def make_publisher(self, n):
        until = None if n == ENDLESS else n
        feed = self.log.changes(ORDERS, since=Position(1), until=until)
        return On(feed, self.executor or INLINE)

    def make_failed_publisher(self):
        return On(self.log.changes(since=Position(PLENTY + 100)), self.executor or INLINE)

    def make_stranded_publisher(self):
        if self.kind == "inline":
            return None
        return On(self.log.changes(ORDERS, since=Position(1), until=3), closed(self.kind))


class TestFeedInline(Feed):
    timeout = 0.005


class TestFeedOfObjects(TestFeedInline):
    def make_publisher(self, n):
        until = None if n == ENDLESS else n
        return On(self.log.changes(ORDERS, since=Position(1), until=until, as_=Order), INLINE)

    def make_failed_publisher(self):
        return On(self.log.changes(since=Position(PLENTY + 100), as_=Order), INLINE)


class TestFeedOnThePoolOfTheLog(Feed):
    kind = "pool"

    def make_publisher(self, n):
        return On(super().make_publisher(n).source, None)


class TestFeedOnAPool(Feed):
    kind = "pool"


class TestFeedOnALoopInDebugMode(Feed):
    kind = "debug"


@needs_uvloop
class TestFeedOnUvloop(Feed):
    kind = "uvloop"


class Remote(Placed, PublisherVerification):
    kind = "debug"
    completes_idle = (
        False  # without credits the server does not read, and does not find that nothing is there
    )
    timeout = 0.05
    strict = True
    multicast = "cold"
    reports = True
    plenty = PLENTY
    rounds = 20

    @classmethod
    def setup_class(cls):
        super().setup_class()
        server = serve(cls.log, port=0, limits=Limits(messages_per_second=1_000_000))
        cls.stack.callback(server.stop)

        def call(coroutine):
            return asyncio.run_coroutine_threadsafe(coroutine, cls.executor).result(60)

        cls.remote = connect(server.url)
        call(cls.remote.open())
        cls.stack.callback(lambda: call(cls.remote.close()))

    def make_publisher(self, n):
        if not n:
            return self.remote.changes(NOTHING, since="earliest", until=1)
        return self.remote.changes(ORDERS, since="earliest", until=None if n == ENDLESS else n)

    def make_failed_publisher(self):
        return self.remote.changes(ORDERS, log="there is none of this name")

    def make_stranded_publisher(self):
        return On(self.make_publisher(3), closed(self.kind))


class TestRemoteFeedInDebugMode(Remote):
    pass


@needs_uvloop
class TestRemoteFeedOnUvloop(Remote):
    kind = "uvloop"
