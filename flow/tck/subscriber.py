"""The suites for subscribers: the white box with 27 tests, and its combination with the black box of `flow.tck.blackbox`."""
# ruff: noqa: N802 - the standard names

from typing import Any, ClassVar

import pytest

from flow.contracts import Subscriber
from flow.tck.blackbox import UNTESTED, SubscriberBlackboxVerification
from flow.tck.settings import rs, untested
from flow.tck.stage import Probe, Stage
from flow.tck.subjects import SubscriberSettings
from flow.tck.witness import broken, refuses_none

__all__ = ["SubscriberVerification", "SubscriberWhiteboxVerification"]


@untested(
    **UNTESTED,
    spec212_mustNotCallOnSubscribeMoreThanOnceBasedOnObjectEquality_specViolation="it binds publishers, and calling twice is tested as rule 2.5",
)
class SubscriberWhiteboxVerification(SubscriberSettings):
    """Checks a subscriber that reports to a probe, and requests through its puppet only."""

    def staged(self) -> tuple[Stage, Subscriber[Any], Probe]:
        """Return a subscriber that has its subscription, and has reported its puppet."""
        stage, subscriber, probe = self.unstaged()
        stage.greet(subscriber)
        probe.expect_subscription()
        return stage, subscriber, probe

    def unstaged(self) -> tuple[Stage, Subscriber[Any], Probe]:
        """Return a subscriber without a subscription."""
        probe = Probe(self.timeout, self.patience)
        self._witnesses.append(probe)
        return Stage(self.patience), self.make_subscriber(probe), probe

    def _asking(self) -> tuple[Stage, Subscriber[Any], Probe]:
        """Return a subscriber that has requested an element."""
        stage, subscriber, probe = self.staged()
        probe.request(1)
        stage.expect_request()
        return stage, subscriber, probe

    @rs("2.1", "required")
    def test_required_exerciseWhiteboxHappyPath(self) -> None:
        """Request, element, request, element, cancel."""
        stage, subscriber, probe = self.staged()
        for place in (1, 2):
            probe.request(1)
            stage.expect_request()
            stage.send(subscriber, self.make_item(place))
            if probe.expect_next("2.1") != self.make_item(place):
                broken("2.1", "another element was reported than was sent")
        probe.cancel()
        stage.expect_cancel("2.1", "when the puppet was told to")
        stage.verify()

    @rs("2.1", "required")
    def test_required_spec201_mustSignalDemandViaSubscriptionRequest(self) -> None:
        """A request through the puppet reaches the publisher."""
        stage, subscriber, probe = self._asking()
        stage.send(subscriber, self.make_item(1))
        probe.expect_next("2.1")
        stage.verify()

    @rs("2.3", "required")
    def test_required_spec203_mustNotCallMethodsOnSubscriptionOrPublisherInOnComplete(self) -> None:
        """Nothing is called from inside ``on_complete``."""
        stage, subscriber, _probe = self.staged()
        stage.complete(subscriber, "2.3")
        stage.expect_no_call()

    @rs("2.3", "required")
    def test_required_spec203_mustNotCallMethodsOnSubscriptionOrPublisherInOnError(self) -> None:
        """Nothing is called from inside ``on_error``."""
        stage, subscriber, _probe = self.staged()
        stage.fail(subscriber, RuntimeError("it fails"), "2.3")
        stage.expect_no_call()

    @rs("2.5", "required")
    def test_required_spec205_mustCallSubscriptionCancelIfItAlreadyHasAnSubscriptionAndReceivesAnotherOnSubscribeSignal(
        self,
    ) -> None:
        """A second subscription is cancelled, the first is kept."""
        stage, subscriber, _probe = self.staged()
        stage.expect_refusal(subscriber)

    @rs("2.8", "required")
    def test_required_spec208_mustBePreparedToReceiveOnNextSignalsAfterHavingCalledSubscriptionCancel(
        self,
    ) -> None:
        """An element after cancel does no harm."""
        stage, subscriber, probe = self._asking()
        probe.cancel()
        stage.expect_cancel("2.8", "when the puppet was told to")
        stage.send(subscriber, self.make_item(1))

    @rs("2.9", "required")
    def test_required_spec209_mustBePreparedToReceiveAnOnCompleteSignalWithPrecedingRequestCall(self) -> None:
        """Completion with demand."""
        self._completes(*self._asking())

    @rs("2.9", "required")
    def test_required_spec209_mustBePreparedToReceiveAnOnCompleteSignalWithoutPrecedingRequestCall(
        self,
    ) -> None:
        """Completion without demand."""
        self._completes(*self.staged())

    def _completes(self, stage: Stage, subscriber: Subscriber[Any], probe: Probe) -> None:
        stage.complete(subscriber)
        probe.expect_complete("2.9")

    @rs("2.10", "required")
    def test_required_spec210_mustBePreparedToReceiveAnOnErrorSignalWithPrecedingRequestCall(self) -> None:
        """Failure with demand."""
        self._fails(*self._asking())

    @rs("2.10", "required")
    def test_required_spec210_mustBePreparedToReceiveAnOnErrorSignalWithoutPrecedingRequestCall(self) -> None:
        """Failure without demand."""
        self._fails(*self.staged())

    def _fails(self, stage: Stage, subscriber: Subscriber[Any], probe: Probe) -> None:
        error = RuntimeError("it fails")
        stage.fail(subscriber, error)
        probe.expect_the_error(error, "2.10", "reported")

    @rs("2.13", "required")
    def test_required_spec213_onSubscribe_mustThrowNullPointerExceptionWhenParametersAreNull(self) -> None:
        """``on_subscribe(None)`` raises ``TypeError``."""
        refuses_none("2.13", self.unstaged()[1], "on_subscribe")

    @rs("2.13", "required")
    def test_required_spec213_onNext_mustThrowNullPointerExceptionWhenParametersAreNull(self) -> None:
        """``on_next(None)`` raises ``TypeError``."""
        refuses_none("2.13", self.staged()[1], "on_next")

    @rs("2.13", "required")
    def test_required_spec213_onError_mustThrowNullPointerExceptionWhenParametersAreNull(self) -> None:
        """``on_error(None)`` raises ``TypeError``."""
        refuses_none("2.13", self.staged()[1], "on_error")

    @rs("3.8", "required")
    def test_required_spec308_requestMustRegisterGivenNumberElementsToBeProduced(self) -> None:
        """``request(2)``: two elements are reported, no more."""
        stage, subscriber, probe = self.staged()
        probe.request(2)
        stage.expect_request(2, "3.8")
        self._send(stage, subscriber, min(stage.requested, 3))
        probe.expect_items(2, "3.8")
        probe.expect_silence("3.8", "although only two were requested")
        stage.verify()


class SubscriberVerification(SubscriberWhiteboxVerification, SubscriberBlackboxVerification):
    """Checks a subscriber in both ways: white box with a probe, black box without one.

    Attributes:
        whitebox: False for a subscriber that cannot report to a probe: then only the black-box tests run.
    """

    whitebox: ClassVar[bool] = True

    def unstaged(self) -> tuple[Stage, Subscriber[Any], Probe]:
        """As for the white box, unless ``whitebox`` is False: then skip the test."""
        if not self.whitebox:
            pytest.skip("the subscriber does not report to a probe: only the black-box tests apply")
        return super().unstaged()
