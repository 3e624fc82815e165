"""A feed of the state first, and then of every change."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol, Unpack

from flow.contracts import Subscriber
from flow.executors import running_loop
from publishers.errors import HistoryPruned, PenstockError, SnapshotGone
from publishers.fanout.gap import require_on_gap
from publishers.log.feed import ChangeFeed, Serving, checked_serving, refuse
from publishers.log.lineage import Lineage
from publishers.model.change import Change
from publishers.model.position import Position
from publishers.snapshots.cursor import SnapshotCursor
from publishers.snapshots.delivery import RowDelivery
from publishers.snapshots.pages import KeyRange, Pages
from publishers.snapshots.reader import SnapshotReader, new_snapshot
from publishers.snapshots.source import SnapshotMode
from publishers.snapshots.subscription import RowRequest, SnapshotSubscription
from publishers.wal import Hold

__all__ = ["Holding", "SnapshotFeed"]

_numbers: Final = itertools.count(1)


class Holding(Protocol):
    """``ChangeLog.hold``."""

    def __call__(self, name: str, position: Position, *, keep_age: float) -> Hold:
        """Keeps history from a position on, under a name."""
        ...


@dataclass(eq=False, repr=False, kw_only=True)
class SnapshotFeed(ChangeFeed):
    """A publisher of rows, followed by changes; each subscriber has a snapshot of its own.

    If the subscriber has a method ``on_snapshot(signal)``, it receives ``SnapshotBegin``, ``ChunkEnd`` and ``SnapshotEnd``
    between its rows and changes. If it has ``on_following(subscription)``, that is called with the subscription to the changes
    when they begin. ``max_lag`` applies except while rows are delivered. The subscription has a method ``again``.

    Attributes:
        pages: Makes the pages of rows for a range of keys.
        lineage: Makes the tokens that clients keep.
        holding: Keeps history from a position on, under a name; None if this opening does not own the log.
        start: The cursor to continue from; None for a new snapshot.
        mode: When rows are delivered.
        rows_first: Whether the subscription begins with rows.
    """

    pages: Callable[[KeyRange], Pages]
    lineage: Lineage
    holding: Holding | None
    start: SnapshotCursor | None
    mode: SnapshotMode
    rows_first: bool

    def subscribe(self, subscriber: Subscriber[Change], /, **serving: Unpack[Serving]) -> None:
        """Calls ``on_subscribe`` with a subscription; see ``ChangeFeed.subscribe``."""
        checked_serving(subscriber, **serving)
        require_on_gap(self.on_gap, subscriber)
        given = serving.get("executor")
        where = given if given is not None else running_loop()
        name = serving.get("name") or type(subscriber).__name__
        chosen = self._service.pool if where is None else where
        served: Serving = {**serving, "executor": chosen, "name": name}
        plan = _Plan(self, served)
        subscription = SnapshotSubscription(
            plan, name=name, lasting=self.mode != "initial_only", on_gap=self.mode == "on_gap"
        )
        try:
            self._admit()
            subscription.start(subscriber, self.start, rows=self.rows_first)
        except PenstockError as error:
            refuse(subscriber, error, where)
            return
        with self._lock:
            self._subscriptions.add(subscription)
        if self._closed.is_set():
            subscription.close()

    def _reader(self, begin: SnapshotCursor | Position | None, request: RowRequest) -> SnapshotReader:
        cursor = new_snapshot(self.lineage.token(begin)) if isinstance(begin, Position) else begin
        return SnapshotReader(
            self._service,
            self.pages(request.keys),
            self.criteria,
            self.view,
            self.lineage.token,
            cursor,
            request.only,
            request.asked,
        )

    def delivery(
        self, subscriber: Any, begin: SnapshotCursor | Position | None, request: RowRequest, serving: Serving
    ) -> RowDelivery:
        """See `SnapshotPlan.rows`."""
        options = self._service.options
        reader = self._reader(begin, request)
        return RowDelivery(
            self._service,
            reader,
            subscriber,
            self._hold(reader),
            self.prepare,
            executor=serving["executor"],
            batch_events=serving.get("batch_events") or options.batch_events,
            batch_bytes=serving.get("batch_bytes") or options.batch_bytes,
        )

    def following(self, subscriber: Any, position: Position | None, serving: Serving) -> None:
        """See `SnapshotPlan.changes`."""
        with self._lock:
            prepared, self._prepared = self._prepared, None
        feed = ChangeFeed(
            self._service,
            self.criteria,
            self.since if position is None else position,
            self.until,
            self.view,
            self.on_gap,
            self._check,
            _prepared=prepared,
        )
        feed.subscribe(subscriber, **serving)

    def _hold(self, reader: SnapshotReader) -> Hold | None:
        if self.holding is None:
            return None
        options = self._service.options
        keep_age = min(options.snapshot_max_duration, options.slot_keep_age or options.snapshot_max_duration)
        try:
            name = f"snapshot {reader.id} {next(_numbers)}"
            return self.holding(name, reader.position, keep_age=keep_age)
        except HistoryPruned as error:
            raise SnapshotGone(error.oldest, reader.id) from error


class _Plan:
    """See `SnapshotPlan`; for one subscriber.

    Args:
        feed: The feed.
        serving: The keyword arguments of ``subscribe``.
    """

    def __init__(self, feed: SnapshotFeed, serving: Serving) -> None:
        self._feed = feed
        self._serving = serving

    def rows(
        self, subscriber: Any, begin: SnapshotCursor | Position | None, request: RowRequest
    ) -> RowDelivery:
        """See `SnapshotPlan.rows`."""
        return self._feed.delivery(subscriber, begin, request, self._serving)

    def changes(self, subscriber: Any, position: Position | None) -> None:
        """See `SnapshotPlan.changes`."""
        self._feed.following(subscriber, position, self._serving)
