"""Publishers that count wrongly, or take a request or a cancel amiss."""

import threading
from collections.abc import Callable
from typing import Any

from flow.contracts import UNBOUNDED, Subscriber
from tests.tck.broken.catalogue import breaks
from tests.tck.broken.honest import HonestSubscription

__all__: list[str] = []

_PAUSE = threading.Event()


@breaks("required_spec101", "required_createPublisher3")
class IgnoresDemand(HonestSubscription):
    """Pushes everything at once."""

    def begin(self) -> None:
        self.demand = 100
        super().begin()


@breaks("required_spec101", "required_createPublisher3", "extra_spec308")
class OverProduces(HonestSubscription):
    """Gives one more than was requested."""

    def added(self, demand: int, n: Any) -> int:
        return super().added(demand, n) + 1


@breaks("required_spec101", "required_createPublisher1")
class UnderProduces(HonestSubscription):
    """Gives one less than was requested."""

    def added(self, demand: int, n: Any) -> int:
        return super().added(demand, n) - 1


@breaks("required_spec317_mustSupportACumulative", "extra_spec308")
class Forgets(HonestSubscription):
    """A request replaces the demand that was there."""

    def added(self, demand: int, n: Any) -> int:
        return 1 if n == 1 else super().added(0, n) // 2


@breaks("required_spec317_mustNotSignalOnError", "extra_spec317")
class FailsOnOverflow(HonestSubscription):
    """Takes much demand for a wrong request."""

    def refusal(self, n: Any) -> Exception | None:
        if type(n) is int and self.demand + n > UNBOUNDED:
            return OverflowError("too much demand")
        return super().refusal(n)


@breaks("required_spec317_mustNotSignalOnError", "extra_spec317")
class WrapsAround(HonestSubscription):
    """Counts in 64 bits with a sign."""

    def added(self, demand: int, n: Any) -> int:
        total = (demand + int(n) + 2**63) % 2**64 - 2**63
        return max(total, 0)


@breaks("required_spec309_requestZero", "required_spec309_requestNegative")
class IgnoresWrongRequests(HonestSubscription):
    """A request that is not positive has no effect."""

    def request(self, n: Any, /) -> None:
        if type(n) is int and n > 0:
            super().request(n)


@breaks("required_spec309_requestZero", "required_spec309_requestNegative", "extra_spec309")
class RaisesOnWrongRequests(HonestSubscription):
    """A request that is not positive raises."""

    def request(self, n: Any, /) -> None:
        error = self.refusal(n)
        if error is not None:
            raise error
        super().request(n)


@breaks("required_spec309_requestZero", "required_spec309_requestNegative")
class FailsOtherwise(HonestSubscription):
    """The failure is no ``ValueError``."""

    def refusal(self, n: Any) -> Exception | None:
        return None if super().refusal(n) is None else RuntimeError("rule 3.9")


@breaks("optional_spec309")
class FailsWithoutReason(HonestSubscription):
    """The failure does not say why."""

    def refusal(self, n: Any) -> Exception | None:
        return None if super().refusal(n) is None else ValueError("no")


@breaks("extra_spec309_whatIsNoPositiveInteger")
class TakesBooleans(HonestSubscription):
    """``request(True)`` is ``request(1)``."""

    def refusal(self, n: Any) -> Exception | None:
        return super().refusal(int(n) if isinstance(n, bool) else n)


@breaks("extra_spec309_whatIsNoPositiveInteger")
class ComparesWithZero(HonestSubscription):
    """``request("3")`` raises what the comparison raises."""

    def refusal(self, n: Any) -> Exception | None:
        return super().refusal(n) if n <= 0 else None


@breaks("required_spec303", "extra_spec303")
class Recursive(HonestSubscription):
    """A request inside ``on_next`` calls ``on_next``."""

    def request(self, n: Any, /) -> None:
        if self.refusal(n) is not None or self.done or not self.left:
            super().request(n)
            return
        for _ in range(min(n, self.left)):
            if not self.done:
                self.demand += 1
                self.emit()
        self.run()


@breaks("extra_spec103_nothingIsSignalled")
class EmitsInsideOnSubscribe(HonestSubscription):
    """A request inside ``on_subscribe`` calls ``on_next`` there."""

    def begin(self) -> None:
        self.busy = False
        super().begin()


@breaks("required_spec306", "extra_spec108_cancelInside", "extra_spec312_stops")
class IgnoresCancel(HonestSubscription):
    """Goes on."""

    def cancel(self) -> None:
        return


