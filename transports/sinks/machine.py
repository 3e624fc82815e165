"""The state machine of a sink: carries the changes of one slot to one target, one step at a time."""

import contextlib
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from flow.clock import Clock
from publishers.criteria.criteria import Criteria
from publishers.errors import PenstockError
from publishers.model.position import Position
from transports.sinks.errors import SinkError, SinkStandsBy, TargetRefused, plain_error, shown_error
from transports.sinks.intake import SinkIntake, SinkProgress
from transports.sinks.lease import Lease, SinkLeading
from transports.sinks.notes import HeldTypes, SinkNotes
from transports.sinks.options import SinkOptions
from transports.sinks.outbox import SinkOutbox
from transports.sinks.retry import SinkFailures, SinkVerdict, SinkWork, verdict_of
from transports.sinks.sink import Sink, SinkContext, SinkGap, SinkLog
from transports.sinks.sink_target import SinkTarget
from transports.sinks.state import RUNNING, SinkCounters, SinkEvent, SinkState, SinkStatus, sink_state_after
from transports.sinks.supply import SinkSupply

__all__ = ["SinkMachine"]

_LOG: Final = logging.getLogger("penstock.sinks")
_BY_OPERATOR: Final = "paused by an operator"
_ROWS_CARRIED: Final = "all rows are sent, and the sink sends nothing else"


