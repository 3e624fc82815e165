"""Interrupts (Ctrl-C) while no command runs: during imports, and at exit."""

import os
import signal
from collections.abc import Callable

TYPE_CHECKING = False  # not imported from typing, which takes long; see transports
if TYPE_CHECKING:
    from types import FrameType

__all__ = ["INTERRUPTED", "interruptible", "leave_at_once"]

INTERRUPTED = 130


def leave_at_once() -> None:
    """Makes an interrupt end the process silently, unless the parent process had interrupts ignored."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _leave)


def interruptible(run: Callable[[], int]) -> int:
    """Runs a function that cleans up upon an interrupt, which raises KeyboardInterrupt in it."""
    if signal.getsignal(signal.SIGINT) is not _leave:
        return run()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return run()
    finally:
        signal.signal(signal.SIGINT, _leave)


def _leave(_signal: int, _frame: "FrameType | None") -> None:
    os._exit(INTERRUPTED)
