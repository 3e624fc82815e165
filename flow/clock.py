"""Time as an argument: code that needs the time takes a `Clock`, so that tests can control it."""

import time
from typing import Final, Protocol

__all__ = ["SYSTEM_CLOCK", "Clock", "SystemClock"]


class Clock(Protocol):
    """A source of time: durations and time stamps."""

    def monotonic(self) -> float:
        """Seconds since an arbitrary moment; never decreases. For durations."""
        ...

    def now_us(self) -> int:
        """Microseconds since 1970-01-01 UTC; may jump. For time stamps."""
        ...


class SystemClock:
    """The clock of this machine."""

    __slots__ = ()

    monotonic: "staticmethod[[], float]" = staticmethod(time.monotonic)
    """Seconds of ``CLOCK_MONOTONIC``."""

    def now_us(self) -> int:
        """Microseconds of the wall clock."""
        return time.time_ns() // 1000


SYSTEM_CLOCK: Final = SystemClock()