@breaks("extra_spec312_stops")
class FinishesWhatWasRequested(HonestSubscription):
    """Cancel is honoured when no demand is left."""

    cancelled = False

    def cancel(self) -> None:
        self.cancelled = True
        if not self.demand:
            super().cancel()

    def emit(self) -> None:
        super().emit()
        if self.cancelled and not self.demand:
            self.done = True


@breaks("required_spec306")
class Revives(HonestSubscription):
    """A request after cancel begins anew."""

    kept: Any = None

    def cancel(self) -> None:
        self.kept = self.subscriber
        super().cancel()

    def request(self, n: Any, /) -> None:
        if self.kept is not None:
            self.subscriber, self.done = self.kept, False
        super().request(n)


@breaks("required_spec306", "required_spec307", "required_spec313")
class CancelRaises(HonestSubscription):
    """``cancel`` raises."""

    def cancel(self) -> None:
        raise RuntimeError("cancelled")


@breaks("required_spec307")
class SecondCancelRaises(HonestSubscription):
    """Only the first cancel is expected."""

    def cancel(self) -> None:
        if self.done:
            raise RuntimeError("cancelled already")
        super().cancel()


@breaks("required_spec306", "required_spec307", "extra_spec312_cancelRaces")
class CancelCompletes(HonestSubscription):
    """Cancel is answered by ``on_complete``."""

    def cancel(self) -> None:
        subscriber = self.subscriber
        super().cancel()
        if subscriber is not None:
            subscriber.on_complete()


@breaks("extra_spec108_nothingFollows")
class CompletesAfterCancel(HonestSubscription):
    """The end is told although the subscriber has left."""

    def run(self) -> None:
        subscriber = self.subscriber
        super().run()
        if self.done and not self.left and not self.error and not self.told:
            self.told = True
            self.call(subscriber.on_complete)

    told = False

    def complete(self) -> None:
        self.told = True
        super().complete()


@breaks("required_spec313")
class KeepsTheSubscriber(HonestSubscription):
    """Remembers whom it served."""

    def __init__(self, subscriber: Subscriber[Any], count: int, error: Exception | None) -> None:
        super().__init__(subscriber, count, error)
        self.memory = subscriber


@breaks("extra_spec313")
class KeepsTheSubscriberAtTheEnd(HonestSubscription):
    """Forgets it only when it cancels."""

    memory: Any = None

    def begin(self) -> None:
        self.memory = self.subscriber
        super().begin()

    def cancel(self) -> None:
        self.memory = None
        super().cancel()


@breaks("extra_spec304", "extra_spec305")
class SignalsUnderALock(HonestSubscription):
    """Holds a lock during signals that request and cancel need."""

    def __init__(self, subscriber: Subscriber[Any], count: int, error: Exception | None) -> None:
        super().__init__(subscriber, count, error)
        self.guard = threading.RLock()

    def call(self, signal: Callable[[], object]) -> None:
        with self.guard:
            super().call(signal)

    def request(self, n: Any, /) -> None:
        with self.guard:
            super().request(n)

    def cancel(self) -> None:
        with self.guard:
            super().cancel()


@breaks("extra_spec304")
class RequestWorksHard(HonestSubscription):
    """Each request takes its time."""

    def request(self, n: Any, /) -> None:
        _PAUSE.wait(0.03)
        super().request(n)


@breaks("extra_spec305")
class CancelWorksHard(HonestSubscription):
    """Each cancel takes its time."""

    def cancel(self) -> None:
        _PAUSE.wait(0.03)
        super().cancel()


@breaks("extra_spec103_signalsAreSerial")
class LosesWakeUps(HonestSubscription):
    """Finds nothing to do and says so in two steps: a request in between is lost."""

    def run(self) -> None:
        while not self.done and (self.error is not None or self.demand or not self.left):
            self.step()
        _PAUSE.wait(0.002)
        self.busy = False
        if self.done:
            self.subscriber = None


@breaks("extra_spec103_signalsAreSerial")
class NotGuarded(HonestSubscription):
    """Each requesting thread delivers."""

    def request(self, n: Any, /) -> None:
        with self.lock:
            self.busy = threading.get_ident() == self.holder
        super().request(n)

    def emit(self) -> None:
        self.holder = threading.get_ident()
        _PAUSE.wait(0.0005)
        super().emit()

    holder = 0
