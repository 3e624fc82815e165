"""A writer that never pauses lets the other threads of its process run."""

import time
from typing import Final

__all__ = ["Handover"]

_SHORTEST: Final = 0.002
_LONGER: Final = 0.001
_LONGEST: Final = 0.032
_PAUSE: Final = 0.00005  # about 0.1 ms, with the slack of the system's timers
_ALONE: Final = 0.0002


class Handover:
    """Pauses a thread that commits again and again, for some 0.1 ms after 2 to 32 ms of commits.

    CPython makes a thread give up the interpreter's lock for another one that has waited for 5 ms without a change of
    hands. Each write of a commit gives the lock up and has it back some microseconds later, before any waiting thread has
    woken up; but their 5 ms begin anew. So a thread that writes all the time can keep out all others, and first of all
    those that deliver what it writes. In a pause that is longer than a thread needs to wake up, one of them gets the lock.

    A pause that takes longer than it should shows that another thread wanted to run: then the next one comes soon.

    Attributes:
        pauses: How many there were.
    """

    __slots__ = ("_slice", "_worked", "pauses")

    def __init__(self) -> None:
        self.pauses = 0
        self._slice = _SHORTEST
        self._worked = 0.0

    def worked(self, seconds: float) -> None:
        """Notes how long a commit took, and pauses if it is time to. The caller holds nothing that others wait for."""
        # Without a lock: what threads overwrite for each other makes a pause come a little later.
        self._worked += seconds
        if self._worked < self._slice:
            return
        self._worked = 0.0
        self.pauses += 1
        began = time.monotonic()
        time.sleep(_PAUSE)  # noqa: TID251 - no condition says that a thread waits for the interpreter
        alone = time.monotonic() - began < _ALONE
        self._slice = min(self._slice + _LONGER, _LONGEST) if alone else _SHORTEST