class SinkMachine:
    """The part of a runner that one thread at a time steps; ``status`` may be called from any thread.

    Args:
        log, name, sink, options, lease, clock: As for `SinkRunner`.
        wake: Called on any thread when a step may have work.
        ended: Called when the machine has stopped.
        interrupted: Whether an order waits.

    Attributes:
        name: The name of the sink.
        state: The state of the sink.
        counters: Counters of its work.
        failed: Whether the sink has stopped because its target refused a batch, with ``on_failure="stop"``.
    """

    def __init__(
        self,
        log: SinkLog,
        name: str,
        sink: Sink,
        options: SinkOptions,
        *,
        lease: Lease | None,
        clock: Clock,
        wake: Callable[[], object],
        ended: Callable[[], object],
        interrupted: Callable[[], bool],
    ) -> None:
        self.name = name
        self.state: SinkState = SinkState.STARTING
        self.counters: SinkCounters = SinkCounters()
        self.failed: bool = False
        self._log, self._clock, self._options, self._ended = log, clock, options, ended
        view = options.view_for(sink)
        notes = SinkNotes(log.path, name)
        context = SinkContext.of(log, name, view, clock, options.in_flight, interrupted)
        self._target = SinkTarget(sink, replace(context, kept=notes.kept, keep=notes.keep))
        self._outbox = SinkOutbox(sink, options, context, self.counters, HeldTypes(sink, notes))
        self._failures = SinkFailures(name, options.retry, clock)
        self._progress = SinkProgress()
        self._stored_at = clock.monotonic()
        self._reason: str | None = None
        self._intake = SinkIntake(
            log,
            name,
            options,
            view,
            clock,
            notes,
            take_over=options.take_over or lease is not None,
            knows_history=self._target.knows_history,
            keeps_entities=options.keeps_entities(sink),
            wake=wake,
        )
        self._leading = SinkLeading(lease)
        if lease is not None:
            lease.notify(wake)

    # Called from any thread.

    def status(self) -> SinkStatus:
        """Returns the status of the sink."""
        failures, noted = self._failures, self._intake.notes.current
        place, lag = noted.place(self._log.position_of), None
        with contextlib.suppress(PenstockError):  # the log is closed, or the slot does not exist
            info = self._log.slots.info(self.name)
            place, lag = info.position, info.lag
        return SinkStatus(
            name=self.name,
            state=self.state,
            reason=self._reason,
            last_error=failures.last_error,
            attempt=failures.attempt,
            retry_in=failures.retry_in,
            circuit_open=failures.circuit_open,
            position=place,
            confirmed=self._progress.confirmed,
            lag=lag,
            epoch=self._leading.epoch,
            last_error_age=failures.age,
            gap=None if noted.gap is None else SinkGap(noted.gap.first, noted.gap.next),
            counters=replace(self.counters),
        )

    # The step.

    def step(self) -> float:
        """See `SinkRunner.step`."""
        if self.state is SinkState.STOPPED:
            return 0.0
        tick = self._options.tick
        if not self._judge_lease():
            return tick
        now, due = self._clock.monotonic(), self._failures.due
        if self.state in RUNNING:
            if due is not None and now < due:
                return self._store_when_due(now, min(tick, due - now))
            if self.state is SinkState.STARTING or not self._target.opened or self._intake.supply is None:
                return self._guarded("opening", self._open)
            return self._guarded("sending", self._carry)
        return self._store_when_due(now, tick)

    # The lease.

    def _judge_lease(self) -> bool:
        """Returns whether this runner holds the lease; after a new gain it starts again from the stored position."""
        leading = self._leading
        if self.state is not SinkState.STANDBY and not leading.holds:
            self._yield("another runner holds the lease")
        if self.state is SinkState.STANDBY:
            if not leading.gain():
                return False
            self._move(SinkEvent.LEAD)
            _LOG.info("sink %s holds the lease, epoch %d", self.name, leading.epoch)
        return True

    def _yield(self, reason: str) -> None:
        self._rest(SinkEvent.YIELD, reason)
        _LOG.warning("sink %s stands by: %s", self.name, reason)

    # Opening.

    def _open(self) -> float:
        intake, target = self._intake, self._target
        if intake.slot is None:
            intake.notes.read()  # another runner that held the lease may have changed them
        if intake.off:
            self.switch_off()
            return 0.0
        if intake.completed:
            self._complete()
            return 0.0
        if self._failures.circuit_open and intake.slot is not None:
            target.check(self._failures.last_error)
        slot = intake.open()
        if slot.paused:
            self._failures.due = None
            self._move(SinkEvent.PAUSE, _BY_OPERATOR)
            return 0.0
        if not target.opened:
            intake.meet(target)
        intake.begin()
        self._failures.works("opening")
        self._works()
        return 0.0

    # Carrying.

    def _carry(self) -> float:
        supply = self._intake.supply
        assert supply is not None
        now, outbox = self._clock.monotonic(), self._outbox
        if not outbox.ready:
            batch = outbox.read or supply.next(now)
            if batch is None:
                if self._judge_end(supply):
                    return 0.0
                due, tick = supply.due(now), self._options.tick
                return self._store_when_due(now, tick if due is None else min(due, tick))
            gap = self._intake.notes.current.gap
            if gap is not None and not self._progress.gap_reported:
                batch = replace(batch, gap=SinkGap(gap.first, gap.next))
            over = outbox.take(batch)
            if over is not None:
                self._progress.note(over)
                return 0.0
        if self._failures.circuit_open:
            self._target.check(self._failures.last_error)
        if not self._leading.holds:
            return 0.0
        self._failures.attempt, taken = outbox.attempt, self.counters.changes
        try:
            sent = outbox.send(supply)
        finally:
            if self.counters.changes > taken:
                self._failures.in_row = 0
        if sent is not None:
            self._progress.note(sent)
            self._failures.works("sending")
            self._works()
        return self._store_when_due(self._clock.monotonic(), 0.0)

    # Storing the position.

    def _store_when_due(self, now: float, delay: float) -> float:
        if now - self._stored_at >= self._options.store_every and self._intake.slot is not None:
            self._stored_at = now
            self._guarded("storing", self._store)
        return delay

    def _store(self) -> float:
        """Stores the position behind what the target has made durable, also past changes that do not match."""
        self._intake.open().info()  # raises if the slot or its history is lost, or the log is closed
        if not self._target.opened:
            return 0.0
        try:
            self._target.flush()
        except Exception:
            self._supply_anew()  # reads and sends what is not durable again
            raise
        if self._leading.holds:  # else the next holder stores the position
            self._intake.keep(self._progress, self._target, idle=self._outbox.empty)
        self._failures.works("storing")
        return 0.0

    def _supply_anew(self) -> None:
        """Drops what was read, so that everything from the stored position on is read and sent again."""
        self._outbox.forget()
        self._progress.forget()
        self._intake.renew()
        self._target.close()

    # Failures.

    def _guarded(self, what: SinkWork, work: Callable[[], float]) -> float:
        """Calls ``work``, and handles its error by its verdict."""
        try:
            return work()
        except KeyboardInterrupt:  # of the caller who steps the sink
            raise
        except BaseException as caught:  # noqa: BLE001 - the runner survives the errors of a sink and of user code, SystemExit too
            error = plain_error(caught)
            self._failures.fails(what)
            match verdict_of(error):
                case SinkVerdict.ROWS:
                    self._intake.rows_anew()
                    self._supply_anew()
                    self._fail(error)
                case SinkVerdict.LOSE:
                    self._lose(error)
                case SinkVerdict.FENCED if self._leading.shared:
                    self._yield(shown_error(error))
                case SinkVerdict.FENCED | SinkVerdict.END:
                    self.stop(shown_error(error))
                case SinkVerdict.LATER:
                    self._fail(error)
                case SinkVerdict.NEVER:
                    self._refuse(error)
            return 0.0

    def _fail(self, error: Exception) -> None:
        failures = self._failures
        failures.add(error)
        self.counters.failures += 1
        if failures.exhausted:
            self.counters.given_up += 1
            self._refuse(TargetRefused(f"given up after {failures.in_row} attempts: {failures.last_error}"))
            return
        self._wait(getattr(error, "retry_after", None))

    def _wait(self, retry_after: float | None) -> None:
        failures = self._failures
        wait = failures.wait(retry_after)
        self._move(SinkEvent.FAIL)
        _LOG.warning(
            "sink %s: %s; attempt %d in %.1f s", self.name, failures.last_error, failures.attempt, wait
        )

    def _refuse(self, error: Exception) -> None:
        reason = self._failures.note(error)
        if self._options.on_failure == "restart":
            self._store_last()
            self._let_go()
            self._failures.in_row = max(self._failures.in_row, 1)
            self._wait(self._options.retry.limit)
        elif self._options.on_failure == "stop":
            self.failed = True
            self.stop(reason)
        else:
            self._failures.due = None
            self._move(SinkEvent.REFUSE, reason)
            _LOG.error("sink %s is paused: %s", self.name, reason)

    def _lose(self, error: Exception) -> None:
        reason = self._failures.note(error)
        self._let_go()
        if self._options.snapshot in ("on_gap", "initial_only"):
            self._intake.rows_after_loss()
            self._move(SinkEvent.FAIL)
            _LOG.warning("sink %s sends rows, because its history is gone: %s", self.name, reason)
        elif self._options.on_failure == "stop":
            self.failed = True
            self.stop(reason)
        else:
            self._move(SinkEvent.LOSE, reason)
            _LOG.error("sink %s is lost: %s", self.name, reason)

    def _works(self) -> None:
        self._failures.forget()
        self._move(SinkEvent.ROWS if self._intake.gives_rows else SinkEvent.WORK)

    def _judge_end(self, supply: SinkSupply) -> bool:
        """Handles the end of the subscription or of its rows; returns whether either had ended."""
        if supply.rows_end is not None and supply.empty:
            # The target is durable before the note is written: a crash between them repeats rows, which changes nothing.
            self._target.flush()
            self._target.move(supply.rows_end)
            if self._options.snapshot == "initial_only":
                self._target.finish()
            self._intake.end_rows(supply.rows_end)
            self._progress.forget()
            if self._intake.completed:
                self._complete()
            else:
                self._move(SinkEvent.WORK)
            return True
        if not supply.ended:
            return False
        error = supply.error
        if error is not None:
            self._supply_anew()
            raise error
        self.stop("the log was closed")
        return True

    def _complete(self) -> None:
        """Ends a sink whose only task was its rows: closes and drops the slot, so that no history is retained."""
        self._intake.let_go()
        self._intake.drop_slot()
        self._rest(SinkEvent.COMPLETE, _ROWS_CARRIED)
        _LOG.info("sink %s has sent its rows", self.name)

    def _move(self, event: SinkEvent, reason: str | None = None) -> None:
        self._reason = reason
        self.state = sink_state_after(self.state, event) or self.state

    # Orders, carried out on the stepping thread.

    def _check_leading(self) -> None:
        if not self._judge_lease():
            raise SinkStandsBy(self.name)

    def _check_carries(self) -> None:
        self._check_leading()
        if self._intake.off:
            raise SinkError(f"sink {self.name!r} is off; switch it on first")
        if self._intake.completed:
            raise SinkError(
                f"sink {self.name!r} has sent its rows and is complete; 'again' sends them once more"
            )

    def try_out(self) -> str:
        """See `SinkRunner.try_out`."""
        return self._target.try_out()

    def pause(self) -> None:
        """See `SinkRunner.pause`."""
        self._check_carries()
        self._intake.make()
        self._log.slots.pause(self.name)
        self._failures.due = None
        self._move(SinkEvent.PAUSE, _BY_OPERATOR)

    def resume(self) -> None:
        """See `SinkRunner.resume`."""
        self._check_carries()
        if self.name in self._log.slots:
            self._log.slots.resume(self.name)
        self._failures.forget()
        self._outbox.renew()
        self._move(SinkEvent.RESUME)

    def switch_off(self) -> None:
        """See `SinkRunner.switch_off`."""
        self._check_leading()
        self._store_last()
        self._intake.switch_off()
        self._rest(SinkEvent.SWITCH_OFF, "switched off by an operator")
        _LOG.warning(
            "sink %s is off: changes from %s on are not sent",
            self.name,
            self._intake.notes.current.off,
        )

    def switch_on(self, place: Any) -> Position:
        """See `SinkRunner.switch_on`."""
        self._check_leading()
        if not self._intake.off:
            raise SinkError(f"sink {self.name!r} is on; seek moves a sink that is on")
        position = self._intake.switch_on(place)
        self._move(SinkEvent.SWITCH_ON)
        gap = self._intake.notes.current.gap
        if gap is not None:
            _LOG.error("sink %s is on; changes from %s to %s were not sent", self.name, gap.first, gap.next)
        return position

    def refresh(self, criteria: Criteria, after: str | None, until: str | None) -> None:
        """See `SinkRunner.again`."""
        self._check_leading()
        if self._intake.gives_rows or self.state not in (
            SinkState.STREAMING,
            SinkState.RETRYING,
            SinkState.COMPLETED,
        ):
            raise SinkError(
                f"sink {self.name!r} is {self.state.name}; rows are sent again while it is STREAMING, RETRYING or COMPLETED"
            )
        if self._intake.slot is not None:
            self._store()
        self._outbox.forget()
        self._progress.forget()
        self._intake.refresh(criteria, after, until)
        self._move(SinkEvent.AGAIN, self._reason)

    def seek(self, place: Any) -> Position:
        """See `SinkRunner.seek`."""
        self._check_carries()
        if self._options.snapshot == "initial_only":
            raise SinkError(
                f"sink {self.name!r} sends rows only (snapshot = 'initial_only'), and cannot be moved"
            )
        position = self._intake.seek(place)
        self._outbox.forget()
        self._intake.move(self._target, position)
        self._progress.forget()
        if sink_state_after(self.state, SinkEvent.SEEK) is not None:
            self._move(SinkEvent.SEEK)
        return position

    # Stopping.

    def stop(self, reason: str | None) -> None:
        """Stops the sink; ``reason`` is None if the caller asked for it."""
        if self.state is SinkState.STOPPED:
            return
        if reason is None or self.failed:
            self._store_last()
        self._let_go()
        self._outbox.close()
        self._move(SinkEvent.STOP, reason)
        self._ended()
        if reason is not None:
            _LOG.error("sink %s has stopped: %s", self.name, reason)

    def _store_last(self) -> None:
        """Stores the position before slot and target are closed; what is not stored is sent again."""
        if self._target.opened and self._intake.slot is not None:
            try:
                self._store()
            except BaseException as error:  # noqa: BLE001 - what is not stored is sent again
                _LOG.warning("sink %s: its last position is not stored: %s", self.name, shown_error(error))

    def _rest(self, event: SinkEvent, reason: str) -> None:
        """Closes slot and target, and enters a state without work."""
        self._let_go()
        self._failures.forget()
        self._move(event, reason)

    def _let_go(self) -> None:
        """Closes slot and target; what is not stored is sent again."""
        self._failures.due = None
        self._progress.forget()
        self._outbox.forget()
        self._intake.let_go()
        self._target.close()
