"""Time, injected."""

import time
from collections.abc import Callable

__all__ = ["Clock", "system_clock"]

Clock = Callable[[], int]
"""Unix microseconds. It may jump; the log makes commit times rise all the same."""


def system_clock() -> int:
    """Unix microseconds by the clock of the machine."""
    return time.time_ns() // 1000
