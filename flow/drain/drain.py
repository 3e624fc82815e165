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
from flow.demand import refusal, subtract
from flow.drain.feed import GONE, Failed, Feed, Outcome
from flow.drain.strand import AGAIN, ENDED, IDLE, NEW, RUNNING, SCHEDULED, Strand
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

    Raises:
        TypeError: If the subscriber is ``None`` or lacks a method, or the executor is none.
    """

    __slots__ = (
        "_demand",
        "_discarded",
        "_feed",
        "_lent",
        "_subscriber",
        "_taken",
        "_tells",
        "_turn_items",
        "batches",
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
        self._demand = 0
        self._taken = 0  # pulled, but not yet subtracted from the demand
        self._discarded = False
        self._lent: object = None

    @property
    def demand(self) -> int:
        """Elements requested and not yet pulled for delivery."""
        with self._lock:
            return subtract(self._demand, self._taken)

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
                self._demand = min(UNBOUNDED, self._demand + n)
                if self._state == RUNNING:
                    self._state = AGAIN
                    return
                go = self._claim()
            if go:
                self._go()
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

    def lend(self, count: int, to: object) -> bool:
        """Give the flag to a group that delivers to many at once, if ``count`` elements can be delivered here and now.

        Not before ``on_subscribe``, not while something else is to be told first, not above the demand; then `signal` it
        instead. The group says with `give_back` what it brought, and names itself by the same ``to``.
        """
        with self._lock:
            if self._state != IDLE or self._demand < count or self._tells or self._halted or self._discarded:
                return False
            self._state = RUNNING
            self._lent = to
            return True

    def give_back(self, by: object, items: Sequence[T], settle: Callable[[], None] | None = None) -> None:
        """Deliver what was brought for this drain after `lend`, and have the flag back; else nothing happens.

        Args:
            by: The one that it was lent to; from any other, or once more, it changes nothing.
            items: At most as many as were announced, or none; no ``None`` among them. A subscriber with
                ``on_next_batch`` gets the sequence itself.
            settle: Called before the flag may be taken by others, if everything was delivered: not when it was cancelled or
                discarded meanwhile.
        """
        if self._lent is not by:
            return
        self._lent = None
        context = self._context
        assert context is not None
        try:
            if items:
                context.run(self._hand, items)
            if settle is not None and not self._halted and not self._discarded:
                settle()
            with self._lock:
                self._demand -= self._taken if self._demand < UNBOUNDED else 0
                self._taken = 0
                if self._state == RUNNING and not self._halted:
                    self._state = IDLE
                    return
        except BaseException:
            # KeyboardInterrupt and SystemExit pass, after cancelling.
            self._abandon()
            raise
        finally:
            del context, by, items, settle
        self._run()

    def release_hold(self) -> None:
        """Give the flag back, and run what was signalled meanwhile; what was lent only `give_back` returns."""
        if self._lent is None:
            super().release_hold()

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
                if self._taken:
                    self._demand -= self._taken if self._demand < UNBOUNDED else 0
                    self._taken = 0
                demand = self._demand
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
            taken = self._hand(items)
            if not self._inline:
                left = 0 if self.batches else left - taken

    def _hand(self, items: Sequence[T]) -> int:
        """Give elements to the subscriber; what it raises ends its subscription and goes no further (rule 2.13).

        Returns:
            How many count against the demand: all, but for those that were discarded.
        """
        taken = self._taken = len(items)
        subscriber = self._subscriber
        left: Iterator[T] | tuple[()] = ()
        try:
            if self.batches:
                if self._discarded:
                    taken = self._taken = 0
                else:
                    self._hand_batch(cast("BatchSubscriber[T]", subscriber), items)
                return taken
            on_next = subscriber.on_next
            left = iter(items)
            for item in left:
                if self._halted:
                    break
                if self._discarded:
                    taken = self._taken = taken - 1 - length_hint(left)
                    break
                if item is None:
                    self.fail(_none_is_no_element())
                    break
                on_next(item)
        except Exception as error:  # noqa: BLE001 - rule 2.13: a raising subscriber harms itself only
            self._drop(error, subscriber)
        except asyncio.CancelledError:
            self.cancel()
        finally:
            # A traceback that is kept must not keep the subscriber through this frame (rule 3.13).
            items = left = ()  # forgotten
            subscriber = item = on_next = None  # type: ignore[assignment]  # forgotten
        return taken

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
        with self._lock:
            self._ended = self._halted = True
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
