"""A strand: work that runs in turns on an executor, never two at once, until it has ended.

This is the part of a drain that deals with threads and executors; it knows nothing of streams.
"""

import concurrent.futures
import contextvars
import threading
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

from flow.executors import INLINE, RETRY, SATURATED, AnyExecutor, Executor, LoopExecutor, Rescue, executor_of

__all__ = ["AGAIN", "ENDED", "IDLE", "LENT", "NEW", "RUNNING", "SCHEDULED", "Lender", "Strand"]

# The states of the flag. From RUNNING on it is held; below, the thread that cancels the strand also releases it.
#
#             start   wake-up     turn      hold      lend   next pull   nothing to do   turn used up   cancel    the end
# NEW         IDLE                                                                                      ENDED
# IDLE                RUNNING *             RUNNING   LENT                                              ENDED
# SCHEDULED                       RUNNING                                                               ENDED
# RUNNING             AGAIN                                              IDLE            SCHEDULED      AGAIN     ENDED
# LENT                AGAIN **                                                                          AGAIN **
# AGAIN                                                      RUNNING                     SCHEDULED                ENDED
#
# * SCHEDULED on any executor but INLINE. ** And the flag is recalled; it becomes IDLE when the group returns it.
NEW: Final = 0
IDLE: Final = 1
SCHEDULED: Final = 2
ENDED: Final = 3
RUNNING: Final = 4  # a turn, or `Strand.try_hold`
AGAIN: Final = 5  # RUNNING or LENT, and woken meanwhile
LENT: Final = 6  # a group holds the flag between its deliveries

_RECALL: Final = -2


class Lender(Protocol):
    """Holds the flag of a strand that is not running."""

    def recall(self) -> None:
        """Return the flag, now or after the delivery that runs. Idempotent."""
        ...


