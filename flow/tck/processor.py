"""The suite for processors that pass on what they get: both others, and three tests more."""
# ruff: noqa: N802 - the standard names

from typing import Any, ClassVar

from flow.contracts import Processor, Publisher, Subscriber
from flow.sources import error as failing
from flow.sources import from_iterable
from flow.tck.publisher import PublisherVerification
from flow.tck.settings import rs
from flow.tck.stage import Probe, Stage
from flow.tck.subscriber import SubscriberWhiteboxVerification
from flow.tck.witness import Witness, broken

__all__ = ["ProcessorVerification"]


class ProcessorVerification(PublisherVerification, SubscriberWhiteboxVerification):
    """Checks a processor that passes on every element: as a publisher, as a subscriber, and what links the two.

    Attributes:
        buffer_size: What `make_processor` is given: how many elements it may hold.
        delays_errors: Whether an error comes after what is buffered; by rule 4.2 it comes at once.
    """

    buffer_size: ClassVar[int] = 16
    delays_errors: ClassVar[bool] = False

    def make_processor(self, buffer_size: int) -> Processor[Any, Any]:
        """Make a processor that holds at most so many elements for each of its subscribers."""
        raise NotImplementedError(
            "make_processor(buffer_size) has to be written for the processor that is verified"
        )

    def make_source(self, n: int) -> Publisher[Any]:
        """Make what the processor subscribes to: ``n`` elements, then the end."""
        return from_iterable(range(1, n + 1))

    def make_publisher(self, n: int) -> Publisher[Any]:
        """A processor that has subscribed to a source."""
        return self._reading(self.make_source(n))

    def make_failed_publisher(self) -> Publisher[Any] | None:
        """A processor that has subscribed to a source that failed."""
        return self._reading(failing(RuntimeError("it fails")))

    def make_subscriber(self, probe: Probe | None = None) -> Subscriber[Any]:
        """A processor to which the probe has subscribed."""
        processor = self.make_processor(self.buffer_size)
        if probe is not None:
            processor.subscribe(probe)
        return processor

    def _reading(self, source: Publisher[Any]) -> Publisher[Any]:
        processor = self.make_processor(self.buffer_size)
        source.subscribe(processor)
        return processor

    def _between(self, subscribers: int) -> tuple[Stage, Processor[Any, Any], list[Witness]]:
        """A processor between a stage and some witnesses."""
        stage, processor = Stage(self.patience), self.make_processor(self.buffer_size)
        stage.greet(processor)
        return stage, processor, [self.subscribed(processor) for _ in range(subscribers)]

    def _asking_between(self) -> tuple[Stage, Processor[Any, Any], Witness]:
        """One between a stage and a witness, which has asked for an element."""
        stage, processor, (witness,) = self._between(1)
        witness.request(1)
        stage.expect_request()
        return stage, processor, witness

    @rs("1.4", "required")
    def test_required_spec104_mustCallOnErrorOnAllItsSubscribersIfItEncountersANonRecoverableError(
        self,
    ) -> None:
        """Those with and those without demand are told."""
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
        """A late second subscriber without demand does not stop the first, which asked for 20."""
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
        """However much was asked of it: beyond what it has passed on, it asks for a buffer at most."""
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
        """Completion overtakes nothing."""
        stage, processor, witness = self._asking_between()
        count = min(stage.requested, 3)
        self._send(stage, processor, count)
        stage.complete(processor)
        witness.request(10)
        witness.expect_items(count, "4.1")
        witness.expect_complete("4.1")

    @rs("4.2", "extra")
    def test_extra_spec402_anErrorOvertakesWhatIsBuffered(self) -> None:
        """Or follows it, if the setting says so."""
        stage, processor, witness = self._asking_between()
        count = min(stage.requested, 3)
        self._send(stage, processor, count)
        witness.expect_next("4.2")
        stage.fail(processor, RuntimeError("it fails"))
        if self.delays_errors:
            witness.request(10)
            witness.expect_items(count - 1, "4.2")
        witness.expect_error("4.2")
