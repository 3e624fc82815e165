"""Broadcast and connectables against the verification kit, with streams that do not end."""

import itertools
import threading
from types import SimpleNamespace

import flow
from flow import operators as op
from flow.broadcast import Broadcast, BroadcastClosed, BroadcastStart, Lag, publish, replay, share
from flow.drain.feed import GONE
from flow.tck import ENDLESS, ProcessorVerification, PublisherVerification
from tests.flow.operators.helpers import ManualTimers


def long(n):
    """So many elements, and no end."""
    return flow.pipe(flow.from_iterable(range(n)), op.concat(flow.never()))


class Replaying:
    """A broadcast that was written to, read from its oldest element."""

    def __init__(self, broadcast):
        self.broadcast = broadcast

    def subscribe(self, subscriber, /):
        self.broadcast.subscribe(subscriber, from_=BroadcastStart.REPLAY)


def replaying(n):
    broadcast = Broadcast(max(n, 1), replay=n)
    for number in range(n):
        broadcast.offer(number)
    broadcast.close()
    return Replaying(broadcast)


class Written:
    """A broadcast into which a thread writes while somebody listens, without an end."""

    def __init__(self, capacity, lag):
        self.broadcast = Broadcast(capacity, lag=lag, auto_cancel=True)
        self.begun = threading.Lock()

    def subscribe(self, subscriber, /):
        self.broadcast.subscribe(subscriber)
        if self.begun.acquire(blocking=False):
            threading.Thread(target=self.write, daemon=True).start()

    def write(self):
        try:
            for number in itertools.count(1):
                self.broadcast.submit(number)
        except BroadcastClosed:
            return


class TestBroadcast(PublisherVerification):
    timeout = 0.01
    rounds = 10
    plenty = 2_000
    multicast = "cold"
    reports = True

    def make_publisher(self, n):
        return Written(16, Lag.BLOCK) if n == ENDLESS else replaying(n)

    def make_failed_publisher(self):
        broadcast = Broadcast()
        broadcast.fail(ValueError("failed"))
        return broadcast


class LossyBroadcast(PublisherVerification):
    """Overtaken subscribers: nothing comes unasked, overlaps, follows the end or is kept."""

    __test__ = False
    timeout = 0.01
    rounds = 10
    plenty = 500
    multicast = "hot"
    lossy = True
    reports = True
    lag = Lag.LATEST

    def make_publisher(self, n):
        if n == ENDLESS:
            return Written(16, self.lag)
        broadcast = Broadcast(16, lag=self.lag, replay=min(n, 16))
        for number in range(n):
            broadcast.offer(number)
        broadcast.close()
        return Replaying(broadcast)


class TestLatestBroadcast(LossyBroadcast):
    __test__ = True


class TestDropOldestBroadcast(LossyBroadcast):
    __test__ = True
    lag = Lag.DROP_OLDEST


class TestDropLatestBroadcast(LossyBroadcast):
    __test__ = True
    lag = Lag.DROP_LATEST


class _Connected(PublisherVerification):
    """Whoever is connected goes on when nobody listens, so what does not end falls silent after enough elements."""

    __test__ = False
    timeout = 0.01
    rounds = 10
    plenty = 5_000
    reports = True
    strict = True

    def make_failed_publisher(self):
        return self.make(flow.error(ValueError("failed")))

    def make_publisher(self, n):
        return self.make(long(self.plenty + 20) if n == ENDLESS else flow.from_iterable(range(n)))


class TestPublish(_Connected):
    __test__ = True

    def make(self, source):
        return publish(source, 16).auto_connect()


class TestShare(_Connected):
    """The source counts on for as long as it is asked, and is cancelled by the last who leaves."""

    __test__ = True

    def make_publisher(self, n):
        return self.make(flow.from_iterable(range(n)))

    def make(self, source):
        return share(source, 16)


class TestRefCountWithGrace(_Connected):
    __test__ = True

    def make(self, source):
        return publish(source, 16).ref_count(grace=5, timers=ManualTimers())


class TestReplay(_Connected):
    __test__ = True
    multicast = "cold"

    def make(self, source):
        return replay(source, 32, 16).auto_connect()


class Hub:
    """A processor made of what shares one subscription, for any number of subscribers.

    Upstream is asked when the first subscriber has asked: else a short stream would be over before the second has come.
    """

    def __init__(self, connect):
        self.shared = connect(SimpleNamespace(subscribe=self.enter))
        self.upstream = self.inside = self.end = None
        self.opened = False
        self.held = []

    # Downstream.

    def subscribe(self, subscriber, /):
        self.shared.subscribe(None if subscriber is None else Front(subscriber, self))

    def open(self):
        self.opened = True
        while self.held:
            self.upstream.request(self.held.pop(0))

    # What the connection has for a source, and for a subscription.

    def enter(self, inside, /):
        self.inside = inside
        if self.end is not None:
            inside.on_subscribe(GONE)
            self.end(inside)
        elif self.upstream is not None:
            inside.on_subscribe(self)

    def request(self, n, /):
        self.held.append(n)
        if self.opened:
            self.open()

    def cancel(self):
        self.upstream.cancel()

    # Upstream.

    def on_subscribe(self, subscription, /):
        if subscription is None:
            raise TypeError
        if self.upstream is not None:
            subscription.cancel()
            return
        self.upstream = subscription
        if self.inside is not None:
            self.inside.on_subscribe(self)

    def on_next(self, item, /):
        self.inside.on_next(item)

    def on_error(self, error, /):
        if error is None:
            raise TypeError
        self.finish(lambda inside: inside.on_error(error))

    def on_complete(self):
        self.finish(lambda inside: inside.on_complete())

    def finish(self, end):
        self.end = end
        if self.inside is not None:
            end(self.inside)


class Front:
    """Passes on everything, and opens the hub after a request."""

    def __init__(self, subscriber, hub):
        self.subscriber = subscriber
        self.hub = hub

    def on_subscribe(self, subscription, /):
        self.subscription = subscription
        self.subscriber.on_subscribe(self)

    def on_next(self, item, /):
        try:
            self.subscriber.on_next(item)
        except BaseException:
            self.subscriber = None
            raise

    def on_error(self, error, /):
        subscriber, self.subscriber = self.subscriber, None
        subscriber.on_error(error)

    def on_complete(self):
        subscriber, self.subscriber = self.subscriber, None
        subscriber.on_complete()

    def request(self, n, /):
        self.subscription.request(n)
        self.hub.open()

    def cancel(self):
        self.subscription.cancel()
        self.subscriber = None


class ConnectedProcessor(ProcessorVerification):
    """Certified as a publisher, as a subscriber, and as what links them.

    There is none for `replay`: who comes late gets older elements than those who are there, and no suite expects that.
    """

    __test__ = False
    timeout = 0.01
    rounds = 10
    plenty = 2_000
    reports = True
    multicast = "hot"

    def make_processor(self, buffer_size):
        return Hub(lambda source: self.connected(source, buffer_size))


class TestShareAsProcessor(ConnectedProcessor):
    __test__ = True

    def connected(self, source, size):
        return share(source, size)


class TestRefCountAsProcessor(ConnectedProcessor):
    __test__ = True

    def connected(self, source, size):
        return publish(source, size).ref_count(1)
