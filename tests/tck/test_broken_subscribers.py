"""The same for subscribers and processors."""

import pytest

from flow.tck import ProcessorVerification, SubscriberVerification, rules_of, run
from tests.tck.broken import PROCESSORS, PUBLISHERS, SUBSCRIBERS
from tests.tck.broken.honest import HonestSubscriber
from tests.tck.broken.relay import HonestProcessor


def subscribers(make):
    class Suite(SubscriberVerification):
        timeout = 0.005
        patience = 0.15
        strict = True

        def make_subscriber(self, probe=None):
            return make(probe)

    return Suite


def processors(make):
    class Suite(ProcessorVerification):
        timeout = 0.005
        patience = 0.15
        rounds = 12
        strict = True
        multicast = "hot"
        reports = True
        plenty = 5_000

        def make_processor(self, buffer_size):
            return make(buffer_size)

    return Suite


@pytest.mark.parametrize("suite", [subscribers(HonestSubscriber), processors(HonestProcessor)])
def test_honest_ones_pass_everything(suite):
    suite.patience = 20.0
    for name, result in run(suite).items():
        assert result.outcome != "failed", f"{name}: {result.reason}"
        if result.outcome == "skipped":
            assert result.kind == "untested" or "closedExecutor" in name, f"{name}: {result.reason}"


@pytest.mark.parametrize(
    ("broken", "suite"),
    [
        *((broken, subscribers(broken.make)) for broken in SUBSCRIBERS.values()),
        *((broken, processors(broken.make)) for broken in PROCESSORS.values()),
    ],
    ids=[*SUBSCRIBERS, *PROCESSORS],
)
def test_a_broken_one_is_caught(broken, suite):
    for beginning in broken.caught_by:
        names = [name for name in rules_of(suite) if name.startswith(f"test_{beginning}")]
        assert names, f"no test begins with {beginning}"
        results = run(suite, names)
        assert "failed" in {result.outcome for result in results.values()}, (beginning, results)


def test_the_kit_is_tried_on_more_than_forty_kinds_of_breakage():
    assert len(PUBLISHERS) + len(SUBSCRIBERS) + len(PROCESSORS) >= 40
