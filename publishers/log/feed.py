"""Feeds: the publishers to which a log's subscribers subscribe."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Protocol, TypedDict, TypeVar, Unpack
from weakref import WeakSet

from flow.bridges.iterators import IterablePublisher
from flow.contracts import Subscriber, Subscription
from flow.executors import AnyExecutor, running_loop
from flow.misuse import require_subscriber
from flow.sources import error as failing
from publishers.criteria.criteria import Criteria
from publishers.criteria.index import Prepared
from publishers.errors import BodyMismatch, InvalidOption, LogClosed, PenstockError, PositionAhead
from publishers.fanout.gap import OnGap, require_on_gap
from publishers.fanout.service import Service
from publishers.fanout.shared_publisher import SharedPublisher
from publishers.fanout.state import MaxLag
from publishers.fanout.subscription import ChangeSubscription
from publishers.model.change import Change
from publishers.model.position import Position, Start
from publishers.options import check_switches, check_whole
from publishers.views.view import View

__all__ = ["ChangeFeed", "Ending", "ModelFeed", "Serving", "checked_serving", "refuse"]

C = TypeVar("C", bound=Change)


class Ending(Protocol):
    """A subscription, as its feed closes it."""

    @property
    def ended(self) -> bool:
        """Whether no signal will follow."""
        ...

    def close(self) -> None:
        """Ends the subscription as if the log were closed."""
        ...


@dataclass(eq=False, repr=False)
class ChangeFeed(IterablePublisher[Change]):
    """A publisher of the changes that match some criteria (Reactive Streams 1.0.4); ``for`` and ``async for`` accept it too.

    A feed is cold: nothing happens before ``subscribe``. Any number of subscribers may subscribe, each with its own cursor.
    All feeds of a log with equal criteria share one ring. A feed may be discarded while its subscriptions run.

    Attributes:
        criteria: Select the changes.
        since: The first position to deliver, or a name that is resolved at subscribe time.
        until: The last version to deliver, after which the subscriber is completed, or None.
        view: How the changes are rendered.
        on_gap: What happens if history is deleted before a subscriber has read it.
        kind: Makes a subscription.
    """

    _service: Service
    criteria: Criteria
    since: Position | Start
    until: int | None
    view: View
    on_gap: OnGap
    _check: Callable[[], None]
    kind: Callable[..., ChangeSubscription] = ChangeSubscription
    _closed: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _prepared: Prepared | None = None
    _subscriptions: WeakSet[Ending] = field(default_factory=WeakSet)

    def __repr__(self) -> str:
        end = "" if self.until is None else f" until {self.until}"
        return f"<ChangeFeed of {self._service.log_name} since {self.since}{end}>"

    def subscribe(
        self,
        subscriber: Subscriber[Change],
        /,
        *,
        executor: AnyExecutor | None = None,
        max_lag: MaxLag | None = None,
        batch_events: int | None = None,
        batch_bytes: int | None = None,
        name: str | None = None,
        whole_batches: bool = False,
    ) -> None:
        """Calls ``on_subscribe`` with a subscription; if there can be none, ``on_error`` follows at once.

        Args:
            subscriber: Receives the signals. If it has a method ``on_next_batch``, it receives whole batches instead of changes.
                If it has ``on_state``, that is called at each switch between LIVE and RESYNC.
            executor: Runs the signals: an executor, an event loop, or ``flow.INLINE`` (on the committing or requesting thread,
                which couples the writer to the subscriber). None: the running event loop if there is one, else the log's small
                pool.
            max_lag: Makes the subscriber gate, whatever its criteria: writers of every entity type that ask for admission wait
                while it lags by more changes than this, or its oldest change was committed longer ago than this ``timedelta``.
            batch_events: Most changes that one poll pulls for it, by default the log's ``batch_events``.
            batch_bytes: Most bytes that one poll pulls for it, by default the log's ``batch_bytes``.
            name: Its name in errors and statistics.
            whole_batches: Whether a batch ends at the end of a transaction, unless that alone exceeds the bounds of a batch, or
                the demand.

        Raises:
            TypeError: If the subscriber is None or lacks a method (Reactive Streams §1.9), or lacks ``on_gap`` in a feed that
                jumps over gaps.
            InvalidOption: If a bound is out of its range.
        """
        options = self._service.options
        checked_serving(
            subscriber,
            max_lag=max_lag,
            batch_events=batch_events,
            batch_bytes=batch_bytes,
            name=name,
            whole_batches=whole_batches,
        )
        require_on_gap(self.on_gap, subscriber)
        where = executor if executor is not None else running_loop()

        def make(shared: SharedPublisher) -> ChangeSubscription:
            return self.kind(
                self._service,
                shared,
                subscriber,
                start=self._start(),
                until=self.until,
                view=self.view,
                executor=self._service.pool if where is None else where,
                batch_events=batch_events or options.batch_events,
                batch_bytes=batch_bytes or options.batch_bytes,
                max_lag=max_lag,
                name=name or type(subscriber).__name__,
                whole_batches=whole_batches,
                on_gap=self.on_gap,
            )

        try:
            self._admit()
            with self._lock:
                prepared, self._prepared = self._prepared, None
            subscription = self._service.registry.add(self.criteria, make, prepared)
        except PenstockError as error:
            refuse(subscriber, error, where)
            return
        with self._lock:
            self._subscriptions.add(subscription)
        # Register first, then compare with the oldest position: retention cannot delete in between.
        subscription.begin(self._service.oldest, silently=self.since is Start.EARLIEST)
        subscription.start()
        # A close of the log or of this feed may have missed a subscription registered meanwhile.
        if self._service.closed:
            subscription.wake()
        if self._closed.is_set():
            subscription.close()

    def prepare(self) -> None:
        """Prepares the next ``subscribe``: does the work proportional to the criteria here, off the caller's event loop."""
        registry = self._service.registry
        prepared = None if registry.knows(self.criteria) else registry.prepare(self.criteria)
        with self._lock:
            self._prepared = prepared

    def _admit(self) -> None:
        if self._closed.is_set():
            raise LogClosed
        self._check()
        if isinstance(self.since, Position) and self.since > (head := self._service.head):
            raise PositionAhead(head)

    def _start(self) -> Position:
        if self.since is Start.LATEST:
            return self._service.head
        return self._service.oldest if isinstance(self.since, Start) else self.since

    def close(self) -> None:
        """Ends the subscriptions of this feed, and no others with the same criteria; later ones are refused. Idempotent.

        Subscribers that have received everything visible are completed, the rest end with ``LogClosed``. In a child of ``fork``
        it does nothing.
        """
        if self._service.inherited is not None:
            return
        self._closed.set()
        with self._lock:
            ending = list(self._subscriptions)
        for subscription in ending:
            if not subscription.ended:
                subscription.close()


