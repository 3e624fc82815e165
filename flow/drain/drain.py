"""The delivery engine: every signal to a subscriber goes through a `Drain`.

A drain pulls from a `Feed` and delivers to a subscriber. Any thread may wake it (`Drain.signal`), request or cancel; one
thread at a time holds the drain's flag and delivers. So signals are serial (rule 1.3), `Drain.request` never calls
``on_next`` while a turn runs (rule 3.3), and neither subscriber nor feed is ever called under a lock.

No wake-up is lost: the flag is released in the same critical section that finds no wake-up pending.
"""

import asyncio
import contextvars
from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import partial
from itertools import takewhile
from operator import length_hint, methodcaller
from typing import Any, Final, Generic, TypeVar, cast

from flow import hooks
from flow.contracts import UNBOUNDED, BatchSubscriber, Subscriber, Subscription
from flow.demand import refusal
from flow.drain.feed import GONE, Failed, Feed, Outcome
from flow.drain.strand import AGAIN, ENDED, IDLE, LENT, NEW, RUNNING, SCHEDULED, Lender, Strand
from flow.executors import AnyExecutor, Rescue
from flow.misuse import require_subscriber

__all__ = ["Drain"]

T = TypeVar("T")
_PLAIN: Final = (list, tuple)
_OVER: Final = -1
_USED_UP: Final = -2


