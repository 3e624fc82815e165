"""One subscriber's way through the log.

LIVE
    The ring of the shared publisher serves the cursor; a poll takes references and does no I/O.

RESYNC
    The ring has moved on. The replayer fills the queue from the WAL, slice by slice, each time there is demand and the
    queue is empty. In its slice it *joins* the ring at the watermark that it read first, so that the ring cannot be
    trimmed past it meanwhile; when it has read up to there the cursor is LIVE again.

Whose turn it is
    The drain's holder works on the cursor, except from the moment it enlists with the replayer until the replayer has
    done its slices; then the cursor is the replayer's. Only the ring itself moves a LIVE cursor aside, under its lock.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from typing import Any

from flow.contracts import Subscriber
from flow.drain import COMPLETED, Drain, Failed, Outcome
from flow.executors import INLINE, Executor, executor_of
from publishers.errors import HistoryPruned, LogClosed
from publishers.fanout.batch import Batch
from publishers.fanout.chunk import Ahead
from publishers.fanout.cursor import Cursor
from publishers.fanout.gap import OnGap
from publishers.fanout.resync import Replaying
from publishers.fanout.service import Service
from publishers.fanout.shared_publisher import SharedPublisher, Standing
from publishers.fanout.state import Checkpoint, Lag, State
from publishers.model.change import Change
from publishers.model.position import Position
from publishers.views.view import View

__all__ = ["ChangeSubscription"]


_ids = count(1)


class ChangeSubscription(Replaying):
    """What links one subscriber to a log: its cursor, its queue, its drain.

    The queue holds what the last poll pulled: at most the demand, at most one batch; it is empty at rest.

    Attributes:
        id: What tells it from every other subscription of this process.
        shared: The publisher of its criteria.
        view: How it sees changes.
        name: What errors and statistics call it.
        max_lag: Changes that it may lag before writers that ask for admission wait; None if it does not gate.
        delivered: Changes that it was given.
    """

    def __init__(
        self,
        service: Service,
        shared: SharedPublisher,
        subscriber: Subscriber[Change],
        *,
        start: Position,
        until: int | None,
        view: View,
        executor: Executor | asyncio.AbstractEventLoop | None,
        batch_events: int,
        batch_bytes: int,
        max_lag: int | None,
        name: str,
        whole_batches: bool = False,
        on_gap: OnGap = "fail",
    ) -> None:
        self.id = next(_ids)
        self.shared = shared
        self.view = view
        self.name = name
        self.max_lag = max_lag
        self.delivered = 0
        self._service = service
        self._batch_events = batch_events
        self._batch_bytes = batch_bytes
        self._whole = whole_batches
        super().__init__(on_gap)
        self._executor = executor_of(executor)
        self._cursor = Cursor(
            start,
            ring=shared.ring,
            predicate=shared.predicate,
            watermark=service.watermark,
            until=until,
            owner=self,
            group=shared.join(self._executor, service.group),
        )
        self._settled = start
        self._filled = None
        self._closed = False
        self._parked_at = None
        self._batches = callable(getattr(subscriber, "on_next_batch", None))
        self._observes = callable(getattr(subscriber, "on_state", None))
        self._inline = self._executor is INLINE
        self._drain: Drain[Change] = Drain(subscriber, self, executor=self._executor, turn=batch_events)
        self._cursor.enter()
        self._told = self.state
        if until is not None:
            service.bound(self)

    # What a subscriber may do.

    def request(self, n: int, /) -> None:
        """Asks for ``n`` more changes (Reactive Streams §3.8).

        Raises:
            LogForked: In a child of ``fork``, where they would never come.
        """
        if self._service.inherited is not None:
            raise self._service.inherited
        self._drain.request(n)

    def cancel(self) -> None:
        """Ends the subscription without a further signal (Reactive Streams §3.12)."""
        if self._service.inherited is None:  # else it is the parent's
            self._drain.cancel()

    @property
    def detached(self) -> bool:
        """Whether its publisher is detached."""
        return self.shared.standing is Standing.DETACHED

    @property
    def cursor(self) -> Cursor:
        """Its place in the ring; for the group."""
        return self._cursor

    @property
    def position(self) -> Position:
        """Everything before it was delivered, or did not match; never ahead of what the subscriber has been given."""
        return self._settled

    @property
    def state(self) -> State:
        """Whether the ring serves it, or the WAL."""
        return State.LIVE if self._cursor.live else State.RESYNC

    @property
    def until(self) -> int | None:
        """The last version to deliver, or None."""
        return self._cursor.until

    @property
    def demand(self) -> int:
        """Changes requested and not yet delivered."""
        return self._drain.demand

    @property
    def queued(self) -> int:
        """Changes that were read for it from the WAL and not given to it yet; at most one batch."""
        filled = self._filled
        return 0 if filled is None else len(filled)

    @property
    def wants(self) -> bool:
        """Whether it would take a change now: it has demand, and nobody has paused it."""
        return not self._paused and self._drain.demand > 0

    @property
    def ended(self) -> bool:
        """Whether no signal will follow."""
        return self._drain.ended

    @property
    def lag(self) -> int | None:
        """Changes of the log between its position and the watermark; None if too many to be remembered."""
        return self._service.admission.lag(self._settled)

    @property
    def behind(self) -> Lag:
        """How far it is behind the watermark in every measure; reads no disk."""
        service, at = self._service, self._settled
        found = service.admission.behind(at)
        versions = max(0, service.watermark.visible + 1 - at.version)
        committed_at = found.committed_at or self._cursor.read_at
        seconds: float | None = 0.0
        if versions:
            seconds = max(0.0, (service.clock.now_us() - committed_at) / 1e6) if committed_at else None
        return Lag(versions, found.changes, found.nbytes, seconds)

    @property
    def reads(self) -> int:
        """Frames of the WAL that it was given."""
        return self._cursor.reads

    def checkpoint(self) -> Checkpoint:
        """How far the subscription is; moves over versions in which nothing matched, without demand and without I/O."""
        if self._drain.try_hold():
            try:
                if not self._replaying and self._filled is None:
                    if self._cursor.live:
                        self._cursor.poll(0, 0)
                    self._settled = self._cursor.next
            finally:
                self._drain.release_hold()
        return Checkpoint(self._settled, self._service.head, self.state)

    # What the log does with it.

    def start(self) -> None:
        """Gives the subscriber its subscription, after which signals may follow."""
        self._drain.start(self)
        self._tell_change()  # its publisher may have been found too costly after it was made

    def fail(self, error: Exception) -> None:
        """Ends the subscription with an error, demand or not."""
        self._run(partial(self._drain.fail, error))

    def wake(self) -> None:
        """There may be something to deliver, or to end, or the ring has moved on without this cursor."""
        self._tell_change()
        self._run(self._drain.signal)

    def close(self) -> None:
        """Ends the subscription as if the log were closed: completed, or with ``LogClosed`` if something is left."""
        self._closed = True
        self._run(self._drain.signal)

    def lend(self, ahead: Ahead) -> bool:
        """Gives the drain's flag to its group, if the group may deliver what lies ahead; ``give_back`` follows."""
        if (
            self._paused
            or ahead.events > self._batch_events
            or ahead.nbytes > self._batch_bytes
            or self._cursor.until is not None
            or (self._observes and self._told is not State.LIVE)
            or not self._drain.lend(ahead.events, ahead)
        ):
            return False
        if self._filled is not None or self._replaying:
            self._drain.give_back(ahead, ())
            return False
        return True

    def give_back(self, ahead: Ahead, batch: Batch) -> None:
        """Delivers what the group has taken for this cursor, if it did, and has the flag back."""
        cursor = self._cursor
        if cursor.taken is ahead:
            items: Sequence[Change] = ()
            try:
                items = batch if self._batches else batch.changes
            except Exception as error:  # noqa: BLE001 - as in a pull: what cannot be shown ends this one only
                self._drain.fail(error)
            self._drain.give_back(ahead, items, self._delivered)
        else:
            self._drain.give_back(ahead, ())
            self.wake()

    def _delivered(self) -> None:
        # Not before: who is interrupted on the way to his subscriber gives it again.
        taken, self._cursor.taken = self._cursor.taken, None
        self.delivered += 0 if taken is None else taken.events
        self._settle(self._cursor.next)

    def prune(self, oldest: Position) -> None:
        """Ends the subscription if history was dropped that it still had to read, with demand or without."""
        if not self._cursor.live and self._cursor.next < oldest:
            self._run(self._drain.signal)  # the drain's holder asks for the outcome, and judges there

    def _run(self, signal: Callable[[], None]) -> None:
        """Signals the drain, which runs the subscriber's code on this thread only if it is INLINE."""
        if self._inline:
            self._service.run_aside(signal)
        else:
            signal()

    # What its drain pulls from.

    def pull(self, limit: int, /) -> Sequence[Change]:
        """Takes what is there for the subscriber; never does I/O."""
        batch = self._pull(limit)
        if isinstance(batch, Batch):
            self.delivered += len(batch)
            self._service.deliveries.count(batch.slices)
        return batch

    def _pull(self, limit: int) -> Sequence[Change]:
        if self._replaying:
            return ()
        self._arrive()
        if self._paused:
            self._rest()
            return ()
        if self._filled is not None:
            # The demand was there when it was filled, but this turn of the drain may be nearly used up.
            given, self._filled = self._filled.cut(limit)
            return given
        cursor = self._cursor
        self._settle(cursor.next)  # all that was pulled before has been delivered by now
        if cursor.finished or (cursor.live and cursor.next.version > cursor.upto):
            return ()
        limit = min(limit, self._batch_events)
        taken = cursor.poll(limit, self._batch_bytes, whole=self._whole)
        if taken is None:
            return self._resync(limit)
        if not taken:
            self._settle(cursor.next)
            return ()
        return Batch(tuple(taken), cursor.next, self.view)

    def outcome(self) -> Outcome | None:
        """Whether it has ended: at ``until``, or because the log was closed."""
        cursor = self._cursor
        if self._replaying:
            return None
        if self._arrive():
            self._drain.signal()  # there may be something to pull at the new place
        if self._paused:
            self._rest()
        if self._filled is not None:
            return None
        closed = self._service.closed or self._closed
        if cursor.live and (closed or cursor.until is not None):
            cursor.poll(0, 0)
        self._settle(cursor.next)
        if cursor.finished:
            return COMPLETED
        if not cursor.live and cursor.next < (oldest := self._service.oldest):
            if self._on_gap == "fail":
                return Failed(HistoryPruned(oldest))
            self._jump(oldest)
            self._settle(oldest)
            return None
        if closed:
            if self._service.reason is not None:
                return Failed(self._service.reason)
            caught_up = cursor.next.version > self._service.watermark.visible
            return COMPLETED if caught_up else Failed(LogClosed(cursor.next))
        return None

    def release(self) -> None:
        """Leaves ring, registry and every list."""
        self._cursor.leave(for_good=True)
        self._cursor.taken = None
        self._service.registry.remove(self.shared, self)
        self._forget()
        self._filled = None
        if self.max_lag is not None:
            self._service.admission.nudge()

    # What it tells.

    def _settle(self, position: Position) -> None:
        if position is not self._settled:
            self._settled = position
            if self.max_lag is not None:
                self._service.admission.nudge()

    def _park(self, upto: int) -> None:
        self._service.park(self, upto)

    def _forget(self) -> None:
        self._service.forget(self)

    def _tell_change(self) -> None:
        if self._observes and self.state is not self._told:
            self._tell_state()

    def _tell_state(self) -> None:
        if self._observes:
            self._run(partial(self._drain.tell, "state", self._deliver_state))

    def _deliver_state(self, subscriber: Any) -> None:
        # Asked here, on the drain: who told last need not be who changed it last.
        state = self.state
        if state is not self._told:
            self._told = state
            subscriber.on_state(state)
