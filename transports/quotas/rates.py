"""Work of a server that its clients cause, in bytes a second, with a rate for each principal."""

import threading
from collections import OrderedDict
from itertools import islice
from typing import Final

from flow.clock import SYSTEM_CLOCK, Clock
from publishers.errors import TooCostly

__all__ = ["PrincipalRates"]

_BURST: Final = 2.0
_CHEAPER: Final = "to send it again in a second"


class PrincipalRates:
    """What each principal may spend in a second, and twice as much in a burst. Thread-safe.

    A principal that has spent nothing for some seconds occupies nothing.

    Attributes:
        spent: What all principals have spent.
        refused: How often a principal had nothing left.

    Args:
        option: The name of the option that bounds it.
        rate: The bytes a second of one principal.
        what: The thing that is counted, for errors.
        clock: The clock.
    """

    def __init__(self, option: str, rate: int, what: str, clock: Clock = SYSTEM_CLOCK) -> None:
        self.spent: int = 0
        self.refused: int = 0
        self._option = option
        self._rate = rate
        self._what = what
        self._now = clock.monotonic
        self._lock = threading.Lock()
        self._levels: OrderedDict[str, tuple[float, float]] = OrderedDict()  # the left bytes, and since when

    def spend(self, principal: str, nbytes: int) -> None:
        """Spends bytes of a principal that has any left; it may owe the rest.

        Raises:
            TooCostly: If nothing is left; retryable.
        """
        with self._lock:
            now, full = self._now(), _BURST * self._rate
            level, since = self._levels.get(principal, (full, now))
            level = min(full, level + (now - since) * self._rate)
            if level <= 0:
                self.refused += 1
                raise TooCostly(self._option, nbytes, self._rate, _CHEAPER, what=self._what, left=0)
            self._levels[principal] = level - nbytes, now
            self._levels.move_to_end(principal)
            self.spent += nbytes
            idle = [
                name
                for name, (left, then) in islice(self._levels.items(), 2)
                if left + (now - then) * self._rate >= full
            ]
            for name in idle:
                del self._levels[name]
