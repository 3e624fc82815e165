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


class ManualTimers:
    """Time that passes when the test says so."""

    def __init__(self) -> None:
        self.now = 0.0
        self.alarms: list[Any] = []

    def monotonic(self) -> float:
        return self.now

    def after(self, seconds: float, task: Any, /) -> "ManualAlarm":
        alarm = ManualAlarm(self, self.now + seconds, task)
        self.alarms.append(alarm)
        return alarm

    def advance(self, seconds: float) -> None:
        """Let time pass, and every alarm ring when it is due."""
        until = self.now + seconds
        while due := sorted((a for a in self.alarms if a.due <= until), key=lambda alarm: alarm.due):
            self.alarms.remove(due[0])
            self.now = max(self.now, due[0].due)
            due[0].task()
        self.now = until


class ManualAlarm:
    def __init__(self, timers: ManualTimers, due: float, task: Any) -> None:
        self.timers = timers
        self.due = due
        self.task = task

    def cancel(self) -> None:
        if self in self.timers.alarms:
            self.timers.alarms.remove(self)
