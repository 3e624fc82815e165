"""Bridges to and from the observables of ReactiveX.

An observable pushes: it knows no demand. So demand ends where an observable begins (`to_observable`), and elements that an
observable pushes beyond the demand need a policy (`from_observable`), which is `flow.Overflow`.

Importing this module does not need reactivex, calling its functions does: ``pip install 'penstock-cdc[rx]'``.
"""

import importlib.util
import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from flow.bridges.callbacks import CallbackSubscription
from flow.contracts import Publisher, Subscriber
from flow.demand import Tide
from flow.drain.feed import GONE
from flow.executors import AnyExecutor
from flow.misuse import require_functions, require_publisher
from flow.operators.backpressure import Bounded
from flow.overflow import Backlog, Meter, Overflow
from flow.sources import Served, Source

if TYPE_CHECKING:
    import reactivex
    from reactivex import abc

__all__ = ["from_observable", "to_observable"]

T = TypeVar("T")


def to_observable(
    publisher: Publisher[T], *, prefetch: int = 256, low_tide: int | None = None
) -> "reactivex.Observable[T]":
    """Make a publisher an observable; each observer is a subscriber of its own.

    Demand ends here: ``prefetch`` elements are requested at first, and more when calls of the observer's ``on_next``
    have returned. So a slow observer holds the publisher back, and its lag is visible there, for example in
    ``ChangeLog.statistics()``. An operator that returns at once and keeps the element is beyond that bound: the queue of
    ``ops.observe_on`` is unbounded, and so are those of ``delay``, ``zip``, ``concat_map`` and their like. To observe
    on another thread, subscribe to the publisher there instead, or do the work in ``on_next``.

    Subscribing to the observable subscribes to the publisher at once. The first request is made on the scheduler passed to
    ``subscribe``, by default reactivex's current-thread trampoline, so that ``ops.take`` can stop a publisher that delivers
    inside ``request``. Signals come serially, on the threads on which the publisher signals. Disposing cancels, from any
    thread. An observer that raises is cancelled, and its error goes to `flow.hooks.on_dropped_error`; so does an error
    of the stream if the observer has no ``on_error``.

    Args:
        publisher: The publisher to observe.
        prefetch: First request, and the most elements that are ahead of the observer.
        low_tide: How many calls of ``on_next`` must have returned before as many more are requested; ``None`` is 75 %
            of ``prefetch``, 0 requests only when all have.

    Raises:
        ModuleNotFoundError: If reactivex is not installed.
        ValueError: If a parameter is out of its bounds.
    """
    _require("to_observable")
    import reactivex  # noqa: PLC0415 - an extra: nothing else needs it
    from reactivex.disposable import CompositeDisposable, Disposable  # noqa: PLC0415 - as above
    from reactivex.scheduler import CurrentThreadScheduler  # noqa: PLC0415 - as above

    require_publisher("publisher", publisher)
    Tide(prefetch, low_tide)

    def subscribe(
        observer: "abc.ObserverBase[T]", scheduler: "abc.SchedulerBase | None" = None
    ) -> "abc.DisposableBase":
        subscriber = RxSubscriber(
            observer.on_next, observer.on_error, observer.on_completed, Tide(prefetch, low_tide), opened=False
        )
        publisher.subscribe(subscriber)
        # When this runs, every operator downstream holds what it needs to dispose of this subscription.
        opening = (scheduler or CurrentThreadScheduler.singleton()).schedule(subscriber.open)
        return CompositeDisposable(opening, Disposable(subscriber.cancel))

    return reactivex.Observable(subscribe)


class RxSubscriber(CallbackSubscription[T]):
    """The subscriber behind `to_observable`: it requests nothing until it is opened."""

    __slots__ = ()

    def open(self, *_: object) -> None:
        """Begin to request; called once, by a scheduler with arguments of its own."""
        with self._lock:
            self._open = True
            subscription = self._subscription
        if subscription is not None:
            subscription.request(self._tide.prefetch)


