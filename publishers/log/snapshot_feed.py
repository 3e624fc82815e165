"""What a subscriber subscribes to who wants the state first, and then every change."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from flow.contracts import Subscriber
from flow.executors import AnyExecutor, running_loop
from publishers.errors import HistoryPruned, PenstockError, SnapshotGone
from publishers.fanout.gap import require_told
from publishers.fanout.state import MaxLag
from publishers.log.feed import ChangeFeed, checked_serving, refuse
from publishers.log.lineage import Lineage
from publishers.model.change import Change
from publishers.model.position import Position
from publishers.snapshots.cursor import SnapshotCursor
from publishers.snapshots.reader import SnapshotReader
from publishers.snapshots.source import SnapshotMode, SnapshotSource
from publishers.snapshots.subscription import SnapshotSubscription
from publishers.wal import Hold

__all__ = ["SnapshotFeed"]

_numbers: Final = itertools.count(1)


@dataclass(eq=False, repr=False, kw_only=True)
class SnapshotFeed(ChangeFeed):
    """A publisher of rows and then changes; each subscriber has a snapshot of its own.

    A subscriber with a method ``on_snapshot(signal)`` is told ``SnapshotBegin``, ``ChunkEnd`` and ``SnapshotEnd`` beside
    what it gets; one with a method ``on_following(subscription)`` is given the subscription to what follows the rows, when it
    begins. ``max_lag`` counts from the end of the rows on.

    Attributes:
        source: Where rows come from.
        lineage: Puts positions into the form that clients keep.
        holding: Keeps history from a position on, under a name; None if this opening does not own the log.
        start: Where to go on; None for a new snapshot.
        mode: What follows the rows.
    """

    source: SnapshotSource
    lineage: Lineage
    holding: Callable[[str, Position], Hold] | None
    start: SnapshotCursor | None
    mode: SnapshotMode
    _ready: SnapshotReader | None = None

    def subscribe(
        self,
        subscriber: Subscriber[Change],
        /,
        *,
        executor: AnyExecutor | None = None,
        max_lag: MaxLag | None = None,
        batch_events: int | None = None,
        batch_bytes: int | None = None,
        name: str | None = None,
        whole_batches: bool = False,
    ) -> None:
        """Gives the subscriber its subscription; see ``ChangeFeed.subscribe``."""
        checked_serving(subscriber, max_lag, batch_events, batch_bytes, name, whole_batches=whole_batches)
        require_told(self.on_gap, subscriber)
        where = executor if executor is not None else running_loop()
        chosen = self._service.pool if where is None else where
        options = self._service.options
        called = name or type(subscriber).__name__

        def then(position: Position, following: Any) -> None:
            feed = ChangeFeed(
                self._service,
                self.criteria,
                position,
                self.until,
                self.view,
                self.on_gap,
                self._check,
                _prepared=prepared,
            )
            feed.subscribe(
                following,
                executor=chosen,
                max_lag=max_lag,
                batch_events=batch_events,
                batch_bytes=batch_bytes,
                name=called,
                whole_batches=whole_batches,
            )

        try:
            self._admit()
            with self._lock:
                reader, prepared = self._ready or self._reader(), self._prepared
                self._ready = self._prepared = None
            subscription = SnapshotSubscription(
                self._service,
                reader,
                self.source,
                subscriber,
                self._hold(reader),
                None if self.mode == "initial_only" else then,
                executor=chosen,
                batch_events=batch_events or options.batch_events,
                batch_bytes=batch_bytes or options.batch_bytes,
                name=called,
            )
        except PenstockError as error:
            refuse(subscriber, error, where)
            return
        with self._lock:
            self._subscriptions.add(subscription)
        subscription.start()
        if self._service.closed:
            subscription.wake()
        if self._closed.is_set():
            subscription.close()

    def prepare(self) -> None:
        """See ``ChangeFeed.prepare``; for the rows, and for what follows them."""
        reader, prepared = self._reader(), self._service.registry.prepare(self.criteria)
        with self._lock:
            self._ready, self._prepared = reader, prepared

    def _reader(self) -> SnapshotReader:
        return SnapshotReader(
            self._service, self.source, self.criteria, self.view, self.lineage.token, self.start
        )

    def _hold(self, reader: SnapshotReader) -> Hold | None:
        if self.holding is None:
            return None
        try:
            return self.holding(f"snapshot {reader.id} {next(_numbers)}", reader.position)
        except HistoryPruned as error:
            raise SnapshotGone(reader.id, error.oldest) from error
