"""How much of the interpreter's time the compacted state takes from writers."""

import time
from math import inf
from typing import Final

from publishers.options import MIB

__all__ = ["STATE_BEHIND_BYTES", "STATE_INTERVAL", "STATE_SHARE", "Pace"]

STATE_INTERVAL: Final = 0.05
"""Shortest time in seconds between two updates, unless a caller waits for it: a commit alone would else cost a transaction of SQLite."""

STATE_SHARE: Final = 0.02
"""Share of one thread's time for following commits. It does not apply while a caller waits for the state or reads it, while the state is
rebuilt, or while no commits come. What the thread takes under the interpreter's lock is taken from writers, so it is small."""

STATE_BEHIND_BYTES: Final = 256 * MIB
"""Lag in bytes of the log, roughly, above which `STATE_SHARE` does not apply: well before a hold loses history that is not read yet. At most half
of ``slot_keep_bytes`` counts."""

# Shorter than the switch interval (5 ms): a writer that waits for the interpreter gets it back by the end of the piece.
_PIECE: Final = 0.001  # seconds of the thread's time after which a piece of work ends


class Pace:
    """Pieces of work of one thread, and how long it rests after each.

    A thread runs under the interpreter's lock, so what it takes is taken from the writer as well. In a share of its time it takes
    so much at most.

    Args:
        share: Of the time, above 0 up to 1, which is without rests.
    """

    def __init__(self, share: float) -> None:
        self._rest = 1 / share - 1
        self._began = 0.0
        self._ends = inf

    def begin(self, *, bounded: bool) -> None:
        """Begins a piece of work, as long as it takes or bounded."""
        bounded = bounded and self._rest > 0
        self._began = time.thread_time() if bounded else 0.0
        self._ends = self._began + _PIECE if bounded else inf

    @property
    def bounded(self) -> bool:
        """Whether the piece is to be a small one."""
        return self._ends is not inf

    @property
    def spent(self) -> bool:
        """Whether the piece is to end."""
        return self.bounded and time.thread_time() >= self._ends

    @property
    def rest(self) -> float:
        """How many seconds the thread rests after the piece, which ends here; 0 if it was not bounded."""
        return 0.0 if not self.bounded else (time.thread_time() - self._began) * self._rest