def from_observable(
    observable: "reactivex.Observable[T]",
    *,
    overflow: Overflow = Overflow.ERROR,
    capacity: int = 256,
    on_drop: Callable[[T], object] | None = None,
    none: Literal["error", "drop"] = "error",
    scheduler: "abc.SchedulerBase | None" = None,
    meter: Meter | None = None,
) -> Source[T]:
    """Publish the elements that an observable pushes. Cold: each subscriber subscribes to the observable anew.

    Elements that the subscriber has not requested, or its executor has not delivered, wait; ``overflow`` applies to an element
    beyond the capacity. An error overtakes waiting elements, completion does not. The end of the subscription, whatever its
    cause, disposes of the subscription to the observable.

    An observable that pushes inside its ``subscribe`` does so inside that of this publisher, unless ``scheduler`` says
    otherwise. The subscriber can cancel even an infinite one. The only exceptions, as everywhere in reactivex, are sources
    that never check whether they were disposed of, and to which this publisher does not subscribe directly.

    Args:
        observable: The observable to subscribe to.
        overflow: The policy for an element beyond the capacity. ERROR ends the stream with `Overflowed`, a
            `flow.Lagged`. BUFFER has no bound.
        capacity: Most elements that wait, at least 1; without effect for LATEST, which keeps 1, and for BUFFER.
        on_drop: Called with each element that DROP_OLDEST, DROP_LATEST or LATEST discards, on the pushing thread; if
            it raises, the stream ends with that error. It is not called for elements that wait when the subscription ends.
        none: The policy for ``None``, which is not an element: "error" ends the stream with ``TypeError``, "drop" skips it.
        scheduler: Passed to ``observable.subscribe``: the default scheduler of its sources.
        meter: Counts arriving, waiting and discarded elements, for all subscribers.

    Raises:
        ModuleNotFoundError: If reactivex is not installed.
        TypeError: If ``observable`` is not an observable.
        ValueError: If a parameter is out of its bounds.
    """
    _require("from_observable")
    import reactivex  # noqa: PLC0415 - an extra: nothing else needs it

    if not isinstance(observable, reactivex.Observable):
        raise TypeError(f"observable: {observable!r}; a reactivex.Observable is expected")
    if none not in ("error", "drop"):
        raise ValueError(f"none: {none!r}; 'error' or 'drop' is expected")
    backlog = partial(Backlog[T], overflow, capacity, meter)
    backlog()  # checks the arguments now, not at the first subscriber
    require_functions(on_drop=on_drop, optional=True)

    def serve(subscriber: Subscriber[T], executor: AnyExecutor | None) -> None:
        pushing = _Pushing(observable, scheduler, skips_none=none == "drop")
        Bounded(pushing, backlog(), on_drop).serve(subscriber, executor)

    return Served(serve)


class _Unwind(BaseException):
    """Leaves a source that pushes in a loop and checks nothing; ``except Exception`` does not catch it."""


class _Pushing:
    """The publisher of one inlet, with unlimited requests; also its subscription, and the observer of the observable."""

    __slots__ = (
        "_closed",
        "_disposable",
        "_inlet",
        "_lock",
        "_observable",
        "_scheduler",
        "_skips_none",
        "_stop",
        "_subscribing",
    )

    def __init__(
        self,
        observable: "reactivex.Observable[Any]",
        scheduler: "abc.SchedulerBase | None",
        *,
        skips_none: bool,
    ) -> None:
        from reactivex.subject import Subject  # noqa: PLC0415 - an extra, and from_observable has found it

        self._observable = observable
        self._scheduler = scheduler
        self._skips_none = skips_none
        self._lock = threading.Lock()
        self._inlet: Any = GONE
        self._closed = False  # no further signal is passed on
        self._subscribing = 0  # id of the thread inside the observable's subscribe
        # The result of subscribe comes too late for a source that pushes inside it; this exists before.
        self._stop: Subject[None] = Subject()
        self._disposable: abc.DisposableBase | None = None

    def subscribe(self, inlet: Any, /) -> None:
        """Subscribe to the observable, whose signals may come before this returns."""
        from reactivex import operators  # noqa: PLC0415 - an extra, and from_observable has found it

        self._inlet = inlet
        inlet.on_subscribe(self)
        self._subscribing = threading.get_ident()
        try:
            disposable = self._observable.pipe(operators.take_until(self._stop)).subscribe(
                self.on_next, self.on_error, self.on_completed, scheduler=self._scheduler
            )
        except _Unwind:
            return
        except Exception as error:  # noqa: BLE001 - rule 1.9: signalled to the subscriber
            inlet.on_error(error)
            return
        except BaseException:
            inlet.close()
            raise
        finally:
            self._subscribing = 0
        with self._lock:
            closed = self._closed
            if not closed:
                self._disposable = disposable
        if closed:
            disposable.dispose()

    # Called by the inlet.

    def request(self, n: int, /) -> None:
        """Do nothing: an observable knows no demand."""

    def cancel(self) -> None:
        """Dispose of the subscription."""
        with self._lock:
            self._closed = True
            self._inlet = GONE
            disposable, self._disposable = self._disposable, None
        self._stop.on_next(None)
        if disposable is not None:
            disposable.dispose()

    # Called by the observable.

    def on_next(self, item: Any) -> None:
        """Pass on one element."""
        if self._closed:
            # take_until has no effect until its source's subscribe has returned, and a plain loop never returns.
            if self._subscribing == threading.get_ident():
                raise _Unwind
        elif item is not None:
            self._inlet.on_next(item)
        elif not self._skips_none:
            self._fail(TypeError("rule 2.13: None is not an element; none='drop' skips it"))

    def on_error(self, error: object) -> None:
        """End, before the waiting elements."""
        if isinstance(error, Exception):
            self._fail(error)
        else:
            # reactivex passes errors on unchanged: for a cancelled future, a CancelledError.
            self._fail(RuntimeError(f"the observable failed with {error!r}, which is no Exception"))

    def on_completed(self) -> None:
        """End, after the waiting elements."""
        self._inlet.on_complete()

    def _fail(self, error: Exception) -> None:
        self._inlet.on_error(error)
        # The subscriber's executor may be busy; do not wait for it to stop the source.
        self.cancel()


def _require(name: str) -> None:
    if importlib.util.find_spec("reactivex") is None:
        raise ModuleNotFoundError(
            f"flow.{name} needs reactivex: pip install 'penstock-cdc[rx]'", name="reactivex"
        )