class Strand:
    """The flag of a drain: the thread that holds it may run, and a wake-up meanwhile makes it run once more.

    A subclass implements a turn (`_turn`) and drops its references (`_release`).
    """

    __slots__ = (
        "__weakref__",
        "_begun",
        "_claims",
        "_context",
        "_ended",
        "_error",
        "_executor",
        "_halted",
        "_inline",
        "_lender",
        "_lock",
        "_loop",
        "_rescue",
        "_state",
    )

    def __init__(self, executor: AnyExecutor | None, rescue: Rescue | None) -> None:
        self._lock = threading.Lock()
        self._executor = executor_of(executor)
        self._inline = self._executor is INLINE
        self._loop = self._executor if isinstance(self._executor, LoopExecutor) else None
        self._rescue = rescue
        self._context: contextvars.Context | None = None
        self._error: Exception | None = None
        self._state = NEW
        self._lender: Lender | None = None
        self._claims = 0  # how often the flag was claimed for a run
        self._begun = 0  # the number of the last claim whose run has begun
        self._halted = False  # no further element: cancelled, failed or ended
        self._ended = False  # no further signal at all

    def _turn(self, context: contextvars.Context) -> bool:
        """Run one turn in the context; true if it left the state `SCHEDULED`, for another turn to be submitted.

        Only a critical section that finds the state `RUNNING` may set it to `IDLE`, and only outside the context: the next
        holder may enter the context at once.
        """
        raise NotImplementedError

    def _release(self) -> None:
        """Drop every reference. Only the thread that ended a strand without a holder, or the holder, calls this: so once."""
        raise NotImplementedError

    @property
    def ended(self) -> bool:
        """Whether no further signal follows: cancelled, or the terminal signal was delivered."""
        return self._ended

    def signal(self) -> None:
        """Wake the strand: schedule a turn, or another one after the turn that runs.

        Wake-ups coalesce: at most one run is scheduled. Whatever the executor does, this neither blocks nor raises.
        """
        go = 0
        try:
            with self._lock:
                go = self._claim()
            if go:
                self._go(go)
        except BaseException:
            self._save(go)
            raise

    def cancel(self) -> None:
        """End without a signal. The holder of the flag drops every reference; without a holder, this thread does."""
        mine, go = False, 0
        try:
            with self._lock:
                if self._ended:
                    return
                self._ended = self._halted = True
                if self._state >= RUNNING:
                    go = _RECALL if self._state == LENT else 0
                    self._state = AGAIN
                else:
                    self._state = ENDED
                    mine = True
            if mine:
                self._release()
            elif go:
                self._go(go)
        except BaseException:
            if mine:
                self._release()  # the interrupt came before or within the first call
            self._save(go)
            raise

    def fail(self, error: Exception) -> None:
        """End with ``on_error``, which overtakes buffered elements. The first error wins."""
        with self._lock:
            if self._halted:
                return
            self._error = error
            self._halted = True
        self.signal()

    def try_hold(self) -> bool:
        """Acquire the flag without delivering, if no thread holds it and no turn is scheduled; then call `release_hold`.

        For work on the feed that must exclude `Feed.pull`.
        """
        lender = self._lender
        if lender is not None:
            lender.recall()
        with self._lock:
            if self._state != IDLE:
                return False
            self._state = RUNNING
            return True

    def release_hold(self, lender: Lender | None = None) -> None:
        """Release the flag, and run a turn if the strand was woken meanwhile.

        Args:
            lender: The group to which the flag was lent; ``None`` after `try_hold`. A call with another value, or a second
                call of the group, has no effect.
        """
        go = 0
        try:
            with self._lock:
                if self._lender is not lender:
                    return
                self._lender = None
                again, self._state = self._state == AGAIN or self._halted, IDLE
                if again:
                    go = self._claim()
                    again = not self._ended
            if again:
                self._go(go)
            elif go:
                self._run()  # cancelled: a turn here only drops references, and the executor may never run again
        except BaseException:
            self._save(go)
            raise

    def _claim(self) -> int:
        """Note a wake-up, under the lock. The caller passes a result other than 0 to `_go`, or to `_save` if interrupted."""
        if self._state == IDLE:
            self._state = RUNNING if self._inline else SCHEDULED
            self._claims += 1
            return self._claims
        if self._state in (RUNNING, LENT):
            lent, self._state = self._state == LENT, AGAIN
            return _RECALL if lent else 0
        # A turn scheduled on a loop that has closed never runs. Submitting it again raises the error that ends the strand.
        return -1 if self._state == SCHEDULED and self._loop is not None and self._loop.closed else 0

    def _save(self, claim: int) -> None:
        """Run for a thread that claimed the flag and was interrupted (KeyboardInterrupt) before the run; no other thread would."""
        with self._lock:
            lost = claim == self._claims != self._begun and self._state in (SCHEDULED, RUNNING, AGAIN)
        if lost or claim == _RECALL:
            self._go(claim)

    def _go(self, claim: int) -> None:
        if claim == _RECALL:
            lender = self._lender
            if lender is not None:
                lender.recall()
        elif self._inline:
            self._run()
        else:
            self._submit()

    def _submit(self) -> None:
        try:
            self._hand_over()
        except SATURATED:
            self._ask_rescue(self._enter, _Guarded(self))
        except Exception as error:  # noqa: BLE001 - whatever the executor raises must not reach the thread that signals
            if self._rescue is None:
                self._die(error)
            else:
                self._loop = None  # it is closed: `_claim` need not check it again
                self._ask_rescue(partial(self._die, error), INLINE)
        except BaseException:
            self.cancel()
            raise

    def _retry(self) -> None:
        """Submit again, on the rescue's thread; raises only if the executor is still full."""
        try:
            self._hand_over()
        except SATURATED:
            raise
        except Exception as error:  # noqa: BLE001 - closed meanwhile
            self._die(error)

    def _hand_over(self) -> None:
        future = self._executor.submit(self._enter)
        if isinstance(future, concurrent.futures.Future):
            future.add_done_callback(self._check)

    def _check(self, future: "concurrent.futures.Future[object]") -> None:
        """Notice that an executor dropped the run, as ``shutdown(cancel_futures=True)`` does.

        The executor holds its lock while it calls this, so the end is signalled on another thread.
        """
        cancelled = RuntimeError("the executor was shut down before it ran")
        error = cancelled if future.cancelled() else future.exception()
        if isinstance(error, Exception):
            self._ask_rescue(partial(self._die, error), INLINE)

    def _ask_rescue(self, run: Callable[[], None], executor: Executor) -> None:
        try:
            (self._rescue or RETRY).resubmit(run, executor)
        except Exception as error:  # noqa: BLE001 - no thread to wait on: the subscriber ends, the caller does not
            self._die(error)

    def _die(self, error: Exception) -> None:
        """End a subscription whose executor is closed, on this thread."""
        with self._lock:
            if self._state != SCHEDULED:
                return
            self._state = RUNNING
            if not self._halted:
                self._error = error
                self._halted = True
        self._run()

    def _enter(self) -> None:
        """Run a turn, on the executor."""
        mine = False
        try:
            with self._lock:
                if self._state != SCHEDULED:
                    return
                self._state = RUNNING
                mine = True
            self._run()
        except BaseException:
            if mine and self._begun != self._claims and self._state >= RUNNING:
                self._run()  # the interrupt came before the run began
            raise

    def _run(self) -> None:
        """Run a turn, and submit another one if it is not the last. The caller holds the flag."""
        self._begun = self._claims
        context = self._context
        assert context is not None
        try:
            if self._turn(context):
                self._claims += 1
                self._submit()
        except BaseException:
            # KeyboardInterrupt and SystemExit are raised after the strand was cancelled.
            self._abandon()
            raise
        finally:
            del context

    def _abandon(self) -> None:
        with self._lock:
            self._ended = self._halted = True
            self._state = ENDED
        self._release()


class _Guarded:
    """The executor of a strand as its rescue sees it: a full executor raises, a closed one ends the strand."""

    __slots__ = ("_strand",)

    def __init__(self, strand: Strand) -> None:
        self._strand = strand

    def submit(self, run: Callable[[], None], /) -> None:
        self._strand._retry()  # noqa: SLF001 - one mechanism in two classes
