"""Broadcast and connectables against the verification kit."""

import flow
from flow.broadcast import Broadcast, Start, publish, replay, share
from flow.tck import PublisherVerification


class Replaying:
    """A broadcast that was written to, read from its oldest element."""

    def __init__(self, broadcast):
        self.broadcast = broadcast

    def subscribe(self, subscriber, /):
        self.broadcast.subscribe(subscriber, from_=Start.REPLAY)


def replaying(n):
    broadcast = Broadcast(max(n, 1), replay=n)
    for number in range(n):
        broadcast.offer(number)
    broadcast.close()
    return Replaying(broadcast)


class TestBroadcast(PublisherVerification):
    timeout = 0.01
    rounds = 10
    max_elements = 2_000
    multicast = "cold"
    reports = True

    def make_publisher(self, n):
        return replaying(n)

    def make_failed_publisher(self):
        broadcast = Broadcast()
        broadcast.fail(ValueError("failed"))
        return broadcast


class _Connected(PublisherVerification):
    __test__ = False
    timeout = 0.01
    rounds = 10
    max_elements = 2_000
    reports = True

    def make_failed_publisher(self):
        return self.make(flow.error(ValueError("failed")))

    def make_publisher(self, n):
        return self.make(flow.from_iterable(range(n)))


class TestPublish(_Connected):
    __test__ = True

    def make(self, source):
        return publish(source, 16).auto_connect()


class TestShare(_Connected):
    __test__ = True

    def make(self, source):
        return share(source, 16)


class TestReplay(_Connected):
    __test__ = True
    multicast = "cold"

    def make(self, source):
        return replay(source, 32, 16).auto_connect()
