"""The changes of a slot, or rows and the changes between them, pulled by the thread that wants them, and put together to batches for a target."""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import Any, ClassVar, Final, cast

from flow.contracts import UNBOUNDED, Subscription
from publishers.criteria.criteria import Criteria
from publishers.fanout.batch import Batch
from publishers.model.change import Change
from publishers.model.position import Position
from publishers.snapshots import SnapshotEnd
from transports.sinks.notes import RowsNote
from transports.sinks.sink import SinkBatch

__all__ = ["RowSupply", "SinkSupply"]

_HEADER_BYTES: Final = 128  # of a change, beside its texts


@dataclass(frozen=True, slots=True)
class _Run:
    """Changes of one transaction: all that match, or a part of them.

    Attributes:
        changes: They.
        end: The position behind them.
        nbytes: How large they are.
        whole: Whether the transaction ends with them.
        at: When they came.
    """

    changes: tuple[Change, ...]
    end: Position
    nbytes: int
    whole: bool
    at: float


class SinkSupply:
    """A subscriber and its executor at once.

    The turns of the subscription run where ``next`` is called, one batch a turn, so nothing is given that is not asked for: the
    bounds of one batch, and of the next one, are all that is kept here.

    Args:
        feed: What it subscribes to: that of an open slot.
        changes: Most changes of a batch; a larger transaction is split.
        nbytes: Likewise bytes.
        linger: Seconds from a change until its batch is given, full or not.
        wake: Called when there may be something, on any thread.

    Attributes:
        error: With what the subscription has ended.
        ended: Whether it has.
        room: Most changes of the next batch, at most ``changes``.
        rows_end: Where changes go on, if rows were given and are at their end.
    """

    whole_batches: ClassVar[bool] = True
    rows_end: Position | None = None

    def __init__(
        self, feed: Any, *, changes: int, nbytes: int, linger: float, wake: Callable[[], object]
    ) -> None:
        self.error: Exception | None = None
        self.ended = False
        self.room = changes
        self._most, self._linger, self._wake = nbytes, linger, wake
        self._lock = threading.Lock()
        self._tasks: deque[Callable[[], None]] = deque()
        self._runs: deque[_Run] = deque()
        self._came: Sequence[Change] | None = None
        self._subscription: Subscription | None = None
        self._closed = False
        feed.subscribe(
            self,
            executor=self,
            whole_batches=self.whole_batches,
            batch_events=changes,
            batch_bytes=nbytes,
        )

    # What the subscription calls.

    def submit(self, task: Callable[[], None], /) -> None:
        """Takes a turn, which runs at the next call of ``next``."""
        with self._lock:
            if self._closed:
                raise RuntimeError("the sink has let go of its slot")
            self._tasks.append(task)
        self._wake()

    def on_subscribe(self, subscription: Subscription, /) -> None:
        """Asks for everything, as turns run on demand."""
        self._subscription = subscription
        subscription.request(UNBOUNDED)

    def on_next(self, _change: Change, /) -> None:
        """Never called: batches come."""
        raise AssertionError

    def on_next_batch(self, changes: Sequence[Change], /) -> None:
        """Takes what one turn brings."""
        self._came = changes

    def on_seek(self, _position: Position, /) -> None:
        """What came before is of another place."""
        self.drop()

    def on_error(self, error: Exception, /) -> None:
        """Notes why it has ended."""
        self.error, self.ended = error, True

    def on_complete(self) -> None:
        """Notes that it has ended."""
        self.ended = True

    # What the runner calls.

    @property
    def empty(self) -> bool:
        """Whether nothing is kept here."""
        return not self._runs

    def next(self, now: float) -> SinkBatch | None:
        """The next batch, if one is full or old enough.

        Args:
            now: By the clock of the runner.
        """
        while not self._full() and (batch := self._pull()) is not None:
            self._add(batch, now)
        if self._runs and (self._full() or now >= self._runs[0].at + self._linger):
            return self._cut()
        return None

    def due(self, now: float) -> float | None:
        """Seconds until there is a batch that is old enough; None if there is nothing."""
        return max(self._runs[0].at + self._linger - now, 0.0) if self._runs else None

    def drop(self) -> None:
        """Throws away what is kept here; the slot has been moved."""
        self._came = None
        self._runs.clear()

    def end(self) -> None:
        """Ends the subscription, and runs what is left of it."""
        self.drop()
        if self._subscription is not None:
            self._subscription.cancel()
        while self._pull() is not None:
            pass  # what had been pulled before it was cancelled
        with self._lock:
            self._closed = True

    def _pull(self) -> Sequence[Change] | None:
        while self._came is None:
            with self._lock:
                if not self._tasks:
                    return None
                task = self._tasks.popleft()
            task()
        came, self._came = self._came, None
        return came

    def _add(self, batch: Sequence[Change], now: float) -> None:
        groups = [tuple(group) for _, group in groupby(batch, key=attrgetter("version"))]
        for group in groups:
            last = group is groups[-1]
            end = cast("Batch", batch).end if last else Position(group[0].version + 1)
            self._runs.append(_Run(group, end, sum(map(_size, group)), end.index == 0, now))

    def _full(self) -> bool:
        # What a transaction of which more is to come has brought is above the bounds of one pull already.
        runs = self._runs
        return bool(runs) and (
            not runs[-1].whole
            or sum(len(run.changes) for run in runs) >= self.room
            or sum(run.nbytes for run in runs) >= self._most
        )

    def _cut(self) -> SinkBatch:
        """As many whole transactions as there is room for, or a part of one that is too large."""
        runs = self._runs
        first = runs.popleft()
        if len(first.changes) > self.room or first.nbytes > self._most:
            return self._part(first)
        taken, nbytes, end = list(first.changes), first.nbytes, first
        while (
            end.whole
            and runs
            and runs[0].whole
            and len(taken) + len(runs[0].changes) <= self.room
            and nbytes + runs[0].nbytes <= self._most
        ):
            end = runs.popleft()
            taken += end.changes
            nbytes += end.nbytes
        return SinkBatch(tuple(taken), end.end, end.whole)

    def _part(self, run: _Run) -> SinkBatch:
        count = nbytes = 0
        for change in run.changes[: self.room]:
            nbytes += _size(change)
            if count and nbytes > self._most:
                break
            count += 1
        front, rest = run.changes[:count], run.changes[count:]
        if not rest:
            return SinkBatch(front, run.end, run.whole)
        self._runs.appendleft(_Run(rest, run.end, sum(map(_size, rest)), run.whole, run.at))
        return SinkBatch(front, rest[0].position, boundary=False)


