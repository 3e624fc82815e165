"""The suites for subscribers: the black box, which sees them from outside only (26 tests), the white box (27 tests), and both combined."""
# ruff: noqa: N802 - the standard names

from typing import Any, ClassVar, Final

import pytest

from flow.contracts import Subscriber
from flow.tck.stage import Probe, Stage
from flow.tck.suite import SubscriberSettings, rs, untested
from flow.tck.witness import broken, refuses_none

__all__ = ["SubscriberBlackboxVerification", "SubscriberVerification", "SubscriberWhiteboxVerification"]


_PERMISSION: Final = "it is permission"
_SUBSCRIPTION: Final = "it binds subscriptions, which the suite for publishers tests"

UNTESTED: Final = {
    "spec202_shouldAsynchronouslyDispatch": "it is advice, and cannot be observed",
    "spec204_mustConsiderTheSubscriptionAsCancelledInAfterRecievingOnCompleteOrOnError": "nothing can be seen of what a subscriber considers",
    "spec206_mustCallSubscriptionCancelIfItIsNoLongerValid": "nothing says when a subscription is no longer wanted",
    "spec207_mustEnsureAllCallsOnItsSubscriptionTakePlaceFromTheSameThreadOrTakeCareOfSynchronization": "calls from several threads may be synchronised in ways that cannot be observed",
    "spec211_mustMakeSureThatAllCallsOnItsMethodsHappenBeforeTheProcessingOfTheRespectiveEvents": "the order of memory accesses cannot be observed",
    "spec213_failingOnSignalInvocation": "a subscriber cannot be made to fail from outside",
    "spec301_mustNotBeCalledOutsideSubscriberContext": "who may call is a matter of documentation",
    "spec310_requestMaySynchronouslyCallOnNextOnSubscriber": _PERMISSION,
    "spec311_requestMaySynchronouslyCallOnCompleteOrOnError": _PERMISSION,
    "spec314_cancelMayCauseThePublisherToShutdownIfNoOtherSubscriptionExists": _PERMISSION,
    "spec315_cancelMustNotThrowExceptionAndMustSignalOnError": _SUBSCRIPTION,
    "spec316_requestMustNotThrowExceptionAndMustOnErrorTheSubscriber": _SUBSCRIPTION,
}
"""Rules that neither suite can test for any subscriber, and why."""


