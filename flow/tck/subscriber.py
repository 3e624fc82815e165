"""The suites for subscribers: white box, 27 tests, and with the black-box ones of `flow.tck.blackbox` both in one."""
# ruff: noqa: N802, N815 - the standard names

from typing import Any, ClassVar

import pytest

from flow.contracts import Subscriber
from flow.tck.blackbox import SubscriberBlackboxVerification
from flow.tck.settings import Verification, rs, untested
from flow.tck.stage import Probe, Stage
from flow.tck.witness import broken, raises_type_error

__all__ = ["SubscriberVerification", "SubscriberWhiteboxVerification"]


class SubscriberWhiteboxVerification(Verification):
    """Checks a subscriber that reports to a probe, and requests what its puppet is told to."""

    def make_subscriber(self, probe: Probe | None = None) -> Subscriber[Any]:
        """Make a subscriber that reports to the probe; see `flow.tck.stage.Probe`."""
        raise NotImplementedError(
            "make_subscriber(probe) has to be written for the subscriber that is verified"
        )

    def make_item(self, place: int) -> Any:
        """The element to send at a place, from 1; not ``None``."""
        return place

    def staged(self) -> tuple[Stage, Subscriber[Any], Probe]:
        """A subscriber that has its subscription, and its puppet reported."""
        stage, subscriber, probe = self.unstaged()
        stage.greet(subscriber)
        probe.expect_subscription()
        return stage, subscriber, probe

    def unstaged(self) -> tuple[Stage, Subscriber[Any], Probe]:
        """A subscriber without a subscription."""
        probe = Probe(self.timeout, self.patience)
        self._witnesses.append(probe)
        return Stage(self.patience), self.make_subscriber(probe), probe

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
        """What the puppet is told to request reaches the publisher."""
        stage, subscriber, probe = self.staged()
        probe.request(1)
        stage.expect_request()
        stage.send(subscriber, self.make_item(1))
        probe.expect_next("2.1")
        stage.verify()

    test_untested_spec202_shouldAsynchronouslyDispatch = untested(
        "2.2", "it is advice, and cannot be observed"
    )

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

    test_untested_spec204_mustConsiderTheSubscriptionAsCancelledInAfterRecievingOnCompleteOrOnError = (
        untested("2.4", "nothing can be seen of what a subscriber considers")
    )

    @rs("2.5", "required")
    def test_required_spec205_mustCallSubscriptionCancelIfItAlreadyHasAnSubscriptionAndReceivesAnotherOnSubscribeSignal(
        self,
    ) -> None:
        """A second subscription is cancelled, the first is kept."""
        stage, subscriber, _probe = self.staged()
        second = Stage(self.patience)
        second.greet(subscriber)
        second.expect_cancel("2.5", "on a second subscription")
        if stage.cancelled:
            broken("2.5", "the first subscription was cancelled, and not the second one only")

    test_untested_spec206_mustCallSubscriptionCancelIfItIsNoLongerValid = untested(
        "2.6", "nothing says when a subscription is no longer wanted"
    )
    test_untested_spec207_mustEnsureAllCallsOnItsSubscriptionTakePlaceFromTheSameThreadOrTakeCareOfSynchronization = untested(
        "2.7", "calls from several threads may be synchronised in ways that cannot be observed"
    )

    @rs("2.8", "required")
    def test_required_spec208_mustBePreparedToReceiveOnNextSignalsAfterHavingCalledSubscriptionCancel(
        self,
    ) -> None:
        """An element that comes late does no harm."""
        stage, subscriber, probe = self.staged()
        probe.request(1)
        stage.expect_request()
        probe.cancel()
        stage.expect_cancel("2.8", "when the puppet was told to")
        stage.send(subscriber, self.make_item(1))

    @rs("2.9", "required")
    def test_required_spec209_mustBePreparedToReceiveAnOnCompleteSignalWithPrecedingRequestCall(self) -> None:
        """Completion when something was requested."""
        stage, subscriber, probe = self.staged()
        probe.request(1)
        stage.expect_request()
        stage.complete(subscriber)
        probe.expect_complete("2.9")

    @rs("2.9", "required")
    def test_required_spec209_mustBePreparedToReceiveAnOnCompleteSignalWithoutPrecedingRequestCall(
        self,
    ) -> None:
        """Completion when nothing was requested."""
        stage, subscriber, probe = self.staged()
        stage.complete(subscriber)
        probe.expect_complete("2.9")

    @rs("2.10", "required")
    def test_required_spec210_mustBePreparedToReceiveAnOnErrorSignalWithPrecedingRequestCall(self) -> None:
        """Failure when something was requested."""
        stage, subscriber, probe = self.staged()
        probe.request(1)
        stage.expect_request()
        self._fails(stage, subscriber, probe)

    @rs("2.10", "required")
    def test_required_spec210_mustBePreparedToReceiveAnOnErrorSignalWithoutPrecedingRequestCall(self) -> None:
        """Failure when nothing was requested."""
        self._fails(*self.staged())

    def _fails(self, stage: Stage, subscriber: Subscriber[Any], probe: Probe) -> None:
        error = RuntimeError("it fails")
        stage.fail(subscriber, error)
        if probe.expect_error("2.10") is not error:
            broken("2.10", "another error was reported than was signalled")

    test_untested_spec211_mustMakeSureThatAllCallsOnItsMethodsHappenBeforeTheProcessingOfTheRespectiveEvents = untested(
        "2.11", "the order of memory accesses cannot be observed"
    )
    test_untested_spec212_mustNotCallOnSubscribeMoreThanOnceBasedOnObjectEquality_specViolation = untested(
        "2.12", "it binds publishers, and calling twice is tested as rule 2.5"
    )

    @rs("2.13", "required")
    def test_required_spec213_onSubscribe_mustThrowNullPointerExceptionWhenParametersAreNull(self) -> None:
        """``on_subscribe(None)`` raises ``TypeError``."""
        nothing: Any = None
        _, subscriber, _ = self.unstaged()
        raises_type_error("2.13", "on_subscribe(None)", lambda: subscriber.on_subscribe(nothing))

    @rs("2.13", "required")
    def test_required_spec213_onNext_mustThrowNullPointerExceptionWhenParametersAreNull(self) -> None:
        """``on_next(None)`` raises ``TypeError``."""
        _, subscriber, _ = self.staged()
        raises_type_error("2.13", "on_next(None)", lambda: subscriber.on_next(None))

    @rs("2.13", "required")
    def test_required_spec213_onError_mustThrowNullPointerExceptionWhenParametersAreNull(self) -> None:
        """``on_error(None)`` raises ``TypeError``."""
        nothing: Any = None
        _, subscriber, _ = self.staged()
        raises_type_error("2.13", "on_error(None)", lambda: subscriber.on_error(nothing))

    test_untested_spec213_failingOnSignalInvocation = untested(
        "2.13", "a subscriber cannot be made to fail from outside"
    )
    test_untested_spec301_mustNotBeCalledOutsideSubscriberContext = untested(
        "3.1", "who may call is a matter of documentation"
    )

    @rs("3.8", "required")
    def test_required_spec308_requestMustRegisterGivenNumberElementsToBeProduced(self) -> None:
        """``request(2)``: two elements, no more."""
        stage, subscriber, probe = self.staged()
        probe.request(2)
        stage.expect_request(2, "3.8")
        for place in range(1, min(stage.requested, 3) + 1):
            stage.send(subscriber, self.make_item(place))
        probe.expect_items(2, "3.8")
        probe.expect_silence("3.8", "although only two were requested")
        stage.verify()

    test_untested_spec310_requestMaySynchronouslyCallOnNextOnSubscriber = untested("3.10", "it is permission")
    test_untested_spec311_requestMaySynchronouslyCallOnCompleteOrOnError = untested(
        "3.11", "it is permission"
    )
    test_untested_spec314_cancelMayCauseThePublisherToShutdownIfNoOtherSubscriptionExists = untested(
        "3.14", "it is permission"
    )
    test_untested_spec315_cancelMustNotThrowExceptionAndMustSignalOnError = untested(
        "3.15", "it binds subscriptions, which the suite for publishers tests"
    )
    test_untested_spec316_requestMustNotThrowExceptionAndMustOnErrorTheSubscriber = untested(
        "3.16", "it binds subscriptions, which the suite for publishers tests"
    )


class SubscriberVerification(SubscriberWhiteboxVerification, SubscriberBlackboxVerification):
    """Checks a subscriber in both ways: white box with a probe, black box without one.

    Attributes:
        whitebox: False for a subscriber that cannot report to a probe: then only the black-box tests run.
    """

    whitebox: ClassVar[bool] = True

    def make_subscriber(self, probe: Probe | None = None) -> Subscriber[Any]:
        """Make a subscriber; without a probe it requests by itself, with one what its puppet is told to."""
        raise NotImplementedError(
            "make_subscriber(probe) has to be written for the subscriber that is verified"
        )

    def unstaged(self) -> tuple[Stage, Subscriber[Any], Probe]:
        """As for the white box, if there is one."""
        if not self.whitebox:
            pytest.skip("the subscriber does not report to a probe: only the black-box tests apply")
        return super().unstaged()
