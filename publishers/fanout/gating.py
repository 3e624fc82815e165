"""Backpressure from in-process subscribers to writers.

A gating subscription has a largest lag, in changes or in time. A writer that asks for admission waits until every gating
subscription is within its largest lag. Other subscriptions never delay a writer.
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
_STEP: Final = (
    0.2  # seconds after which a waiting writer looks at its stop event, which notifies no condition
)


class Gating:
    """Counts changes between positions, and makes writers wait for gating subscriptions.

    It answers for the last 65,536 versions; its tables hold at most about twice as many.

    Args:
        visible: The newest visible version when the log was opened; older versions are not counted.
        clock: Measures stalls and ages.
        gating: Returns the subscriptions that gate now.
    """

    def __init__(self, visible: int, clock: Clock, gating: Callable[[], Iterable[Subscribed]]) -> None:
        self._clock = clock
        self._gating = gating
        self._moving = threading.Lock()
        self._moved = threading.Condition(self._moving)
        self._moves = 0
        self._lock = threading.Lock()
        self._news: deque[tuple[int, int, int, int]] = deque()  # versions published and not counted yet
        self._versions = array("q", [visible])
        self._totals = array("q", [0])  # of changes, up to and with each version
        self._nbytes = array("q", [0])  # stored bytes, up to and with each version
        self._times = array("q", [0])  # commit time of each version, in microseconds since the Unix epoch
        self._unknown = visible  # the newest version whose bytes and commit time are not known
        self._uncounted = visible  # the newest version whose number of changes is not known
        self.closed = False

    def published(self, version: int, count: int, nbytes: int = 0, committed_at: int = 0) -> None:
        """Counts a version that becomes visible; a ``count`` of 0 means that its number of changes is not known."""
        news = self._news
        news.append((version, count, nbytes, committed_at))
        if len(news) >= _NEWS_MAX:
            with self._lock:
                self._count()

    def _count(self) -> None:
        """Counts the newly published versions; the caller holds the lock. Readers do this, so a commit only appends to a list."""
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
        """Makes waiting writers check the subscriptions again."""
        with self._moving:
            self._moves += 1
            self._moved.notify_all()

    def lag(self, position: Position) -> int | None:
        """Changes from a position to the watermark; None if they were not counted or are no longer remembered."""
        return self.counted(position)[0]

    def behind(self, position: Position, visible: int, read_at: int) -> SubscriptionLag:
        """The lag of a position behind the watermark in every measure; costs the same however large the lag is.

        Args:
            position: The position.
            visible: The watermark.
            read_at: Commit time of the last frame read before the position, in microseconds since the Unix epoch; 0 if there
                is none. It stands in for a commit time that is not remembered.
        """
        versions = max(0, visible + 1 - position.version)
        changes, nbytes, committed_at = self.counted(position)
        began = committed_at or read_at
        known = max(0.0, (self._clock.now_us() - began) / 1e6) if began else None
        return SubscriptionLag(versions, changes, nbytes, known if versions else 0.0)

    def counted(self, position: Position) -> tuple[int | None, int | None, int | None]:
        """Counts the changes between a position and the watermark.

        Returns:
            The number of changes; the stored bytes of their transactions, including the one in which the position lies; and
            the commit time of the oldest of these transactions, in microseconds since the Unix epoch. A value is None if it is
            not known or no longer remembered. The time is None, and the bytes are 0, at the watermark.
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
        """Changes that became visible since the log was opened, and their stored bytes, as far as these are known."""
        with self._lock:
            self._count()
            return self._totals[-1], self._nbytes[-1]

    def rate(self) -> float | None:
        """Stored bytes that became visible a second, over the last 60 seconds or since the first known version if that is later.

        Returns None if no commit time is known.
        """
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
        """Replaces unknown measures of a lag by lower bounds: all that this log remembers, which an unknown lag exceeds."""
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
        """Waits until every gating subscription is within its ``max_lag``.

        Args:
            stopped: Ends the wait when it is set; noticed within 0.2 seconds.
            stall_timeout: Seconds, from 0, without progress of any subscription beyond its ``max_lag`` after which the wait
                fails.

        Raises:
            InvalidOption: If an argument is not valid.
            SubscriberStalled: If no such subscription made progress for ``stall_timeout`` seconds; names the slowest one.
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
            # Without the lock: a checkpoint of a subscription may run its subscriber's code.
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
