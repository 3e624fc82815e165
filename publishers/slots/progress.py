"""How far a slot's consumer was given changes, and the subscriber that notes it on the way."""

import threading
from collections.abc import Callable, Sequence
from typing import Any

from publishers.model.change import Change
from publishers.model.position import Position
from publishers.slots.ports import SlotSubscription

__all__ = ["NotingSubscriber", "SlotProgress", "behind_change", "noting"]


def behind_change(change: Change) -> Position:
    """The place behind a change: behind its transaction, if it is the last one in that."""
    if change.index + 1 >= change.count:
        return Position(change.version + 1)
    return Position(change.version, change.index + 1)


class SlotProgress:
    """How far one subscription of a slot is.

    Attributes:
        given: The place behind the last change that was given, or that was begun to be given.
        subscription: The subscription, once there is one.
        sought: Whether it goes elsewhere, so that what is still given is of the old place.
        begun: Whether a subscription was begun, and has not ended.
    """

    __slots__ = ("_beginning", "_last", "_wanted", "begun", "given", "sought", "subscription")

    def __init__(self, place: Position) -> None:
        self.given = place
        self.subscription: SlotSubscription | None = None
        self.sought = False
        self.begun = False
        self._last: tuple[int, int] = (0, 0)
        self._beginning = threading.Lock()
        self._wanted: Position | None = None  # where to go as soon as there is a subscription

    @property
    def over(self) -> bool:
        """Whether no change will follow."""
        return not self.begun or (self.subscription is not None and self.subscription.ended)

    def note(self, change: Change) -> None:
        """A change is about to be given."""
        if not self.sought:
            self._last = change.version, change.count
            self.given = behind_change(change)

    def begin(self, subscription: SlotSubscription) -> None:
        """There is the subscription; it goes elsewhere at once if that was wanted before."""
        with self._beginning:
            self.subscription = subscription
            wanted = self._wanted
        if wanted is not None:
            subscription.seek(wanted)

    def seek(self, place: Position) -> None:
        """What follows begins elsewhere, also where the subscription has not begun yet, on the executor of its consumer."""
        with self._beginning:
            subscription = self.subscription
            self.sought = not self.over
            self._wanted = place
        self.go(place)
        if subscription is not None and not subscription.ended:
            subscription.seek(place)

    def go(self, place: Position) -> None:
        """What was given does not count any more; what follows begins there."""
        self._last, self.given = (0, 0), place

    def reached(self, position: Position) -> tuple[Position, Position]:
        """How far an acknowledgement may go, and what it says.

        Args:
            position: What is acknowledged: everything before it.

        Returns:
            The place behind everything that was given or did not match; and ``position``, or a later place with nothing in
            between that was to be given.
        """
        if (
            position < self.given and position.version != self._last[0]
        ):  # of most, as more is given than was handled: nothing else has to be looked at
            return self.given, position
        checkpoint = self.given if self.subscription is None else self.subscription.checkpoint().position
        # Only now: whatever lies before the checkpoint was noted by the time that the checkpoint was reached.
        given, (version, count) = self.given, self._last
        if position.version == version and position.index >= count:
            position = Position(version + 1)
        if self.sought:
            return given, position
        return max(checkpoint, given), max(position, checkpoint) if position >= given else position


class NotingSubscriber:
    """Between a feed and the consumer of a slot; all other methods are those of the consumer.

    Args:
        subscriber: The consumer.
        progress: Where is noted what it was given.
        paused: Whether the slot is paused when it subscribes.
        explain: Makes of an error what the consumer should know, such as that the slot is lost.
    """

    def __init__(
        self,
        subscriber: Any,
        progress: SlotProgress,
        paused: Callable[[], bool],
        explain: Callable[[Exception], Exception],
    ) -> None:
        self._subscriber = subscriber
        self._progress = progress
        self._paused = paused
        self._explain = explain

    def __getattr__(self, name: str) -> Any:
        return getattr(self._subscriber, name)

    def on_subscribe(self, subscription: Any, /) -> None:
        """Notes the subscription, and pauses it if the slot is."""
        if callable(getattr(subscription, "checkpoint", None)):  # a refusal has a subscription too
            self._progress.begin(subscription)
            if self._paused():
                subscription.pause()
        self._subscriber.on_subscribe(subscription)

    def on_next(self, change: Change, /) -> None:
        """Notes a change before it is given, so that it can be acknowledged at once."""
        self._progress.note(change)
        self._subscriber.on_next(change)

    def on_seek(self, position: Position, /) -> None:
        """What follows is of another place."""
        self._progress.sought = False
        self._progress.go(position)
        if callable(tell := getattr(self._subscriber, "on_seek", None)):
            tell(position)

    def on_error(self, error: Exception, /) -> None:
        """Tells why it has ended."""
        self._progress.begun = False
        self._subscriber.on_error(self._explain(error))

    def on_complete(self) -> None:
        """Tells that it has ended."""
        self._progress.begun = False
        self._subscriber.on_complete()


class _NotingBatches(NotingSubscriber):
    def on_next_batch(self, changes: Sequence[Change], /) -> None:
        self._progress.note(changes[-1])
        self._subscriber.on_next_batch(changes)


def noting(
    subscriber: Any,
    progress: SlotProgress,
    paused: Callable[[], bool],
    explain: Callable[[Exception], Exception],
) -> NotingSubscriber:
    """What notes for a subscriber, which takes single changes or batches."""
    batches = callable(getattr(subscriber, "on_next_batch", None))
    return (_NotingBatches if batches else NotingSubscriber)(subscriber, progress, paused, explain)
