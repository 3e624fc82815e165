"""What an operator does with the subscriptions of a log: whoever looks after them, and is none of them."""

from collections.abc import Callable, Mapping
from operator import methodcaller
from typing import Any

from publishers.errors import HistoryPruned
from publishers.fanout.ports import Subscribed
from publishers.fanout.service import Service
from publishers.log.start import Places, Since
from publishers.model.position import Position, Start

__all__ = ["OperatedLog", "Tell"]

Tell = Callable[[str, Mapping[str, Any]], None]


class OperatedLog:
    """The operator's half of a log: the subscriptions of this opening, by id.

    ``log.statistics().subscriptions`` lists them with their ids; a subscriber reads its own from ``subscription.id``.
    """

    def __init__(self, service: Service, places: Places) -> None:
        self._tell: Tell = lambda _what, _body: None
        self._service = service
        self._places = places

    def check_here(self) -> None:
        """Refuses a log that was opened in another process: the one of which this is a fork.

        Raises:
            LogForked: If it was.
        """
        if self._service.inherited is not None:
            raise self._service.inherited

    def pause(self, subscription_id: int) -> bool:
        """Keeps a subscription from getting changes until it is resumed; nothing is lost over it.

        It is as if there were no demand: demand and place stay, the ring goes on without it, and it reads from the WAL what
        it missed when it is resumed. What was pulled for it already, at most one batch, still comes. It does not gate
        writers meanwhile, whatever its ``max_lag``. History is not kept for it: one that retention passes ends with
        ``HistoryPruned``, or jumps, as it does without demand; ``hold`` keeps it.

        Returns:
            Whether there is such a subscription; again is harmless.
        """
        return self._operate(subscription_id, "PAUSED", methodcaller("pause"))

    def resume(self, subscription_id: int) -> bool:
        """Lets a paused subscription go on where it was.

        Returns:
            Whether there is such a subscription; one that was not paused goes on as it did.
        """
        return self._operate(subscription_id, "RESUMED", methodcaller("resume"))

    def reset(self, subscription_id: int, since: Since) -> bool:
        """Lets a subscription go on elsewhere: what follows is what a fresh one there would get.

        It takes effect between two signals, as ``ChangeSubscription.seek`` does, and ``on_seek(position)`` of the subscriber
        is told, if it has that. Demand stays, and one that is paused stays paused.

        Args:
            subscription_id: Of the subscription.
            since: A place, as for ``changes``; ``"latest"`` or None for the next version.

        Returns:
            Whether there is such a subscription.

        Raises:
            InvalidOption: If ``since`` is no place.
            PositionError: If it cannot be read from: it is pruned, or beyond the end of the log.
        """
        self.check_here()
        start = self._places.find(since)
        while True:
            position = self._resolved(start)
            try:
                return self._operate(
                    subscription_id, "RESET", methodcaller("seek", position), position=str(position)
                )
            except HistoryPruned:
                if start is not Start.EARLIEST:  # retention has passed what was the oldest just now
                    raise

    def unsubscribe(self, subscription_id: int) -> bool:
        """Cancels the subscription of an id, which gets no further signal.

        Returns:
            Whether there was one.
        """
        return self._operate(subscription_id, "UNSUBSCRIBED", methodcaller("cancel"))

    def _resolved(self, start: Position | Start) -> Position:
        if isinstance(start, Position):
            return start
        return self._service.oldest if start is Start.EARLIEST else self._service.head

    def _operate(
        self, subscription_id: int, what: str, do: Callable[[Subscribed], bool | None], **more: str
    ) -> bool:
        """Does something with a subscription, if there is one, and tells unless it changed nothing."""
        self.check_here()
        found = self._service.registry.find(subscription_id)
        if found is None:
            return False
        if do(found) is not False:
            self._tell(what, {"subscription": found.id, "subscriber": found.name, **more})
        return True
