"""The suite for publishers: 38 tests with the standard names (those with several subscribers in a class of their own), and the ``extra_`` ones (`flow.tck.extra`)."""
# ruff: noqa: N802 - the standard names

from typing import Any

from flow.contracts import UNBOUNDED, Publisher
from flow.tck.extra import ExtraPublisherTests
from flow.tck.suite import ENDLESS, PublisherSettings, request_and_stay, requesting, rs, untested
from flow.tck.witness import Witness, broken, refuses_none

__all__ = ["PublisherVerification"]


class SeveralSubscribers(PublisherSettings):
    """The tests with several subscribers."""

    @rs("1.11", "optional")
    def test_optional_spec111_maySupportMultiSubscribe(self) -> None:
        """Two subscribers, no error."""
        self.several()
        publisher = self.publisher(1)
        for witness in self._all(publisher, 2):
            witness.expect_silence("1.11", "although nothing was requested")

    @rs("1.11", "optional")
    def test_optional_spec111_registeredSubscribersMustReceiveOnNextOrOnCompleteSignals(self) -> None:
        """Each receives an element or the end."""
        self.several()
        publisher = self.publisher(1)
        witnesses = self._all(publisher, 2)
        for witness in witnesses:
            witness.request(1)
        for witness in witnesses:
            witness.expect_next_or_end("1.11")

    @rs("1.11", "optional")
    def test_optional_spec111_multicast_mustProduceTheSameElementsInTheSameSequenceToAllOfItsSubscribersWhenRequestingOneByOne(
        self,
    ) -> None:
        """Three subscribers with different patterns of requests receive equal sequences."""
        self.several(3)
        self.exact()
        one, two, three = witnesses = self._all(self.publisher(5), 3)
        if self.coordinated:
            for _ in range(5):
                for witness in witnesses:
                    witness.request(1)
                for witness in witnesses:
                    witness.expect_next("1.11")
        else:
            for witness, requests in ((one, (1, 1, 2, 1)), (two, (2, 3)), (three, (3, 1, 1))):
                for n in requests:
                    witness.request(n)
                    witness.expect_items(n, "1.11")
        for witness in witnesses:
            witness.request(1)
            witness.expect_complete("1.11")
        _equal(witnesses)

    @rs("1.11", "optional")
    def test_optional_spec111_multicast_mustProduceTheSameElementsInTheSameSequenceToAllOfItsSubscribersWhenRequestingManyUpfront(
        self,
    ) -> None:
        """All request more than there is, and receive equal sequences."""
        self._upfront()

    @rs("1.11", "optional")
    def test_optional_spec111_multicast_mustProduceTheSameElementsInTheSameSequenceToAllOfItsSubscribersWhenRequestingManyUpfrontAndCompleteAsExpected(
        self,
    ) -> None:
        """And all receive the end."""
        for witness in self._upfront():
            witness.expect_complete("1.11")
            witness.expect_silence("1.7", "after on_complete")

    @rs("1.10", "extra")
    def test_extra_spec110_laterSubscribersAreServedOrToldTheEnd(self) -> None:
        """After the first has received everything, a cold publisher delivers everything again, a hot one signals its end."""
        self.several()
        self.exact()
        publisher = self.publisher(3)
        first = self.subscribed(publisher)
        first.request(4)
        first.expect_items(3)
        first.expect_complete()
        second = self.subscribed(publisher)
        if self.multicast == "cold":
            second.request(4)
            second.expect_items(3, "1.10")
            _equal([first, second])
        second.expect_complete("1.10")

    @rs("1.11", "extra")
    def test_extra_spec111_slowSubscriberHoldsNobodyElseBack(self) -> None:
        """Beside a subscriber without demand, another one receives everything that it has requested."""
        self.several()
        self.exact()
        if self.coordinated:
            return
        publisher = self.publisher(3)
        slow, quick = self._all(publisher, 2)
        quick.request(4)
        quick.expect_all(3, "1.11")
        slow.request(4)
        slow.expect_all(3, "1.11")
        _equal([slow, quick])

    @rs("1.11", "extra")
    def test_extra_spec111_cancelInsideOnNextTakesNothingFromTheNeighbours(self) -> None:
        """One subscriber cancels inside a signal; those that subscribed after it miss nothing."""
        self.several(3)
        self.exact()
        publisher = self.publisher(3)
        before, leaver, after = witnesses = [
            self.subscribed(publisher, on_item=leaving) for leaving in (None, Witness.cancel, None)
        ]
        for witness in witnesses:
            witness.request(4)
        for witness in (before, after):
            witness.expect_all(3, "1.11")
        leaver.expect_next("1.11")
        leaver.expect_silence("1.8", "after cancel")

    def _upfront(self) -> list[Witness]:
        self.several(3)
        self.exact()
        witnesses = self._all(self.publisher(3), 3)
        for witness in witnesses:
            witness.request(4)
        for witness in witnesses:
            witness.expect_items(3, "1.11")
        _equal(witnesses)
        return witnesses

    def _all(self, publisher: Publisher[Any], count: int) -> list[Witness]:
        return [self.subscribed(publisher) for _ in range(count)]


