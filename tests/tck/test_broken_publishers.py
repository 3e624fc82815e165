"""Whatever breaks a rule is caught, and at the test that is said to catch it; what breaks none passes."""

import pytest

from flow.tck import PublisherVerification, rules_of, run
from flow.tck.broken import PUBLISHERS
from flow.tck.honest import HonestPublisher


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


@pytest.mark.parametrize("broken", PUBLISHERS.values(), ids=PUBLISHERS)
def test_a_broken_publisher_is_caught(broken):
    suite = suite_of(broken.make)
    for beginning in broken.caught_by:
        names = [name for name in rules_of(suite) if name.startswith(f"test_{beginning}")]
        assert names, f"no test begins with {beginning}"
        results = run(suite, names)
        assert "failed" in {result.outcome for result in results.values()}, (beginning, results)
