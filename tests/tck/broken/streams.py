"""Publishers whose streams do not run, or do not end, as they should."""

import threading
from typing import Any

from flow.contracts import Subscriber
from tests.tck.broken.catalogue import breaks
from tests.tck.broken.honest import HonestPublisher, HonestSubscription

__all__: list[str] = []


@breaks("extra_spec303")
class EndsTooSoon(HonestSubscription):
    """Completes after a thousand elements, of however many."""

    def __init__(self, subscriber: Subscriber[Any], count: int, error: Exception | None) -> None:
        super().__init__(subscriber, min(count, 1_000), error)


@breaks("required_createPublisher1", "required_createPublisher3", "required_spec105", "required_spec107")
class LongerThanAnnounced(HonestPublisher):
    """Has one element more."""

    def serve(self, subscriber: Any) -> None:
        HonestSubscription(subscriber, self.count + 1, self.error).begin()


@breaks("required_createPublisher1", "required_createPublisher3", "required_spec102")
class ShorterThanAnnounced(HonestPublisher):
    """Has one element less."""

    def serve(self, subscriber: Any) -> None:
        HonestSubscription(subscriber, max(self.count - 1, 0), self.error).begin()


@breaks("required_createPublisher1", "required_spec102", "required_spec105", "optional_spec105")
class NeverCompletes(HonestSubscription):
    """Falls silent at the end."""

    def complete(self) -> None:
        self.done = True


@breaks("optional_spec105_emptyStream", "extra_spec209")
class EmptyNeverCompletes(HonestSubscription):
    """Falls silent if there is no element."""

    def complete(self) -> None:
        if self.count:
            super().complete()
        self.done = True


@breaks("required_createPublisher1", "required_spec105", "required_spec107")
class CompletesTwice(HonestSubscription):
    """Tells the end two times."""

    def complete(self) -> None:
        subscriber = self.subscriber
        super().complete()
        self.call(subscriber.on_complete)


@breaks("required_createPublisher1", "required_spec105", "required_spec107")
class ElementAfterTheEnd(HonestSubscription):
    """Gives one more element when all is over."""

    def complete(self) -> None:
        subscriber = self.subscriber
        super().complete()
        self.call(lambda: subscriber.on_next(0))


@breaks("required_spec105", "required_spec107", "required_createPublisher1")
class FailsAfterTheEnd(HonestSubscription):
    """Completes, then fails."""

    def complete(self) -> None:
        subscriber = self.subscriber
        super().complete()
        self.call(lambda: subscriber.on_error(RuntimeError("after all")))


@breaks("required_createPublisher3", "required_spec102", "required_spec105")
class FailsInsteadOfCompleting(HonestSubscription):
    """Takes its end for a failure."""

    def complete(self) -> None:
        self.error = StopIteration()
        self.fail()


@breaks("extra_spec209")
class CompletionNeedsDemand(HonestSubscription):
    """Tells the end only to who asks for one element more."""

    def step(self) -> None:
        if self.error is None and not self.left and not self.demand:
            return
        super().step()

    def run(self) -> None:
        if self.error is None and not self.left and not self.demand:
            self.busy = False
            return
        super().run()

    def emit(self) -> None:
        super().emit()
        if not self.left and not self.demand:
            self.left = -1

    def request(self, n: Any, /) -> None:
        self.left = max(self.left, 0)
        super().request(n)


@breaks("required_createPublisher1", "required_spec101", "required_spec102", "required_spec303")
class EmitsNone(HonestSubscription):
    """Its elements are ``None``."""

    def emit(self) -> None:
        self.demand -= 1
        self.left -= 1
        self.call(lambda: self.subscriber.on_next(None))


@breaks("stochastic_spec103")
class NotSerial(HonestSubscription):
    """Each element comes on a thread of its own, whatever the others do."""

    def emit(self) -> None:
        self.demand -= 1
        self.left -= 1
        item, subscriber = self.count - self.left, self.subscriber

        def signal() -> None:
            subscriber.on_next(item)

        threading.Thread(target=signal, daemon=True).start()


@breaks("stochastic_spec103", "extra_spec103_nothingIsSignalled")
class EmitsBesideOnSubscribe(HonestSubscription):
    """Another thread serves a request while ``on_subscribe`` still runs."""

    def begin(self) -> None:
        self.busy = False
        super().begin()

    def request(self, n: Any, /) -> None:
        thread = threading.Thread(target=super().request, args=(n,), daemon=True)
        thread.start()
        thread.join(0.05)


@breaks("extra_spec213")
class TellsWhoRaised(HonestSubscription):
    """A subscriber that raises is sent its own error."""

    def call(self, signal: Any) -> None:
        subscriber = self.subscriber
        try:
            signal()
        except Exception as error:
            self.done = True
            subscriber.on_error(error)


@breaks("extra_spec213")
class LetsErrorsThrough(HonestSubscription):
    """What a subscriber raises reaches who requested."""

    def call(self, signal: Any) -> None:
        signal()


@breaks("extra_spec213")
class GoesOnWhateverIsRaised(HonestSubscription):
    """A subscriber that raises gets the next element."""

    def call(self, signal: Any) -> None:
        try:
            signal()
        except Exception:
            return


@breaks("extra_spec213")
class HidesErrors(HonestSubscription):
    """A subscriber that raises is cancelled, and nobody is told."""

    def call(self, signal: Any) -> None:
        try:
            signal()
        except Exception:
            self.done = True
