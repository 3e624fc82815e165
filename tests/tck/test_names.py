"""The suites have the tests of the standard kit, name by name in number, and say of each what it is."""

import subprocess
import sys
from collections import Counter

import pytest

import flow.tck as kit


@pytest.mark.parametrize(
    ("suite", "expected"),
    [
        (kit.PublisherVerification, {"required": 22, "optional": 8, "stochastic": 1, "untested": 7}),
        (kit.SubscriberWhiteboxVerification, {"required": 14, "untested": 13}),
        (kit.SubscriberBlackboxVerification, {"required": 11, "untested": 15}),
        (kit.SubscriberVerification, {"required": 25, "untested": 28}),
        (kit.ProcessorVerification, {"required": 39, "optional": 8, "stochastic": 1, "untested": 20}),
    ],
)
def test_a_suite_has_as_many_tests_of_each_kind_as_the_standard_kit(suite, expected):
    kinds = Counter(kind for _, kind in kit.rules_of(suite).values())
    del kinds["extra"]
    assert kinds == expected


@pytest.mark.parametrize("suite", [kit.ProcessorVerification, kit.SubscriberVerification])
def test_a_name_begins_with_the_kind_and_bears_the_rule(suite):
    for name, (rule, kind) in kit.rules_of(suite).items():
        if "mustImmediatelyPass" in name:
            continue
        assert name.startswith(f"test_{kind}_"), name
        if "_spec" in name:
            chapter, number = rule.split(".")
            assert f"_spec{chapter}{int(number):02d}_" in name, (name, rule)


def test_every_test_of_a_suite_is_marked():
    for suite in (kit.ProcessorVerification, kit.SubscriberVerification):
        named = {name for name in dir(suite) if name.startswith("test_")}
        assert named == set(kit.rules_of(suite))


def test_flow_itself_needs_no_pytest():
    code = "import sys, flow; sys.exit('pytest' in sys.modules or 'flow.tck' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
