"""What a subclass of a suite defines about the publisher or subscriber that it verifies."""

import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any, ClassVar, Literal

import pytest

from flow.contracts import UNBOUNDED, Publisher, Subscriber
from flow.tck.settings import ENDLESS, Verification
from flow.tck.stage import Probe, Stage
from flow.tck.witness import Witness

__all__ = ["PublisherSettings", "SubscriberSettings", "request_and_stay", "requesting"]


class PublisherSettings(Verification):
    """How to make the publisher, and what it promises beyond the rules.

    Attributes:
        max_elements: The longest stream that can be made; tests that need more are skipped.
        bounded_depth: Most calls of ``on_next`` on one stack (rule 3.3).
        multicast: ``"cold"``: each subscriber receives the whole stream; ``"hot"``: all current subscribers receive the same
            elements from then on; None: one subscriber only.
        coordinated: Whether an element is emitted only when all subscribers have requested it.
        max_subscribers: Most subscribers that a publisher serves at a time, or None.
        lossy: Whether elements without demand may be lost; then tests that count elements are skipped.
        completes_early: Whether the completion needs no request beyond the last element.
        completes_idle: Whether an empty stream completes without any request.
        reports: Whether exceptions of a subscriber go to ``flow.hooks.on_dropped_error``.
        plenty: Least number of elements of a stream of `ENDLESS`. It bounds the longest tests.
    """

    max_elements: ClassVar[int] = UNBOUNDED
    bounded_depth: ClassVar[int] = 1
    multicast: ClassVar[Literal["cold", "hot"] | None] = None
    coordinated: ClassVar[bool] = False
    max_subscribers: ClassVar[int | None] = None
    lossy: ClassVar[bool] = False
    completes_early: ClassVar[bool] = True
    completes_idle: ClassVar[bool] = True
    reports: ClassVar[bool] = False
    plenty: ClassVar[int] = 100_000

    def make_publisher(self, n: int) -> Publisher[Any]:
        """Make a publisher of exactly ``n`` elements, then the end; none of them is ``None``.

        For ``n`` = `ENDLESS`, it has at least `plenty`, and does not end.
        """
        raise NotImplementedError("make_publisher(n) has to be written for the publisher that is verified")

    def make_failed_publisher(self) -> Publisher[Any] | None:
        """Make a publisher that refuses or fails at once, if there is one."""
        return None

    def make_stranded_publisher(self) -> Publisher[Any] | None:
        """Make a publisher that signals on a closed executor or event loop, if there is one."""
        return None

    def publisher(self, n: int) -> Publisher[Any]:
        """Make a publisher, or skip the test if it cannot be that long."""
        self.needs(n)
        return self.make_publisher(n)

    def lasting(self, n: int) -> Publisher[Any]:
        """Make a publisher that still has ``n`` elements whenever they are requested.

        A lossy publisher may lose all of them before, and end; so an endless one is made, if possible.
        """
        return self.longest(n) if self.lossy else self.publisher(n)

    def longest(self, n: int) -> Publisher[Any]:
        """Make an endless publisher, or if that is impossible one of ``n`` elements."""
        return self.publisher(ENDLESS if self.max_elements >= ENDLESS else n)

    def needs(self, n: int) -> None:
        """Skip the test if a stream of ``n`` elements cannot be made."""
        if n > self.max_elements:
            pytest.skip(f"{n} elements are needed, there are at most {self.max_elements}")

    def exact(self) -> None:
        """Skip a test that counts elements if the publisher is lossy."""
        if self.lossy:
            pytest.skip("the publisher is lossy: elements are not counted")

    def failed(self) -> Publisher[Any]:
        """Make a failed publisher, or skip."""
        publisher = self.make_failed_publisher()
        if publisher is None:
            pytest.skip("there is no failed publisher")
        return publisher

    def several(self, count: int = 2) -> None:
        """Skip the test unless that many subscribers are served."""
        if self.multicast is None:
            pytest.skip("the publisher serves one subscriber")
        if self.max_subscribers is not None and self.max_subscribers < count:
            pytest.skip(f"{count} subscribers are needed, {self.max_subscribers} are served")

    def dropped_after(
        self,
        publisher: Publisher[Any],
        end: Callable[[Witness], object],
        what: str,
        on_item: Callable[[Witness], object] | None = None,
    ) -> None:
        """Check that a subscriber is collected after ``end``, while publisher and subscription are kept."""
        subscriber = Witness(self.timeout, self.patience, on_item=on_item)
        subscriber.subscribe_to(publisher)
        kept = [publisher, subscriber.expect_subscription()]
        end(subscriber)
        reference = weakref.ref(subscriber)
        del subscriber
        self.until(
            lambda: reference() is None or (gc.collect() >= 0 and reference() is None),
            "3.13",
            f"something still refers to the subscriber after {what}",
        )
        kept.clear()


class SubscriberSettings(Verification):
    """How to make the subscriber, and which elements it is sent."""

    def make_subscriber(self, probe: Probe | None = None) -> Subscriber[Any]:
        """Make a subscriber that requests by itself, or with a probe through its puppet only; see `flow.tck.Probe`."""
        raise NotImplementedError(
            "make_subscriber(probe) has to be written for the subscriber that is verified"
        )

    def make_item(self, place: int) -> Any:
        """Return the element to send at a place, from 1; not ``None``."""
        return place

    def _send(self, stage: Stage, subscriber: Subscriber[Any], count: int, first: int = 1) -> None:
        """Send the elements of ``count`` places."""
        for place in range(first, first + count):
            stage.send(subscriber, self.make_item(place))


def requesting(*numbers: int) -> Callable[[Witness], None]:
    """Make a callback that requests each of the numbers."""

    def request(witness: Witness) -> None:
        for n in numbers:
            witness.request(n)

    return request


def request_and_stay(witness: Witness) -> None:
    """Request one element, and wait a little so that another thread could signal it before this signal returns."""
    witness.request(1)
    threading.Event().wait(0.0002)
