"""The one delivery engine: whatever is signalled to a subscriber is signalled by a `Drain`.

A drain stands between a `Feed`, from which it pulls, and a subscriber, to which it delivers. Any thread may say that there
may be something (`Drain.signal`), any thread may request or cancel; one thread at a time holds the drain's flag and delivers.
So signals are serial (rule 1.3), `Drain.request` never calls ``on_next`` while a turn runs (rule 3.3), and neither subscriber
nor feed is ever called under a lock.

A wake-up cannot be lost: the flag is given back in the same critical section that finds no wake-up pending.
"""

import asyncio
import concurrent.futures
import contextvars
import threading
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from typing import Any, Final, Generic, Protocol, TypeVar, cast

from flow import hooks
from flow.contracts import BatchSubscriber, Subscriber, Subscription
from flow.demand import add, refusal, subtract
from flow.executors import INLINE, RETRY, SATURATED, Executor, LoopExecutor, Rescue, executor_of

__all__ = ["COMPLETED", "Completed", "Drain", "Failed", "Feed", "Outcome"]

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Completed:
    """The stream ended as it should: ``on_complete``."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The stream ended with an error: ``on_error``."""

    error: Exception


Outcome = Completed | Failed
COMPLETED: Final = Completed()


class Feed(Protocol[T_co]):
    """What a drain pulls from. All three are called by the holder of the drain's flag, never two at once; none blocks."""

    def pull(self, limit: int, /) -> Sequence[T_co]:
        """Give at most ``limit`` >= 1 elements that are available now; maybe none.

        An exception is told to the subscriber and ends the subscription.
        """
        ...

    def outcome(self) -> Outcome | None:
        """Say whether the stream has ended; ``None`` while it is open or something is left to pull.

        Asked when there is no demand or when `pull` gave nothing: the end is told without demand (rules 2.9, 2.10).
        """
        ...

    def release(self) -> None:
        """Drop every reference; called exactly once, however the subscription ended."""
        ...


# Who holds the flag. Up to SCHEDULED nobody runs: whoever ends the drain then also releases it.
_NEW: Final = 0
_IDLE: Final = 1
_SCHEDULED: Final = 2
_RUNNING: Final = 3  # a turn, or somebody who called try_hold
_ENDED: Final = 4


class _Gone:
    """Stands in for subscriber and feed once they were dropped."""

    def pull(self, limit: int, /) -> tuple[()]:
        return ()

    def outcome(self) -> None:
        return None

    def release(self) -> None: ...

    def on_subscribe(self, subscription: Subscription, /) -> None: ...

    def on_next(self, item: object, /) -> None: ...

    def on_error(self, error: Exception, /) -> None: ...

    def on_complete(self) -> None: ...

    def request(self, n: int, /) -> None: ...

    def cancel(self) -> None: ...


_GONE: Final = _Gone()

_PLAIN: Final = (list, tuple)


