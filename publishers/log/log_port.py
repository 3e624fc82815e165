"""The log as its slots, groups and compacted state use it."""

import functools
from collections.abc import Callable
from typing import Any
from uuid import UUID

from flow.clock import Clock
from publishers.commits.group_commit import Committer
from publishers.criteria.criteria import Criteria
from publishers.criteria.predicate import Predicate
from publishers.errors import PenstockError, PositionAhead
from publishers.fanout.service import Service
from publishers.fanout.state import SubscriptionLag
from publishers.log.feed import ChangeFeed
from publishers.log.history import History, PageBounds, read_history
from publishers.log.notification import NotifyingSubscriber
from publishers.log.start import Places
from publishers.model.position import Position, Start
from publishers.views.view import Content, View
from publishers.wal import Hold, HoldStatistics, Reader, Wal

__all__ = ["LogPort"]


class LogPort:
    """See `publishers.slots.ports.PlaceLog`, `publishers.groups.ports.GroupLog` and `publishers.state.ports.StatedLog`.

    Args:
        name: Name of the log.
        service: The watermark and the counters.
        places: Finds and judges positions.
        files: The log's files.
        committer: Syncs the log.
        hold: ``ChangeLog.hold``.
        check: Raises if the log is closed.
        check_published: Raises if the log accepts no subscribers.
        poke: Requests a step of housekeeping now.
        rouse: Requests steps of housekeeping from an idle log.
    """

    def __init__(
        self,
        name: str,
        service: Service,
        places: Places,
        files: Wal,
        committer: Committer,
        *,
        hold: Callable[..., Hold],
        check: Callable[[], None],
        check_published: Callable[[], None],
        poke: Callable[[], None],
        rouse: Callable[[], None],
    ) -> None:
        self.name = name
        self.log_id: UUID = files.log_id
        self.reader: Reader = files.reader
        self._service = service
        self._places = places
        self._retention = files.retention
        self.hold = hold
        self.check = check
        self._check_published = check_published
        self.poke = poke
        self.rouse = rouse
        self.vouch: Callable[[int], None] = committer.vouch
        self.clock: Clock = service.clock
        self.monotonic: Callable[[], float] = service.clock.monotonic
        # Commit times of versions before the opening of the log: one for each slot and group that does not move. Fewer would
        # be evicted before the next call of statistics, which would read all of them again.
        self._committed_at = functools.lru_cache(2 * service.options.slots)(places.committed_at)

    def holds(self, name: str | None = None) -> tuple[HoldStatistics, ...]:
        """See `PlaceLog.holds`."""
        return self._retention.statistics(name)

    def judge(self, token: str) -> Position:
        """See `PlaceLog.judge`."""
        return self._places.kept(token)

    def find(self, since: Any) -> Position:
        """See `PlaceLog.find`."""
        found, head = self._places.find(since), self._service.head
        if found is Start.EARLIEST:
            return self._service.oldest
        if isinstance(found, Start):
            return head
        if found > head:
            raise PositionAhead(head)
        return found

    def token(self, position: Position) -> str:
        """See `PlaceLog.token` and `StatedLog.token`."""
        return str(self._places.lineage.token(position))

    def behind(self, position: Position) -> SubscriptionLag:
        """See `PlaceLog.behind`."""
        admission, visible = self._service.admission, self._service.watermark.visible
        lag = admission.behind(position, visible, 0)
        if lag.seconds is not None:
            return lag
        # Committed before the log was opened. Without its age, a consumer that has not come back since would raise no alarm.
        try:
            committed_at = self._committed_at(position.version)
        except (PenstockError, OSError):
            return lag  # no longer kept, or not readable now: statistics are due all the same
        return admission.behind(position, visible, committed_at)

    def feed(self, criteria: Criteria, since: Position, view: View, check: Callable[[], None]) -> ChangeFeed:
        """See `PlaceLog.feed`."""

        def admit() -> None:
            self._check_published()
            check()

        return ChangeFeed(self._service, criteria, since, None, view, "fail", admit)

    def page(self, predicate: Predicate, since: Position, limit: int, nbytes: int, view: View) -> History:
        """See `GroupLog.page`."""
        self.check()
        return read_history(self._service, predicate, since, PageBounds(limit, nbytes, self.check), view)

    def aside(self, task: Callable[[], None]) -> None:
        """See `GroupLog.aside`."""
        self._service.pool.submit(task)

    def listen(
        self, criteria: Criteria, since: Position, notify: Callable[[], object]
    ) -> Callable[[], object]:
        """See `GroupLog.listen`."""
        subscriber = NotifyingSubscriber(notify)
        view = View.of(Content.HEADER)
        ChangeFeed(self._service, criteria, since, None, view, "fail", self._check_published).subscribe(
            subscriber
        )
        return subscriber.end
