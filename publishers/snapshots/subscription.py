"""A subscription that delivers the rows of snapshots and the changes after them, in turns."""

import itertools
import threading
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

from flow.contracts import UNBOUNDED, Subscriber, Subscription
from flow.demand import add, subtract
from publishers.criteria.criteria import Criteria
from publishers.errors import HistoryPruned, InvalidOption, PenstockError
from publishers.fanout.batch import Batch
from publishers.model.change import Change
from publishers.model.position import Position
from publishers.mutations.arguments import key_bytes
from publishers.snapshots.cursor import SnapshotCursor
from publishers.snapshots.delivery import RowDelivery
from publishers.snapshots.pages import KeyRange

__all__ = ["RowRequest", "SnapshotPlan", "SnapshotSubscription", "checked_refresh"]


class RowRequest(NamedTuple):
    """The rows that a snapshot delivers.

    Attributes:
        only: Further criteria beside those of the subscription; None for none.
        keys: The range of keys, if ``only`` has one entity type.
        asked: The number of the subscriber's request; None without one.
    """

    only: Criteria | None = None
    keys: KeyRange = KeyRange()
    asked: int | None = None


def checked_refresh(*criteria: Any, after: str | None, until: str | None) -> Criteria:
    """Checks the arguments of ``SnapshotSubscription.again``, and returns the criteria.

    Raises:
        InvalidCriteria, InvalidOption: As there.
    """
    only = Criteria.of(*criteria)
    for name, key in (("after", after), ("until", until)):
        if key is not None:
            key_bytes(key, name)
    if after is not None or until is not None:
        types = {name for one in only.criterions for name in one.entity_types}
        if len(types) != 1 or not all(one.entity_types for one in only.criterions):
            raise InvalidOption("criteria", criteria, "of exactly one entity type, where keys are given")
    return only


class SnapshotPlan(Protocol):
    """Makes the deliveries of rows and the subscriptions to changes."""

    def rows(
        self, subscriber: Any, begin: SnapshotCursor | Position | None, request: RowRequest
    ) -> RowDelivery:
        """Delivers rows, and changes from a position on; None for a subscriber without a position.

        Raises:
            SnapshotGone: If changes that follow the place are no longer kept.
        """
        ...

    def changes(self, subscriber: Any, position: Position | None) -> None:
        """Subscribes to the changes from a position on; None for the start of the feed."""
        ...


