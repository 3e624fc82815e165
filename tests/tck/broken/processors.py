"""Processors that break rules."""

from typing import Any

from flow.contracts import UNBOUNDED, Subscription
from flow.drain import COMPLETED, Failed
from tests.tck.broken.catalogue import breaks_processor
from tests.tck.broken.relay import HonestProcessor

__all__: list[str] = []


@breaks_processor("mustImmediatelyPass", "required_spec104", "optional_spec104", "required_spec210")
class HidesErrors(HonestProcessor):
    """Takes an error for the end."""

    def on_error(self, error: Exception, /) -> None:
        if error is None:
            raise TypeError("None")
        self.on_complete()


@breaks_processor("mustImmediatelyPass", "required_spec104", "optional_spec104")
class HoldsErrorsBack(HonestProcessor):
    """Tells an error only to who requests."""

    kept: Exception | None = None

    def on_error(self, error: Exception, /) -> None:
        self.kept = error
        if error is None:
            raise TypeError("None")

    def refill(self) -> None:
        error, self.kept = self.kept, None
        if error is None:
            super().refill()
        else:
            super().on_error(error)


@breaks_processor("required_spec104")
class TellsOneOnly(HonestProcessor):
    """Tells an error to its first subscriber."""

    def on_error(self, error: Exception, /) -> None:
        if error is None:
            raise TypeError("None")
        for outlet in self.outlets[:1]:
            outlet.drain.fail(error)
        self.upstream = None


@breaks_processor("required_mustRequestFromUpstream")
class StopsForNewcomers(HonestProcessor):
    """Requests only if all subscribers have asked for something."""

    def room(self) -> int:
        if self.coming or not all(outlet.drain.demand for outlet in self.outlets):
            return 0
        return min(super().room(), 1)

    def on_next(self, item: Any, /) -> None:
        super().on_next(item)
        self.refill()


@breaks_processor("extra_spec401")
class AsksWithoutBound(HonestProcessor):
    """Requests everything there is, however slow its subscribers are."""

    def room(self) -> int:
        return 0 if self.coming > self.buffer_size else UNBOUNDED // 2


@breaks_processor("required_createPublisher1", "required_spec105", "required_spec209")
class NeverCompletes(HonestProcessor):
    """Does not pass on the end."""

    def on_complete(self) -> None:
        self.upstream = None


@breaks_processor("required_exercise", "required_spec208")
class KeepsItsPublisher(HonestProcessor):
    """Goes on although all its subscribers have left."""

    def close(self) -> None:
        return


@breaks_processor("required_spec213_onNext")
class TakesNone(HonestProcessor):
    """Passes over ``None``."""

    def on_next(self, item: Any, /) -> None:
        if item is not None:
            super().on_next(item)


@breaks_processor("required_spec205")
class TakesEverySubscription(HonestProcessor):
    """Leaves a second subscription open."""

    def refuse(self, subscription: Subscription) -> None:
        return


@breaks_processor("required_spec203")
class CancelsWhatHasEnded(HonestProcessor):
    """Cancels at the end of what it reads."""

    def on_complete(self) -> None:
        upstream = self.upstream
        if upstream is not None:
            upstream.cancel()
        super().on_complete()

    def on_error(self, error: Exception, /) -> None:
        upstream = self.upstream
        if upstream is not None and error is not None:
            upstream.cancel()
        super().on_error(error)


@breaks_processor("required_createPublisher3")
class Doubles(HonestProcessor):
    """Passes each element on twice, and the demand is that of the source."""

    def on_next(self, item: Any, /) -> None:
        super().on_next(item)
        self.coming += 1
        super().on_next(item)


@breaks_processor("extra_spec402")
class ErrorsWaitTheirTurn(HonestProcessor):
    """An error comes after what is buffered."""

    def on_error(self, error: Exception, /) -> None:
        if error is None:
            raise TypeError("None")
        for outlet in self.end(Failed(error)):
            outlet.drain.signal()


@breaks_processor("required_createPublisher3", "extra_spec401_elements")
class EndsAtOnce(HonestProcessor):
    """The end overtakes what is buffered."""

    def on_complete(self) -> None:
        for outlet in self.end(COMPLETED):
            outlet.items.clear()
            outlet.drain.signal()
