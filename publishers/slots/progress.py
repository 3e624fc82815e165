"""The progress of a slot's consumer, and the subscriber that records it."""

import threading
from collections.abc import Callable, Sequence
from typing import Any

from publishers.model.change import Change
from publishers.model.position import Position
from publishers.slots.ports import SlotSubscription

__all__ = ["NotingSubscriber", "SlotProgress", "behind_change", "noting"]


def behind_change(change: Change) -> Position:
    """The position behind a change; behind its transaction, if it is the last change there."""
    if change.index + 1 >= change.count:
        return Position(change.version + 1)
    return Position(change.version, change.index + 1)


class SlotProgress:
    """The progress of one subscription of a slot.

    Attributes:
        given: The position behind the last change whose delivery has begun.
        subscription: The subscription, once it exists.
        sought: Whether a seek is pending, so current deliveries are from the old position.
        begun: Whether a subscription has begun and not ended.
    """

    __slots__ = ("_beginning", "_last", "_wanted", "begun", "given", "sought", "subscription")

    def __init__(self, place: Position) -> None:
        self.given: Position = place
        self.subscription: SlotSubscription | None = None
        self.sought: bool = False
        self.begun: bool = False
        self._last: tuple[int, int] = (0, 0)
        self._beginning = threading.Lock()
        self._wanted: Position | None = None  # a seek before the subscription existed

    @property
    def over(self) -> bool:
        """Whether no change will be delivered any more."""
        return not self.begun or (self.subscription is not None and self.subscription.ended)

    def note(self, change: Change) -> None:
        """Records a change before its delivery."""
        if not self.sought:
            self._last = change.version, change.count
            self.given = behind_change(change)

    def begin(self, subscription: SlotSubscription) -> None:
        """Sets the subscription, and executes an earlier seek."""
        with self._beginning:
            self.subscription = subscription
            wanted = self._wanted
        if wanted is not None:
            subscription.seek(wanted)

    def seek(self, place: Position) -> None:
        """Moves the subscription, now or as soon as it exists."""
        with self._beginning:
            subscription = self.subscription
            self.sought = not self.over
            self._wanted = place
        self.go(place)
        if subscription is not None and not subscription.ended:
            subscription.seek(place)

    def go(self, place: Position) -> None:
        """Restarts the progress at a position."""
        self._last, self.given = (0, 0), place

    def reached(self, position: Position) -> tuple[Position, Position]:
        """The limit of acknowledgements, and the position that one reaches.

        Args:
            position: All changes before it are acknowledged.

        Returns:
            The position behind all changes that were delivered or did not match; and ``position``, or a later one without a
            matching change in between.
        """
        if (
            position < self.given and position.version != self._last[0]
        ):  # the usual case, since deliveries run ahead of acknowledgements
            return self.given, position
        checkpoint = self.given if self.subscription is None else self.subscription.checkpoint().position
        # Read after the checkpoint: every change before the checkpoint was recorded by then.
        given, (version, count) = self.given, self._last
        if position.version == version and position.index >= count:
            position = Position(version + 1)
        if self.sought:
            return given, position
        return max(checkpoint, given), max(position, checkpoint) if position >= given else position


class NotingSubscriber:
    """Records the deliveries to the consumer of a slot, and passes all signals on.

    Args:
        subscriber: The consumer.
        progress: Records the deliveries.
        paused: Returns whether the slot is paused.
        explain: Turns an error into the error for the consumer, such as ``SlotLost``.
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
        """Sets the subscription, and pauses it if the slot is paused."""
        if callable(getattr(subscription, "checkpoint", None)):  # not that of a refused subscriber
            self._progress.begin(subscription)
            if self._paused():
                subscription.pause()
        self._subscriber.on_subscribe(subscription)

    def on_next(self, change: Change, /) -> None:
        """Records a change before its delivery, so that the consumer can acknowledge it at once."""
        self._progress.note(change)
        self._subscriber.on_next(change)

    def on_seek(self, position: Position, /) -> None:
        """Restarts the progress at the new position."""
        self._progress.sought = False
        self._progress.go(position)
        if callable(handler := getattr(self._subscriber, "on_seek", None)):
            handler(position)

    def on_error(self, error: Exception, /) -> None:
        """Ends the progress, and explains the error."""
        self._progress.begun = False
        self._subscriber.on_error(self._explain(error))

    def on_complete(self) -> None:
        """Ends the progress."""
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
    """Wraps a subscriber, for single changes or for batches as it takes them."""
    batches = callable(getattr(subscriber, "on_next_batch", None))
    return (_NotingBatches if batches else NotingSubscriber)(subscriber, progress, paused, explain)