class SnapshotSubscription:
    """Delivers rows with the changes between them, then changes, and rows again on request or after a gap.

    Args:
        plan: Makes the deliveries and subscriptions.
        name: Its name in errors.
        lasting: Whether changes follow the rows.
        on_gap: Whether rows replace changes that retention has deleted.

    Attributes:
        name: Its name in errors.
    """

    def __init__(self, plan: SnapshotPlan, *, name: str, lasting: bool, on_gap: bool) -> None:
        self.name = name
        self._plan = plan
        self._lasting = lasting
        self._on_gap = on_gap
        self._lock = threading.Lock()
        self._requested = self._given = 0
        self._cancelled = self._closed = self._over = False
        self._known = False  # whether ``on_subscribe`` was called
        self._wishes: deque[RowRequest] = deque()
        self._numbers = itertools.count(1)
        self._asked = False  # whether changes are to be interrupted for rows
        self._rows: RowDelivery | None = None
        self._current: Any = None

    # For the subscriber.

    def request(self, n: int, /) -> None:
        """Requests ``n`` more rows and changes (Reactive Streams §3.8)."""
        with self._lock:
            if type(n) is int and n > 0:
                self._requested = add(self._requested, n)
            current = self._current
        if current is not None:
            current.request(n)

    def cancel(self) -> None:
        """Ends the subscription without a further signal (Reactive Streams §3.12)."""
        with self._lock:
            self._cancelled = True
            current = self._current
        self.forget()
        if current is not None:
            current.cancel()

    def refresh(self, *criteria: Any, after: str | None = None, until: str | None = None) -> int:
        """Requests current rows again, delivered between the changes: to compare or repair the subscriber's data.

        They are delivered between ``SnapshotBegin`` and ``SnapshotEnd``, after earlier requests. Removals are reported by changes only.
        Thread-safe; does not wait.

        Args:
            criteria: Criteria of the rows, in addition to those of the subscription; none for all of its rows.
            after: The key after which they begin, in the order of the source; None for the first.
            until: The last key; None for no bound.

        Returns:
            The number of the request, from 1, which is ``asked`` of its ``SnapshotBegin``. If the subscription has ended, no rows follow.

        Raises:
            InvalidCriteria: If the criteria are invalid.
            InvalidOption: If keys are given without exactly one entity type.
        """
        only = checked_refresh(*criteria, after=after, until=until)
        with self._lock:
            number = next(self._numbers)
            if self._over or self._cancelled:
                return number
            self._wishes.append(RowRequest(only, KeyRange(after, until), number))
            following, asked = self._current, self._asked
            if self._rows is not None or following is None or asked:
                return number  # checked when the current rows end or begin
            self._asked = True
        following.between(self._leave)
        return number

    @property
    def waiting(self) -> int:
        """The number of requests for rows that have not begun."""
        return len(self._wishes)

    @property
    def following(self) -> Any:
        """The subscription to the changes after the rows, a ``ChangeSubscription``; None while rows are delivered."""
        return None if self._rows is not None else self._current

    @property
    def cursor(self) -> SnapshotCursor | None:
        """The position behind the rows that were read, at most one batch ahead of the deliveries; None while changes are delivered."""
        rows = self._rows
        return None if rows is None else rows.reader.cursor

    @property
    def ended(self) -> bool:
        """Whether it has ended."""
        return self._over or self._cancelled

    # For the log.

    def start(
        self, subscriber: Subscriber[Change], begin: SnapshotCursor | Position | None, *, rows: bool
    ) -> None:
        """Calls ``on_subscribe``, and begins.

        Args:
            subscriber: The subscriber.
            begin: Where to go on; None for a new snapshot, or for where the feed begins.
            rows: Whether rows come first.

        Raises:
            SnapshotGone: If changes that follow the place are no longer kept.
        """
        batches = callable(getattr(subscriber, "on_next_batch", None))
        turn = (_BatchTurns if batches else _Turns)(self, subscriber)
        if rows:
            self._begin(turn, begin, RowRequest())
        else:
            self._plan.changes(turn, None)

    def close(self) -> None:
        """Ends the subscription as if the log were closed."""
        with self._lock:
            self._closed = True
            current = self._current
        if current is not None:
            current.close()

    # From one turn to the next, between two signals.

    def _begin(self, turn: Any, begin: SnapshotCursor | Position | None, request: RowRequest) -> None:
        delivery = self._plan.rows(turn, begin, request)
        with self._lock:
            self._rows = delivery
        delivery.start(delivery)

    def _try(self, turn: Any, begin: Position | None, request: RowRequest) -> None:
        try:
            self._begin(turn, begin, request)
        except PenstockError as error:
            turn.fail(error)

    def _leave(self, turn: Any) -> None:
        """Interrupts the changes for rows; between two signals."""
        with self._lock:
            self._asked = False
            if not self._wishes:  # cancelled meanwhile
                return
            request = self._wishes.popleft()
            following, self._current = self._current, None
        place = max(following.position, turn.place) if turn.place is not None else following.position
        following.cancel()
        self._try(turn.next(), place, request)

    def take(self, current: Any, subscriber: Any) -> None:
        """Begins the next turn, and passes the remaining demand to it."""
        with self._lock:
            self._current = current
            leave = self._asked = bool(self._wishes) and self._rows is None
            left = UNBOUNDED if self._requested >= UNBOUNDED else subtract(self._requested, self._given)
            known, self._known = self._known, True
            cancelled, closed, rows = self._cancelled, self._closed, self._rows
        if cancelled:
            current.cancel()
            return
        if rows is None and callable(handler := getattr(subscriber, "on_following", None)):
            handler(current)
        if not known:
            subscriber.on_subscribe(self)
        elif left:
            current.request(left)
        if leave:
            current.between(self._leave)
        if closed:
            current.close()

    def count(self, given: int) -> None:
        """Counts a delivery."""
        with self._lock:
            self._given = add(self._given, given)

    def complete(self, turn: Any, subscriber: Any) -> None:
        """Ends a turn, and begins the next one."""
        with self._lock:
            rows, self._rows, self._current = self._rows, None, None
            request = self._wishes.popleft() if rows is not None and self._wishes else None
        try:
            if rows is None or (request is None and not self._lasting):
                self.forget()
                subscriber.on_complete()
            elif request is not None:
                self._try(turn.next(), rows.reader.position, request)
            else:
                self._plan.changes(turn.next(), rows.reader.position)
        finally:
            if rows is not None:
                rows.let_go()

    def fail(self, turn: Any, subscriber: Any, error: Exception) -> None:
        """Handles the error of a turn."""
        with self._lock:
            rows, self._rows, self._current = self._rows, None, None
        if self._on_gap and rows is None and isinstance(error, HistoryPruned):
            self._try(turn.next(), None, RowRequest())
            return
        self.forget()
        subscriber.on_error(error)

    def forget(self) -> None:
        """Ends the subscription."""
        with self._lock:
            self._over = True
            self._wishes.clear()
            rows = self._rows
        if rows is not None:
            rows.let_go()


class _Turns:
    """Passes the signals of a turn to the subscriber, except the end of the turn."""

    def __init__(self, owner: SnapshotSubscription, subscriber: Any) -> None:
        self._owner = owner
        self._subscriber = subscriber
        self.place: Position | None = None

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._subscriber, name)
        return partial(self._signal, found) if name == "on_snapshot" else found

    def _signal(self, signal: Callable[[Any], object], value: Any) -> None:
        try:
            signal(value)
        except BaseException:
            self._owner.forget()
            raise

    def next(self) -> "_Turns":
        """Returns the object for the next turn."""
        return type(self)(self._owner, self._subscriber)

    def fail(self, error: Exception) -> None:
        """Ends the subscription, because the next turn cannot begin."""
        self._owner.forget()
        self._subscriber.on_error(error)

    def on_subscribe(self, subscription: Subscription, /) -> None:
        self._owner.take(subscription, self._subscriber)

    def on_next(self, change: Change, /) -> None:
        self.place = change.after
        self._owner.count(1)
        self._signal(self._subscriber.on_next, change)

    def on_error(self, error: Exception, /) -> None:
        self._owner.fail(self, self._subscriber, error)

    def on_complete(self) -> None:
        self._owner.complete(self, self._subscriber)


class _BatchTurns(_Turns):
    def on_next_batch(self, changes: Sequence[Change], /) -> None:
        self.place = changes.end if isinstance(changes, Batch) else changes[-1].after
        self._owner.count(len(changes))
        self._signal(self._subscriber.on_next_batch, changes)
