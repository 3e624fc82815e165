"""Every source keeps the rules, and one of them does so on every kind of executor."""

import itertools

import flow
from flow.tck import PublisherVerification
from tests.tck.places import SILENCE, On, Placed, closed, needs_uvloop


class Inline(PublisherVerification):
    timeout = 0.005
    strict = True
    multicast = "cold"
    reports = True
    plenty = 20_000

    def make_failed_publisher(self):
        return flow.error(RuntimeError("it fails"))


class TestRange(Inline):
    plenty = 100_000

    def make_publisher(self, n):
        return flow.from_iterable(range(n))


class TestIteratorsOfUnknownLength(Inline):
    def make_publisher(self, n):
        return flow.generate(lambda: iter(range(n)))


class TestWithoutLookahead(Inline):
    completes_early = False

    def make_publisher(self, n):
        return flow.from_iterable(range(n), lookahead=False)


class TestGeneratorsWithoutLookahead(Inline):
    completes_early = False

    def make_publisher(self, n):
        return flow.generate(lambda: itertools.islice(itertools.count(), n), lookahead=False)


class TestEmpty(Inline):
    max_elements = 0

    def make_publisher(self, n):
        return flow.empty()


def test_never_is_silent_whatever_is_asked_of_it():
    class Never(Inline):
        def make_publisher(self, n):
            return flow.never()

    suite = Never()
    suite.test_required_spec306_afterSubscriptionIsCancelledRequestMustBeNops()
    suite.test_required_spec309_requestZeroMustSignalIllegalArgumentException()
    suite.test_required_spec307_afterSubscriptionIsCancelledAdditionalCancelationsMustBeNops()


class Elsewhere(Placed, PublisherVerification):
    kind = "pool"
    timeout = SILENCE
    strict = True
    multicast = "cold"
    reports = True
    plenty = 5_000
    rounds = 60

    def make_publisher(self, n):
        return On(flow.from_iterable(range(n)), self.executor)

    def make_failed_publisher(self):
        return On(flow.error(RuntimeError("it fails")), self.executor)

    def make_stranded_publisher(self):
        return On(flow.from_iterable(range(3)), closed(self.kind))


class TestOnAPool(Elsewhere):
    pass


class TestOnALoopInDebugMode(Elsewhere):
    kind = "debug"


@needs_uvloop
class TestOnUvloop(Elsewhere):
    kind = "uvloop"