@untested(
    "blackbox_",
    **UNTESTED,
    spec208_mustBePreparedToReceiveOnNextSignalsAfterHavingCalledSubscriptionCancel="from outside it cannot be made to cancel; see the white box",
    spec212_mustNotCallOnSubscribeMoreThanOnceBasedOnObjectEquality="it binds publishers",
    spec308_requestMustRegisterGivenNumberElementsToBeProduced="from outside it cannot be told how much to request; see the white box",
)
class SubscriberBlackboxVerification(SubscriberSettings):
    """Checks a subscriber that requests by itself, made without a probe."""

    def trigger(self, subscriber: Subscriber[Any]) -> None:
        """Make the subscriber request, if it does not do so by itself after ``on_subscribe``."""

    def boxed(self) -> tuple[Stage, Subscriber[Any]]:
        """Return a subscriber that has its subscription."""
        stage, subscriber = self._greeted()
        self.trigger(subscriber)
        return stage, subscriber

    def _greeted(self) -> tuple[Stage, Subscriber[Any]]:
        stage, subscriber = Stage(self.patience), self.make_subscriber(None)
        stage.greet(subscriber)
        return stage, subscriber

    @rs("2.1", "required")
    def test_required_spec201_blackbox_mustSignalDemandViaSubscriptionRequest(self) -> None:
        """It requests, and continues to request while elements come."""
        self._goes_on(10)

    def _goes_on(self, count: int) -> None:
        stage, subscriber = self.boxed()
        for place in range(1, count + 1):
            stage.expect_request()
            stage.send(subscriber, self.make_item(place))
        stage.verify()

    @rs("2.3", "required")
    def test_required_spec203_blackbox_mustNotCallMethodsOnSubscriptionOrPublisherInOnComplete(self) -> None:
        """Nothing is called from inside ``on_complete``."""
        stage, subscriber = self.boxed()
        stage.complete(subscriber, "2.3")
        stage.expect_no_call()

    @rs("2.3", "required")
    def test_required_spec203_blackbox_mustNotCallMethodsOnSubscriptionOrPublisherInOnError(self) -> None:
        """Nothing is called from inside ``on_error``."""
        stage, subscriber = self.boxed()
        stage.fail(subscriber, RuntimeError("it fails"), "2.3")
        stage.expect_no_call()

    @rs("2.5", "required")
    def test_required_spec205_blackbox_mustCallSubscriptionCancelIfItAlreadyHasAnSubscriptionAndReceivesAnotherOnSubscribeSignal(
        self,
    ) -> None:
        """A second subscription is cancelled, and the first is not."""
        stage, subscriber = self.boxed()
        stage.expect_refusal(subscriber)

    @rs("2.9", "required")
    def test_required_spec209_blackbox_mustBePreparedToReceiveAnOnCompleteSignalWithPrecedingRequestCall(
        self,
    ) -> None:
        """Completion with demand."""
        stage, subscriber = self.boxed()
        stage.expect_request()
        stage.complete(subscriber)

    @rs("2.9", "required")
    def test_required_spec209_blackbox_mustBePreparedToReceiveAnOnCompleteSignalWithoutPrecedingRequestCall(
        self,
    ) -> None:
        """Completion right after ``on_subscribe``, with or without demand."""
        stage, subscriber = self._greeted()
        stage.complete(subscriber)

    @rs("2.10", "required")
    def test_required_spec210_blackbox_mustBePreparedToReceiveAnOnErrorSignalWithPrecedingRequestCall(
        self,
    ) -> None:
        """Failure with demand."""
        stage, subscriber = self.boxed()
        stage.expect_request()
        stage.fail(subscriber, RuntimeError("it fails"))

    @rs("2.10", "required")
    def test_required_spec210_blackbox_mustBePreparedToReceiveAnOnErrorSignalWithoutPrecedingRequestCall(
        self,
    ) -> None:
        """Failure right after ``on_subscribe``, with or without demand."""
        stage, subscriber = self._greeted()
        stage.fail(subscriber, RuntimeError("it fails"))

    @rs("2.13", "required")
    def test_required_spec213_blackbox_onSubscribe_mustThrowNullPointerExceptionWhenParametersAreNull(
        self,
    ) -> None:
        """``on_subscribe(None)`` raises ``TypeError``."""
        refuses_none("2.13", self.make_subscriber(None), "on_subscribe")

    @rs("2.13", "required")
    def test_required_spec213_blackbox_onNext_mustThrowNullPointerExceptionWhenParametersAreNull(
        self,
    ) -> None:
        """``on_next(None)`` raises ``TypeError``."""
        refuses_none("2.13", self.boxed()[1], "on_next")

    @rs("2.13", "required")
    def test_required_spec213_blackbox_onError_mustThrowNullPointerExceptionWhenParametersAreNull(
        self,
    ) -> None:
        """``on_error(None)`` raises ``TypeError``."""
        refuses_none("2.13", self.boxed()[1], "on_error")

    @rs("2.5", "extra")
    def test_extra_spec205_blackbox_refusesAnotherSubscriptionAfterItsEndToo(self) -> None:
        """A subscriber is used once: a subscription after its end is cancelled."""
        stage, subscriber = self.boxed()
        stage.complete(subscriber)
        second = Stage(self.patience)
        second.greet(subscriber)
        second.expect_cancel("2.5", "on a subscription after the end")

    @rs("2.9", "extra")
    def test_extra_spec209_blackbox_elementsUntilTheEndAreTaken(self) -> None:
        """All elements of the first request come, then the end."""
        stage, subscriber = self.boxed()
        stage.expect_request()
        self._send(stage, subscriber, min(stage.requested, 100))
        stage.complete(subscriber)
        stage.verify()

    @rs("3.9", "extra")
    def test_extra_spec309_blackbox_requestsPositiveNumbersOnly(self) -> None:
        """In a stream of hundreds of elements each request is a positive integer."""
        self._goes_on(300)


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
