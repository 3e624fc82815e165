"""Operators that go on after an error: `on_error_resume`, `retry`."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar

from flow.contracts import Publisher, Subscriber
from flow.misuse import require_functions
from flow.operators.link import Operator, at_least
from flow.operators.switch import Switch, switched
from flow.operators.timers import TIMERS, Alarm, Timers

__all__ = ["AT_ONCE", "USUAL", "RetryDelay", "on_error_resume", "retry"]


T = TypeVar("T")


def on_error_resume(fallback: Callable[[Exception], Publisher[T]]) -> Operator[T, T]:
    """Continue with ``fallback(error)`` when the publisher fails; it receives the remaining demand.

    Args:
        fallback: Called at most once: an error of the returned publisher is passed on. If it raises, the stream ends
            with that error.
    """
    require_functions(fallback=fallback)
    return switched(lambda _, below: _Resume(below, fallback))


class _Resume(Switch[T]):
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


@dataclass(frozen=True, slots=True)
class RetryDelay:
    """The delays before retries: they grow, and jitter keeps clients from retrying at the same moment.

    Attributes:
        first: Seconds before the first retry; 0 means no delay before any retry.
        factor: Growth of each further delay, at least 1.
        greatest: Longest delay in seconds.
        jitter: Random share of each delay, from 0 to 1: with 0.5 it lasts between half and all of its length.
    """

    first: float = 0.1
    factor: float = 2.0
    greatest: float = 30.0
    jitter: float = 0.5

    def __post_init__(self) -> None:
        """Check the bounds.

        Raises:
            ValueError: If a number is out of its bounds.
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
        """Return the seconds before retry number ``attempt``, counted from 0; ``chance`` is from 0 to 1."""
        whole = self.first
        for _ in range(attempt):
            if whole in (0, self.greatest):
                break
            whole = min(self.greatest, whole * self.factor)
            if self.factor == 1:
                break
        return whole * (1 - self.jitter * chance)


USUAL: Final = RetryDelay()
"""A tenth of a second, doubled each time, up to half a minute; with jitter."""

AT_ONCE: Final = RetryDelay(first=0.0)
"""No delay."""


def retry(
    attempts: int = 3,
    backoff: RetryDelay = USUAL,
    *,
    when: Callable[[Exception], object] | None = None,
    timers: Timers | None = None,
    chance: Callable[[], float] = random.random,
) -> Callable[[Publisher[T]], Publisher[T]]:
    """Subscribe again when the publisher fails; the remaining demand is requested again.

    Elements that were delivered before the failure are not withdrawn: a cold publisher delivers them again. An element
    resets the count of attempts, and thus the delays.

    Args:
        attempts: Number of consecutive failures after which to subscribe again, at least 0; the error of the next failure
            is passed on.
        backoff: The delay before each retry.
        when: Whether to retry after an error; all errors, by default. If it raises, the stream ends with that error.
        timers: Run the delays; by default a thread of their own, which then subscribes to the publisher. A publisher that
            works inside ``subscribe`` delays all other alarms of that thread: put `publish_on` before this.
        chance: Returns numbers from 0 to 1, for the jitter.

    Raises:
        ValueError: If ``attempts`` is not an integer, or negative.
    """
    at_least("attempts", attempts, 0)
    if not isinstance(backoff, RetryDelay):
        raise TypeError(f"backoff: {backoff!r}; a flow.operators.RetryDelay is expected")
    require_functions(when=when, optional=True)
    waiting = TIMERS if timers is None else timers
    return switched(lambda source, below: _Retry(below, source, attempts, backoff, when, waiting, chance))


class _Retry(Switch[T]):
    __slots__ = ("_alarm", "_attempts", "_backoff", "_chance", "_failures", "_source", "_timers", "_when")

    def __init__(
        self,
        below: Subscriber[T],
        source: Publisher[T],
        attempts: int,
        backoff: RetryDelay,
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

    def _follow(self, error: Exception | None) -> None:
        if self._delivered:
            self._failures = 0
        if error is None or self._failures >= self._attempts or not (self._when is None or self._when(error)):
            self.finish(error)
            return
        wait = self._backoff.wait(self._failures, self._chance())
        self._failures += 1
        if wait <= 0:
            self.switch(self._source)
            return
        alarm = self._timers.after(wait, partial(self.switch, self._source))
        with self._lock:
            self._alarm = alarm
            ended = self._ended
        if ended:
            alarm.cancel()

    def _forget(self) -> Subscriber[T]:
        below = super()._forget()
        with self._lock:
            alarm, self._alarm = self._alarm, None
        if alarm is not None:
            alarm.cancel()
        return below
