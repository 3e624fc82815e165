"""The one delivery engine: whatever is signalled to a subscriber is signalled by a `Drain`.

A drain stands between a `Feed`, from which it pulls, and a subscriber, to which it delivers. Any thread may say that
there may be something (`Drain.signal`), any thread may request or cancel; one thread at a time holds the drain's flag
and delivers. So signals are serial (rule 1.3), `Drain.request` never calls ``on_next`` while a turn runs (rule 3.3),
and neither subscriber nor feed is ever called under a lock.

A wake-up cannot be lost: the flag is given back in the same critical section that finds no wake-up pending.
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
    """Delivers to one subscriber what a feed has, as much as was requested; it is the subscriber's `Subscription`.

    Errors overtake what is buffered, completion does not. Until `start`, everything is recorded and nothing runs.

    Args:
        subscriber: If it has ``on_next_batch``, it gets what one pull brought in one call. A list or tuple is searched
            for ``None`` first; other sequences vouch for themselves.
        feed: Released exactly once, when the subscription has ended in whatever way.
        executor: Where all signals run; ``None`` is `flow.INLINE`. On any other than that, a turn delivers at most
            ``turn`` elements, or one batch, and is then submitted again. An executor that is closed ends this
            subscription with what it raised.
        rescue: Takes wake-ups that a full executor refused. The one given also delivers the end to the subscriber of a
            closed executor; without one that is done by the thread that found it closed.
        turn: Most elements that one pull is asked for.

    Attributes:
        batches: Whether the subscriber takes batches.
        mark: What `deliver` came with when all of that was delivered last; whoever holds the flag may set it.
        given: Elements that the subscriber was given.

    Raises:
        TypeError: If the subscriber is ``None`` or lacks a method, or the executor is none.
    """

    __slots__ = (
        "_discarded",
        "_feed",
        "_requested",
        "_subscriber",
        "_tells",
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
        self.batches = callable(getattr(subscriber, "on_next_batch", None))
        self._feed: Feed[T] = feed
        self._tells: dict[Hashable, Callable[[Any], object]] | None = None  # most are told elements only
        self._requested = 0  # in all, changed under the lock; it only rises
        self.given = 0  # of these, changed by the holder of the flag
        self._discarded = False
        self.mark: Any = None

    @property
    def demand(self) -> int:
        """Elements requested and not yet given to the subscriber."""
        requested = self._requested
        return requested - self.given if requested < UNBOUNDED else UNBOUNDED

    def start(self, subscription: Subscription | None = None) -> None:
        """Give ``on_subscribe``, then deliver what there is; both on the executor. Once; later calls have no effect.

        The caller's context variables are copied now, and all signals see them.

        Args:
            subscription: What ``on_subscribe`` receives instead of the drain itself.
        """
        with self._lock:
            if self._state != NEW:
                return
            self._context = contextvars.copy_context()
            self._state = IDLE
            first = methodcaller("on_subscribe", self if subscription is None else subscription)
            self._tells = {Subscription: first, **(self._tells or {})}
        self.signal()

    def request(self, n: int, /) -> None:
        """Add to the demand (rules 3.8, 3.17); what is not a positive integer ends in ``on_error`` (rule 3.9)."""
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
                    return  # nothing waits for it, and who keeps the flag looks at the demand
                if self._state == RUNNING:
                    self._state = AGAIN
                    return
                go = self._claim()
            if go:
                self._go(go)
        except BaseException:
            self._save(go)
            raise

    def tell(self, key: Hashable, fn: Callable[[Any], object], *, wake: bool = True) -> None:
        """Signal something beside the stream: ``fn(subscriber)``, serially, before the next elements or the end.

        It spends no demand. Of what is told under one key before it is delivered, the last wins: so at most one call for
        each key is kept, and it should tell a state or a total, never a difference. A feed may tell from inside
        `Feed.pull`: it comes before the elements of that pull. Without ``wake`` it waits for a `signal`.
        """
        with self._lock:
            if self._ended:
                return
            tells = self._tells = self._tells or {}
            tells.pop(key, None)
            tells[key] = fn
            wake = wake or self._state == LENT
        if wake:
            self.signal()

    def discard(self) -> None:
        """Drop what was pulled and not delivered yet, for a feed that goes on elsewhere; its demand stays.

        Nothing that is pulled later is delivered either, until the feed calls `resume`.
        """
        self._discarded = True

    def resume(self) -> None:
        """Deliver again what is pulled from now on; to be called in `Feed.pull`."""
        self._discarded = False

    def lend(self, count: int, to: Lender) -> bool:
        """Give the flag to a group that delivers to many at once, if ``count`` elements can be delivered here and now.

        Not before ``on_subscribe``, not while something else is to be told first, not above the demand; then `signal` it
        instead. The group may keep it, and `deliver` again and again what does not exceed the demand, until it gives the
        flag back (`release_hold`): at once when it is asked to, which every wake-up does but a request.
        """
        with self._lock:
            if self._state != IDLE or self.demand < count or self._tells or self._halted or self._discarded:
                return False
            self._state = LENT
            self._lender = to
            return True

    @staticmethod
    def deliver(lent: "Iterator[Drain[T]]", items: Sequence[T], mark: object) -> None:
        """Deliver the same to all that have lent their flags to the caller; what one of them raises ends that one only.

        An interrupt ends the one whose turn it was, and is raised when the others have had theirs.

        Args:
            lent: They; none of them twice.
            items: At most as many as each of them has demand for; no ``None`` among them. A subscriber with
                ``on_next_batch`` gets the sequence itself.
            mark: Kept with each that was given everything: not with one that was cancelled or discarded meanwhile.
        """
        one: Drain[T] | None = None
        hand = Drain._hand
        try:
            for one in lent:
                one._context.run(hand, one, items)  # type: ignore[union-attr]  # noqa: SLF001 - it has one since its start
                if not one._halted and not one._discarded:  # noqa: SLF001 - it is one of us
                    one.mark = mark
                else:
                    one.signal()  # whoever halted or discards it needs its flag, and may have been interrupted before it said so
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
            # The context is left before the flag is: the next holder may be another thread, and enters it too.
            with self._lock:
                if left == _USED_UP and not self._halted:
                    self._state = SCHEDULED
                    return True
                if self._state == RUNNING:
                    self._state = IDLE
                    return False
        return False

    def _step(self, left: int) -> int:
        """Deliver until nothing is left to do; how much is left of the turn, or `_USED_UP`, or `_OVER`."""
        while True:
            if self._tells:
                self._tell_all()
            with self._lock:
                demand = self.demand
                if left <= 0 and demand and not self._halted:
                    return _USED_UP
                self._state = RUNNING
                if self._tells and not self._halted:
                    continue  # told meanwhile: its wake-up is forgotten here
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
            if self._tells:
                self._tell_all()
            before = self.given
            self._hand(items)
            if not self._inline:
                left = 0 if self.batches else left - self.given + before

    def _hand(self, items: Sequence[T]) -> None:
        """Give elements to the subscriber; what it raises ends its subscription and goes no further (rule 2.13)."""
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
            left = item = on_next = None  # type: ignore[assignment]  # forgotten
            if isinstance(error, asyncio.CancelledError):
                self.cancel()
            elif isinstance(error, Exception):
                self._drop(error, self._subscriber)
            else:
                raise

    def _hand_batch(self, subscriber: BatchSubscriber[T], items: Sequence[T]) -> None:
        # A sequence of another kind than these vouches for itself, and need not be searched.
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
                # What is iterated must not run the feed's code, lest its errors be taken for the subscriber's.
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

    def _tell_all(self) -> None:
        with self._lock:
            tells, self._tells = self._tells, None
        while tells and not self._ended:
            key = next(iter(tells))
            self._guard(partial(tells.pop(key), self._subscriber), self._subscriber)

    def _finish(self, outcome: Outcome | None) -> None:
        """Give the terminal signal, unless cancelled; everything is let go of before it (rules 1.6, 2.4, 3.13)."""
        if self._tells:
            self._tell_all()
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
        self.cancel()
        hooks.report(error, subscriber)
        del subscriber

    def _release(self) -> None:
        """Drop every reference. Only for the thread that has just ended a drain without a holder, or holds the flag: so once."""
        feed, subscriber = self._feed, self._subscriber
        self._feed = self._subscriber = GONE
        self._context = self._error = self._tells = None
        try:
            feed.release()
        except Exception as error:  # noqa: BLE001 - the end was decided, and the subscriber is told nothing any more
            hooks.report(error, subscriber)
        except BaseException:
            feed.release()  # an interrupt: what was begun is finished
            raise
        finally:
            del feed, subscriber


def _none_is_no_element() -> TypeError:
    return TypeError("rule 2.13: None is not an element; leave it out, or say nothing by a value of your own")
