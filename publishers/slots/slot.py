"""A slot: in memory, and open for its only consumer."""

import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, Self

from flow.bridges.iterators import IterablePublisher
from flow.contracts import Subscriber
from flow.misuse import require_subscriber
from publishers.criteria.criteria import Criteria
from publishers.errors import PenstockError
from publishers.model.change import Change
from publishers.model.position import Position, check_position
from publishers.options import check_switches
from publishers.slots.errors import AckAhead, NoSuchSlot, SlotBusy, SlotForked, SlotLost
from publishers.slots.ports import PlaceLog
from publishers.slots.progress import SlotProgress, behind_change, noting
from publishers.slots.record import SlotRecord
from publishers.slots.state import SlotEvent, SlotState, SlotStatistics, state_after
from publishers.views.masking import Mask
from publishers.views.projection import Projection
from publishers.views.view import Content, Images, Integers, View
from publishers.wal import Hold, HoldState

__all__ = ["Slot", "SlotEntry", "SlotFeed", "SlotKeeper"]


@dataclass(slots=True, eq=False)
class SlotEntry:
    """A slot in memory; changed only under the locks of `SlotBook`.

    Attributes:
        record: Its record in the journal.
        criteria: Selects its changes.
        place: The position of the first change that was not acknowledged.
        state: Its state.
        hold: Its hold on history; None if it has none.
        oldest: The oldest kept position when it was lost.
        owner: Names the consumer that has it open.
        consumer: The opening that is not fenced; None if the slot is closed.
    """

    record: SlotRecord
    criteria: Criteria
    place: Position
    state: SlotState = SlotState.FREE
    hold: Hold | None = None
    oldest: Position | None = None
    owner: str | None = None
    consumer: object | None = None

    @property
    def name(self) -> str:
        """Its name."""
        return self.record.name

    def look(self) -> None:
        """Updates the state if retention has lost the hold."""
        hold = self.hold
        if hold is not None and hold.state is HoldState.LOST:
            after = state_after(self.state, SlotEvent.LOSE)
            if after is not None:
                self.state, self.oldest = after, hold.oldest

    def check(self, event: SlotEvent, names: Iterable[str] = ()) -> SlotState:
        """The state that an event leads to.

        Raises:
            SlotBusy, SlotLost, SlotForked, NoSuchSlot: If the state does not allow it; ``names`` are those of the other slots.
        """
        self.look()
        after = state_after(self.state, event)
        if after is None:
            raise self.refusal(names)
        return after

    def refusal(self, names: Iterable[str] = ()) -> PenstockError:
        """The error for its state."""
        if self.state is SlotState.LOST:
            return SlotLost(self.oldest or self.place, self.name)
        if self.state is SlotState.FORKED:
            return SlotForked(self.name, self.record.place)
        if self.state is SlotState.SERVED:
            return SlotBusy(self.name, self.owner or "its consumer")
        return NoSuchSlot(self.name, names)


class SlotKeeper(Protocol):
    """Stores the positions of all slots of a log; see `Slots`."""

    def check(self, slot: "Slot") -> None:
        """Raises ``Fenced``, ``SlotLost`` or an error of the log."""
        ...

    def store(self, slot: "Slot", position: Position, *, durable: bool) -> bool:
        """Applies an acknowledgement."""
        ...

    def relocate(self, slot: "Slot", since: Any) -> Position:
        """Moves the slot, and raises its generation."""
        ...

    def set_paused(self, name: str, *, paused: bool) -> bool:
        """Pauses or resumes a slot; returns whether that changed it."""
        ...

    def info(self, name: str) -> SlotStatistics:
        """The statistics of a slot."""
        ...

    def leave(self, slot: "Slot") -> None:
        """Closes an opening."""
        ...

    def explain_to(self, slot: "Slot") -> Callable[[Exception], Exception]:
        """Returns a function that turns an error of a subscription into the error for the consumer, such as ``SlotLost``."""
        ...


