"""The verification kit of Reactive Streams 1.0.4: pytest classes that check whether a publisher obeys the rules.

Only this package of `flow` uses pytest, and no other package imports it. To verify a publisher, subclass a suite in a
test module::

    class TestMine(flow.tck.PublisherVerification):
        def make_publisher(self, n):
            return my_publisher(range(n))
"""

from flow.tck.processor import ProcessorVerification
from flow.tck.publisher import PublisherVerification
from flow.tck.stage import Probe, Stage
from flow.tck.subscriber import (
    SubscriberBlackboxVerification,
    SubscriberVerification,
    SubscriberWhiteboxVerification,
)
from flow.tck.suite import ENDLESS, Result, Verification, rules_of, run
from flow.tck.witness import RuleBroken, Witness

__all__ = [
    "ENDLESS",
    "Probe",
    "ProcessorVerification",
    "PublisherVerification",
    "Result",
    "RuleBroken",
    "Stage",
    "SubscriberBlackboxVerification",
    "SubscriberVerification",
    "SubscriberWhiteboxVerification",
    "Verification",
    "Witness",
    "rules_of",
    "run",
]
