"""Waiting on the main thread without missing an interrupt."""

import threading
from typing import Final

__all__ = ["wait_for"]

_LOOK: Final = 0.25


def wait_for(event: threading.Event) -> None:
    """Waits until the event is set; KeyboardInterrupt and signal handlers run meanwhile.

    A signal that arrives between Python's last check for signals and the system call that waits for the lock does not
    interrupt that call. A wait without a timeout would then last for ever.
    """
    while not event.wait(_LOOK):
        pass