class Drain(Strand, Generic[T]):
    """Delivers the elements of a feed to one subscriber, within its demand; it is the subscriber's `Subscription`.

    Errors overtake buffered elements, completion does not. Until `start`, signals are recorded and nothing runs.

    Args:
        subscriber: If it has ``on_next_batch``, it receives the elements of one pull in one call. A list or tuple is
            searched for ``None`` first; any other type of sequence is trusted to hold no ``None``.
        feed: The source of elements; released exactly once, however the subscription ends.
        executor: Runs all signals; ``None`` is `flow.INLINE`. On any other executor a turn delivers at most ``turn``
            elements, or one batch, and is then submitted again. A closed executor ends the subscription with the error
            that it raised.
        rescue: Resubmits wake-ups that a full executor refused. If given, it also delivers the end to the subscriber of
            a closed executor; if not, the thread that found the executor closed does.
        turn: Most elements of one pull; at least 1.

    Attributes:
        batches: Whether the subscriber has ``on_next_batch``.
        mark: The ``mark`` of the last `deliver` that delivered all its elements; the holder of the flag may set it.
        given: The number of elements delivered to the subscriber.

    Raises:
        TypeError: If the subscriber is ``None`` or lacks a method, or the executor is no executor.
        ValueError: If ``turn`` is below 1.
    """

    __slots__ = (
        "_discarded",
        "_feed",
        "_pending_calls",
        "_requested",
        "_subscriber",
        "_turn_items",
        "batches",
        "given",
        "mark",
    )

    def __init__(
        self,
        subscriber: Subscriber[T],
        feed: Feed[T],
        *,
        executor: AnyExecutor | None = None,
        rescue: Rescue | None = None,
        turn: int = 256,
    ) -> None:
        require_subscriber(subscriber)
        if turn < 1:
            raise ValueError(f"turn: {turn!r}; an integer of at least 1 is expected")
        super().__init__(executor, rescue)
        self._turn_items = turn
        self._subscriber: Subscriber[T] = subscriber
        self.batches: bool = callable(getattr(subscriber, "on_next_batch", None))
        self._feed: Feed[T] = feed
        self._pending_calls: dict[Hashable, Callable[[Any], object]] | None = (
            None  # most subscribers need none
        )
        self._requested = 0  # the total, which only rises; changed under the lock
        self.given: int = 0  # changed by the holder of the flag
        self._discarded = False
        self.mark: Any = None

    @property
    def demand(self) -> int:
        """The number of elements requested and not yet delivered."""
        requested = self._requested
        return requested - self.given if requested < UNBOUNDED else UNBOUNDED

    def start(self, subscription: Subscription | None = None) -> None:
        """Signal ``on_subscribe``, then deliver; both on the executor. Later calls have no effect.

        The caller's context variables are copied now, and all signals see the copy.

        Args:
            subscription: Passed to ``on_subscribe`` instead of the drain itself.
        """
        go = 0
        try:
            with self._lock:
                if self._state != NEW:
                    return
                self._context = contextvars.copy_context()
                self._state = IDLE
                first = methodcaller("on_subscribe", self if subscription is None else subscription)
                self._pending_calls = {Subscription: first, **(self._pending_calls or {})}
                go = (
                    self._claim()
                )  # before any other thread can hold the flag: INLINE, this returns behind ``on_subscribe``
            self._go(go)
        except BaseException:
            self._save(go)
            raise

    def request(self, n: int, /) -> None:
        """Add to the demand (rules 3.8, 3.17); anything but a positive integer ends in ``on_error`` (rule 3.9)."""
        error = None if type(n) is int and n > 0 else refusal(n)
        if error is not None:
            self.fail(error)
            return
        go = 0
        try:
            with self._lock:
                if self._halted:
                    return
                self._requested = min(UNBOUNDED, self._requested + n)
                if self._state == LENT:
                    return  # nothing waits for demand, and the group that holds the flag reads it
                if self._state == RUNNING:
                    self._state = AGAIN
                    return
                go = self._claim()
            if go:
                self._go(go)
        except BaseException:
            self._save(go)
            raise

    def notify(self, key: Hashable, fn: Callable[[Any], object], *, wake: bool = True) -> None:
        """Call ``fn(subscriber)`` beside the stream: serially, before the next elements or the end; it spends no demand.

        A later call under the same key replaces one that was not delivered yet. So at most one call per key is kept, and
        ``fn`` should report a state or a total, never a difference. A feed may call this inside `Feed.pull`; then ``fn`` is
        called before the elements of that pull.

        Args:
            key: Names the call.
            fn: Receives the subscriber.
            wake: Whether to wake the drain; if not, ``fn`` waits for a `signal`.
        """
        with self._lock:
            if self._ended:
                return
            calls = self._pending_calls = self._pending_calls or {}
            calls.pop(key, None)
            calls[key] = fn
            wake = wake or self._state == LENT
        if wake:
            self.signal()

    def discard(self) -> None:
        """Drop elements that were pulled and not delivered yet, for a feed that seeks; their demand stays.

        Elements that are pulled later are dropped too, until the feed calls `resume`.
        """
        self._discarded = True

    def resume(self) -> None:
        """Deliver elements that are pulled from now on; to be called in `Feed.pull`."""
        self._discarded = False

    def lend(self, count: int, to: Lender) -> bool:
        """Lend the flag to a group that delivers to many drains at once, if ``count`` elements can be delivered now.

        It is refused before ``on_subscribe``, while a call of `notify` is pending, and if ``count`` exceeds the demand; then
        `signal` the drain instead. The group may keep the flag and call `deliver` repeatedly within the demand, until it
        returns the flag with `release_hold`. Every wake-up except a request recalls the flag; the group then returns it at
        once.

        Args:
            count: Elements to deliver.
            to: The group.

        Returns:
            Whether the flag was lent.
        """
        with self._lock:
            if (
                self._state != IDLE
                or self.demand < count
                or self._pending_calls
                or self._halted
                or self._discarded
            ):
                return False
            self._state = LENT
            self._lender = to
            return True

    @staticmethod
    def deliver(lent: "Iterator[Drain[T]]", items: Sequence[T], mark: object) -> None:
        """Deliver the same elements to all drains that have lent their flags to the caller.

        A subscriber that raises ends its own subscription only. An interrupt ends the subscription that it hit, and is raised
        after the elements were delivered to the others.

        Args:
            lent: The drains, each once.
            items: The elements, at most as many as the demand of each drain; no ``None`` among them. A subscriber with
                ``on_next_batch`` receives this very sequence.
            mark: Becomes `mark` of each drain that delivered all elements: not of one that was cancelled or discarded meanwhile.
        """
        one: Drain[T] | None = None
        hand = Drain._hand
        try:
            for one in lent:
                one._context.run(hand, one, items)  # type: ignore[union-attr]  # noqa: SLF001 - it has one since its start
                if not one._halted and not one._discarded:  # noqa: SLF001 - it is one of us
                    one.mark = mark
                else:
                    one.signal()  # the thread that halted it needs the flag, and may have been interrupted before its own signal
        except BaseException:
            if one is not None and one.mark is not mark:
                one.cancel()
            Drain.deliver(lent, items, mark)
            raise
        finally:
            del one, items

    # From here on the caller holds the flag.
    def _turn(self, context: contextvars.Context) -> bool:
        left = self._turn_items
        while left != _OVER:
            left = context.run(self._step, left)
            # The context is left before the flag is released: the next holder may be another thread, and enters it too.
            with self._lock:
                if left == _USED_UP and not self._halted:
                    self._state = SCHEDULED
                    return True
                if self._state == RUNNING:
                    self._state = IDLE
                    return False
        return False

    def _step(self, left: int) -> int:
        """Deliver until nothing is left to do; the number of elements left of the turn, or `_USED_UP`, or `_OVER`."""
        while True:
            if self._pending_calls:
                self._run_calls()
            with self._lock:
                demand = self.demand
                if left <= 0 and demand and not self._halted:
                    return _USED_UP
                self._state = RUNNING
                if self._pending_calls and not self._halted:
                    continue  # `tell` was called meanwhile, and RUNNING has just erased its wake-up
            if self._halted:
                self._finish(None)
                return _OVER
            items = self._pull(min(demand, left)) if demand else None
            if items is None:
                outcome = self._outcome()
                if outcome is None:
                    return max(left, 0)
                self._finish(outcome)
                return _OVER
            if self._pending_calls:
                self._run_calls()
            before = self.given
            self._hand(items)
            if not self._inline:
                left = 0 if self.batches else left - self.given + before

    def _hand(self, items: Sequence[T]) -> None:
        """Deliver elements; an exception of the subscriber ends its subscription and is not raised here (rule 2.13)."""
        self.given += len(items)
        left: Iterator[T] | None = None
        try:
            if self.batches:
                if self._discarded:
                    self.given -= len(items)
                else:
                    self._hand_batch(cast("BatchSubscriber[T]", self._subscriber), items)
                return
            on_next = self._subscriber.on_next
            left = iter(items)
            for item in left:
                if self._halted:
                    break
                if self._discarded:
                    self.given -= 1 + length_hint(left)
                    break
                if item is None:
                    self.fail(_none_is_no_element())
                    break
                on_next(item)
        except BaseException as error:
            # A traceback that is kept must not keep the subscriber through this frame (rule 3.13).
            items = ()
            left = item = on_next = None  # type: ignore[assignment]  # drops the references
            if isinstance(error, asyncio.CancelledError):
                self.cancel()
            elif isinstance(error, Exception):
                self._drop(error, self._subscriber)
            else:
                raise

    def _hand_batch(self, subscriber: BatchSubscriber[T], items: Sequence[T]) -> None:
        # Sequences of other types are trusted to hold no None.
        bad = type(items) in _PLAIN and any(item is None for item in items)
        if bad:
            items = tuple(takewhile(lambda item: item is not None, items))
        try:
            if items and not self._halted:
                subscriber.on_next_batch(items)
            if bad:
                self.fail(_none_is_no_element())
        finally:
            del subscriber, items

    def _pull(self, limit: int) -> Sequence[T] | None:
        try:
            items = self._feed.pull(limit)
            taken = len(items)
            if taken > limit:
                raise RuntimeError(f"rule 1.1: the feed gave {taken} elements, but {limit} were asked for")
            if taken:
                # Iterating a custom sequence would run the feed's code, and its errors would look like the subscriber's.
                return items if self.batches or type(items) in _PLAIN else tuple(items)
        except Exception as error:  # noqa: BLE001 - rule 1.4
            self.fail(error)
        except asyncio.CancelledError:
            self.cancel()
        return None

    def _outcome(self) -> Outcome | None:
        try:
            return self._feed.outcome()
        except Exception as error:  # noqa: BLE001 - rule 1.4
            return Failed(error)
        except asyncio.CancelledError:
            self.cancel()
            return None

    def _run_calls(self) -> None:
        with self._lock:
            calls, self._pending_calls = self._pending_calls, None
        while calls and not self._ended:
            key = next(iter(calls))
            self._guard(partial(calls.pop(key), self._subscriber), self._subscriber)

    def _finish(self, outcome: Outcome | None) -> None:
        """Signal the end, unless cancelled, after dropping every reference (rules 1.6, 2.4, 3.13)."""
        if self._pending_calls:
            self._run_calls()
        with self._lock:
            silent = self._ended
            error = self._error
            self._ended = self._halted = True
            self._state = ENDED
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
        """Call for one signal; an exception of the subscriber ends its subscription and is not raised here (rule 2.13)."""
        try:
            call()
        except Exception as error:  # noqa: BLE001 - rule 2.13
            self._drop(error, subscriber)
        except asyncio.CancelledError:
            self.cancel()
        finally:
            del call, subscriber

    def _drop(self, error: Exception, subscriber: object) -> None:
        self.cancel()
        hooks.report(error, subscriber)
        del subscriber

    def _release(self) -> None:
        """Drop every reference. Only the thread that ended a drain without a holder, or the holder, calls this: so once."""
        feed, subscriber = self._feed, self._subscriber
        self._feed = self._subscriber = GONE
        self._context = self._error = self._pending_calls = None
        try:
            feed.release()
        except Exception as error:  # noqa: BLE001 - the subscription has ended, and the subscriber gets no further signal
            hooks.report(error, subscriber)
        except BaseException:
            feed.release()  # an interrupt came in between: finish the release
            raise
        finally:
            del feed, subscriber


def _none_is_no_element() -> TypeError:
    return TypeError("rule 2.13: None is not an element; leave it out, or say nothing by a value of your own")
