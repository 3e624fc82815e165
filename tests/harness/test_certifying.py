"""One test certifies a subject by every rule of the kit, and says all that are broken."""

import pytest

from flow.tck import PublisherVerification, run
from tests.harness.certifying import Certification, pytest_pycollect_makeitem
from tests.tck.broken.honest import HonestPublisher
from tests.tck.broken.naive import QueuePerSubscriber


class Suite(PublisherVerification):
    timeout = 0.005
    patience = 0.2
    rounds = 4
    plenty = 2_000
    make = HonestPublisher

    def make_publisher(self, n):
        return type(self).make(n)


class Naive(Suite):
    make = QueuePerSubscriber


def certification(of):
    made = Certification()
    made.suite = lambda: of
    return made


def test_who_keeps_every_rule_is_certified():
    certification(Suite).test_every_rule()


def test_whoever_breaks_rules_is_not_and_each_is_named():
    with pytest.raises(BaseExceptionGroup) as caught:
        certification(Naive).test_every_rule()
    named = {note.split()[1] for error in caught.value.exceptions for note in error.__notes__}
    assert named >= {"test_required_spec303_mustNotAllowUnboundedRecursion"}
    failed = {name for name, result in run(Naive, sorted(named)).items() if result.outcome == "failed"}
    assert failed == named


def test_a_suite_that_skips_every_rule_certifies_nothing():
    class Empty(Suite):
        pass

    for name in dir(PublisherVerification):
        if name.startswith("test_"):
            setattr(Empty, name, lambda _: pytest.skip("none"))
            getattr(Empty, name).pytestmark = getattr(PublisherVerification, name).pytestmark
    with pytest.raises(AssertionError, match="every rule was skipped"):
        certification(Empty).test_every_rule()


def test_a_suite_is_one_test_with_its_marks_and_one_with_further_tests_is_left_to_pytest(
    request, monkeypatch
):
    class TestMarked(Suite):
        __test__ = True
        pytestmark = pytest.mark.crash

    class TestWithMore(Suite):
        def test_more(self):
            return

    collector = request.node.getparent(pytest.Module)
    monkeypatch.setattr(collector.obj, "TestMarked", TestMarked, raising=False)
    (test,) = pytest_pycollect_makeitem(collector, "TestMarked", TestMarked).collect()
    assert test.name == "test_every_rule"
    assert test.cls.suite() is TestMarked
    assert test.get_closest_marker("crash")
    for name, other in (("Suite", Suite), ("TestWithMore", TestWithMore), ("TestPlain", object)):
        assert pytest_pycollect_makeitem(collector, name, other) is None
