"""How in-process subscribers hold the writer back.

A gating subscriber allows itself a lag, in changes or in time. A writer that asks for admission waits until every gating
subscriber is within its own; the others never hold anybody back.
"""

import threading
from array import array
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Final

from flow.clock import Clock
from flow.interrupts import SHIELD
from publishers.errors import AdmissionStopped, InvalidOption, LogClosed, SubscriberStalled
from publishers.fanout.ports import Subscribed
from publishers.fanout.state import SubscriptionLag
from publishers.model.position import Position

__all__ = ["Gating"]

_VERSIONS_MAX: Final = 65_536
_NEWS_MAX: Final = 1_024
_RECENT: Final = 60.0  # seconds over which the rate of writing is averaged
_STEP: Final = 0.2  # the longest time, in seconds, in which a stop that tells nobody is overlooked


class Gating:
    """Counts changes between positions, and makes writers wait.

    Args:
        visible: The newest version when the log was opened; what is older is not counted.
        clock: Measures stalls.
        gating: Who gates at this moment.
    """

    def __init__(self, visible: int, clock: Clock, gating: Callable[[], Iterable[Subscribed]]) -> None:
        self._clock = clock
        self._gating = gating
        self._moving = threading.Lock()
        self._moved = threading.Condition(self._moving)
        self._moves = 0
        self._lock = threading.Lock()
        self._news: deque[tuple[int, int, int, int]] = deque()  # versions that were not counted yet
        self._versions = array("q", [visible])
        self._totals = array("q", [0])  # of changes, up to and with each version
        self._nbytes = array("q", [0])  # likewise
        self._times = array("q", [0])
        self._unknown = visible  # the newest version of which bytes and time are not known
        self._uncounted = visible  # likewise of which changes are not known
        self.closed = False

    def published(self, version: int, count: int, nbytes: int = 0, committed_at: int = 0) -> None:
        """Counts a version that becomes visible; with a count of 0, some of which nobody has counted the changes."""
        news = self._news
        news.append((version, count, nbytes, committed_at))
        if len(news) >= _NEWS_MAX:
            with self._lock:
                self._count()

    def _count(self) -> None:
        """Counts what is new, for whoever asks, under the lock: commits pay next to nothing for it."""
        if not self._news:
            return
        with SHIELD:
            while self._news:
                version, count, nbytes, committed_at = self._news.popleft()
                self._versions.append(version)
                self._totals.append(self._totals[-1] + count)
                self._nbytes.append(self._nbytes[-1] + nbytes)
                self._times.append(committed_at)
                if not count:
                    self._uncounted = version
                if not committed_at:
                    self._unknown = version
            if len(self._versions) > 2 * _VERSIONS_MAX:
                for kept in (self._versions, self._totals, self._nbytes, self._times):
                    del kept[:_VERSIONS_MAX]

    def nudge(self) -> None:
        """Lets waiting writers look again."""
        with self._moving:
            self._moves += 1
            self._moved.notify_all()

    def lag(self, position: Position) -> int | None:
        """Changes from a position to the watermark; None if they were not counted, or are not remembered."""
        return self.counted(position)[0]

    def behind(self, position: Position, visible: int, read_at: int) -> SubscriptionLag:
        """How far a position is behind the watermark in every measure; costs the same however far that is.

        Args:
            position: The position.
            visible: The watermark.
            read_at: When the last frame was committed that was read there, in microseconds since the Unix epoch, or 0.
        """
        versions = max(0, visible + 1 - position.version)
        changes, nbytes, committed_at = self.counted(position)
        began = committed_at or read_at
        known = max(0.0, (self._clock.now_us() - began) / 1e6) if began else None
        return SubscriptionLag(versions, changes, nbytes, known if versions else 0.0)

    def counted(self, position: Position) -> tuple[int | None, int | None, int | None]:
        """What lies between a position and the watermark; None is told of what is not known or no longer remembered.

        Returns:
            How many changes; stored bytes of their transactions, the one in which the position lies included; when the
            oldest of these was committed, in microseconds since the Unix epoch, None if there is none.
        """
        with self._lock:
            self._count()
            at = bisect_left(self._versions, position.version)
            if at == 0 or len(self._versions) - at >= _VERSIONS_MAX:
                return None, None, None
            changes: int | None = max(0, self._totals[-1] - self._totals[at - 1] - position.index)
            if position.version <= self._uncounted:
                changes = None
            if at == len(self._versions):
                return changes, 0, None
            if position.version <= self._unknown:
                return changes, None, None
            return changes, self._nbytes[-1] - self._nbytes[at - 1], self._times[at]

    @property
    def published_in_all(self) -> tuple[int, int]:
        """Changes that became visible since the log was opened, and their stored bytes, as far as they were counted."""
        with self._lock:
            self._count()
            return self._totals[-1], self._nbytes[-1]

    def rate(self) -> float | None:
        """Stored bytes that became visible in a second, over the last minute or since the log was opened; None if it is not known."""
        with self._lock:
            self._count()
            known = max(1, bisect_right(self._versions, self._unknown))
            if known == len(self._versions):
                return None
            now = self._clock.now_us()
            at = bisect_left(self._times, now - _RECENT * 1_000_000, lo=known)
            seconds = _RECENT if at > known else (now - self._times[known]) / 1e6
            return (self._nbytes[-1] - self._nbytes[at - 1]) / min(max(1.0, seconds), _RECENT)

    def at_least(self, lag: SubscriptionLag) -> SubscriptionLag:
        """The same with the least that is sure where it is not known: what this log remembers, which a lag beyond that has."""
        if None not in (lag.changes, lag.nbytes, lag.seconds):
            return lag
        with self._lock:
            self._count()
            changes, nbytes = self._totals[-1] - self._totals[0], self._nbytes[-1] - self._nbytes[0]
            known = bisect_right(self._versions, self._unknown)
            began = self._times[known] if known < len(self._times) else self._clock.now_us()
        seconds = max(0.0, (self._clock.now_us() - began) / 1e6)
        return SubscriptionLag(
            lag.versions,
            max(lag.versions, changes) if lag.changes is None else lag.changes,
            nbytes if lag.nbytes is None else lag.nbytes,
            seconds if lag.seconds is None else lag.seconds,
        )

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
        if not callable(getattr(stopped, "is_set", None)):
            raise InvalidOption("stopped", stopped, "a threading.Event")
        if (
            isinstance(stall_timeout, bool)
            or not isinstance(stall_timeout, (int, float))
            or not stall_timeout >= 0
        ):
            raise InvalidOption("stall_timeout", stall_timeout, "a number of seconds from 0")
        seen: dict[Subscribed, Position] = {}
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

    def _within(self, subscription: Subscribed) -> bool:
        changes, nbytes, committed_at = self.counted(subscription.checkpoint().position)
        if isinstance(subscription.max_lag, timedelta):
            if nbytes == 0:  # it is at the watermark
                return True
            age = None if committed_at is None else self._clock.now_us() - committed_at
            return age is not None and timedelta(microseconds=age) <= subscription.max_lag
        return changes is not None and changes <= (subscription.max_lag or 0)
