"""Subscriptions to channels keep the rules."""

import itertools
import threading

from flow import INLINE, Overflow
from flow.tck import ENDLESS, PublisherVerification
from publishers.channels import Channels, ChannelsClosed
from tests.tck.places import SILENCE, Placed, closed, needs_uvloop

PLENTY = 1_200


class Replayed:
    """For each subscriber channels of its own, on which so many messages are published once it is there."""

    def __init__(self, n, executor):
        self.n = n
        self.executor = executor

    def subscribe(self, subscriber, /):
        count = PLENTY if self.n == ENDLESS else self.n
        channels = Channels(capacity=max(1, count))
        feed = channels.messages("odd", patterns=["e*"])
        feed.subscribe(subscriber, executor=self.executor)
        for number in range(count):
            channels.publish("odd" if number % 2 else "even", number)
        if self.n != ENDLESS:
            channels.close()


class Overflown:
    """Channels on which more was published than may wait."""

    def subscribe(self, subscriber, /):
        channels = Channels(capacity=1)
        channels.messages("a").subscribe(Reluctant(subscriber), executor=INLINE)
        for number in range(2):
            channels.publish("a", number)


class Reluctant:
    """Asks for nothing until it has failed."""

    def __init__(self, subscriber):
        self.subscriber = subscriber

    def on_subscribe(self, subscription, /):
        self.subscriber.on_subscribe(self)

    def request(self, n, /):
        return

    def cancel(self):
        return

    def on_next(self, message, /):
        raise AssertionError

    def on_error(self, error, /):
        self.subscriber.on_error(error)

    def on_complete(self):
        raise AssertionError


class Paced(Placed, PublisherVerification):
    """Nothing may be lost, so everything is counted."""

    timeout = SILENCE
    strict = True
    multicast = "cold"
    reports = True
    plenty = PLENTY
    rounds = 40

    def make_publisher(self, n):
        return Replayed(n, self.executor or INLINE)

    def make_failed_publisher(self):
        return Overflown()

    def make_stranded_publisher(self):
        return None if self.kind == "inline" else Replayed(3, closed(self.kind))


class TestChannelsInline(Paced):
    timeout = 0.005


class TestChannelsOnAPool(Paced):
    kind = "pool"


class TestChannelsOnALoopInDebugMode(Paced):
    kind = "debug"


@needs_uvloop
class TestChannelsOnUvloop(Paced):
    kind = "uvloop"


class Written:
    """Channels on which a thread publishes for as long as somebody listens, however little is requested."""

    def __init__(self, overflow):
        self.channels = Channels(capacity=16, overflow=overflow)
        self.feed = self.channels.messages(patterns=["*"])
        self.begun = threading.Lock()

    def subscribe(self, subscriber, /):
        self.feed.subscribe(subscriber, executor=INLINE)
        if self.begun.acquire(blocking=False):
            threading.Thread(target=self.write, daemon=True).start()

    def write(self):
        try:
            for number in itertools.count(1):
                if (
                    not self.channels.publish(str(number), number)
                    and not self.channels.statistics().listeners
                ):
                    return
        except ChannelsClosed:
            return


class Lossy(PublisherVerification):
    """Nothing is counted; but nothing comes unasked, nothing overlaps, nothing follows the end, nothing is kept."""

    timeout = 0.01
    rounds = 10
    plenty = 500
    multicast = "hot"
    lossy = True
    reports = True

    def make_publisher(self, n):
        return Written(self.overflow) if n == ENDLESS else Replayed(min(n, 16), INLINE)


class TestChannelsThatDropTheOldest(Lossy):
    overflow = Overflow.DROP_OLDEST


class TestChannelsThatDropTheLatest(Lossy):
    overflow = Overflow.DROP_LATEST


class TestChannelsThatKeepTheLatest(Lossy):
    overflow = Overflow.LATEST
