"""A consumer that has joined a group."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Self
from weakref import WeakSet

from flow.contracts import Subscriber
from flow.executors import AnyExecutor
from publishers.errors import PenstockError
from publishers.groups.delivery import (
    ClaimedDeliveries,
    GroupDelivery,
)
from publishers.groups.machine import GroupMachine
from publishers.groups.members import GroupConsumer
from publishers.groups.served_group import ServedGroup
from publishers.groups.state import DeliveryState
from publishers.groups.subscription import DeliveryFeed, DeliverySubscription
from publishers.model.position import Position, check_position
from publishers.options import check_switches, check_whole

__all__ = ["GroupMember"]


class GroupMember:
    """A consumer that has joined a group; a context manager that leaves. All methods may be called from any thread.

    Once a consumer of its name has joined again, each raises ``ConsumerFenced`` and changes nothing.

    Args:
        group: The group.
        consumer: What the group knows of it.
    """

    def __init__(self, group: ServedGroup, consumer: GroupConsumer) -> None:
        self._group = group
        self._consumer = consumer
        self._subscriptions: WeakSet[DeliverySubscription] = WeakSet()

    @property
    def name(self) -> str:
        """What it is called."""
        return self._consumer.name

    @property
    def generation(self) -> int:
        """Of its joining."""
        return self._consumer.generation

    def read(
        self, most: int | None = None, *, history: bool = False, wait: float | None = None
    ) -> list[GroupDelivery]:
        """Gives deliveries: first what is due again, whichever consumer had it, then what is new, each as it lies in the log.

        Args:
            most: How many; None for ``batch``.
            history: Whether what a consumer of this name had before it joined again comes first; that counts as no delivery.
            wait: Longest time in seconds until there is one; None for ``max_wait``.

        Raises:
            ConsumerFenced: See the class.
            GroupPaused: If its breaker has paused the group.
            GroupLost, GroupForked, NoSuchGroup: If the group cannot be used.
            GroupUnwritten: If counts cannot be written, with ``max_deliver``; nothing is delivered.
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
        """Has something called when there may be something to read, for those who wait on no thread.

        Args:
            notify: What is called, on any thread; perhaps several times, and perhaps for nothing.

        Returns:
            After how many seconds there may be something in any case, None if never; and what ends it.
        """
        return self._group.watch(self._consumer, notify)

    def deliveries(self, *, history: bool = False, nbytes: int | None = None) -> DeliveryFeed:
        """The deliveries as a publisher, over which a loop may be written too: ``for`` and ``async for``.

        A subscriber is given as many as it has requested. So one that requests one more for each that it has acknowledged never has more
        than it began with; a loop asks for up to 32 ahead, and `flow.aiter` and `flow.iter_blocking` take another ``prefetch``.

        Args:
            history: As for `read`.
            nbytes: Most bytes of the changes that are read at once, at least one change; None for ``max_bytes``.
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
        """What could not be passed on to whatever handles it is due at once, and counts as no delivery. What is another one's is left alone."""
        self._group.give_back(self._consumer, list(deliveries))

    def recall(self) -> None:
        """Has what it was given and has not acknowledged come once more, first of all, for a subscription with ``history``.

        For a client that lost its connection and cannot tell what has come; nobody else is given it meanwhile, and it counts as no
        delivery.
        """
        self._said(lambda machine: machine.recall(self._consumer))

    def has(self, delivery: GroupDelivery) -> bool:
        """Whether a delivery is still this consumer's: not done, not due again, not given again since."""
        position, count = delivery.position, delivery.count
        return self._said(lambda machine: machine.has(self._consumer, position, count))

    def ack(self, *places: Position | GroupDelivery, durable: bool = False) -> int:
        """Acknowledges deliveries; with ``ack="all"`` everything that this consumer has up to the last of them.

        Args:
            places: Their positions, or themselves. What is not known counts as acknowledged before.
            durable: Whether to return only when a crash cannot take it.

        Returns:
            How many were newly acknowledged.

        Raises:
            ConsumerFenced: Also if one was given to another consumer since; nothing has changed.
            GroupUnwritten: With ``durable``, if the disk has no room or fails; it is tried again.
        """
        positions = [one.position if type(one) is GroupDelivery else _position(one) for one in places]
        if positions and self._group.book.record.settings.ack == "all":
            return self.ack_upto(max(positions), durable=durable)
        return self._acked(lambda machine: machine.ack(self._consumer, positions), durable=durable)

    def ack_upto(self, place: Position | GroupDelivery, *, durable: bool = False) -> int:
        """Acknowledges everything that this consumer has up to and with a position; otherwise as `ack`."""
        position = _position(place)
        return self._acked(lambda machine: machine.ack_upto(self._consumer, position), durable=durable)

    def nack(
        self,
        place: Position | GroupDelivery,
        delay: float | None = None,
        *,
        count: bool = True,
        error: str = "refused",
    ) -> bool:
        """Refuses a delivery: it is due again after a delay, for every consumer, and so are later ones of its key.

        Args:
            place: Which.
            delay: In seconds; None for the next one of ``backoff``.
            count: False if it was not tried, such as where a worker stops: then it counts as no delivery.
            error: Why; for the dead letters.

        Returns:
            False if it was not pending.

        Raises:
            ConsumerFenced: As `ack`.
        """
        position = _position(place)
        found = self._said(
            lambda machine: machine.nack(self._consumer, position, delay, count=count, error=error)
        )
        self._group.bury()
        self._group.notify()
        return found

    def in_progress(self, place: Position | GroupDelivery) -> bool:
        """Begins ``ack_wait`` anew, so that a delivery that takes long is not given to another consumer; False if it is not pending."""
        position = _position(place)
        return self._said(lambda machine: machine.in_progress(self._consumer, position))

    def term(self, place: Position | GroupDelivery, reason: str) -> bool:
        """Gives a delivery up: it is written to the dead letters, and then done. Answers whether it was not done before."""
        position = _position(place)
        found = self._said(lambda machine: machine.term(self._consumer, position, reason))
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
        """Takes over what other consumers have, and begins its ``ack_wait`` anew.

        Args:
            min_idle: Only what was delivered at least so many seconds ago.
            positions: Which; None for all from ``start`` on.
            start: From where on; None for the first.
            limit: Most of them.
            only_ids: Whether they are only looked at: their count stays, and so do the changes.

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
        """Leaves: what it has pending is due at once, and its subscriptions complete. Harmless if it was fenced, or the log is closed."""
        book = self._group.book
        try:
            self._group.check_open()  # a child of fork takes no lock, and does not touch the journal
            for subscription in list(self._subscriptions):
                subscription.complete()
            with book.lock:
                book.machine.remove(self._consumer)
            book.flush()
        except PenstockError:  # it is tried again by whoever settles or closes
            return
        self._group.notify()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()

    def __repr__(self) -> str:
        return f"<GroupMember {self.name!r} of {self._group.name!r}, generation {self.generation}>"

    def _said(self, say: Callable[[GroupMachine], bool]) -> bool:
        self._group.book.check()
        with self._group.book.lock:
            return say(self._group.book.machine)

    def _acked(self, say: Callable[[GroupMachine], int], *, durable: bool) -> int:
        check_switches(durable=durable)
        book = self._group.book
        book.check()
        with book.lock:
            count = say(book.machine)
            if count:
                book.acked(count)
        if durable:
            book.flush()
        if count:
            self._group.notify()
        return count


def _position(place: object) -> Position:
    if isinstance(place, GroupDelivery):
        return place.position
    check_position("place", place)
    assert isinstance(place, Position)
    return place
