"""Operators for streams that fail, or fall silent."""

import random
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from flow.contracts import Publisher, Subscriber, Subscription
from flow.demand import add, refusal, subtract
from flow.misuse import require_functions
from flow.operators.link import Link, Operator, at_least, lift, present
from flow.operators.switching import Switched, Switching
from flow.operators.timing import TIMERS, Alarm, Timers, positive_seconds

__all__ = ["AT_ONCE", "USUAL", "Backoff", "on_error_resume", "retry", "timeout"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long to wait before each attempt: longer every time, and not everybody at the same moment.

    Attributes:
        first: Seconds before the first retry; 0 retries at once, always.
        factor: How many times longer each further wait is, at least 1.
        greatest: Most seconds that are waited.
        jitter: Which part of each wait is left to chance, from 0 to 1: with 0.5 it lasts between half of it and all.
    """

    first: float = 0.1
    factor: float = 2.0
    greatest: float = 30.0
    jitter: float = 0.5

    def __post_init__(self) -> None:
        """Check the bounds.

        Raises:
            ValueError: If one is not kept.
        """
        for name, value, kept in (
            ("first", self.first, self.first >= 0),
            ("factor", self.factor, self.factor >= 1),
            ("greatest", self.greatest, self.greatest >= self.first),
            ("jitter", self.jitter, 0 <= self.jitter <= 1),
        ):
            if not kept:
                raise ValueError(f"{name}: {value!r} is out of bounds")

    def wait(self, attempt: int, chance: float) -> float:
        """Seconds before the retry number ``attempt``, counted from 0; ``chance`` is from 0 to 1."""
        whole = self.first
        for _ in range(attempt):
            if whole in (0, self.greatest):
                break
            whole = min(self.greatest, whole * self.factor)
            if self.factor == 1:
                break
        return whole * (1 - self.jitter * chance)


USUAL: Final = Backoff()
"""A tenth of a second, then twice as long each time, up to half a minute."""

AT_ONCE: Final = Backoff(first=0.0)
"""No wait at all."""


def retry(
    attempts: int = 3,
    backoff: Backoff = USUAL,
    *,
    when: Callable[[Exception], object] | None = None,
    timers: Timers | None = None,
    chance: Callable[[], float] = random.random,
) -> Callable[[Publisher[T]], Publisher[T]]:
    """Subscribe again when the publisher fails; what was not delivered is requested again.

    Elements that came before the failure are not taken back: a cold publisher gives them once more. Whenever an
    element has come, attempts and waits are counted anew.

    Args:
        attempts: How many failures in a row are answered by another subscription, at least 0; the error of the one
            after those is passed on.
        backoff: How long to wait before each.
        when: Which errors are worth it; all, by default. If it raises, the stream ends in that.
        timers: Who waits; by default a thread of its own, on which the publisher is then subscribed to. One that works
            inside ``subscribe`` holds up all that wait there: put `publish_on` before this.
        chance: Numbers from 0 to 1, for the jitter.

    Raises:
        ValueError: If ``attempts`` is not an integer, or negative.
    """
    at_least("attempts", attempts, 0)
    if not isinstance(backoff, Backoff):
        raise TypeError(f"backoff: {backoff!r}; a flow.operators.Backoff is expected")
    require_functions(when=when, optional=True)
    waiting = TIMERS if timers is None else timers
    return lambda source: Switched(
        source, lambda again, below: _Retrying(below, again, attempts, backoff, when, waiting, chance)
    )


def on_error_resume(fallback: Callable[[Exception], Publisher[T]]) -> Operator[T, T]:
    """Go on with ``fallback(error)`` when the publisher fails; what was not delivered is requested of that.

    Args:
        fallback: Called once at most: the error of what it returned is passed on. If it raises, the stream ends in that.
    """
    require_functions(fallback=fallback)
    return lambda source: Switched(source, lambda _, below: _Resuming(below, fallback))


def timeout(seconds: float, *, timers: Timers | None = None) -> Callable[[Publisher[T]], Publisher[T]]:
    """End with ``TimeoutError`` when an element that was asked for does not come in time.

    The time begins with the request, and anew with each element; while nothing is asked for, it stands still. The error
    is told on the thread of the timers, unless something is being signalled at that moment: then nothing has timed out.

    Args:
        seconds: How long to wait for each element.
        timers: Who waits; by default a thread of its own.

    Raises:
        ValueError: If it is not a positive number.
    """
    positive_seconds("seconds", seconds)
    waiting = TIMERS if timers is None else timers
    return lift(lambda below: _Timing(below, seconds, waiting))


class _Retrying(Switching[T]):
    __slots__ = (
        "_alarm",
        "_attempts",
        "_backoff",
        "_chance",
        "_failures",
        "_source",
        "_timers",
        "_when",
    )

    def __init__(
        self,
        below: Subscriber[T],
        source: Publisher[T],
        attempts: int,
        backoff: Backoff,
        when: Callable[[Exception], object] | None,
        timers: Timers,
        chance: Callable[[], float],
    ) -> None:
        super().__init__(below)
        self._source = source
        self._attempts = attempts
        self._backoff = backoff
        self._when = when
        self._timers = timers
        self._chance = chance
        self._failures = 0
        self._alarm: Alarm | None = None

    def deliver(self, item: T) -> None:
        """Pass an element on, and count failures anew."""
        self._failures = 0
        super().deliver(item)

    def _follow(self, error: Exception | None) -> None:
        if error is None or self._failures >= self._attempts or not (self._when is None or self._when(error)):
            self.finish(error)
            return
        wait = self._backoff.wait(self._failures, self._chance())
        self._failures += 1
        if wait <= 0:
            self.switch(self._source)
            return
        alarm = self._timers.after(wait, self._again)
        with self._lock:
            self._alarm = alarm
            ended = self._ended
        if ended:
            alarm.cancel()

    def _again(self) -> None:
        self.switch(self._source)

    def _forget(self) -> Subscriber[T]:
        below = super()._forget()
        with self._lock:
            alarm, self._alarm = self._alarm, None
        if alarm is not None:
            alarm.cancel()
        return below


class _Resuming(Switching[T]):
    __slots__ = ("_fallback",)

    def __init__(self, below: Subscriber[T], fallback: Callable[[Exception], Publisher[T]]) -> None:
        super().__init__(below)
        self._fallback: Callable[[Exception], Publisher[T]] | None = fallback

    def _follow(self, error: Exception | None) -> None:
        fallback, self._fallback = self._fallback, None
        if error is None or fallback is None:
            self.finish(error)
        else:
            self.switch(fallback(error))


class _Timing(Link[T, T]):
    """One alarm at a time: when it rings early, because something came meanwhile, it is set again for the rest.

    Signals and the alarm exclude each other: while a signal is given, ``busy`` holds the alarm off; what the alarm has
    ended gives no signal any more.
    """

    __slots__ = ("_alarm", "_busy", "_deadline", "_demand", "_ended", "_lock", "_seconds", "_timers")

    def __init__(self, below: Subscriber[T], seconds: float, timers: Timers) -> None:
        super().__init__(below)
        self._seconds = seconds
        self._timers = timers
        self._lock = threading.Lock()
        self._demand = 0
        self._busy = True  # until on_subscribe has returned
        self._ended = False
        self._deadline = 0.0
        self._alarm: Alarm | None = None

    def on_subscribe(self, subscription: Subscription, /) -> None:
        first = not self._greeted
        super().on_subscribe(subscription)
        if first:
            self._rest()

    def on_next(self, item: T, /) -> None:
        present(item, "the element")
        with self._lock:
            if self._ended:
                return
            self._busy = True
            self._demand = subtract(self._demand, 1)
        self._pass(item)
        self._rest()

    def on_error(self, error: Exception, /) -> None:
        present(error, "the error")
        if self._close():
            self._end().on_error(error)

    def on_complete(self) -> None:
        if self._close():
            self._end().on_complete()

    def request(self, n: int, /) -> None:
        if refusal(n) is None:
            with self._lock:
                idle = not self._demand and not self._busy
                self._demand = add(self._demand, n)
                if idle and not self._ended:
                    self._deadline = self._timers.monotonic() + self._seconds
                    self._arm(self._seconds)
        super().request(n)

    def cancel(self) -> None:
        self._close()
        super().cancel()

    def _rest(self) -> None:
        """Nothing is being signalled any more: the time begins, if something is asked for."""
        with self._lock:
            self._busy = False
            if self._demand and not self._ended:
                self._deadline = self._timers.monotonic() + self._seconds
                self._arm(self._seconds)

    def _arm(self, seconds: float) -> None:
        if self._alarm is None:
            self._alarm = self._timers.after(seconds, self._ring)

    def _ring(self) -> None:
        with self._lock:
            self._alarm = None
            if self._ended or self._busy or not self._demand:
                return
            left = self._deadline - self._timers.monotonic()
            if left > 0:
                self._arm(left)
                return
            self._ended = True
        self._fail(TimeoutError(f"no element came for {self._seconds} s"))

    def _close(self) -> bool:
        """End, unless something else has; call the alarm off."""
        with self._lock:
            closing = not self._ended
            self._ended = True
            alarm, self._alarm = self._alarm, None
        if alarm is not None:
            alarm.cancel()
        return closing
