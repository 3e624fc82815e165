"""The black-box suite for subscribers, which sees them from outside only: 26 standard tests, and ``extra_`` ones."""
# ruff: noqa: N802 - the standard names

from typing import Any, Final

from flow.contracts import Subscriber
from flow.tck.settings import rs, untested
from flow.tck.stage import Stage
from flow.tck.subjects import SubscriberSettings
from flow.tck.witness import refuses_none

__all__ = ["UNTESTED", "SubscriberBlackboxVerification"]

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
