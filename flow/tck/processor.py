"""The suite for processors that pass elements on: the suites for publishers and subscribers, and further tests."""
# ruff: noqa: N802 - the standard names

from typing import Any, ClassVar

from flow.contracts import Processor, Publisher, Subscriber
from flow.sources import error as failing
from flow.sources import from_iterable
from flow.tck.publisher import PublisherVerification
from flow.tck.stage import Probe, Stage
from flow.tck.subscriber import SubscriberWhiteboxVerification
from flow.tck.suite import rs
from flow.tck.witness import Witness, broken

__all__ = ["ProcessorVerification"]


class ProcessorVerification(PublisherVerification, SubscriberWhiteboxVerification):
    """Checks a processor that passes on every element: as a publisher, as a subscriber, and the link between both.

    Attributes:
        buffer_size: Argument of `make_processor`: the number of elements that it may hold.
        delays_errors: Whether an error comes after the buffered elements; by rule 4.2 it comes at once.
    """

    buffer_size: ClassVar[int] = 16
    delays_errors: ClassVar[bool] = False

    def make_processor(self, buffer_size: int) -> Processor[Any, Any]:
        """Make a processor that holds at most ``buffer_size`` elements for each of its subscribers."""
        raise NotImplementedError(
            "make_processor(buffer_size) has to be written for the processor that is verified"
        )

    def make_source(self, n: int) -> Publisher[Any]:
        """Make the source of the processor: ``n`` elements, then the end."""
        return from_iterable(range(1, n + 1))

    def make_publisher(self, n: int) -> Publisher[Any]:
        """Make a processor that is subscribed to a source."""
        return self._reading(self.make_source(n))

    def make_failed_publisher(self) -> Publisher[Any] | None:
        """Make a processor that is subscribed to a failed source."""
        return self._reading(failing(RuntimeError("it fails")))

    def make_subscriber(self, probe: Probe | None = None) -> Subscriber[Any]:
        """Make a processor to which the probe is subscribed."""
        processor = self.make_processor(self.buffer_size)
        if probe is not None:
            processor.subscribe(probe)
        return processor

    def _reading(self, source: Publisher[Any]) -> Publisher[Any]:
        processor = self.make_processor(self.buffer_size)
        source.subscribe(processor)
        return processor

    def _between(self, subscribers: int) -> tuple[Stage, Processor[Any, Any], list[Witness]]:
        """Make a processor between a stage and several witnesses."""
        stage, processor = Stage(self.patience), self.make_processor(self.buffer_size)
        stage.greet(processor)
        return stage, processor, [self.subscribed(processor) for _ in range(subscribers)]

    def _asking_between(self) -> tuple[Stage, Processor[Any, Any], Witness]:
        """Make a processor between a stage and a witness that has requested an element."""
        stage, processor, (witness,) = self._between(1)
        witness.request(1)
        stage.expect_request()
        return stage, processor, witness

    @rs("1.4", "required")
    def test_required_spec104_mustCallOnErrorOnAllItsSubscribersIfItEncountersANonRecoverableError(
        self,
    ) -> None:
        """Subscribers with and without demand receive the error."""
        self.several()
        stage, processor, (asking, idle) = self._between(2)
        asking.request(2)
        if self.coordinated:
            idle.request(1)
        stage.expect_request()
        stage.send(processor, self.make_item(1))
        asking.expect_next("1.4")
        if self.coordinated:
            idle.expect_next("1.4")
        error = RuntimeError("it fails")
        stage.fail(processor, error)
        if self.delays_errors:
            idle.request(1)
            idle.expect_next("1.4")
        for witness in (asking, idle):
            witness.expect_the_error(error, "1.4")

    @rs("4.2", "required")
    def test_mustImmediatelyPassOnOnErrorEventsReceivedFromItsUpstreamToItsDownstream(self) -> None:
        """Without any request."""
        stage, processor, (witness,) = self._between(1)
        error = RuntimeError("it fails")
        stage.fail(processor, error)
        witness.expect_the_error(error, "4.2")
        witness.expect_silence("1.7", "after on_error")

    @rs("4.1", "required")
    def test_required_mustRequestFromUpstreamForElementsThatHaveBeenRequestedLongAgo(self) -> None:
        """A late second subscriber without demand does not stop the first, which has requested 20."""
        self.several()
        stage, processor, (first,) = self._between(1)
        first.request(20)
        for place in (1, 2):
            stage.expect_request(rule="4.1")
            stage.send(processor, self.make_item(place))
            first.expect_next("4.1")
        second = self.subscribed(processor)
        if self.coordinated:
            stage.expect_request(rule="4.1")
            stage.send(processor, self.make_item(3))
            first.expect_silence(
                "4.1", "although emission is coordinated, and the second has asked for nothing"
            )
            second.request(1)
            first.expect_next("4.1")
        else:
            for place in (3, 4, 5):
                stage.expect_request(rule="4.1")
                stage.send(processor, self.make_item(place))
                first.expect_next("4.1")
            second.expect_silence("1.1", "although it had asked for nothing")
            second.request(1)
        if second.expect_next("4.1") != first.items[2]:
            broken("1.11", f"one subscriber got {first.items[2]!r}, another {second.items[0]!r}")

    @rs("4.1", "extra")
    def test_extra_spec401_requestsNoMoreThanItsBufferTakes(self) -> None:
        """However large the demand: beyond the elements passed on, it requests at most a buffer."""
        stage, processor, witness = self._asking_between()
        place = 0
        while stage.requested > stage.sent and place <= self.buffer_size + 1:
            place += 1
            stage.send(processor, self.make_item(place))
        witness.expect_next("4.1")
        if stage.requested > self.buffer_size + 1:
            broken(
                "4.1",
                f"{stage.requested} were requested, for 1 that was asked for and {self.buffer_size} to hold",
            )

    @rs("4.1", "extra")
    def test_extra_spec401_elementsComeBeforeTheEnd(self) -> None:
        """Completion does not overtake elements."""
        stage, processor, witness = self._asking_between()
        count = min(stage.requested, 3)
        self._send(stage, processor, count)
        stage.complete(processor)
        witness.request(10)
        witness.expect_items(count, "4.1")
        witness.expect_complete("4.1")

    @rs("4.2", "extra")
    def test_extra_spec402_anErrorOvertakesWhatIsBuffered(self) -> None:
        """Or follows them, if the setting says so."""
        stage, processor, witness = self._asking_between()
        count = min(stage.requested, 3)
        self._send(stage, processor, count)
        witness.expect_next("4.2")
        stage.fail(processor, RuntimeError("it fails"))
        if self.delays_errors:
            witness.request(10)
            witness.expect_items(count - 1, "4.2")
        witness.expect_error("4.2")