def _equal(witnesses: list[Witness]) -> None:
    for witness in witnesses[1:]:
        if witness.items != witnesses[0].items:
            broken("1.11", f"one subscriber got {witnesses[0].items!r}, another {witness.items!r}")


@untested(
    spec106_mustConsiderSubscriptionCancelledAfterOnErrorOrOnCompleteHasBeenCalled="nothing can be seen of what a publisher considers; see extra_spec306",
    spec107_mustNotEmitFurtherSignalsOnceOnErrorHasBeenSignalled="the standard kit leaves it open; see extra_spec107",
    spec108_possiblyCanceledSubscriptionShouldNotReceiveOnErrorOrOnCompleteSignals="signals stop eventually, says the rule, and not when; see extra_spec108",
    spec109_subscribeShouldNotThrowNonFatalThrowable="nothing says when a subscribe should fail; see extra_spec109",
    spec110_rejectASubscriptionRequestIfTheSameSubscriberSubscribesTwice="a publisher would have to remember its subscribers, which rule 3.13 forbids",
    spec304_requestShouldNotPerformHeavyComputations="heavy has no measure; see extra_spec304",
    spec305_cancelMustNotSynchronouslyPerformHeavyComputation="heavy has no measure; see extra_spec305",
)
class PublisherVerification(SeveralSubscribers, ExtraPublisherTests):
    """Checks a publisher against the rules of Reactive Streams 1.0.4.

    A subclass named ``Test...`` implements `make_publisher`, and `make_failed_publisher` if the publisher can fail; see
    `flow.tck.suite.PublisherSettings` for the settings.
    """

    @rs("-", "required")
    def test_required_validate_maxElementsFromPublisher(self) -> None:
        """The setting is valid."""
        assert self.max_elements >= 0, "max_elements has to be at least 0"

    @rs("-", "required")
    def test_required_validate_boundedDepthOfOnNextAndRequestRecursion(self) -> None:
        """The setting is valid."""
        assert self.bounded_depth >= 1, "bounded_depth has to be at least 1"

    @rs("1.1", "required")
    def test_required_createPublisher1MustProduceAStreamOfExactly1Element(self) -> None:
        """One element, then the end."""
        self._exactly(1)

    @rs("1.1", "required")
    def test_required_createPublisher3MustProduceAStreamOfExactly3Elements(self) -> None:
        """Three elements, requested one by one, then the end."""
        self._exactly(3)

    def _exactly(self, count: int, rule: str = "1.1") -> None:
        self.exact()
        witness = self.subscribed(self.publisher(count))
        for _ in range(count):
            witness.request(1)
            witness.expect_next(rule)
        witness.request(1)
        witness.expect_complete()
        witness.expect_silence("1.7", "after on_complete")

    @rs("1.1", "required")
    def test_required_spec101_subscriptionRequestMustResultInTheCorrectNumberOfProducedElements(self) -> None:
        """Nothing before a request, then exactly as many as requested."""
        self.exact()
        witness = self.subscribed(self.publisher(5))
        witness.expect_silence("1.1", "before anything was requested")
        witness.request(1)
        witness.expect_next()
        witness.expect_silence("1.1", "beyond the one element that was requested")
        witness.request(1)
        witness.request(2)
        witness.expect_items(3)
        witness.expect_silence("1.1", "beyond the four elements that were requested")

    @rs("1.2", "required")
    def test_required_spec102_maySignalLessThanRequestedAndTerminateSubscription(self) -> None:
        """Ten elements of a stream of three are requested: three come, and the end."""
        self.exact()
        witness = self.subscribed(self.publisher(3))
        witness.request(10)
        witness.expect_all(3, "1.2")

    @rs("1.3", "stochastic")
    def test_stochastic_spec103_mustSignalOnMethodsSequentially(self) -> None:
        """Many rounds of ten elements, each requested from inside a signal; the witness detects overlapping signals."""
        self.exact()
        for _ in range(self.rounds):
            witness = self.subscribed(self.publisher(10), on_open=requesting(1), on_item=request_and_stay)
            witness.expect_all(10, "1.3")
            self.forget(witness)

    @rs("1.4", "optional", lenient=False)
    def test_optional_spec104_mustSignalOnErrorWhenFails(self) -> None:
        """A failed publisher signals ``on_subscribe`` and ``on_error``, without any request."""
        witness = self.subscribed(self.failed())
        witness.expect_error("1.4")
        witness.expect_silence("1.7", "after on_error")

    @rs("1.5", "required")
    def test_required_spec105_mustSignalOnCompleteWhenFiniteStreamTerminates(self) -> None:
        """Three elements, the completion, silence."""
        self._exactly(3, "1.5")

    @rs("1.5", "optional")
    def test_optional_spec105_emptyStreamMustTerminateBySignallingOnComplete(self) -> None:
        """No element: completion."""
        witness = self.subscribed(self.publisher(0))
        witness.request(1)
        witness.expect_complete()
        witness.expect_silence("1.7", "after on_complete")

    @rs("1.7", "required")
    def test_required_spec107_mustNotEmitFurtherSignalsOnceOnCompleteHasBeenSignalled(self) -> None:
        """Silence after the completion, whatever is requested."""
        self.exact()
        witness = self.subscribed(self.publisher(1))
        witness.request(10)
        witness.expect_next("1.7")
        witness.expect_complete("1.7")
        witness.request(10)
        witness.expect_silence("1.7", "after on_complete")

    @rs("1.9", "required")
    def test_required_spec109_mustIssueOnSubscribeForNonNullSubscriber(self) -> None:
        """It is the first signal, and comes once."""
        for count in (0, 1):
            if count > self.max_elements:
                continue
            witness = self.subscribed(self.publisher(count))
            witness.request(1)
            if witness.expect_next_or_end("1.9"):
                witness.cancel()
            witness.verify()

    @rs("1.9", "required")
    def test_required_spec109_subscribeThrowNPEOnNullSubscriber(self) -> None:
        """Only a missing subscriber makes ``subscribe`` raise."""
        refuses_none("1.9", self.publisher(0), "subscribe")

    @rs("1.9", "required")
    def test_required_spec109_mayRejectCallsToSubscribeIfPublisherIsUnableOrUnwillingToServeThemRejectionMustTriggerOnErrorAfterOnSubscribe(
        self,
    ) -> None:
        """A refusal is signalled."""
        self.subscribed(self.failed()).expect_error("1.9")

    @rs("3.2", "required")
    def test_required_spec302_mustAllowSynchronousRequestCallsFromOnNextAndOnSubscribe(self) -> None:
        """Requests from inside signals."""
        self.exact()
        count = min(6, self.max_elements)
        witness = self.subscribed(self.publisher(count), on_open=requesting(1, 1), on_item=requesting(1))
        witness.expect_all(count, "3.2")

    @rs("3.3", "required")
    def test_required_spec303_mustNotAllowUnboundedRecursion(self) -> None:
        """A request from inside ``on_next`` does not call ``on_next`` deeper than the bound."""
        self.needs(self.bounded_depth + 1)
        count = min(self.bounded_depth + 10, self.max_elements)
        witness = self.subscribed(
            self.publisher(count), on_item=lambda it: it.request(1) if len(it.items) < count else None
        )
        witness.request(1)
        self.until(
            lambda: len(witness.items) >= min(count, self.bounded_depth + 1) or witness.ended,
            "3.3",
            "too few elements came",
        )
        if witness.deepest > self.bounded_depth:
            broken("3.3", f"{witness.deepest} calls of on_next stood on one stack, {self.bounded_depth} may")

    @rs("3.6", "required")
    def test_required_spec306_afterSubscriptionIsCancelledRequestMustBeNops(self) -> None:
        """Requests after cancel have no effect."""
        witness = self.subscribed(self.lasting(3))
        witness.cancel()
        for _ in range(3):
            witness.request(1)
        witness.expect_silence("3.6", "of a request after cancel")

    @rs("3.7", "required")
    def test_required_spec307_afterSubscriptionIsCancelledAdditionalCancelationsMustBeNops(self) -> None:
        """Further cancels have no effect."""
        witness = self.subscribed(self.lasting(1))
        for _ in range(3):
            witness.cancel()
        witness.expect_silence("3.7", "of cancel")

    @rs("3.9", "required")
    def test_required_spec309_requestZeroMustSignalIllegalArgumentException(self) -> None:
        """``request(0)`` ends in ``on_error(ValueError)``."""
        witness = self.subscribed(self.lasting(10))
        witness.request(0)
        witness.expect_error("3.9", ValueError)

    @rs("3.9", "required")
    def test_required_spec309_requestNegativeNumberMustSignalIllegalArgumentException(self) -> None:
        """A negative request ends in ``on_error(ValueError)``."""
        chance = self.random()
        witness = self.subscribed(self.lasting(10))
        witness.request(-chance.randrange(1, 2**40))
        witness.expect_error("3.9", ValueError)

    @rs("3.9", "optional")
    def test_optional_spec309_requestNegativeNumberMaySignalIllegalArgumentExceptionWithSpecificMessage(
        self,
    ) -> None:
        """The text names the rule, or what is wrong."""
        witness = self.subscribed(self.lasting(10))
        witness.request(-7)
        text = str(witness.expect_error("3.9", ValueError)).lower()
        if not any(words in text for words in ("3.9", "non-positive subscription", "negative subscription")):
            broken("3.9", f"the text {text!r} names neither the rule nor a non-positive subscription request")

    @rs("3.12", "required")
    def test_required_spec312_cancelMustMakeThePublisherToEventuallyStopSignaling(self) -> None:
        """Fifteen elements are requested, and one is received before cancel: at most fifteen come."""
        witness = self.subscribed(self.lasting(20))
        witness.request(10)
        witness.request(5)
        witness.expect_next("3.12")
        witness.cancel()
        witness.quiet("although 15 were requested before cancel", "3.12", 15)

    @rs("3.13", "required")
    def test_required_spec313_cancelMustMakeThePublisherEventuallyDropAllReferencesToTheSubscriber(
        self,
    ) -> None:
        """After cancel no reference to the subscriber remains."""

        def end(witness: Witness) -> None:
            witness.request(1)
            witness.expect_next("3.13")
            witness.cancel()

        self.dropped_after(self.lasting(3), end, "cancel")

    @rs("3.17", "required")
    def test_required_spec317_mustSupportAPendingElementCountUpToLongMaxValue(self) -> None:
        """The greatest demand."""
        self.exact()
        witness = self.subscribed(self.publisher(3))
        witness.request(UNBOUNDED)
        witness.expect_all(3, "3.17")

    @rs("3.17", "required")
    def test_required_spec317_mustSupportACumulativePendingElementCountUpToLongMaxValue(self) -> None:
        """Two halves and one more."""
        self.exact()
        witness = self.subscribed(self.publisher(3), on_open=requesting(UNBOUNDED // 2, UNBOUNDED // 2, 1))
        witness.expect_all(3, "3.17")

    @rs("3.17", "required")
    def test_required_spec317_mustNotSignalOnErrorWhenPendingAboveLongMaxValue(self) -> None:
        """Demand beyond the greatest is no error."""
        calls = 10

        def pile(witness: Witness) -> None:
            if len(witness.items) <= calls:
                witness.request(UNBOUNDED - 1)
            else:
                witness.cancel()

        witness = self.subscribed(self.publisher(ENDLESS), on_item=pile)
        witness.request(1)
        witness.expect_items(calls + 1, "3.17")
        self.until(
            lambda: len(witness.items) > calls, "3.17", "elements did not go on with demand above 2**63 - 1"
        )
