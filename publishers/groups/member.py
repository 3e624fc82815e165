"""A consumer that has joined a group."""

from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import Self
from weakref import WeakSet

from flow.contracts import Subscriber
from flow.executors import AnyExecutor
from publishers.errors import PenstockError
from publishers.groups.consumers import GroupConsumer
from publishers.groups.delivery import (
    ClaimedDeliveries,
    GroupDelivery,
)
from publishers.groups.machine import GroupMachine
from publishers.groups.served_group import ServedGroup
from publishers.groups.state import DeliveryState
from publishers.groups.subscription import DeliveryFeed, DeliverySubscription
from publishers.model.position import Position, check_position
from publishers.options import check_switches, check_whole

__all__ = ["GroupMember"]

Places = Position | GroupDelivery | Iterable[Position | GroupDelivery]


class GroupMember:
    """A consumer that has joined a group; a context manager that leaves. All methods may be called from any thread.

    Once another consumer has joined under its name, every method raises ``ConsumerFenced`` and changes nothing.

    Args:
        group: The group.
        consumer: The consumer in the group's state.
    """

    def __init__(self, group: ServedGroup, consumer: GroupConsumer) -> None:
        self._group = group
        self._consumer = consumer
        self._subscriptions: WeakSet[DeliverySubscription] = WeakSet()

    @property
    def name(self) -> str:
        """The name of the consumer."""
        return self._consumer.name

    @property
    def generation(self) -> int:
        """The generation of this joining."""
        return self._consumer.generation

    def read(
        self, most: int | None = None, *, history: bool = False, wait: float | None = None
    ) -> list[GroupDelivery]:
        """Reads deliveries: first those due for redelivery, whichever consumer had them, then new ones, each in log order.

        Args:
            most: Most deliveries, from 1; None for ``batch``.
            history: Whether deliveries pending from before this joining of the name come first; they count as no delivery.
            wait: Longest time in seconds to wait for a delivery; None for ``max_wait``.

        Raises:
            ConsumerFenced: See the class.
            GroupPaused: If the breaker has paused the group.
            GroupLost, GroupForked, NoSuchGroup: If the group cannot be used.
            GroupUnwritten: If ``max_deliver`` is set and the counts cannot be written; nothing is delivered.
        """
        settings = self._group.book.record.settings
        most = settings.batch if most is None else most
        check_whole("most", most, "a whole number from 1", 1)
        check_switches(history=history)
        left = settings.max_wait if wait is None else wait
        monotonic = self._group.monotonic
        until = monotonic() + left
        with self._group.listening(self._consumer) as event:
            while True:
                event.clear()
                found = self._group.deliver(self._consumer, most, history=history)
                left = until - monotonic()
                if found or left <= 0:
                    return found
                self._group.wait(event, self._consumer, left)

    def watch(self, notify: Callable[[], object]) -> tuple[float | None, Callable[[], None]]:
        """Calls a function when there may be deliveries to read, for callers that block no thread.

        Args:
            notify: Called on any thread, possibly several times, and possibly without a delivery to read.

        Returns:
            The seconds after which a delivery may be due without a call, None if none will be; and a function that ends the
            watch.
        """
        return self._group.watch(self._consumer, notify)

    def deliveries(self, *, history: bool = False, nbytes: int | None = None) -> DeliveryFeed:
        """The deliveries as a publisher, which also supports ``for`` and ``async for``.

        A subscriber receives as many deliveries as it has requested. If it requests one more after each acknowledgement, it never
        has more pending than it requested first. A loop requests up to 32 ahead; `flow.aiter` and `flow.iter_blocking` take
        another ``prefetch``.

        Args:
            history: As for `read`.
            nbytes: Most bytes of changes in one read, which returns at least one change; None for ``max_bytes``.
        """
        check_switches(history=history)
        if nbytes is not None:
            check_whole("nbytes", nbytes, "a whole number from 1", 1)
        return DeliveryFeed(partial(self._subscribe, history=history, nbytes=nbytes))

    def _subscribe(
        self,
        subscriber: Subscriber[GroupDelivery],
        executor: AnyExecutor | None,
        *,
        history: bool,
        nbytes: int | None,
    ) -> DeliverySubscription:
        subscription = self._group.serve(self._consumer, subscriber, executor, history=history, nbytes=nbytes)
        self._subscriptions.add(subscription)
        subscription.start()
        return subscription

    def give_back(self, deliveries: Iterable[GroupDelivery]) -> None:
        """Returns deliveries that could not be passed on: they are due at once, and count as no delivery.

        Deliveries that belong to another consumer by now are ignored.
        """
        self._group.give_back(self._consumer, list(deliveries))

    def recall(self) -> None:
        """Makes a subscription with ``history`` start with all pending deliveries of this consumer.

        For a client that lost its connection and does not know which deliveries arrived. No other consumer receives them
        meanwhile, and they count as no delivery.
        """
        book = self._group.book
        book.check()
        with book.lock:
            book.machine.recall(self._consumer)

    def has(self, delivery: GroupDelivery) -> bool:
        """Whether a delivery is still pending at this consumer: not done, not due again, not redelivered since."""
        book = self._group.book
        book.check()
        with book.lock:
            return book.machine.has(self._consumer, delivery.position, delivery.count)

    def ack(self, *places: Position | GroupDelivery, durable: bool = False) -> int:
        """Acknowledges deliveries; with ``ack="all"``, every delivery of this consumer up to the last of them.

        Args:
            places: Deliveries or their positions. An unknown position counts as acknowledged before.
            durable: Whether to return only once the acknowledgement survives a crash.

        Returns:
            The number of deliveries newly acknowledged.

        Raises:
            ConsumerFenced: See the class; also if one was delivered to another consumer since. Nothing is acknowledged then.
            GroupUnwritten: With ``durable``, if the disk has no room or fails; the write is retried.
        """
        positions = [one.position if type(one) is GroupDelivery else _position(one) for one in places]
        if positions and self._group.book.record.settings.ack == "all":
            return self.ack_upto(max(positions), durable=durable)
        return self._acked(lambda machine: machine.ack(self._consumer, positions), durable=durable)

    def ack_upto(self, place: Position | GroupDelivery, *, durable: bool = False) -> int:
        """Acknowledges every delivery of this consumer up to and including a position; otherwise as `ack`."""
        position = _position(place)
        return self._acked(lambda machine: machine.ack_upto(self._consumer, position), durable=durable)

    def nack(
        self,
        places: Places,
        delay: float | None = None,
        *,
        count: bool = True,
        error: str = "refused",
    ) -> int:
        """Refuses deliveries: they are due again after a delay, for every consumer, together with later ones of their keys.

        Args:
            places: A delivery or its position, or several.
            delay: Seconds; None for the next delay of ``backoff``.
            count: False if they were not tried, as when a worker stops: this then counts as no delivery.
            error: The reason, for the dead letters.

        Returns:
            The number that was pending.

        Raises:
            ConsumerFenced: As `ack`: none is refused then.
        """
        # From the last of a key to the first: a delivery is taken back together with those behind it, which count by themselves.
        positions = sorted(_positions(places), reverse=True)
        found = self._said(
            positions,
            lambda machine, one: machine.nack(self._consumer, one, delay, count=count, error=error),
        )
        self._group.bury()
        self._group.notify()
        return found

    def in_progress(self, places: Places) -> int:
        """Restarts ``ack_wait`` of deliveries that take long, so that they do not become due again; returns how many are pending.

        Raises:
            ConsumerFenced: As `ack`.
        """
        return self._said(_positions(places), lambda machine, one: machine.in_progress(self._consumer, one))

    def term(self, places: Places, reason: str) -> int:
        """Terminates deliveries: they are written to the dead letters, and done after that. Returns how many were not done before.

        Raises:
            ConsumerFenced: As `ack`.
        """
        positions = sorted(_positions(places))
        found = self._said(positions, lambda machine, one: machine.term(self._consumer, one, reason))
        self._group.bury()
        return found

    def claim(
        self,
        min_idle: float,
        positions: Iterable[Position] | None = None,
        *,
        start: Position | None = None,
        limit: int = 100,
        only_ids: bool = False,
    ) -> ClaimedDeliveries:
        """Claims pending deliveries of other consumers and restarts their ``ack_wait``.

        Args:
            min_idle: Seconds; only deliveries made at least so long ago are claimed.
            positions: The positions of the deliveries; None for all from ``start`` on.
            start: The first position to claim; None for the first pending one.
            limit: Most deliveries, from 1.
            only_ids: Whether to return the deliveries without changes and without counting a delivery.

        Raises:
            ConsumerFenced: See the class.
        """
        book = self._group.book
        book.check_serving()
        check_whole("limit", limit, "a whole number from 1", 1)
        asked = None if positions is None else [_position(one) for one in positions]
        now = self._group.monotonic()
        with book.lock:
            known = sorted(book.machine.units) if asked is None else sorted(set(asked))
            units = [
                book.machine.units[one]
                for one in known
                if one in book.machine.units and (start is None or one >= start)
            ]
            chosen = [
                one.position
                for one in units
                if one.state is DeliveryState.PENDING and now - one.last >= min_idle
            ]
            following = chosen[limit] if len(chosen) > limit else None
            moved = book.machine.claim(self._consumer, chosen[:limit], min_idle, only_ids=only_ids)
            lost = tuple(one for one in asked or () if one in book.lost)
        try:
            if book.record.settings.max_deliver is not None:
                book.flush()
            if only_ids:
                found = [GroupDelivery(one.position, (), one.count, self.generation) for one in moved]
            else:
                found = self._group.fetch(self._consumer, moved)
        except BaseException:
            with book.lock:
                book.machine.give_back(self._consumer, moved)
            raise
        return ClaimedDeliveries(tuple(found), following, lost)

    def leave(self) -> None:
        """Leaves the group: its pending deliveries are due at once, and its subscriptions complete.

        Does nothing if the consumer was fenced or the log is closed.
        """
        book = self._group.book
        try:
            self._group.check_open()  # a child of fork takes no lock, and does not touch the journal
            for subscription in list(self._subscriptions):
                subscription.complete()
            with book.lock:
                book.machine.remove(self._consumer)
            book.flush()
        except PenstockError:  # settle() or close() retries the write
            return
        self._group.notify()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()

    def __repr__(self) -> str:
        return f"<GroupMember {self.name!r} of {self._group.name!r}, generation {self.generation}>"

    def _said(self, positions: Collection[Position], say: Callable[[GroupMachine, Position], bool]) -> int:
        book = self._group.book
        book.check()
        with book.lock:
            for one in positions:
                book.machine.own(self._consumer, one)  # nothing is done unless all may be
            return sum(say(book.machine, one) for one in positions)

    def _acked(self, say: Callable[[GroupMachine], int], *, durable: bool) -> int:
        check_switches(durable=durable)
        book = self._group.book
        book.check()
        with book.lock:
            count = say(book.machine)
            if count:
                book.acked(count, durable=durable)
        if durable:
            book.flush()
        if count:
            self._group.notify()
        return count


def _positions(places: Places) -> set[Position]:
    if isinstance(places, Iterable) and not isinstance(places, (Position, str)):
        return {_position(one) for one in places}
    return {_position(places)}


def _position(place: object) -> Position:
    if isinstance(place, GroupDelivery):
        return place.position
    check_position("place", place)
    assert isinstance(place, Position)
    return place
