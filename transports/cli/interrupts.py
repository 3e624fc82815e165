"""Interrupts (Ctrl-C): while no command runs (during imports, and at exit), and while one waits."""

import os
import signal
from collections.abc import Callable

TYPE_CHECKING = False  # not imported from typing, which takes long; see transports
if TYPE_CHECKING:
    import threading
    from types import FrameType

__all__ = ["INTERRUPTED", "interruptible", "leave_at_once", "wait_for"]

INTERRUPTED = 130
_LOOK = 0.25


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


def wait_for(event: "threading.Event") -> None:
    """Waits until the event is set; KeyboardInterrupt and signal handlers run meanwhile.

    A signal that arrives between Python's last check for signals and the system call that waits for the lock does not
    interrupt that call. A wait without a timeout would then last for ever.
    """
    while not event.wait(_LOOK):
        pass
