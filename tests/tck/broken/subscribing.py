"""Publishers that go wrong when somebody subscribes, or when they fail."""

from typing import Any

from tests.tck.broken.catalogue import breaks
from tests.tck.broken.honest import HonestPublisher, HonestSubscription

__all__: list[str] = []


class _Inert:
    def request(self, _n: int, /) -> None:
        """Nothing is given."""

    def cancel(self) -> None:
        """Nothing is to end."""


@breaks("required_spec109_mustIssue", "required_spec101")
class GreetsTwice(HonestSubscription):
    """Calls ``on_subscribe`` two times."""

    def begin(self) -> None:
        self.call(lambda: self.subscriber.on_subscribe(self))
        super().begin()


@breaks("required_spec109_mustIssue", "optional_spec105")
class GreetsNobodyWhenEmpty(HonestSubscription):
    """An empty stream only completes."""

    def begin(self) -> None:
        if self.count or self.error:
            super().begin()
        else:
            self.complete()


@breaks("required_spec101", "required_spec109_mustIssue")
class ElementBeforeOnSubscribe(HonestSubscription):
    """The first element comes before anything else."""

    def begin(self) -> None:
        if self.left:
            self.emit()
        super().begin()


@breaks("required_spec109_subscribeThrow")
class ServesNobody(HonestPublisher):
    """``subscribe(None)`` returns."""

    def subscribe(self, subscriber: Any, /) -> None:
        if subscriber is not None:
            self.serve(subscriber)


@breaks("required_spec109_subscribeThrow")
class RefusesNobodyWrongly(HonestPublisher):
    """``subscribe(None)`` raises something else."""

    def subscribe(self, subscriber: Any, /) -> None:
        if subscriber is None:
            raise ValueError("nobody")
        self.serve(subscriber)


@breaks("extra_spec109_subscribeReturns", "required_spec109_mustIssue")
class RaisesWhenEmpty(HonestPublisher):
    """Subscribing to an empty stream raises."""

    def serve(self, subscriber: Any) -> None:
        if not self.count:
            raise RuntimeError("there is nothing")
        super().serve(subscriber)


@breaks("optional_spec104", "required_spec109_mayReject", "extra_spec107")
class FailsSilently(HonestSubscription):
    """A failure is not told."""

    def fail(self) -> None:
        self.done = True


@breaks("optional_spec104", "required_spec109_mayReject", "extra_spec109_subscribeReturns")
class FailsByRaising(HonestPublisher):
    """A failure is raised by ``subscribe``."""

    def serve(self, subscriber: Any) -> None:
        if self.error is not None:
            raise self.error
        super().serve(subscriber)


@breaks("optional_spec104", "required_spec109_mayReject")
class FailsWithoutGreeting(HonestPublisher):
    """A failure is told before ``on_subscribe``."""

    def serve(self, subscriber: Any) -> None:
        if self.error is not None:
            subscriber.on_error(self.error)
            return
        super().serve(subscriber)


@breaks("optional_spec104", "extra_spec107")
class FailsTwice(HonestSubscription):
    """A failure is told two times."""

    def fail(self) -> None:
        subscriber, error = self.subscriber, self.error
        super().fail()
        if error is not None:
            self.call(lambda: subscriber.on_error(error))


@breaks("optional_spec104", "required_spec109_mayReject")
class FailsByCompleting(HonestSubscription):
    """A failure looks like an end."""

    def fail(self) -> None:
        self.complete()


@breaks("optional_spec104", "required_spec109_mayReject")
class FailsOnDemand(HonestPublisher):
    """A failure waits for a request."""

    def serve(self, subscriber: Any) -> None:
        if self.error is None:
            super().serve(subscriber)
        else:
            subscriber.on_subscribe(_Inert())


@breaks("optional_spec104", "required_spec109_mayReject")
class FailsWithText(HonestSubscription):
    """A failure is told as a string."""

    def fail(self) -> None:
        self.done = True
        self.call(lambda: self.subscriber.on_error(str(self.error)))


@breaks("optional_spec111_multicast", "extra_spec110")
class SharesAnIterator(HonestPublisher):
    """What one subscriber got, the others miss."""

    def __init__(self, count: int, error: Exception | None = None) -> None:
        super().__init__(count, error)
        self.left = count

    def serve(self, subscriber: Any) -> None:
        publisher = self

        class Shared(HonestSubscription):
            def step(self) -> None:
                self.left = publisher.left
                super().step()

            def emit(self) -> None:
                super().emit()
                publisher.left = self.left

        Shared(subscriber, self.count, self.error).begin()


@breaks("optional_spec111_maySupport", "optional_spec111_registered")
class RaisesForTheSecond(HonestPublisher):
    """Only one may subscribe."""

    taken = False

    def serve(self, subscriber: Any) -> None:
        if self.taken:
            raise RuntimeError("somebody is here already")
        self.taken = True
        super().serve(subscriber)


@breaks("extra_spec111_slow", "optional_spec111_multicast")
class WaitsForTheSlowest(HonestPublisher):
    """Nobody gets an element that a neighbour has not asked for."""

    def __init__(self, count: int, error: Exception | None = None) -> None:
        super().__init__(count, error)
        self.members: list[Any] = []

    def serve(self, subscriber: Any) -> None:
        publisher = self

        class Coupled(HonestSubscription):
            def request(self, n: Any, /) -> None:
                others = [each for each in publisher.members if each is not self and not each.done]
                if type(n) is int and n > 0 and any(not each.asked for each in others):
                    self.asked += n
                    return
                super().request(n)

            asked = 0

        subscription = Coupled(subscriber, self.count, self.error)
        self.members.append(subscription)
        subscription.begin()


@breaks("extra_spec109_closedExecutor")
class RaisesWhenStranded(HonestPublisher):
    """A closed executor raises into ``subscribe``."""

    def stranded(self) -> "RaisesWhenStranded":
        """One whose executor is closed."""
        self.closed = True
        return self

    closed = False

    def serve(self, subscriber: Any) -> None:
        if self.closed:
            raise RuntimeError("cannot schedule new futures after shutdown")
        super().serve(subscriber)
