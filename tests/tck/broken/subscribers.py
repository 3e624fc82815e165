"""Subscribers that break rules."""

from typing import Any

from flow.contracts import Subscription
from tests.tck.broken.catalogue import breaks_subscriber
from tests.tck.broken.honest import HonestSubscriber

__all__: list[str] = []


class _Puppet:
    """Passes the calls of a test on, in a way that a subclass spoils."""

    def __init__(self, subscription: Subscription) -> None:
        self.subscription = subscription

    def request(self, n: int, /) -> None:
        self.subscription.request(n)

    def cancel(self) -> None:
        self.subscription.cancel()


class _Spoilt(HonestSubscriber):
    puppet: type[_Puppet] = _Puppet

    def on_subscribe(self, subscription: Subscription, /) -> None:
        super().on_subscribe(subscription if subscription is None else self.puppet(subscription))


@breaks_subscriber("required_spec201_blackbox", "required_spec201_must", "required_exercise")
class AsksForNothing(_Spoilt):
    """Never requests."""

    class puppet(_Puppet):  # noqa: N801 - an attribute that happens to be a class
        def request(self, _n: int, /) -> None:
            return


@breaks_subscriber("required_spec308")
class AsksTwice(_Spoilt):
    """Requests twice what it should."""

    class puppet(_Puppet):  # noqa: N801 - as above
        def request(self, n: int, /) -> None:
            super().request(2 * n)


@breaks_subscriber("required_exercise", "required_spec208")
class NeverLeaves(_Spoilt):
    """Does not pass on a cancel."""

    class puppet(_Puppet):  # noqa: N801 - as above
        def cancel(self) -> None:
            return


@breaks_subscriber("required_spec201_blackbox")
class AsksOnce(HonestSubscriber):
    """Requests nothing after the first elements."""

    def ask(self, n: int) -> None:
        if not self.taken:
            super().ask(n)


@breaks_subscriber("required_spec201_blackbox", "extra_spec309")
class AsksForZero(HonestSubscriber):
    """Some of its requests are for nothing."""

    def ask(self, n: int) -> None:
        super().ask(n)
        super().ask(0)


@breaks_subscriber("required_spec203_must", "required_spec203_blackbox")
class CancelsAtTheCompletion(HonestSubscriber):
    """Cancels what has ended."""

    def on_complete(self) -> None:
        if self.subscription is not None:
            self.subscription.cancel()
        super().on_complete()


@breaks_subscriber("required_spec203_must", "required_spec203_blackbox")
class AsksAtTheCompletion(HonestSubscriber):
    """Requests from what has ended."""

    def on_complete(self) -> None:
        self.ask(1)
        super().on_complete()


@breaks_subscriber("required_spec203_must", "required_spec203_blackbox")
class CancelsAtTheFailure(HonestSubscriber):
    """Cancels what has failed."""

    def on_error(self, error: Exception, /) -> None:
        if self.subscription is not None and error is not None:
            self.subscription.cancel()
        super().on_error(error)


@breaks_subscriber("required_spec205_must", "required_spec205_blackbox")
class IgnoresTheSecond(HonestSubscriber):
    """Leaves a second subscription open."""

    def refuse(self, subscription: Subscription) -> None:
        return


@breaks_subscriber("required_spec205_must", "required_spec205_blackbox")
class PrefersTheSecond(HonestSubscriber):
    """Cancels the subscription that it has."""

    def refuse(self, subscription: Subscription) -> None:
        self.subscription, before = subscription, self.subscription
        if before is not None:
            before.cancel()


@breaks_subscriber("extra_spec205_blackbox")
class BeginsAnew(HonestSubscriber):
    """Takes another subscription when the first has ended."""

    def on_complete(self) -> None:
        super().on_complete()
        self.over = False


@breaks_subscriber("required_spec208")
class AfraidOfLateElements(_Spoilt):
    """Raises if an element comes after its cancel."""

    class puppet(_Puppet):  # noqa: N801 - as above
        cancelled = False

        def cancel(self) -> None:
            self.cancelled = True
            super().cancel()

    def take(self, item: Any) -> None:
        if getattr(self.subscription, "cancelled", False):
            raise RuntimeError("this comes late")
        super().take(item)


@breaks_subscriber(
    "required_spec209_mustBePreparedToReceiveAnOnCompleteSignalWithout", "required_spec209_blackbox"
)
class AfraidOfEarlyCompletion(HonestSubscriber):
    """Raises if the stream ends before it has given anything."""

    def on_complete(self) -> None:
        if not self.taken:
            raise RuntimeError("nothing came")
        super().on_complete()


@breaks_subscriber("required_spec209_must")
class HidesCompletion(HonestSubscriber):
    """Does nothing about the end."""

    def on_complete(self) -> None:
        self.over, self.subscription = True, None


@breaks_subscriber("required_spec210_must")
class HidesFailure(HonestSubscriber):
    """Takes a failure for the end."""

    def on_error(self, error: Exception, /) -> None:
        if error is None:
            raise TypeError("None")
        self.on_complete()


@breaks_subscriber("required_spec210_must")
class WrapsFailure(HonestSubscriber):
    """Reports another failure than it was told."""

    def on_error(self, error: Exception, /) -> None:
        super().on_error(error if error is None else RuntimeError(str(error)))


@breaks_subscriber("required_spec210_must", "required_spec210_blackbox")
class RaisesOnFailure(HonestSubscriber):
    """Raises what it is told."""

    def on_error(self, error: Exception, /) -> None:
        if error is None:
            raise TypeError("None")
        raise error


@breaks_subscriber("required_spec213_onSubscribe", "required_spec213_blackbox_onSubscribe")
class TakesNoSubscription(HonestSubscriber):
    """``on_subscribe(None)`` returns."""

    def on_subscribe(self, subscription: Subscription, /) -> None:
        if subscription is not None:
            super().on_subscribe(subscription)


@breaks_subscriber("required_spec213_onNext", "required_spec213_blackbox_onNext")
class TakesNone(HonestSubscriber):
    """``on_next(None)`` returns."""

    def on_next(self, item: Any, /) -> None:
        if item is not None:
            super().on_next(item)


@breaks_subscriber("required_spec213_onError", "required_spec213_blackbox_onError")
class TakesNoError(HonestSubscriber):
    """``on_error(None)`` returns."""

    def on_error(self, error: Exception, /) -> None:
        if error is not None:
            super().on_error(error)


@breaks_subscriber("required_spec213_onNext", "required_spec213_blackbox_onNext")
class RaisesWrongly(HonestSubscriber):
    """``on_next(None)`` raises something else."""

    def on_next(self, item: Any, /) -> None:
        if item is None:
            raise ValueError("None")
        super().on_next(item)
