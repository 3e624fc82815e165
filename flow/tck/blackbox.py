"""The suite for subscribers of which only the outside is seen: 26 tests, and ``extra_`` ones."""
# ruff: noqa: N802, N815 - the standard names

from typing import Any

from flow.contracts import Subscriber
from flow.tck.settings import Verification, rs, untested
from flow.tck.stage import Probe, Stage
from flow.tck.witness import broken, raises_type_error

__all__ = ["SubscriberBlackboxVerification"]

_UNSEEN = "it cannot be observed from outside"
_PERMISSION = "it is permission"
_SUBSCRIPTION = "it binds subscriptions, which the suite for publishers tests"


class SubscriberBlackboxVerification(Verification):
    """Checks a subscriber that requests by itself."""

    def make_subscriber(self, probe: Probe | None = None) -> Subscriber[Any]:
        """Make a subscriber that requests by itself; the probe is None here."""
        raise NotImplementedError("make_subscriber() has to be written for the subscriber that is verified")

    def make_item(self, place: int) -> Any:
        """The element to send at a place, from 1; not ``None``."""
        return place

    def trigger(self, subscriber: Subscriber[Any]) -> None:
        """Make the subscriber request, if it does not by itself once it is subscribed."""

    def boxed(self) -> tuple[Stage, Subscriber[Any]]:
        """A subscriber that has its subscription."""
        stage, subscriber = Stage(self.patience), self.make_subscriber(None)
        stage.greet(subscriber)
        self.trigger(subscriber)
        return stage, subscriber

    @rs("2.1", "required")
    def test_required_spec201_blackbox_mustSignalDemandViaSubscriptionRequest(self) -> None:
        """It requests, and goes on requesting while elements come."""
        stage, subscriber = self.boxed()
        for place in range(1, 11):
            stage.expect_request()
            stage.send(subscriber, self.make_item(place))
        stage.verify()

    test_untested_spec202_blackbox_shouldAsynchronouslyDispatch = untested("2.2", _UNSEEN)

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

    test_untested_spec204_blackbox_mustConsiderTheSubscriptionAsCancelledInAfterRecievingOnCompleteOrOnError = untested(
        "2.4", _UNSEEN
    )

    @rs("2.5", "required")
    def test_required_spec205_blackbox_mustCallSubscriptionCancelIfItAlreadyHasAnSubscriptionAndReceivesAnotherOnSubscribeSignal(
        self,
    ) -> None:
        """A second subscription is cancelled, and the first is not."""
        stage, subscriber = self.boxed()
        second = Stage(self.patience)
        second.greet(subscriber)
        second.expect_cancel("2.5", "on a second subscription")
        if stage.cancelled:
            broken("2.5", "the first subscription was cancelled, and not the second one only")

    test_untested_spec206_blackbox_mustCallSubscriptionCancelIfItIsNoLongerValid = untested("2.6", _UNSEEN)
    test_untested_spec207_blackbox_mustEnsureAllCallsOnItsSubscriptionTakePlaceFromTheSameThreadOrTakeCareOfSynchronization = untested(
        "2.7", _UNSEEN
    )
    test_untested_spec208_blackbox_mustBePreparedToReceiveOnNextSignalsAfterHavingCalledSubscriptionCancel = (
        untested("2.8", "from outside it cannot be made to cancel; see the white box")
    )

    @rs("2.9", "required")
    def test_required_spec209_blackbox_mustBePreparedToReceiveAnOnCompleteSignalWithPrecedingRequestCall(
        self,
    ) -> None:
        """Completion when something was requested."""
        stage, subscriber = self.boxed()
        stage.expect_request()
        stage.complete(subscriber)

    @rs("2.9", "required")
    def test_required_spec209_blackbox_mustBePreparedToReceiveAnOnCompleteSignalWithoutPrecedingRequestCall(
        self,
    ) -> None:
        """Completion right after ``on_subscribe``, whatever was requested."""
        stage, subscriber = Stage(self.patience), self.make_subscriber(None)
        stage.greet(subscriber)
        stage.complete(subscriber)

    @rs("2.10", "required")
    def test_required_spec210_blackbox_mustBePreparedToReceiveAnOnErrorSignalWithPrecedingRequestCall(
        self,
    ) -> None:
        """Failure when something was requested."""
        stage, subscriber = self.boxed()
        stage.expect_request()
        stage.fail(subscriber, RuntimeError("it fails"))

    @rs("2.10", "required")
    def test_required_spec210_blackbox_mustBePreparedToReceiveAnOnErrorSignalWithoutPrecedingRequestCall(
        self,
    ) -> None:
        """Failure right after ``on_subscribe``, whatever was requested."""
        stage, subscriber = Stage(self.patience), self.make_subscriber(None)
        stage.greet(subscriber)
        stage.fail(subscriber, RuntimeError("it fails"))

    test_untested_spec211_blackbox_mustMakeSureThatAllCallsOnItsMethodsHappenBeforeTheProcessingOfTheRespectiveEvents = untested(
        "2.11", _UNSEEN
    )
    test_untested_spec212_blackbox_mustNotCallOnSubscribeMoreThanOnceBasedOnObjectEquality = untested(
        "2.12", "it binds publishers"
    )

    @rs("2.13", "required")
    def test_required_spec213_blackbox_onSubscribe_mustThrowNullPointerExceptionWhenParametersAreNull(
        self,
    ) -> None:
        """``on_subscribe(None)`` raises ``TypeError``."""
        nothing: Any = None
        subscriber = self.make_subscriber(None)
        raises_type_error("2.13", "on_subscribe(None)", lambda: subscriber.on_subscribe(nothing))

    @rs("2.13", "required")
    def test_required_spec213_blackbox_onNext_mustThrowNullPointerExceptionWhenParametersAreNull(
        self,
    ) -> None:
        """``on_next(None)`` raises ``TypeError``."""
        _, subscriber = self.boxed()
        raises_type_error("2.13", "on_next(None)", lambda: subscriber.on_next(None))

    @rs("2.13", "required")
    def test_required_spec213_blackbox_onError_mustThrowNullPointerExceptionWhenParametersAreNull(
        self,
    ) -> None:
        """``on_error(None)`` raises ``TypeError``."""
        nothing: Any = None
        _, subscriber = self.boxed()
        raises_type_error("2.13", "on_error(None)", lambda: subscriber.on_error(nothing))

    test_untested_spec213_blackbox_failingOnSignalInvocation = untested("2.13", _UNSEEN)
    test_untested_spec301_blackbox_mustNotBeCalledOutsideSubscriberContext = untested("3.1", _UNSEEN)
    test_untested_spec308_blackbox_requestMustRegisterGivenNumberElementsToBeProduced = untested(
        "3.8", "from outside it cannot be told how much to request; see the white box"
    )
    test_untested_spec310_blackbox_requestMaySynchronouslyCallOnNextOnSubscriber = untested(
        "3.10", _PERMISSION
    )
    test_untested_spec311_blackbox_requestMaySynchronouslyCallOnCompleteOrOnError = untested(
        "3.11", _PERMISSION
    )
    test_untested_spec314_blackbox_cancelMayCauseThePublisherToShutdownIfNoOtherSubscriptionExists = untested(
        "3.14", _PERMISSION
    )
    test_untested_spec315_blackbox_cancelMustNotThrowExceptionAndMustSignalOnError = untested(
        "3.15", _SUBSCRIPTION
    )
    test_untested_spec316_blackbox_requestMustNotThrowExceptionAndMustOnErrorTheSubscriber = untested(
        "3.16", _SUBSCRIPTION
    )

    @rs("2.5", "extra")
    def test_extra_spec205_blackbox_refusesAnotherSubscriptionAfterItsEndToo(self) -> None:
        """A subscriber is used once: what comes after its end is cancelled."""
        stage, subscriber = self.boxed()
        stage.complete(subscriber)
        second = Stage(self.patience)
        second.greet(subscriber)
        second.expect_cancel("2.5", "on a subscription after the end")

    @rs("2.9", "extra")
    def test_extra_spec209_blackbox_elementsUntilTheEndAreTaken(self) -> None:
        """All that was requested at first comes, then the end."""
        stage, subscriber = self.boxed()
        stage.expect_request()
        for place in range(1, min(stage.requested, 100) + 1):
            stage.send(subscriber, self.make_item(place))
        stage.complete(subscriber)
        stage.verify()

    @rs("3.9", "extra")
    def test_extra_spec309_blackbox_requestsPositiveNumbersOnly(self) -> None:
        """Over hundreds of elements each request is a positive integer."""
        stage, subscriber = self.boxed()
        for place in range(1, 301):
            stage.expect_request()
            stage.send(subscriber, self.make_item(place))
        stage.verify()
