"""A slot that is open: what its one consumer does with it."""

import threading
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any, Protocol, Self

from flow.bridges.iterable import IterablePublisher
from flow.contracts import Subscriber
from flow.misuse import require_subscriber
from publishers.criteria.criteria import Criteria
from publishers.model.change import Change
from publishers.model.position import Position, check_position
from publishers.options import check_switches
from publishers.slots.entry import SlotEntry
from publishers.slots.errors import AckAhead, SlotBusy
from publishers.slots.ports import PlaceLog
from publishers.slots.progress import SlotProgress, behind_change, noting
from publishers.slots.statistics import SlotStatistics
from publishers.views.masking import Mask
from publishers.views.projection import Projection
from publishers.views.view import Content, Images, Integers, View

__all__ = ["Slot", "SlotFeed", "SlotKeeper"]


class SlotKeeper(Protocol):
    """What keeps the places of all slots of a log; see `Slots`."""

    def check(self, slot: "Slot") -> None:
        """Raises ``Fenced``, ``SlotLost`` or what is wrong with the log."""
        ...

    def store(self, slot: "Slot", position: Position, *, durable: bool) -> bool:
        """Takes an acknowledgement."""
        ...

    def seek(self, slot: "Slot", place: Any) -> Position:
        """Moves the place, and gives the slot a new generation."""
        ...

    def set_paused(self, name: str, *, paused: bool) -> bool:
        """Notes whether a slot is paused; answers whether that has changed."""
        ...

    def info(self, name: str) -> SlotStatistics:
        """The statistics of a slot."""
        ...

    def leave(self, slot: "Slot") -> None:
        """Gives the slot back."""
        ...

    def explain_to(self, slot: "Slot") -> Callable[[Exception], Exception]:
        """Makes of an error of a subscription what the consumer should know, such as that the slot is lost."""
        ...


