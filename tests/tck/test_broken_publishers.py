"""Whatever breaks a rule is caught, and at the test that is said to catch it; what breaks none passes."""

import pytest

from flow.tck import PublisherVerification, rules_of, run
from tests.tck.broken import PUBLISHERS
from tests.tck.broken.honest import HonestPublisher

STRESS = [
    "test_extra_spec303_theStackStaysFlatOverManyElements",
    "test_extra_spec312_cancelRacesWithRequestsFromEightThreads",
]


def suite_of(make):
    class Suite(PublisherVerification):
        timeout = 0.005
        patience = 0.15
        rounds = 12
        strict = True
        multicast = "cold"
        reports = True
        plenty = 5_000

        def make_publisher(self, n):
            return make(n)

        def make_failed_publisher(self):
            return make(0, RuntimeError("it fails"))

        def make_stranded_publisher(self):
            stranded = getattr(make(0), "stranded", None)
            return None if stranded is None else stranded()

    return Suite


def test_an_honest_publisher_passes_everything():
    suite = suite_of(HonestPublisher)
    suite.patience = 20.0
    for name, result in run(suite).items():
        assert result.outcome != "failed", f"{name}: {result.reason}"
        if result.outcome == "skipped":
            assert result.kind == "untested" or "closedExecutor" in name, f"{name}: {result.reason}"


@pytest.mark.parametrize("most", [16, 100, 1_000])
def test_an_honest_publisher_of_short_streams_passes_the_stress_tests(most):
    suite = suite_of(HonestPublisher)
    suite.patience, suite.max_elements = 20.0, most
    for name, result in run(suite, STRESS).items():
        assert result.outcome == "passed" or "are needed" in result.reason, f"{name}: {result.reason}"


class Vanishing:
    """Pushes everything when it is subscribed to, and keeps none of it: an honest lossy publisher at its extreme."""

    def __init__(self, count, error=None):
        self.inner = HonestPublisher(0, error)

    def subscribe(self, subscriber, /):
        self.inner.subscribe(subscriber)


@pytest.mark.parametrize("most", [1_000, 2**31 - 1])
def test_a_lossy_publisher_may_end_whatever_is_asked_of_it(most):
    suite = suite_of(Vanishing)
    suite.patience, suite.max_elements, suite.lossy = 20.0, most, True
    assert {result.outcome for result in run(suite, STRESS).values()} == {"passed"}


@pytest.mark.parametrize("broken", PUBLISHERS.values(), ids=PUBLISHERS)
def test_a_broken_publisher_is_caught(broken):
    suite = suite_of(broken.make)
    for beginning in broken.caught_by:
        names = [name for name in rules_of(suite) if name.startswith(f"test_{beginning}")]
        assert names, f"no test begins with {beginning}"
        results = run(suite, names)
        assert "failed" in {result.outcome for result in results.values()}, (beginning, results)