class RowSupply(SinkSupply):
    """The rows of a state and the changes between them, until they end.

    Args:
        feed: See `SinkSupply`.
        place: That of the slot, which stays until the rows have ended.
        wish: For rows that are wanted again: which; None where the feed begins with rows.
        bounds: As `SinkSupply` has them.
    """

    whole_batches: ClassVar[bool] = False

    def __init__(self, feed: Any, place: Position, wish: RowsNote | None, **bounds: Any) -> None:
        self._place, self._wish = place, wish
        super().__init__(feed, **bounds)

    def on_subscribe(self, subscription: Subscription, /) -> None:
        """See `SinkSupply.on_subscribe`."""
        super().on_subscribe(subscription)
        wish, asked = self._wish, cast("Any", subscription)
        if wish is not None:
            asked.again(Criteria.from_json(wish.only), after=wish.after, until=wish.until)

    def on_snapshot(self, signal: object, /) -> None:
        """Ends with the rows."""
        if isinstance(signal, SnapshotEnd) and self._subscription is not None:
            self.rows_end = signal.position
            self._subscription.cancel()

    def _add(self, batch: Sequence[Change], now: float) -> None:
        self._runs.append(_Run(tuple(batch), self._place, sum(map(_size, batch)), True, now))


def _size(change: Change) -> int:
    nbytes = _HEADER_BYTES
    for text in (change.body_bytes, change.before_bytes, change.meta_bytes, change.key):
        if text is not None:
            nbytes += len(text)
    return nbytes
