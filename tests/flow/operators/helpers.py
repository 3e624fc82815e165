"""What the tests of the operators feed them with."""

from typing import Any

import flow
from flow import UNBOUNDED
from tests.flow.probes import Probe


class Upstream:
    """A publisher that signals what the test says, to its newest subscriber, and records what it is asked for."""

    def __init__(self) -> None:
        self.subscriber: Any = None
        self.requests: list[int] = []
        self.cancelled = 0
        self.subscribed = 0

    def subscribe(self, subscriber: Any, /) -> None:
        self.subscriber = subscriber
        self.subscribed += 1
        subscriber.on_subscribe(self)

    def request(self, n: int, /) -> None:
        self.requests.append(n)

    def cancel(self) -> None:
        self.cancelled += 1

    @property
    def requested(self) -> int:
        return sum(self.requests)

    def send(self, *items: Any) -> None:
        for item in items:
            self.subscriber.on_next(item)

    def fail(self, error: Exception) -> None:
        self.subscriber.on_error(error)

    def complete(self) -> None:
        self.subscriber.on_complete()


def collect(publisher: flow.Publisher[Any], first: int = UNBOUNDED, each: int = 0) -> Probe:
    """Subscribe a probe; by default with unbounded demand."""
    probe = Probe(first=first, each=each)
    publisher.subscribe(probe)
    return probe


def run(items: Any, *operators: Any, first: int = UNBOUNDED, each: int = 0) -> Probe:
    """Subscribe a probe to elements behind operators."""
    return collect(flow.pipe(flow.from_iterable(items), *operators), first, each)
