"""Alarms as an argument: code that waits for a moment takes `Timers`, so that tests can control the time."""

import heapq
import itertools
import logging
import threading
from collections.abc import Callable
from typing import Final, Protocol

from flow import forks, hooks
from flow.clock import SYSTEM_CLOCK, Clock

__all__ = ["TIMERS", "Alarm", "ThreadTimers", "Timers", "positive_seconds"]

_log = logging.getLogger("flow")


class Alarm(Protocol):
    """An alarm that was set."""

    def cancel(self) -> None:
        """Cancel the alarm; idempotent, from any thread. It does not wait for a task that is just running."""
        ...


class Timers(Protocol):
    """A source of the time, and of calls at a later moment."""

    def monotonic(self) -> float:
        """Seconds since an arbitrary moment; never decreases."""
        ...

    def after(self, seconds: float, task: Callable[[], None], /) -> Alarm:
        """Call ``task`` once, after at least that many seconds, never inside this call; the task must not block."""
        ...


class ThreadTimers:
    """One daemon thread for all alarms, which exists only while an alarm is set.

    Cancelled alarms are removed when they are more than half of all, so the memory is bounded by the number of set alarms.

    Args:
        clock: The clock that measures the seconds.
    """

    __slots__ = ("__weakref__", "_clock", "_condition", "_dead", "_heap", "_numbers", "_serving")

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._condition = threading.Condition()
        self._heap: list[tuple[float, int, _Set]] = []
        self._numbers = itertools.count()
        self._dead = 0
        self._serving = False
        forks.register(self)

    def forked(self, _pid: int, /) -> None:
        """See `flow.forks.Forkable`: the thread does not exist in the child, and set alarms belong to the parent."""
        self._condition = threading.Condition()
        self._heap = []
        self._dead = 0
        self._serving = False

    def __len__(self) -> int:
        """Return the number of alarms in memory, cancelled ones included."""
        return len(self._heap)

    def monotonic(self) -> float:
        """Return the seconds of the clock."""
        return self._clock.monotonic()

    def after(self, seconds: float, task: Callable[[], None], /) -> Alarm:
        """Set an alarm; tasks run one after the other, on a thread of this object."""
        alarm = _Set(self, task)
        with self._condition:
            heapq.heappush(self._heap, (self.monotonic() + seconds, next(self._numbers), alarm))
            if not self._serving:
                thread = threading.Thread(target=self._serve, name="flow-timers", daemon=True)
                thread.start()
                self._serving = True
            elif self._heap[0][2] is alarm:
                self._condition.notify()
        return alarm

    def forget(self, alarm: "_Set") -> None:
        """Cancel an alarm."""
        with self._condition:
            if alarm.task is None:
                return
            alarm.task = None
            self._dead += 1
            if self._dead * 2 > len(self._heap):
                self._heap = [entry for entry in self._heap if entry[2].task is not None]
                heapq.heapify(self._heap)
                self._dead = 0
                self._condition.notify()

    def _serve(self) -> None:
        while (task := self._next_due()) is not None:
            try:
                task()
            except Exception as error:  # noqa: BLE001 - rule 2.13: a raising subscriber must not harm another one
                hooks.report(error, task)
            except BaseException as error:  # noqa: BLE001 - a subscriber's SystemExit must not stop the other alarms
                _log.error("dropped by the thread of the timers", exc_info=error)
            del task

    def _next_due(self) -> Callable[[], None] | None:
        """Wait for the next alarm; ``None`` if there is none, so that the thread ends."""
        with self._condition:
            while self._heap:
                due, _, alarm = self._heap[0]
                left = due - self.monotonic()
                if alarm.task is not None and left > 0:
                    del alarm
                    self._condition.wait(left)
                    continue
                heapq.heappop(self._heap)
                task, alarm.task = alarm.task, None
                if task is not None:
                    return task
                self._dead -= 1
            self._serving = False
            return None


class _Set:
    """An alarm of `ThreadTimers`; it drops its task when it is cancelled."""

    __slots__ = ("_timers", "task")

    def __init__(self, timers: ThreadTimers, task: Callable[[], None]) -> None:
        self._timers = timers
        self.task: Callable[[], None] | None = task

    def cancel(self) -> None:
        self._timers.forget(self)


TIMERS: Final[Timers] = ThreadTimers()
"""The timers of all operators without other ones."""


def positive_seconds(name: str, value: float) -> float:
    """Check a duration, and return it.

    Raises:
        ValueError: If it is not a positive, finite number.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
        raise ValueError(f"{name}: {value!r}; a positive number of seconds is expected")
    return float(value)