class Serving(TypedDict, total=False):
    """The keyword arguments of ``ChangeFeed.subscribe``. A remote feed accepts ``executor`` only."""

    executor: AnyExecutor | None
    max_lag: MaxLag | None
    batch_events: int | None
    batch_bytes: int | None
    name: str | None
    whole_batches: bool


class ModelFeed(IterablePublisher[C]):
    """The changes of a feed, with images as objects of the application's classes: the result of ``changes(as_=...)``.

    An image that does not fit its class ends its subscription with ``BodyMismatch``, after the changes before it; other
    subscriptions continue.

    Attributes:
        feed: The feed of the same changes with images as JSON has them.
    """

    def __init__(self, feed: Any, change: Callable[[Change], C]) -> None:
        self.feed = feed
        self._change = change

    def subscribe(self, subscriber: Subscriber[C], /, **serving: Unpack[Serving]) -> None:
        """Subscribes; arguments, errors and the subscription are those of ``feed``."""
        require_subscriber(subscriber)
        if isinstance(self.feed, ChangeFeed):
            serving.setdefault("name", type(subscriber).__name__)
        batches = callable(getattr(subscriber, "on_next_batch", None))
        self.feed.subscribe((_Batchwise if batches else _Making)(subscriber, self._change), **serving)


class _Making:
    """Converts changes between a feed and a subscriber; all other signals pass through unchanged."""

    def __init__(self, subscriber: Any, make: Callable[[Change], Change]) -> None:
        self._subscriber = subscriber
        self._make = make

    def __getattr__(self, name: str) -> Any:
        return getattr(self._subscriber, name)

    def on_subscribe(self, subscription: Subscription, /) -> None:
        self._subscription: Any = subscription  # from a log or a client; both have ``ended``
        self._subscriber.on_subscribe(subscription)

    def on_next(self, change: Change, /) -> None:
        try:
            made = self._make(change)
        except BodyMismatch as error:
            self._fail(error)
        else:
            self._subscriber.on_next(made)

    def _fail(self, error: BodyMismatch) -> None:
        self._subscription.cancel()  # so that no signal follows the error
        self._subscriber.on_error(error)


class _Batchwise(_Making):
    def on_next_batch(self, changes: Sequence[Change], /) -> None:
        made = []
        failure: BodyMismatch | None = None
        for change in changes:
            try:
                made.append(self._make(change))
            except BodyMismatch as error:
                failure = error
                break
        if made:
            self._subscriber.on_next_batch(made)
        if failure is not None and not self._subscription.ended:
            self._fail(failure)


def checked_serving(subscriber: object, **serving: Unpack[Serving]) -> None:
    """Checks a subscriber and its keyword arguments before anything is registered.

    Raises:
        TypeError: If the subscriber is None or lacks a method (Reactive Streams §1.9).
        InvalidOption: If an argument is out of its range.
    """
    require_subscriber(subscriber)
    check_switches(whole_batches=serving.get("whole_batches", False))
    name, max_lag = serving.get("name"), serving.get("max_lag")
    if name is not None and not isinstance(name, str):
        raise InvalidOption("name", name, "a text, or None")
    if isinstance(max_lag, timedelta):
        if max_lag < timedelta():
            raise InvalidOption("max_lag", max_lag, "a whole number from 0, or a timedelta from 0")
        max_lag = None
    bounds = (
        ("max_lag", max_lag, 0),
        ("batch_events", serving.get("batch_events"), 1),
        ("batch_bytes", serving.get("batch_bytes"), 1),
    )
    for parameter, value, least in bounds:
        if value is not None:
            check_whole(parameter, value, f"a whole number from {least}", least)


def refuse(subscriber: Subscriber[Change], error: PenstockError, where: AnyExecutor | None) -> None:
    """Calls ``on_subscribe`` and then ``on_error``."""
    refusal = failing(error)
    if where is not None:
        refusal.subscribe(subscriber, executor=where)
        return
    # Not on the log's pool, which may be closing. Both signals run in one submitted task.
    aside = ThreadPoolExecutor(1, "penstock-refused")
    refusal.subscribe(subscriber, executor=aside)
    aside.shutdown(wait=False)