class Slot:
    """A position that the log stores, open for one consumer: ``log.slots.open``. A context manager that closes it. Thread-safe.

    Once another opening has taken the slot over, each method raises ``Fenced`` and changes nothing.

    Attributes:
        criteria: Selects its changes.
        generation: The generation of this opening; it rises with each opening and each seek.
        kept: The entry of the slot; for `Slots`.
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
        """Its name."""
        return self.kept.name

    @property
    def position(self) -> Position:
        """The position of the next change that was not acknowledged."""
        return self.kept.place

    @property
    def delivered(self) -> Position:
        """The position behind all changes that were delivered or did not match; `ack` takes positions up to it."""
        progress = self._progress
        return max(progress.reached(progress.given)[0], self.kept.place)

    @property
    def paused(self) -> bool:
        """Whether it delivers nothing until it is resumed."""
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
        criteria: Criteria | None = None,
    ) -> "SlotFeed":
        """The changes from the slot's position on, as a publisher for one subscriber at a time.

        Each ``subscribe`` begins at the slot's current position, so it repeats changes that were not acknowledged.

        Args:
            content: As for ``ChangeLog.changes``, like the next four.
            images: The images.
            fields: The fields.
            mask: The masks.
            integers: The form of large whole numbers.
            view: All of these together.
            since: A later start, for a consumer that has the changes before it and has not acknowledged them yet: they count as
                delivered. None, or a position before the slot's, for the slot's position.
            criteria: Criteria in place of those of the slot, which stay; None for those.

        Raises:
            InvalidOption: If ``fields`` or ``mask`` contain an invalid path.
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
        return SlotFeed(
            view, partial(self._subscribe, begin, self.criteria if criteria is None else criteria)
        )

    def ack(self, position: Position | Change, *, durable: bool = False) -> bool:
        """Acknowledges all changes before a position, or up to and including a change.

        It is stored at most ``ack_sync`` later. Unless the slot has ``granularity="change"``, the stored position is the beginning of its
        transaction, so a restart repeats the whole transaction. If no delivered change is behind the position, the following changes
        that do not match are acknowledged too.

        Args:
            position: The position, at most ``delivered``; or a delivered change.
            durable: Whether to wait until the acknowledgement is durable.

        Returns:
            False if a later position was acknowledged before, which stays.

        Raises:
            AckAhead: If the position is beyond the delivered changes.
            SlotsUnwritten: With ``durable``, if the disk is full or fails; the log retries the write.
            Fenced, SlotLost: See the class.
        """
        check_switches(durable=durable)
        if isinstance(position, Change):
            position = behind_change(position)
        else:
            check_position("position", position)
        limit, reached = self._progress.reached(position)
        if position > max(limit, self.kept.place):
            self._keeper.check(self)  # which ``store`` does too
            raise AckAhead(self.name, position, limit)
        return self._keeper.store(self, reached, durable=durable)

    def seek(self, since: Any) -> Position:
        """Moves the slot forward or back, with a new generation; durable when it returns.

        A current subscription continues there, and its ``on_seek(position)`` is called. Changes that were delivered before can no longer be
        acknowledged.

        Args:
            since: As for ``ChangeLog.changes``.

        Returns:
            The position.

        Raises:
            InvalidOption: If ``since`` is invalid.
            PositionError: If it is beyond the end of the log, or its history was deleted.
            SlotsUnwritten: If the disk is full or fails; nothing has changed.
            Fenced, SlotLost: See the class.
        """
        position = self._keeper.relocate(self, since)
        self._progress.seek(position)
        return position

    def pause(self) -> bool:
        """Stops deliveries until ``resume``, also over restarts; returns whether that changed anything."""
        self._keeper.check(self)
        return self._keeper.set_paused(self.name, paused=True)

    def resume(self) -> bool:
        """Resumes deliveries; returns whether it was paused."""
        self._keeper.check(self)
        return self._keeper.set_paused(self.name, paused=False)

    def info(self) -> SlotStatistics:
        """The statistics of the slot: position, lag, and the state of its history."""
        self._keeper.check(self)
        return self._keeper.info(self.name)

    def cancel(self) -> None:
        """Ends the subscription, if there is one; the slot stays open, and another subscription may begin."""
        progress = self._progress
        if progress.subscription is not None:
            progress.subscription.cancel()
        progress.begun = False

    def close(self) -> None:
        """Ends the subscription, stores acknowledgements, and closes the opening. Idempotent; has no effect if it is fenced.

        Raises:
            SlotsUnwritten: If the disk is full or fails; the opening is closed nevertheless, and the log retries the write.
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
        """Pauses or resumes the subscription, if there is one."""
        subscription = self._progress.subscription
        if subscription is not None:
            (subscription.pause if paused else subscription.resume)()

    def _subscribe(
        self,
        since: Position | None,
        criteria: Criteria,
        subscriber: Subscriber[Change],
        view: View,
        serving: dict[str, Any],
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
        self._log.feed(criteria, begin, view, admit).subscribe(noted, **serving)


class SlotFeed(IterablePublisher[Change]):
    """The changes of a slot from its position on; returned by ``slot.changes()``.

    Attributes:
        view: How subscribers see the changes.
    """

    def __init__(
        self, view: View, subscribe: Callable[[Subscriber[Change], View, dict[str, Any]], None]
    ) -> None:
        self.view = view
        self._subscribe = subscribe

    def subscribe(self, subscriber: Subscriber[Change], /, **serving: Any) -> None:
        """Subscribes from the slot's position on; arguments and errors are those of ``ChangeFeed.subscribe``.

        ``on_error`` gets ``SlotBusy`` if there is another subscription, ``Fenced`` if the slot was taken over, and ``SlotLost`` if its
        history was deleted.
        """
        require_subscriber(subscriber)
        self._subscribe(subscriber, self.view, serving)