class Slot:
    """A place that the log keeps, open for its one consumer. Made by ``log.slots.open``; a context manager that closes.

    All methods may be called from any thread. Once another opening has taken the slot over, each raises ``Fenced`` and changes
    nothing.

    Attributes:
        criteria: Which changes it is for.
        generation: Of this opening; it rises with each opening and each seek.
        kept: What the log keeps of it; for `Slots`.
    """

    def __init__(self, keeper: SlotKeeper, log: PlaceLog, kept: SlotEntry, generation: int) -> None:
        self.criteria: Criteria = kept.criteria
        self.generation = generation
        self._keeper = keeper
        self._log = log
        self.kept = kept
        self._progress = SlotProgress(kept.place)
        self._beginning = threading.Lock()

    @property
    def name(self) -> str:
        """What it is called."""
        return self.kept.name

    @property
    def position(self) -> Position:
        """The next change that was not acknowledged, where a consumer goes on."""
        return self.kept.place

    @property
    def delivered(self) -> Position:
        """Behind everything that was given here or did not match: the most that may be acknowledged."""
        progress = self._progress
        return max(progress.reached(progress.given)[0], self.kept.place)

    @property
    def paused(self) -> bool:
        """Whether nothing is given until it is resumed."""
        return self.kept.record.paused

    def changes(
        self,
        *,
        content: Content = Content.HEADER,
        images: Images = Images.WRITTEN,
        fields: Projection | Collection[str] | None = None,
        mask: Mask | Mapping[str, Any] | None = None,
        integers: Integers = Integers.NUMBER,
        view: View | None = None,
        since: Position | None = None,
    ) -> "SlotFeed":
        """The changes from the slot's place on, as a publisher; one subscriber at a time.

        The place is looked up at each ``subscribe``, so a consumer that subscribes again gets again what it has not acknowledged.

        Args:
            content: As for ``ChangeLog.changes``, and so are the others.
            images: Which images.
            fields: Which fields.
            mask: What is shown in place of values.
            integers: How large whole numbers are given.
            view: All of them at once.
            since: Where to go on, for a consumer that has what lies between the slot's place and this, and has not acknowledged
                it yet: it counts as delivered. None, or a position before the place, for the place.

        Raises:
            InvalidOption: If something in ``fields`` or ``mask`` is no path.
            PositionError: If ``since`` is beyond the end of the log.
            Fenced, SlotLost: See the class.
        """
        self._keeper.check(self)
        if view is None:
            view = View.of(content, images, fields=fields, mask=mask, integers=integers)
        begin = None
        if since is not None:
            check_position("since", since)
            begin = self._log.find(since)
        return SlotFeed(view, partial(self._subscribe, begin))

    def ack(self, place: Position | Change, *, durable: bool = False) -> bool:
        """Acknowledges everything before a position, or up to and with a change.

        It is stored ``ack_sync`` later at the latest. Unless the slot was made with ``granularity="change"``, what is stored is the
        beginning of the transaction in which the position lies, so a restart repeats that whole. Where nothing that was given lies
        beyond the position, what follows and does not match is acknowledged too.

        Args:
            place: The position, at most ``delivered``; or a change that was given.
            durable: Whether to return only when the place is stored, which a crash cannot take then.

        Returns:
            False if the position lies before the place that was acknowledged already, which stays.

        Raises:
            AckAhead: If the position lies beyond what was delivered.
            SlotsUnwritten: With ``durable``, if the disk has no room or fails; it is tried again.
            Fenced, SlotLost: See the class.
        """
        check_switches(durable=durable)
        if isinstance(place, Change):
            position = behind_change(place)
        else:
            check_position("place", place)
            position = place
        limit, reached = self._progress.reached(position)
        if position > max(limit, self.kept.place):
            self._keeper.check(self)  # which ``store`` does too
            raise AckAhead(self.name, position, limit)
        return self._keeper.store(self, reached, durable=durable)

    def seek(self, place: Any) -> Position:
        """Goes elsewhere, forward or back, with a new generation; durable when it returns.

        A live subscription goes on there, and its ``on_seek(position)`` is told. What was given before cannot be acknowledged any
        more.

        Args:
            place: As ``since`` of ``ChangeLog.changes``.

        Returns:
            The position.

        Raises:
            InvalidOption: If it is no place.
            PositionError: If it is beyond the end of the log, or its history is gone.
            SlotsUnwritten: If the disk has no room or fails; nothing has changed.
            Fenced, SlotLost: See the class.
        """
        position = self._keeper.seek(self, place)
        self._progress.seek(position)
        return position

    def pause(self) -> bool:
        """Gives nothing until ``resume``, over restarts too; answers whether it was not paused before."""
        self._keeper.check(self)
        return self._keeper.set_paused(self.name, paused=True)

    def resume(self) -> bool:
        """Goes on; answers whether it was paused."""
        self._keeper.check(self)
        return self._keeper.set_paused(self.name, paused=False)

    def info(self) -> SlotStatistics:
        """The statistics of the slot: place, lag, and what becomes of its history."""
        self._keeper.check(self)
        return self._keeper.info(self.name)

    def cancel(self) -> None:
        """Ends the subscription, if there is one; the slot stays open, and another subscription may begin."""
        progress = self._progress
        if progress.subscription is not None:
            progress.subscription.cancel()
        progress.begun = False

    def close(self) -> None:
        """Ends the subscription, stores what was acknowledged, and gives the slot back. Idempotent; harmless if it is fenced.

        Raises:
            SlotsUnwritten: If the disk has no room or fails; the slot is given back all the same, and it is tried again.
        """
        self.cancel()
        self._keeper.leave(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Slot {self.name!r} at {self.position}, generation {self.generation}>"

    # For `Slots`.

    def end(self, error: Exception) -> None:
        """Ends the subscription, if there is one, with an error."""
        subscription = self._progress.subscription
        if subscription is not None:
            subscription.fail(error)

    def hold_back(self, *, paused: bool) -> None:
        """Pauses the subscription, if there is one, or lets it go on."""
        subscription = self._progress.subscription
        if subscription is not None:
            (subscription.pause if paused else subscription.resume)()

    def _subscribe(
        self, since: Position | None, subscriber: Subscriber[Change], view: View, serving: dict[str, Any]
    ) -> None:
        place = self.kept.place
        begin = place if since is None else max(since, place)
        progress = SlotProgress(begin)
        progress.begun = True

        def admit() -> None:
            self._keeper.check(self)
            with self._beginning:
                if not self._progress.over:
                    raise SlotBusy(self.name, "a subscription of the same opening")
                self._progress = progress

        noted = noting(subscriber, progress, lambda: self.paused, self._keeper.explain_to(self))
        serving.setdefault("name", f"slot {self.name}")
        self._log.feed(self.criteria, begin, view, admit).subscribe(noted, **serving)


class SlotFeed(IterablePublisher[Change]):
    """The changes of a slot from its place on; what ``slot.changes()`` returns.

    Attributes:
        view: How subscribers see the changes.
    """

    def __init__(
        self, view: View, subscribe: Callable[[Subscriber[Change], View, dict[str, Any]], None]
    ) -> None:
        self.view = view
        self._subscribe = subscribe

    def subscribe(self, subscriber: Subscriber[Change], /, **serving: Any) -> None:
        """Subscribes from the slot's place on; arguments and errors are those of ``ChangeFeed.subscribe``.

        The subscriber gets ``on_error`` with ``SlotBusy`` if there is another one, ``Fenced`` if the slot was taken over, and
        ``SlotLost`` if its history is gone.
        """
        require_subscriber(subscriber)
        self._subscribe(subscriber, self.view, serving)
