"""A log as its slots use it."""

from collections.abc import Callable
from typing import Any

from publishers.commits.group_commit import Committer
from publishers.criteria.criteria import Criteria
from publishers.errors import PositionAhead
from publishers.fanout.service import Service
from publishers.fanout.state import SubscriptionLag
from publishers.log.feed import ChangeFeed
from publishers.log.start import Places
from publishers.model.position import Position, Start
from publishers.views.view import View
from publishers.wal import Hold, HoldStatistics, Wal

__all__ = ["SlotLog"]


class SlotLog:
    """See `publishers.slots.ports.PlaceLog`.

    Args:
        service: The watermark, and what is counted.
        places: Finds and judges positions.
        files: The log.
        committer: Syncs it.
        hold: ``ChangeLog.hold``.
        check: Refuses what cannot be done with a closed log.
        check_published: Refuses subscribers of one that takes none.
        poke: Asks the housekeeping for a step.
    """

    def __init__(
        self,
        service: Service,
        places: Places,
        files: Wal,
        committer: Committer,
        *,
        hold: Callable[..., Hold],
        check: Callable[[], None],
        check_published: Callable[[], None],
        poke: Callable[[], None],
    ) -> None:
        self._service = service
        self._places = places
        self._files = files
        self._hold = hold
        self.check = check
        self._check_published = check_published
        self.poke = poke
        self.vouch = committer.vouch
        self.monotonic = service.clock.monotonic

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
        """See `PlaceLog.token`."""
        return str(self._places.lineage.token(position))

    def judge(self, token: str) -> Position:
        """See `PlaceLog.judge`."""
        return self._places.kept(token)

    def behind(self, position: Position) -> SubscriptionLag:
        """See `PlaceLog.behind`."""
        service = self._service
        return service.admission.behind(position, service.watermark.visible, 0)

    def feed(self, criteria: Criteria, since: Position, view: View, check: Callable[[], None]) -> ChangeFeed:
        """See `PlaceLog.feed`."""

        def admit() -> None:
            self._check_published()
            check()

        return ChangeFeed(self._service, criteria, since, None, view, "fail", admit)

    def hold(
        self,
        name: str,
        position: Position,
        *,
        keep_bytes: int | None,
        keep_age: float | None,
        on_lost: Callable[[Hold], object],
    ) -> Hold:
        """See `PlaceLog.hold`."""
        return self._hold(name, position, keep_bytes=keep_bytes, keep_age=keep_age, on_lost=on_lost)

    def holds(self) -> tuple[HoldStatistics, ...]:
        """See `PlaceLog.holds`."""
        return self._files.retention.statistics()
