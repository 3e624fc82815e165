"""What the guide says is so."""

from pathlib import Path

import pytest

import flow.tck as kit
from tests.tck.broken.naive import NaiveBridge, QueuePerSubscriber

GUIDE = (Path(__file__).parents[2] / "docs" / "tck.md").read_text()


def test_the_guide_names_every_test_of_a_rule():
    for suite in (kit.ProcessorVerification, kit.SubscriberVerification):
        for name, (rule, _) in kit.rules_of(suite).items():
            if rule != "-":
                assert f"`{name.removeprefix('test_')}`" in GUIDE, name


@pytest.mark.parametrize(
    ("naive", "rules"),
    [
        (NaiveBridge, {"1.1", "3.8", "3.9"}),
        (QueuePerSubscriber, {"2.9", "3.3", "3.4", "3.5", "3.9", "3.13"}),
    ],
)
def test_what_one_writes_first_fails_at_the_rules_that_the_guide_names(naive, rules):
    class Suite(kit.PublisherVerification):
        timeout = 0.005
        patience = 0.2
        rounds = 4
        plenty = 2_000
        strict = True
        multicast = "cold"

        def make_publisher(self, n):
            return naive(n)

        def make_failed_publisher(self):
            return naive(0, RuntimeError("it fails"))

    results = kit.run(Suite)
    assert rules <= {result.rule for result in results.values() if result.outcome == "failed"}
