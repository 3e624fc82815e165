"""The subscription of one subscriber: its cursor, its queue and its drain, driven by the table of states.

The phase of the cursor is the state. An event changes it under the ring's lock, as the table in `publishers.fanout.state` says;
this module runs the actions that follow. The holder of the drain's flag owns the cursor; while JOINING, the replayer owns it.
Other threads leave a note in a field and signal the drain.
"""

import threading
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from typing import Any

from flow.contracts import Subscriber
from flow.drain import COMPLETED, Drain, Failed, Outcome
from flow.executors import INLINE, AnyExecutor, executor_of
from publishers.errors import HistoryPruned, LogClosed, LogError, LogExhausted, PositionAhead
from publishers.fanout.batch import Batch
from publishers.fanout.chunk import DeliveryKind
from publishers.fanout.cursor import Cursor
from publishers.fanout.gap import GapNotice, OnGap
from publishers.fanout.resync_slice import ResyncReader
from publishers.fanout.service import Service
from publishers.fanout.shared_publisher import PublisherState, SharedPublisher
from publishers.fanout.state import Checkpoint, MaxLag, Occurrence, Phase, PhaseAction, State, SubscriptionLag
from publishers.model.change import Change
from publishers.model.position import Position, check_position
from publishers.views.view import View

__all__ = ["ChangeSubscription"]


_ids = count(1)

# Access to an enum member by its name costs a call before Python 3.12; every delivery compares with these.
_LIVE, _JOINING, _PAUSED = Phase.LIVE, Phase.JOINING, Phase.PAUSED