class Drain(Generic[T]):
    """Delivers to one subscriber what a feed has, as much as was requested; it is the subscriber's `Subscription`.

    Errors overtake what is buffered, completion does not. Until `start`, everything is recorded and nothing runs.

    Args:
        subscriber: If it has ``on_next_batch``, it gets what one pull brought in one call. A list or tuple is searched
            for ``None`` first; other sequences vouch for themselves.
        feed: Released exactly once, when the subscription has ended in whatever way.
        executor: Where all signals run; ``None`` is `flow.INLINE`. On any other than that, a turn delivers at most ``turn``
            elements, or one batch, and is then submitted again. An executor that is closed ends this subscription with
            what it raised.
        rescue: Takes wake-ups that a full executor refused. The one given also delivers the end to the subscriber of a
            closed executor; without one that is done by the thread that found it closed.
        turn: Most elements that one pull is asked for.

    Raises:
        TypeError: If the subscriber is ``None``, or the executor is none.
    """

    __slots__ = (
        "__weakref__",
        "_batches",
        "_context",
        "_demand",
        "_ended",
        "_error",
        "_executor",
        "_feed",
        "_greeted",
        "_halted",
        "_inline",
        "_lock",
        "_loop",
        "_pending",
        "_rescue",
        "_state",
        "_subscriber",
        "_subscription",
        "_taken",
        "_tells",
        "_turn_items",
    )

    def __init__(
        self,
        subscriber: Subscriber[T],
        feed: Feed[T],
        *,
        executor: Executor | asyncio.AbstractEventLoop | None = None,
        rescue: Rescue | None = None,
        turn: int = 256,
    ) -> None:
        if subscriber is None:
            raise TypeError("rule 1.9: the subscriber is None")
        if turn < 1:
            raise ValueError(f"turn: {turn!r}; at least 1 is expected")
        self._lock = threading.Lock()
        self._executor = executor_of(executor)
        self._inline = self._executor is INLINE
        self._loop = self._executor if isinstance(self._executor, LoopExecutor) else None
        self._rescue = rescue
        self._turn_items = turn
        self._subscriber: Subscriber[T] = subscriber
        self._batches = callable(getattr(subscriber, "on_next_batch", None))
        self._subscription: Subscription = self
        self._feed: Feed[T] = feed
        self._context: contextvars.Context | None = None
        self._tells: dict[Hashable, Callable[[Any], object]] = {}
        self._error: Exception | None = None
        self._demand = 0
        self._taken = 0  # pulled, but not yet subtracted from the demand
        self._state = _NEW
        self._pending = False
        self._greeted = False
        self._halted = False  # no further element: cancelled, failed or ended
        self._ended = False  # no further signal at all

    # -- what anybody may call, from any thread ------------------------------------------------------------------------

    @property
    def demand(self) -> int:
        """Elements requested and not yet pulled for delivery."""
        with self._lock:
            return subtract(self._demand, self._taken)

    @property
    def ended(self) -> bool:
        """Whether no further signal follows: cancelled, or the terminal signal was given."""
        return self._ended

    def start(self, subscription: Subscription | None = None) -> None:
        """Give ``on_subscribe``, then deliver what there is; both on the executor. Once; later calls have no effect.

        The caller's context variables are copied now, and all signals see them.

        Args:
            subscription: What ``on_subscribe`` receives instead of the drain itself.
        """
        with self._lock:
            if self._state != _NEW:
                return
            self._context = contextvars.copy_context()
            self._subscription = subscription or self
            self._state = _IDLE
            self._pending = False
            self._claim()
        self._go()

    def signal(self) -> None:
        """Say that the feed may have something.

        Coalesces: at most one run is scheduled. Whatever the executor does, this neither blocks nor raises.
        """
        with self._lock:
            go = self._claim()
        if go:
            self._go()

    def request(self, n: int, /) -> None:
        """Add to the demand (rules 3.8, 3.17); what is not a positive integer ends in ``on_error`` (rule 3.9)."""
        error = None if type(n) is int and n > 0 else refusal(n)
        if error is not None:
            self.fail(error)
            return
        with self._lock:
            if self._halted:
                return
            self._demand = add(self._demand, n)
            go = self._claim()
        if go:
            self._go()

    def cancel(self) -> None:
        """End without a signal; whoever holds the flag now lets go of everything, else that happens here and now."""
        with self._lock:
            if self._ended:
                return
            self._ended = self._halted = self._pending = True
            if self._state == _RUNNING:
                return
            self._state = _ENDED
        self._release()

    def fail(self, error: Exception) -> None:
        """End with ``on_error``, which overtakes what is buffered. The first error wins."""
        with self._lock:
            if self._halted:
                return
            self._error = error
            self._halted = True
            go = self._claim()
        if go:
            self._go()

    def tell(self, key: Hashable, fn: Callable[[Any], object]) -> None:
        """Signal something beside the stream: ``fn(subscriber)`` is called serially, before the next elements or the end.

        It spends no demand. Of what is told under one key before it is delivered, the last wins; so at most one call for
        each key is kept. A feed may tell from inside `Feed.pull`: it comes before the elements of that pull.
        """
        with self._lock:
            if self._ended:
                return
            self._tells.pop(key, None)
            self._tells[key] = fn
            go = self._claim()
        if go:
            self._go()

    def try_hold(self) -> bool:
        """Take the flag without delivering, if nobody has it and nothing is scheduled; then call `release_hold`.

        For those who work on the feed and must exclude `Feed.pull` meanwhile.
        """
        with self._lock:
            if self._state != _IDLE:
                return False
            self._state = _RUNNING
            return True

    def release_hold(self) -> None:
        """Give the flag back, and run what was signalled meanwhile."""
        with self._lock:
            ended = self._ended
            self._state = _ENDED if ended else _IDLE
            go = not ended and self._pending and self._claim()
            if go:
                self._pending = False
        if ended:
            self._release()
        elif go:
            self._go()

    # -- scheduling ----------------------------------------------------------------------------------------------------

    def _claim(self) -> bool:
        """Note a wake-up, under the lock; true if the caller has to `_go`."""
        if self._state == _IDLE:
            self._state = _RUNNING if self._inline else _SCHEDULED
            return True
        self._pending = True
        # What was scheduled on a loop that has closed never runs. To submit it once more finds that out.
        return self._state == _SCHEDULED and self._loop is not None and self._loop.closed

    def _go(self) -> None:
        if self._inline:
            self._run()
        else:
            self._submit()

    def _submit(self) -> None:
        try:
            self._hand_over()
        except SATURATED:
            self._ask_rescue(self._enter, _Guarded(self))
        except Exception as error:  # noqa: BLE001 - whatever the executor raises must not reach who signalled
            if self._rescue is None:
                self._die(error)
            else:
                self._ask_rescue(partial(self._die, error), INLINE)
        except BaseException:
            self.cancel()
            raise

    def _retry(self) -> None:
        """Submit again, on the rescue's thread; raises only what says that the executor is still full."""
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
        """Notice that an executor threw the run away, as ``shutdown(cancel_futures=True)`` does.

        That holds the executor's lock while it calls this, so the end is told elsewhere.
        """
        error = (
            RuntimeError("the executor was shut down before it ran")
            if future.cancelled()
            else future.exception()
        )
        if isinstance(error, Exception):
            self._ask_rescue(partial(self._die, error), INLINE)

    def _ask_rescue(self, run: Callable[[], None], executor: Executor) -> None:
        try:
            (self._rescue or RETRY).resubmit(run, executor)
        except Exception as error:  # noqa: BLE001 - no thread left to wait on: the subscriber ends, the caller does not
            self._die(error)

    def _die(self, error: Exception) -> None:
        """End a subscription whose executor is closed, on this thread."""
        with self._lock:
            if self._state != _SCHEDULED:
                return
            self._state = _RUNNING
            if not self._halted:
                self._error = error
                self._halted = True
        self._run()

    def _enter(self) -> None:
        """Run a turn, on the executor."""
        with self._lock:
            if self._state != _SCHEDULED:
                return
            self._state = _RUNNING
        self._run()

    def _run(self) -> None:
        """Run a turn and schedule the next if there is to be one. The caller holds the flag."""
        context = self._context
        assert context is not None
        try:
            again = context.run(self._turn)
        except BaseException:
            # KeyboardInterrupt and SystemExit pass, after cancelling.
            self._abandon()
            raise
        finally:
            del context
        if again:
            self._submit()

    # -- delivering: from here on the caller holds the flag ------------------------------------------------------------

    def _turn(self) -> bool:
        """Deliver until there is nothing to do (false) or the turn is used up (true: schedule the next)."""
        if not self._greeted:
            self._greeted = True
            self._guard(partial(self._subscriber.on_subscribe, self._subscription), self._subscriber)
        left = self._turn_items
        idle = False
        while True:
            with self._lock:
                if self._taken:
                    self._demand = subtract(self._demand, self._taken)
                    self._taken = 0
                demand = self._demand
                if idle and not self._pending:
                    self._state = _IDLE
                    return False
                if left <= 0 and demand:
                    self._state = _SCHEDULED
                    return True
                self._pending = False
            if self._tells:
                self._tell_all()
            if self._halted:
                self._finish(None)
                return False
            if demand and (taken := self._deliver(min(demand, left))):
                if not self._inline:
                    left = 0 if self._batches else left - taken
                idle = False
                continue
            outcome = self._outcome()
            if outcome is not None:
                self._finish(outcome)
                return False
            idle = True

    def _deliver(self, limit: int) -> int:
        """Pull and deliver once; how many were pulled."""
        items = self._pull(limit)
        taken = len(items)
        if not taken:
            return 0
        if self._tells:
            self._tell_all()
        self._taken = taken
        if self._batches:
            self._deliver_batch(items)
            return taken
        on_next = self._subscriber.on_next
        try:
            for item in items:
                if self._halted:
                    break
                if item is None:
                    self.fail(_none_is_no_element())
                    break
                on_next(item)
        except Exception as error:  # noqa: BLE001 - rule 2.13: a raising subscriber harms nobody but itself
            self._drop(error, self._subscriber)
        except asyncio.CancelledError:
            self.cancel()
        finally:
            # A traceback that somebody keeps must not keep the subscriber through this frame (rule 3.13).
            items = ()
            item = on_next = None  # type: ignore[assignment]  # forgotten
        return taken

    def _deliver_batch(self, items: Sequence[T]) -> None:
        bad = type(items) in _PLAIN and any(item is None for item in items)
        if bad:
            items = tuple(takewhile(lambda item: item is not None, items))
        if items and not self._halted:
            subscriber = cast("BatchSubscriber[T]", self._subscriber)
            self._guard(partial(subscriber.on_next_batch, items), subscriber)
            del subscriber
        if bad:
            self.fail(_none_is_no_element())

    def _pull(self, limit: int) -> Sequence[T]:
        try:
            items = self._feed.pull(limit)
            # What is iterated below must not run the feed's code, lest its errors be taken for the subscriber's.
            return items if self._batches or type(items) in _PLAIN else tuple(items)
        except Exception as error:  # noqa: BLE001 - rule 1.4
            self.fail(error)
        except asyncio.CancelledError:
            self.cancel()
        return ()

    def _outcome(self) -> Outcome | None:
        try:
            return self._feed.outcome()
        except Exception as error:  # noqa: BLE001 - rule 1.4
            return Failed(error)
        except asyncio.CancelledError:
            self.cancel()
            return None

    def _tell_all(self) -> None:
        with self._lock:
            tells, self._tells = self._tells, {}
        while tells and not self._ended:
            key = next(iter(tells))
            self._guard(partial(tells.pop(key), self._subscriber), self._subscriber)

    def _finish(self, outcome: Outcome | None) -> None:
        """Give the terminal signal, unless cancelled; everything is let go of before it (rules 1.6, 2.4, 3.13)."""
        with self._lock:
            silent = self._ended
            error = self._error
            self._ended = self._halted = True
            self._state = _ENDED
        if error is None and isinstance(outcome, Failed):
            error = outcome.error
        subscriber = self._subscriber
        self._release()
        if not silent:
            self._guard(
                subscriber.on_complete if error is None else partial(subscriber.on_error, error), subscriber
            )
        del subscriber, error, outcome

    def _guard(self, call: Callable[[], object], subscriber: object) -> None:
        """Give one signal; what the subscriber raises ends its subscription and goes no further (rule 2.13)."""
        try:
            call()
        except Exception as error:  # noqa: BLE001 - rule 2.13
            self._drop(error, subscriber)
        except asyncio.CancelledError:
            self.cancel()
        finally:
            del call, subscriber

    def _drop(self, error: Exception, subscriber: object) -> None:
        with self._lock:
            self._ended = self._halted = True
        hooks.report(error, subscriber)
        del subscriber

    def _abandon(self) -> None:
        with self._lock:
            self._ended = self._halted = True
            self._state = _ENDED
        self._release()

    def _release(self) -> None:
        """Drop every reference. Only for who has just ended a drain without a holder, or holds the flag: so once."""
        feed, subscriber = self._feed, self._subscriber
        self._feed = self._subscriber = self._subscription = _GONE
        self._context = self._error = None
        self._tells = {}
        try:
            feed.release()
        except Exception as error:  # noqa: BLE001 - the end was decided, and nobody can be told any more
            hooks.report(error, subscriber)
        finally:
            del feed, subscriber


class _Guarded:
    """The executor of a drain, for its rescue: full is told, closed ends the drain."""

    __slots__ = ("_drain",)

    def __init__(self, drain: Drain[Any]) -> None:
        self._drain = drain

    def submit(self, run: Callable[[], None], /) -> None:
        self._drain._retry()  # noqa: SLF001 - one mechanism in two classes


def _none_is_no_element() -> TypeError:
    return TypeError("rule 2.13: None is not an element")
