"""Carries the changes of one slot to one target: the machine, which any thread may step, and the thread that does."""

import contextlib
import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from typing import Any, Final, Self

from flow.clock import SYSTEM_CLOCK, Clock
from publishers.errors import HistoryPruned, LogClosed, PenstockError, PositionError
from publishers.model.position import Position
from publishers.slots.errors import Fenced, SlotExists, SlotForked, SlotLost
from publishers.slots.slot import Slot
from publishers.slots.slots import check_slot_name
from transports.sinks.errors import (
    SinkStandsBy,
    SinkStopped,
    TargetRefused,
    TargetUnavailable,
    shown_error,
)
from transports.sinks.lease import Lease
from transports.sinks.options import SinkOptions
from transports.sinks.orders import SinkOrders
from transports.sinks.outbox import SinkOutbox
from transports.sinks.sink import Sink, SinkContext, SinkLog
from transports.sinks.state import SinkEvent, SinkState, sink_state_after
from transports.sinks.status import SinkCounters, SinkStatus
from transports.sinks.supply import SinkSupply

__all__ = ["SinkRunner"]

_LOG: Final = logging.getLogger("penstock.sinks")
_RUNNING: Final = (SinkState.STARTING, SinkState.STREAMING, SinkState.RETRYING)


class SinkRunner:
    """One sink of a log, with a slot of the sink's name, which is made if it is not there.

    ``start`` gives it a thread of its own. Without one, ``step`` does what there is to do now, which is how tests drive it.

    Args:
        log: An open log, whose owner this process is.
        name: Of the sink and of its slot: 1 to 64 small letters, digits, ``_`` and ``-``.
        sink: Where the changes go.
        options: How; ``SinkOptions()`` if None.
        lease: Says which of several runners sends: as long as it is not held here, this one stands by. With each gain it takes
            the slot over, and reads again from the stored place. It is not closed here. None for one that always sends.
        clock: What time it is.

    Attributes:
        name: Of the sink.
        state: What it does; changed by the one who steps.
        counters: What it has done.

    Raises:
        InvalidOption: If the name is none.
    """

    def __init__(
        self,
        log: SinkLog,
        name: str,
        sink: Sink,
        options: SinkOptions | None = None,
        *,
        lease: Lease | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        check_slot_name(name)
        self.name = name
        self.state = SinkState.STARTING
        self.counters = SinkCounters()
        self._log, self._sink, self._clock = log, sink, clock
        self._options = options or SinkOptions()
        self._context = SinkContext.of(log, name, self._options.view_for(sink), clock)
        self._slot: Slot | None = None
        self._supply: SinkSupply | None = None
        self._opened = False  # the sink is
        self._outbox = SinkOutbox(sink, self._options, self._context, self.counters)
        self._confirmed: Position | None = None
        self._unsaved = False  # something is confirmed, and not stored
        self._stored_at = clock.monotonic()
        self._failures = 0  # in a row
        self._attempt = 0
        self._due: float | None = None  # when to try again
        self._reason: str | None = None
        self._last_error: str | None = None
        self._failed_at = 0.0
        self._awake = threading.Event()
        self._orders = SinkOrders(name, self._awake.set)
        self._thread: threading.Thread | None = None
        self._lease, self._epoch = lease, None if lease is None else lease.epoch
        if lease is not None:
            lease.notify(self._awake.set)

    # What may be asked, from any thread.

    def start(self) -> Self:
        """Begins, on a thread of its own."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=f"penstock-sink-{self.name}", daemon=True)
            self._thread.start()
        return self

    def pause(self) -> Future[None]:
        """Carries nothing until ``resume``, over restarts too. What is on its way to the target is finished."""
        return self._orders.give(self._pause)

    def resume(self) -> Future[None]:
        """Goes on, at once: also with what the target refused, and with what waits for its next attempt."""
        return self._orders.give(self._resume)

    def seek(self, place: Any) -> Future[Position]:
        """Goes on elsewhere, forward or back; a sink that has lost its history is good again.

        Args:
            place: As ``since`` of ``ChangeLog.changes``.

        Returns:
            The position. It raises ``PositionError`` for a place that cannot be read from, and nothing has changed then.
        """
        return self._orders.give(lambda: self._seek(place))

    def statistics(self) -> SinkStatus:
        """What it tells of itself."""
        due, place, lag = self._due, None, None
        with contextlib.suppress(PenstockError):  # the log was closed, or there is no slot yet
            told = self._log.slots.info(self.name)
            place, lag = told.position, told.lag
        return SinkStatus(
            name=self.name,
            state=self.state,
            reason=self._reason,
            last_error=self._last_error,
            attempt=self._attempt,
            retry_in=None if due is None else max(due - self._clock.monotonic(), 0.0),
            circuit_open=self._circuit_open,
            position=place,
            confirmed=self._confirmed,
            lag=lag,
            epoch=self._epoch,
            last_error_age=None if self._last_error is None else self._clock.monotonic() - self._failed_at,
            counters=replace(self.counters),
        )

    def close(self, timeout: float = 60.0) -> None:
        """Ends it after the batch that is on its way, and stores its place. Idempotent.

        Args:
            timeout: Seconds to wait for the thread, which may wait for the target.
        """
        thread, stopping = self._thread, self._orders.give(lambda: self._stop(None))
        if thread is None:
            self._orders.obey()
        elif thread is not threading.current_thread():
            thread.join(timeout)
        with contextlib.suppress(SinkStopped):
            if stopping.done():
                stopping.result()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<SinkRunner {self.name!r} {self.state.name}>"

    # The thread.

    def _run(self) -> None:
        while self.state is not SinkState.STOPPED:
            self._awake.clear()
            try:
                delay = self.step()
            except Exception as error:  # noqa: BLE001 - a mistake here: it is told, and ends this sink only
                _LOG.exception("sink %s has failed", self.name)
                self._stop(f"internal error: {type(error).__name__}: {error}")
                return
            if delay > 0:
                self._awake.wait(delay)

    def step(self) -> float:
        """Does what there is to do now, at most one batch; for one thread at a time.

        Returns:
            Seconds until something is to be done if nothing comes before; 0 if there is more to do now.
        """
        self._orders.obey()
        if self.state is SinkState.STOPPED:
            return 0.0
        tick = self._options.tick
        if not self._judge_lease():
            return tick
        now = self._clock.monotonic()
        if self.state in _RUNNING:
            if self._due is not None and now < self._due:
                return self._store_when_due(now, min(tick, self._due - now))
            if self.state is SinkState.STARTING or not self._opened or self._supply is None:
                return self._guarded(self._open, 0.0)
            return self._guarded(self._carry, 0.0)
        return self._store_when_due(now, tick)

    # The lease.

    @property
    def _leads(self) -> bool:
        """Whether to send, and to store: the lease is held, and was all the time since the slot was opened by it."""
        lease = self._lease
        return lease is None or (lease.epoch == self._epoch and lease.held())

    def _judge_lease(self) -> bool:
        """Whether this is the one that sends; what was read by an earlier gain is thrown away."""
        lease = self._lease
        if lease is None:
            return True
        if not self._leads and self.state is not SinkState.STANDBY:
            self._yield("another one holds the lease")
        if self.state is SinkState.STANDBY:
            self._epoch = lease.epoch
            if not lease.held():
                return False
            self._reason = None
            self._move(SinkEvent.LEAD)
            _LOG.info("sink %s leads, epoch %d", self.name, self._epoch)
        return True

    def _yield(self, reason: str) -> None:
        self._let_go()
        self._confirmed, self._unsaved = None, False
        self._failures = self._attempt = 0
        self._reason = reason
        self._move(SinkEvent.YIELD)
        _LOG.warning("sink %s stands by: %s", self.name, reason)

    # Beginning.

    def _open(self) -> float:
        if self._circuit_open and self._slot is not None and not self._sink.alive():
            raise TargetUnavailable("it does not answer")
        if self._slot is None:
            self._slot = self._open_slot()
        if self._slot.paused:
            self._due, self._reason = None, "paused by an operator"
            self._move(SinkEvent.PAUSE)
            return 0.0
        if not self._opened:
            self._context = replace(self._context, generation=self._slot.generation)
            place = self._sink.open(self._context)
            self._opened = True
            if place is not None and place != self._slot.position:
                self._slot.seek(place)
        if self._supply is None:
            options = self._options
            self._supply = SinkSupply(
                self._slot,
                self._context.view,
                changes=options.batch_changes,
                nbytes=options.batch_bytes,
                linger=options.linger,
                wake=self._awake.set,
            )
        self._works()
        return 0.0

    def _open_slot(self) -> Slot:
        slots, options = self._log.slots, self._options
        if self.name not in slots:
            with contextlib.suppress(SlotExists):
                slots.create(self.name, options.criteria, start=options.start, granularity="change")
        opened: Slot = slots.open(
            self.name, take_over=options.take_over or self._lease is not None, owner=f"sink {self.name}"
        )
        return opened

    # Carrying.

    def _carry(self) -> float:
        supply = self._supply
        assert supply is not None
        now, outbox = self._clock.monotonic(), self._outbox
        if not outbox.ready:
            batch = outbox.read or supply.next(now)
            if batch is None:
                if self._judge_end():
                    return 0.0
                due, tick = supply.due(now), self._options.tick
                return self._store_when_due(now, tick if due is None else min(due, tick))
            over = outbox.take(batch)
            if over is not None:
                self._note_confirmed(over)
                return 0.0
        if self._circuit_open and not self._sink.alive():
            raise TargetUnavailable("it does not answer")
        if not self._leads:
            return 0.0
        self._attempt, taken = outbox.attempt, self.counters.changes
        try:
            place = outbox.send(supply)
        finally:
            if self.counters.changes > taken:
                self._failures = 0
        if place is not None:
            self._note_confirmed(place)
            self._works()
        return self._store_when_due(self._clock.monotonic(), 0.0)

    def _note_confirmed(self, place: Position) -> None:
        self._confirmed = place
        self._unsaved = True

    # Storing the place.

    def _store_when_due(self, now: float, delay: float) -> float:
        if now - self._stored_at >= self._options.store_every and self._slot is not None:
            self._stored_at = now
            self._guarded(self._store, 0.0)
        return delay

    def _store(self) -> float:
        """Stores the place of what the target has, durably there; over what did not match too."""
        slot, supply = self._slot, self._supply
        assert slot is not None
        slot.info()  # raises if the slot, or its history, was lost, or the log was closed
        if not self._opened:
            return 0.0
        try:
            self._sink.flush()
        except Exception:
            self._supply_anew()  # what was not durable is given again
            raise
        if not self._leads:
            return 0.0  # the place is the next one's to store
        place = self._confirmed if self._unsaved else None
        if supply is not None and supply.empty and self._outbox.empty:
            place = slot.delivered  # over what did not match
            if self._sink.stores_position and place > max(slot.position, self._confirmed or slot.position):
                self._sink.move(place)
        if place is not None and place > slot.position:
            slot.ack(place, durable=not self._options.store_every)
        self._unsaved = False
        return 0.0

    def _supply_anew(self) -> None:
        """Throws away what was read, so that everything from the stored place on is read, and sent, again."""
        self._outbox.forget()
        self._confirmed, self._unsaved = None, False
        supply, self._supply = self._supply, None
        if supply is not None:
            supply.end()
        self._sink.close()
        self._opened = False

    # What goes wrong.

    def _guarded(self, work: Callable[[], float], otherwise: float) -> float:
        """Does something that may fail, and notes how it did."""
        try:
            return work()
        except (SlotLost, SlotForked, HistoryPruned) as error:
            self._lose(error)
        except (Fenced, LogClosed) as error:
            if self._lease is not None and isinstance(error, Fenced):
                self._yield(shown_error(error))
            else:
                self._stop(shown_error(error))
        except (TargetUnavailable, OSError) as error:
            self._fail(error)
        except PenstockError as error:
            if error.retryable and not isinstance(error, PositionError):
                self._fail(error)
            else:
                self._refuse(error)
        except Exception as error:  # noqa: BLE001 - a sink's or a user's: the runner outlives it
            self._refuse(error)
        return otherwise

    def _fail(self, error: Exception) -> None:
        policy = self._options.retry
        self._failures += 1
        self.counters.failures += 1
        self._note_error(error)
        if policy.attempts is not None and self._failures >= policy.attempts:
            self.counters.given_up += 1
            self._refuse(TargetRefused(f"given up after {self._failures} attempts: {self._last_error}"))
            return
        self._attempt = self._failures + 1
        wait = policy.delay(self._failures, getattr(error, "retry_after", None))
        self._due = self._clock.monotonic() + wait
        self._move(SinkEvent.FAIL)
        _LOG.warning("sink %s: %s; attempt %d in %.1f s", self.name, self._last_error, self._attempt, wait)

    def _note_error(self, error: Exception) -> str:
        self._failed_at = self._clock.monotonic()
        self._last_error = shown_error(error)
        return self._last_error

    def _refuse(self, error: Exception) -> None:
        self._reason = self._note_error(error)
        self._due = None
        self._move(SinkEvent.REFUSE)
        _LOG.error("sink %s is paused: %s", self.name, self._reason)

    def _lose(self, error: Exception) -> None:
        self._reason = self._note_error(error)
        self._let_go()
        self._move(SinkEvent.LOSE)
        _LOG.error("sink %s is lost: %s", self.name, self._reason)

    def _works(self) -> None:
        self._failures = self._attempt = 0
        self._due = self._reason = None
        self._move(SinkEvent.WORK)

    def _judge_end(self) -> bool:
        """Whether the subscription has ended, and something was made of that."""
        supply = self._supply
        if supply is None or not supply.ended:
            return False
        error = supply.error
        if error is not None:
            self._supply_anew()
            raise error
        self._stop("the log was closed")
        return True

    @property
    def _circuit_open(self) -> bool:
        return self._failures >= self._options.retry.circuit

    def _move(self, event: SinkEvent) -> None:
        self.state = sink_state_after(self.state, event) or self.state

    # Orders of other threads, which the one who steps carries out.

    def _check_leading(self) -> None:
        if self._lease is not None and not self._judge_lease():
            raise SinkStandsBy(self.name)

    def _pause(self) -> None:
        self._check_leading()
        self._log.slots.pause(self.name)
        self._due, self._reason = None, "paused by an operator"
        self._move(SinkEvent.PAUSE)

    def _resume(self) -> None:
        self._check_leading()
        if self.name in self._log.slots:
            self._log.slots.resume(self.name)
        self._failures = 0
        self._due = self._reason = None
        self._outbox.renew()
        self._move(SinkEvent.RESUME)

    def _seek(self, place: Any) -> Position:
        self._check_leading()
        slot = self._slot
        if slot is None:
            position: Position = self._log.slots.reset(self.name, place).position
        else:
            position = slot.seek(place)
            self._outbox.forget()
            if self._supply is not None:
                self._supply.drop()
        if self._sink.stores_position:
            if not self._opened:
                self._sink.open(self._context)
                self._opened = True
            self._sink.move(position)
        self._confirmed, self._unsaved = None, False
        if sink_state_after(self.state, SinkEvent.SEEK) is not None:
            self._reason = None
            self._move(SinkEvent.SEEK)
        return position

    # Ending.

    def _stop(self, reason: str | None) -> None:
        if self.state is SinkState.STOPPED:
            return
        if reason is None and self._opened and self._slot is not None:
            try:
                self._store()
            except Exception as error:  # noqa: BLE001 - it is sent again after a restart
                _LOG.warning("sink %s: its last place is not stored: %s", self.name, shown_error(error))
        self._let_go()
        self._reason = reason
        self._move(SinkEvent.STOP)
        self._orders.close()
        if reason is not None:
            _LOG.error("sink %s has stopped: %s", self.name, reason)

    def _let_go(self) -> None:
        """Gives back slot and target."""
        slot, supply = self._slot, self._supply
        self._slot = self._supply = self._due = None
        self._outbox.forget()
        if slot is not None:
            with contextlib.suppress(PenstockError):  # the place is written when the log's disk is good again
                slot.close()
        if supply is not None:
            supply.end()
        try:
            self._sink.close()
        except Exception as error:  # noqa: BLE001 - a sink's: there is nothing left to do with it
            _LOG.warning("sink %s: its target is not closed: %s", self.name, shown_error(error))
        self._opened = False
