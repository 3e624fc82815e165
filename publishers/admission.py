"""How in-process subscribers hold the writer back.

A gating subscriber allows itself a lag, in changes. A writer that asks for admission waits until every gating
subscriber is within its own; the others never hold anybody back.
"""

import threading
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from flow.clock import Clock
from publishers.errors import AdmissionStopped, LogClosed, SubscriberStalled
from publishers.position import Position

if TYPE_CHECKING:
    from publishers.subscription import ChangeSubscription

__all__ = ["Admission"]

_VERSIONS_MAX: Final = 65_536
_STEP: Final = 0.2  # the longest time, in seconds, in which a stop that tells nobody is overlooked


class Admission:
    """Counts changes between positions, and makes writers wait.

    Args:
        visible: The newest version when the log was opened; what is older is not counted.
        clock: Measures stalls.
        gating: Who gates at this moment.
    """

    def __init__(
        self, visible: int, clock: Clock, gating: Callable[[], Iterable["ChangeSubscription"]]
    ) -> None:
        self._clock = clock
        self._gating = gating
        self._moving = threading.Lock()
        self._moved = threading.Condition(self._moving)
        self._moves = 0
        self._lock = threading.Lock()
        self._versions: deque[int] = deque([visible], maxlen=_VERSIONS_MAX)
        self._totals: deque[int] = deque([0], maxlen=_VERSIONS_MAX)
        self.closed = False

    def published(self, version: int, count: int) -> None:
        """Counts a version that becomes visible."""
        with self._lock:
            self._totals.append(self._totals[-1] + count)
            self._versions.append(version)

    def nudge(self) -> None:
        """Lets waiting writers look again."""
        with self._moving:
            self._moves += 1
            self._moved.notify_all()

    def lag(self, position: Position) -> int | None:
        """Changes from a position to the watermark; None if that is further back than is remembered."""
        with self._lock:
            before = bisect_right(self._versions, position.version - 1) - 1
            if before < 0:
                return None
            return max(0, self._totals[-1] - self._totals[before] - position.index)

    def wait(self, stopped: threading.Event, stall_timeout: float) -> None:
        """Waits until every gating subscriber is within its ``max_lag``.

        Args:
            stopped: Ends the wait when it is set.
            stall_timeout: Seconds for which the slowest subscriber may make no progress.

        Raises:
            SubscriberStalled: If it made none.
            AdmissionStopped: If ``stopped`` was set.
            LogClosed: If the log was closed meanwhile.
        """
        seen: dict[ChangeSubscription, Position] = {}
        since = self._clock.monotonic()
        while True:
            if stopped.is_set():
                raise AdmissionStopped
            if self.closed:
                raise LogClosed
            moves = self._moves
            # Asked without the lock, because to look how far a subscriber is may run its code.
            behind = [one for one in self._gating() if not one.ended and not self._within(one)]
            if not behind:
                return
            now = self._clock.monotonic()
            for subscription in behind:
                if seen.get(subscription) != subscription.position:
                    seen[subscription] = subscription.position
                    since = now
            if now - since >= stall_timeout:
                slowest = min(behind, key=lambda one: one.position)
                raise SubscriberStalled(
                    slowest.name, self.lag(slowest.position), slowest.max_lag or 0, stall_timeout
                )
            with self._moving:
                if moves == self._moves:
                    self._moved.wait(min(_STEP, max(0.0, stall_timeout - (now - since))))

    def _within(self, subscription: "ChangeSubscription") -> bool:
        lag = self.lag(subscription.checkpoint().position)
        return lag is not None and lag <= (subscription.max_lag or 0)
