"""Supplies: pull the changes of a slot, or rows and the changes between them, on the caller's thread, and form batches."""

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
    """Changes of one transaction: all matching ones, or some of them.

    Attributes:
        changes: The changes.
        end: The position behind them.
        nbytes: Their size in bytes.
        whole: Whether the transaction ends with them.
        at: When they arrived, by the clock of the runner.
    """

    changes: tuple[Change, ...]
    end: Position
    nbytes: int
    whole: bool
    at: float


class SinkSupply:
    """The subscriber of a slot's changes, which is also the executor of its subscription.

    The subscription runs inside ``next``, one batch a turn, so it delivers nothing unrequested: at most the changes of the current
    batch and of the next one are buffered here.

    Args:
        feed: The publisher to subscribe to.
        changes: The most changes of a batch; a larger transaction is split.
        nbytes: The most bytes of a batch.
        linger: Seconds from the arrival of a change until its batch is returned, full or not.
        wake: Called on any thread when there may be changes.

    Attributes:
        error: The error that ended the subscription; None without one.
        ended: Whether the subscription has ended.
        room: The most changes of the next batch, at most ``changes``.
        rows_end: The position at which changes follow the rows, once the rows have ended.
    """

    whole_batches: ClassVar[bool] = True
    rows_end: Position | None = None

    def __init__(
        self, feed: Any, *, changes: int, nbytes: int, linger: float, wake: Callable[[], object]
    ) -> None:
        self.error: Exception | None = None
        self.ended: bool = False
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

    # Called by the subscription.

    def submit(self, task: Callable[[], None], /) -> None:
        """Queues a turn, which runs at the next call of ``next``."""
        with self._lock:
            if self._closed:
                raise RuntimeError("the sink has let go of its slot")
            self._tasks.append(task)
        self._wake()

    def on_subscribe(self, subscription: Subscription, /) -> None:
        """Requests without a bound, because turns run on demand."""
        self._subscription = subscription
        subscription.request(UNBOUNDED)

    def on_next(self, _change: Change, /) -> None:
        """Never called: the subscription delivers batches."""
        raise AssertionError

    def on_next_batch(self, changes: Sequence[Change], /) -> None:
        """Stores the batch of one turn."""
        self._came = changes

    def on_seek(self, _position: Position, /) -> None:
        """Drops what was delivered from before the seek."""
        self.drop()

    def on_error(self, error: Exception, /) -> None:
        """Records the error that ended the subscription."""
        self.error, self.ended = error, True

    def on_complete(self) -> None:
        """Records the end of the subscription."""
        self.ended = True

    # Called by the runner.

    @property
    def empty(self) -> bool:
        """Whether no change is buffered."""
        return not self._runs

    def next(self, now: float) -> SinkBatch | None:
        """Returns the next batch, if one is full or has lingered long enough.

        Args:
            now: The time by the clock of the runner.
        """
        while not self._full() and (batch := self._pull()) is not None:
            self._add(batch, now)
        if self._runs and (self._full() or now >= self._runs[0].at + self._linger):
            return self._cut()
        return None

    def due(self, now: float) -> float | None:
        """Seconds until the buffered changes have lingered long enough; None if there are none."""
        return max(self._runs[0].at + self._linger - now, 0.0) if self._runs else None

    def drop(self) -> None:
        """Drops the buffered changes, because the slot has moved."""
        self._came = None
        self._runs.clear()

    def end(self) -> None:
        """Cancels the subscription, and runs its remaining turns."""
        self.drop()
        if self._subscription is not None:
            self._subscription.cancel()
        while self._pull() is not None:
            pass  # pulled before the cancellation
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
        # The part of an unfinished transaction already exceeds the bounds of one pull.
        runs = self._runs
        return bool(runs) and (
            not runs[-1].whole
            or sum(len(run.changes) for run in runs) >= self.room
            or sum(run.nbytes for run in runs) >= self._most
        )

    def _cut(self) -> SinkBatch:
        """Removes as many whole transactions as fit, or a part of one that is too large."""
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
    """Supplies the rows of a state and the changes between them, until the rows end.

    Args:
        feed: As for `SinkSupply`.
        place: The position of the slot, which stays until the rows have ended.
        rows_request: Which rows to send once more; None if the feed begins with rows.
        bounds: The bounds of `SinkSupply`.
    """

    whole_batches: ClassVar[bool] = False

    def __init__(self, feed: Any, place: Position, rows_request: RowsNote | None, **bounds: Any) -> None:
        self._place, self._rows_request = place, rows_request
        super().__init__(feed, **bounds)

    def on_subscribe(self, subscription: Subscription, /) -> None:
        """Requests, as `SinkSupply.on_subscribe` does, and asks for the rows to send once more."""
        super().on_subscribe(subscription)
        rows_request, asked = self._rows_request, cast("Any", subscription)
        if rows_request is not None:
            asked.refresh(
                Criteria.from_json(rows_request.only), after=rows_request.after, until=rows_request.until
            )

    def on_snapshot(self, signal: object, /) -> None:
        """Ends the subscription when the rows end."""
        if isinstance(signal, SnapshotEnd) and self._subscription is not None:
            self.rows_end: Position | None = signal.position
            self._subscription.cancel()

    def _add(self, batch: Sequence[Change], now: float) -> None:
        self._runs.append(_Run(tuple(batch), self._place, sum(map(_size, batch)), True, now))


def _size(change: Change) -> int:
    nbytes = _HEADER_BYTES
    for text in (change.body_bytes, change.before_bytes, change.meta_bytes, change.key):
        if text is not None:
            nbytes += len(text)
    return nbytes
