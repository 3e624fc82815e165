"""Ctrl-C while no command runs: when Python still imports, and when it ends."""

import os
import signal
from collections.abc import Callable

TYPE_CHECKING = False  # see transports
if TYPE_CHECKING:
    from types import FrameType

__all__ = ["INTERRUPTED", "interruptible", "leave_at_once"]

INTERRUPTED = 130


def leave_at_once() -> None:
    """Lets an interrupt end the process without a word, unless whoever started it wanted interrupts to be ignored."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _leave)


def interruptible(run: Callable[[], int]) -> int:
    """Runs what closes its files when it is interrupted: it gets KeyboardInterrupt."""
    if signal.getsignal(signal.SIGINT) is not _leave:
        return run()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return run()
    finally:
        signal.signal(signal.SIGINT, _leave)


def _leave(_signal: int, _frame: "FrameType | None") -> None:
    os._exit(INTERRUPTED)
