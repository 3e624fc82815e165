"""Every source keeps the rules."""

import flow
from flow.tck import PublisherVerification


class TestFromIterable(PublisherVerification):
    timeout = 0.02
    strict = True
    multicast = "cold"
    reports = True

    def make_publisher(self, n):
        return flow.from_iterable(range(n))

    def make_failed_publisher(self):
        return flow.error(RuntimeError("it fails"))
