"""Pauses a writer that commits without a break, so that the other threads of its process run."""

import time
from typing import Final

__all__ = ["Handover"]

_SHORTEST: Final = 0.002
_LONGER: Final = 0.001
_LONGEST: Final = 0.032
_PAUSE: Final = 0.00005  # about 0.1 ms, with the slack of the system's timers
_ALONE: Final = 0.0002


class Handover:
    """Pauses a thread that commits again and again: about 0.1 ms after every 2 to 32 ms of commits.

    CPython makes a thread give up the interpreter's lock after another thread has waited 5 ms without a change of owner.
    Each write of a commit releases the lock and acquires it again some microseconds later, before any waiting thread has
    woken up; and this change of owner restarts the 5 ms. A thread that writes all the time can thus keep out every other
    thread, above all the threads that deliver its commits. A pause longer than a wake-up gives the lock to one of them.

    A pause that lasts longer than requested shows that another thread wanted to run; then the next pause comes sooner.

    Attributes:
        pauses: Pauses so far.
    """

    __slots__ = ("_slice", "_worked", "pauses")

    def __init__(self) -> None:
        self.pauses: int = 0
        self._slice = _SHORTEST
        self._worked = 0.0

    def worked(self, seconds: float) -> None:
        """Adds the duration of a commit, and pauses if a pause is due. The caller holds no lock or gate."""
        # Without a lock: if threads overwrite each other's sums, a pause comes a little later.
        self._worked += seconds
        if self._worked < self._slice:
            return
        self._worked = 0.0
        self.pauses += 1
        began = time.monotonic()
        time.sleep(_PAUSE)  # noqa: TID251 - no condition says that a thread waits for the interpreter
        alone = time.monotonic() - began < _ALONE
        self._slice = min(self._slice + _LONGER, _LONGEST) if alone else _SHORTEST