class ChangeSubscription:
    """The link between one subscriber and a log: a cursor, a queue and a drain.

    The queue holds the changes of the last pull or slice: at most the demand, and at most one batch. It is empty at rest.

    Attributes:
        id: A number that is unique in this process.
        shared: The publisher of its criteria.
        view: How it sees changes.
        cursor: Its place in log and ring.
        name: Its name in errors and statistics.
        max_lag: Changes, or time, that it may lag before writers that ask for admission wait; None if it does not gate.
        drain: Delivers to the subscriber.
        busy: Whether the executor makes it wait although it has demand. A group delivers without the executor, so it asks this.
    """

    _joins = True  # whether its delivery group may serve it together with others

    def __init__(
        self,
        service: Service,
        shared: SharedPublisher,
        subscriber: Subscriber[Change],
        *,
        start: Position,
        until: int | None,
        view: View,
        executor: AnyExecutor | None,
        batch_events: int,
        batch_bytes: int,
        max_lag: MaxLag | None,
        name: str,
        whole_batches: bool = False,
        on_gap: OnGap = "fail",
    ) -> None:
        self.id: int = next(_ids)
        self.shared: SharedPublisher = shared
        self.view: View = view
        self.name: str = name
        self.max_lag: MaxLag | None = max_lag
        self._service = service
        self._batch_events, self._batch_bytes = batch_events, batch_bytes
        self._whole = whole_batches
        self._missing = GapNotice(on_gap)
        self._executor = executor_of(executor)
        self._batches = callable(getattr(subscriber, "on_next_batch", None))
        self.busy: Callable[[], bool] = getattr(self._executor, "busy", bool)  # bool() is False
        kind = DeliveryKind(view, self._batches, batch_events, batch_bytes, self.busy is not bool)
        self.cursor: Cursor = Cursor(
            start,
            ring=shared.ring,
            predicate=shared.predicate,
            watermark=service.watermark,
            until=until,
            owner=self,
            group=shared.join(self._executor, service.group),
            kind=kind if until is None and max_lag is None and self._joins else None,
        )
        self._reader = ResyncReader(
            service, shared, self.cursor, view, batch_events, batch_bytes, whole=whole_batches
        )
        self._filled: Batch | None = None
        self._seeking = threading.Lock()
        self._sought: Position | None = None  # set by other threads, like _closed
        self._closed = False
        self._observes = callable(getattr(subscriber, "on_state", None))
        self._reported = State.LIVE  # other threads read it as soon as the cursor has entered its group
        self.drain: Drain[Change] = Drain(subscriber, self, executor=self._executor, turn=batch_events)
        self.drain.mark = start
        self.cursor.move(Occurrence.ENTER)
        self._reported = self.state
        if until is not None:
            service.waiting.bound(self)

    # For the subscriber.

    def request(self, n: int, /) -> None:
        """Asks for ``n`` more changes (Reactive Streams §3.8).

        Raises:
            LogForked: In a child of ``fork``, where no change would ever arrive.
        """
        self._service.check_here()
        self.drain.request(n)

    def cancel(self) -> None:
        """Ends the subscription without a further signal (Reactive Streams §3.12)."""
        if self._service.inherited is None:  # else the subscription belongs to the parent process
            self.drain.cancel()

    @property
    def position(self) -> Position:
        """Every change before it was delivered or did not match; never ahead of the changes delivered."""
        position: Position = self.drain.mark
        return position

    @property
    def delivered(self) -> int:
        """Changes that its subscriber has received."""
        return self.drain.given

    @property
    def heavy(self) -> bool:
        """See `Replayable`: history costs its readers nothing."""
        return False

    @property
    def detached(self) -> bool:
        """Whether its publisher is detached."""
        return self.shared.state is PublisherState.DETACHED

    @property
    def state(self) -> State:
        """LIVE if the ring serves it, else RESYNC."""
        return State.LIVE if self.cursor.live else State.RESYNC

    @property
    def until(self) -> int | None:
        """The last version to deliver, or None."""
        return self.cursor.until

    @property
    def demand(self) -> int:
        """Changes requested and not yet delivered."""
        return self.drain.demand

    @property
    def queued(self) -> int:
        """Changes that were read for it from the WAL and not delivered yet; at most one batch."""
        return len(self._filled or ())

    @property
    def wants(self) -> bool:
        """Whether it would accept a change now: it has demand, and no operator has paused it."""
        return not self.cursor.held and self.drain.demand > 0

    @property
    def paused(self) -> bool:
        """Whether an operator has paused it."""
        return self.cursor.held

    @property
    def ended(self) -> bool:
        """Whether no signal will follow."""
        return self.drain.ended

    @property
    def lag(self) -> int | None:
        """Changes of the log between its position and the watermark; None if they are not known or no longer remembered."""
        return self._service.admission.lag(self.position)

    @property
    def behind(self) -> SubscriptionLag:
        """How far it is behind the watermark in every measure; does no I/O."""
        service = self._service
        return service.admission.behind(self.position, service.watermark.visible, self.cursor.read_at)

    @property
    def reads(self) -> int:
        """Frames of the WAL that were read for it, from disk or from memory."""
        return self.cursor.reads

    def checkpoint(self) -> Checkpoint:
        """Its progress; first moves its position over versions in which nothing matched, without demand and without I/O."""
        if self.drain.try_hold():
            try:
                cursor = self.cursor
                if cursor.phase is not _JOINING and self._filled is None:
                    if cursor.live:
                        cursor.poll(0, 0)
                    self.drain.mark = cursor.next
            finally:
                self.drain.release_hold()
                if self.wants and self.cursor.live and not self.cursor.idle:
                    # The flag was recalled from a group whose round has turns left, and no longer knows of this cursor.
                    self._run(self.drain.signal)
        return Checkpoint(self.position, self._service.head, self.state)

    def seek(self, position: Position) -> None:
        """Continues at another position, earlier or later, with the changes that a new subscription there would receive.

        It takes effect between two signals: queued changes are dropped, their demand stays. If the subscriber has a method
        ``on_seek(position)``, it is called before the first change from the new position. After a seek inside ``on_next`` no
        change from the old position follows. If several seeks are pending, the last one counts.

        Raises:
            InvalidOption: If ``position`` is not a position.
            PositionAhead: If it lies beyond the end of the log.
            HistoryPruned: If it is no longer kept.
            LogForked: In a child of ``fork``.
        """
        self._service.check_here()
        check_position("position", position)
        if position > (head := self._service.head):
            raise PositionAhead(head)
        if position < (oldest := self._service.oldest):
            raise HistoryPruned(oldest)
        with self._seeking:
            self._sought = position
            self.drain.discard()
        self._run(self.drain.signal)

    def pause(self) -> bool:
        """Stops delivery until ``resume``, as if there were no demand; demand and position stay.

        Changes that were pulled before, at most one batch, are still delivered. A paused subscription pins nothing and delays
        no writer. It still ends with the log or with ``HistoryPruned``, like a subscription without demand.

        Returns:
            Whether the subscription was not paused before.
        """
        changed = self._move(Occurrence.PAUSE)
        if self.cursor.bench is not None:
            self.cursor.recall()
        self._service.admission.nudge()
        return changed

    def resume(self) -> bool:
        """Resumes delivery where it was paused; returns whether it was paused."""
        return self._move(Occurrence.RESUME)

    def between(self, run: Callable[[Any], object]) -> None:
        """Calls ``run(subscriber)`` between two signals, on the executor of the signals; not at all once it has ended.

        Only one call is kept: a second one replaces a first one that has not run yet.
        """
        self._run(partial(self.drain.notify, "between", run))

    # For the log.

    def begin(self, oldest: Position, *, silently: bool) -> None:
        """Compares its position with the oldest kept one, before it starts.

        With ``silently`` (the caller asked for the oldest position) it moves there without a gap.
        """
        if self.position < oldest:
            if silently:
                self._go(oldest)
                self._settle(oldest)
            elif self._missing.on_gap == "fail":
                self.fail(self._service.lost(self, oldest))
            elif not self.cursor.live:
                self._jump(oldest)
                self._settle(oldest)

    def start(self) -> None:
        """Calls ``on_subscribe``, after which signals may follow."""
        self.drain.start(self)
        self._report_state()  # its publisher may have been detached since the subscription was created

    def fail(self, error: Exception) -> None:
        """Ends the subscription with an error, demand or not."""
        self._run(partial(self.drain.fail, error))

    def wake(self) -> None:
        """Looks for changes to deliver and for its end, and reports a change of state."""
        self._report_state()
        self._run(self.drain.signal)

    def close(self) -> None:
        """Ends the subscription as if the log were closed: completed, or with ``LogClosed`` if visible changes are left."""
        self._closed = True
        self._run(self.drain.signal)

    def lend(self, events: int) -> Drain[Change] | None:
        """Lends its drain's flag to its group if ``events`` changes from the ring may be delivered now; else returns None.

        The caller holds the ring's lock; the drain's lock is acquired inside it.
        """
        if (
            self.cursor.phase is not _LIVE
            or (self._observes and self._reported is not State.LIVE)
            or self.busy()
            or not self.drain.lend(events, self.cursor)
        ):
            return None
        return self.drain

    def prune(self, oldest: Position) -> None:
        """Ends the subscription if retention dropped history that it still has to read, with demand or without."""
        if not self.cursor.live and self.cursor.next < oldest:
            self._run(self.drain.signal)  # the holder of the drain's flag decides in outcome()

    def _run(self, signal: Callable[[], None]) -> None:
        """Runs a signal of the drain. It may run the subscriber's code on this thread only if the executor is INLINE."""
        if self._executor is INLINE:
            self._service.run_aside(signal)
        else:
            signal()

    # For the drain, which pulls from it.

    def pull(self, limit: int, /) -> Sequence[Change]:
        """Takes the next changes, at most ``limit``; never does I/O."""
        if self._reader.rest is not None:
            self._settle(self.cursor.next)  # every change pulled before has been delivered by now
            stop = self._batches or self._closed or self._service.closed or self._sought
            if (change := self._reader.next(0 if stop else limit)) is not None:
                return (change,)
        batch = self._pull(limit)
        if type(batch) is Batch:
            self._service.deliveries.count((batch,))
            return batch if self._batches else batch.changes
        return batch

    def _pull(self, limit: int) -> Sequence[Change]:
        if not self._ready():
            return ()
        cursor = self.cursor
        if self._filled is not None:
            # The queue was filled within the demand, but this turn of the drain may allow fewer changes.
            given, self._filled = self._filled.cut(limit)
            return given
        self._settle(cursor.next)  # every change pulled before has been delivered by now
        if cursor.next.version > cursor.upto and (cursor.phase is _LIVE or cursor.finished):
            return ()
        limit = min(limit, self._batch_events)
        taken = cursor.poll(limit, self._batch_bytes, whole=self._whole)
        if taken is None and cursor.reached and self._move(Occurrence.ENTER):
            self._report_state()  # before the changes from the ring
            taken = cursor.poll(limit, self._batch_bytes, whole=self._whole)
        if taken is None:
            return self._resync(limit)
        if not taken.slices:
            self._settle(cursor.next)
            return ()
        return taken.batch(self.view)

    def _ready(self) -> bool:
        """Carries out the notes of other threads; returns whether the drain may deliver now."""
        cursor = self.cursor
        if cursor.phase is _JOINING:
            return False
        if self._sought is not None:
            self._arrive()
        if cursor.phase is _PAUSED:
            self._rest()
            return False
        if self._observes and self._reported is not State.LIVE:
            self._report_state()  # before the changes from the ring
        return True

    def _resync(self, limit: int) -> Sequence[Change]:
        """Continues in the WAL: with frames in memory if they are there, else by the replayer."""
        cursor, service = self.cursor, self._service
        if service.closed or self._closed:
            return ()
        if cursor.phase is Phase.WAITING:
            self._move(Occurrence.ADVANCE)
        given, self._filled = self._reader.at_hand(cursor.upto, limit, self.drain.demand)
        if given is None:
            self._move(Occurrence.READ)
        return given or ()

    def outcome(self) -> Outcome | None:
        """Whether it has ended: at ``until``, or because the log was closed."""
        cursor = self.cursor
        self._reader.pause()
        if cursor.phase is _JOINING:
            return None
        if self._sought is not None:
            self.drain.signal()  # there may be changes to pull at the new position
            self._arrive()
        if cursor.phase is _PAUSED:
            self._rest()
        if self._filled is not None:
            return None
        closed = self._service.closed or self._closed
        bounded = cursor.until is not None
        if (closed or bounded) and cursor.live:
            cursor.poll(0, 0)
        self._settle(cursor.next)
        if bounded and cursor.finished:
            return COMPLETED
        if not cursor.live and cursor.next < (oldest := self._service.oldest):
            if self._missing.on_gap == "fail":
                return Failed(self._service.lost(self, oldest))
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
        self._move(Occurrence.END)
        self._service.registry.remove(self.shared, self)
        self._service.forget(self)
        self._filled = None
        self._reader.drop()
        if self.max_lag is not None:
            self._service.admission.nudge()

    # For the replayer, while the subscription is JOINING.

    def replay(self) -> bool:
        """Reads one slice from the WAL into the queue; returns whether the replayer enlists it again at once."""
        cursor = self.cursor
        room = min(self.drain.demand, self._batch_events)
        if room == 0 or self._sought is not None or cursor.held or self._ending or cursor.finished:
            return self._hand_back(Occurrence.REST)
        if self._move(Occurrence.ENTER):
            return False
        upto = cursor.upto
        if cursor.next.version > upto:
            return self._hand_back(Occurrence.PARK)
        self._move(Occurrence.JOIN, Position(upto + 1, 0))
        try:
            try:
                batch = self._reader.read(upto, room)
            except HistoryPruned as error:
                if self._missing.on_gap == "fail":
                    raise self._service.lost(self, error.oldest) from None
                self._jump(error.oldest)
                batch = None  # the jump delivers no changes
        except LogExhausted as error:
            self._service.replayer.rest(error)
            self._move(Occurrence.YIELD)
            return True
        except Exception as error:  # noqa: BLE001 - every error must reach the subscriber
            if isinstance(error, OSError):
                error = LogError(f"the log could not be read: {error}")
            self.fail(self._service.explain(error))
            return self._hand_back(Occurrence.REST)
        # The queue first: after the next event the drain owns the cursor.
        self._filled = batch
        if cursor.next.version > upto and not cursor.finished and self._move(Occurrence.ENTER):
            return False
        if batch is not None:
            return self._hand_back(Occurrence.REST)
        self._move(Occurrence.YIELD)
        return True

    def replay_stopped(self) -> None:
        """Returns the cursor to the drain: the log was closed while the subscription waited for its turn."""
        self._hand_back(Occurrence.REST)

    def _hand_back(self, event: Occurrence) -> bool:
        """Returns the cursor to the drain; returns False, because the replayer has no more work for it."""
        self._move(event)
        if (
            self.cursor.phase is Phase.ENDED
        ):  # it ended during the slice, which may have filled queue and lists again
            self._filled = None
            self._service.forget(self)
        return False

    @property
    def _ending(self) -> bool:
        return self.drain.ended or self._service.closed or self._closed

    # Changes of state and position.

    def _move(self, event: Occurrence, at: Position | None = None) -> bool:
        """Applies an event and runs the actions of its row; returns whether the table has a row for it."""
        row = self.cursor.move(event, at)
        if row is None:
            return False
        for action in row.then:
            if action is PhaseAction.ENLIST:
                self._service.replayer.enlist(self)
            elif action is PhaseAction.LIST:
                self._service.waiting.add(self, self.cursor.next.version - 1)
            elif action is PhaseAction.SIGNAL:
                # Last: the drain then reads the watermark again, so an advance before the listing is not missed.
                self._report_state()
                self._run(self.drain.signal)
        return True

    def _go(self, position: Position) -> None:
        """Moves to a position. The caller owns the cursor."""
        self._move(Occurrence.SEEK, position)

    def _arrive(self) -> None:
        """Carries out a seek. The caller holds the drain's flag."""
        with self._seeking:
            position, self._sought = self._sought, None
            self.drain.resume()
        assert position is not None  # only the holder of the drain's flag takes it
        self._filled = None
        self._go(position)
        self._settle(position)
        self._move(Occurrence.ENTER)
        self._report_state()
        self.drain.notify("seek", partial(_deliver_seek, position))

    def _rest(self) -> None:
        """Drops changes that were read and not delivered, for a pause. The caller holds the drain's flag."""
        filled, self._filled = self._filled, None
        if filled is not None:
            first = filled.slices[0]
            self._go(Position(first.block.version, first.indices[0]))
            self._move(Occurrence.ENTER)
            self._report_state()
        self._settle(self.cursor.next)  # every change pulled before has been delivered by now

    def _jump(self, oldest: Position) -> None:
        """Moves to the oldest kept position and reports the gap."""
        self._missing.extend(self.cursor.next, self._service.lost(self, oldest).oldest)
        self._go(oldest)
        # Noted before any signal, so that the gap is reported before every change read from now on.
        self.drain.notify("gap", self._missing.deliver, wake=False)
        self._run(self.drain.signal)

    # Reports to the subscriber and to waiting writers.

    def _settle(self, position: Position) -> None:
        if position is not self.drain.mark:
            self.drain.mark = position
            if self.max_lag is not None:
                self._service.admission.nudge()

    def _report_state(self) -> None:
        if self._observes and self.state is not self._reported:
            self._run(partial(self.drain.notify, "state", self._deliver_state))

    def _deliver_state(self, subscriber: Any) -> None:
        # Read here, on the drain: the thread that reported last need not be the one that changed the state last.
        state = self.state
        if state is not self._reported:
            self._reported = state
            subscriber.on_state(state)


def _deliver_seek(position: Position, subscriber: Any) -> None:
    if callable(handler := getattr(subscriber, "on_seek", None)):
        handler(position)
