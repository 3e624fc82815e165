"""An operator's actions on the subscriptions of a log."""

from collections.abc import Callable
from operator import methodcaller

from publishers.errors import HistoryPruned
from publishers.fanout.ports import Subscribed
from publishers.fanout.service import Service
from publishers.log.start import Places, Since
from publishers.model.position import Position, Start

__all__ = ["OperatedLog"]


class OperatedLog:
    """The operator's half of a log: the subscriptions of this opening, by id.

    ``log.statistics().subscriptions`` lists them with their ids; a subscriber reads its own from ``subscription.id``.
    """

    def __init__(self, service: Service, places: Places) -> None:
        self._service = service
        self._places = places

    def pause(self, subscription_id: int) -> bool:
        """Stops deliveries to a subscription until it is resumed; no change is lost.

        Pausing acts as if there were no demand: demand and cursor stay, the ring moves on, and after the resume the subscription
        reads from the WAL what it missed. Changes that were already pulled for it, at most one batch, are still delivered. It
        does not gate writers meanwhile, whatever its ``max_lag``. No history is kept for it: if retention passes its position, it
        ends with ``HistoryPruned``, or jumps, as without demand; ``hold`` prevents that.

        Returns:
            Whether there is such a subscription. Idempotent.
        """
        return self._operate(subscription_id, "PAUSED", methodcaller("pause"))

    def resume(self, subscription_id: int) -> bool:
        """Resumes a paused subscription where it was.

        Returns:
            Whether there is such a subscription; one that is not paused is left as it is.
        """
        return self._operate(subscription_id, "RESUMED", methodcaller("resume"))

    def seek(self, subscription_id: int, since: Since) -> bool:
        """Moves a subscription to another position; from then on it receives what a fresh subscription there would.

        It takes effect between two signals, as ``ChangeSubscription.seek`` does, and calls ``on_seek(position)`` of the
        subscriber if it has that. Demand stays, and a paused subscription stays paused.

        Args:
            subscription_id: Id of the subscription.
            since: A position, as for ``changes``; ``"latest"`` or None for the next version.

        Returns:
            Whether there is such a subscription.

        Raises:
            InvalidOption: If ``since`` names no position.
            PositionError: If it cannot be read from: it is pruned, or beyond the end of the log.
        """
        self._service.check_here()
        start = self._places.find(since)
        while True:
            position = self._resolved(start)
            try:
                return self._operate(
                    subscription_id, "RESET", methodcaller("seek", position), position=str(position)
                )
            except HistoryPruned:
                # Retention may have passed the position that was the oldest just now: then retry.
                if start is not Start.EARLIEST:
                    raise

    def unsubscribe(self, subscription_id: int) -> bool:
        """Cancels a subscription, which receives no further signal.

        Returns:
            Whether there was such a subscription.
        """
        return self._operate(subscription_id, "UNSUBSCRIBED", methodcaller("cancel"))

    def _resolved(self, start: Position | Start) -> Position:
        if isinstance(start, Position):
            return start
        return self._service.oldest if start is Start.EARLIEST else self._service.head

    def _operate(
        self, subscription_id: int, what: str, do: Callable[[Subscribed], bool | None], **more: str
    ) -> bool:
        """Applies an action to a subscription, if there is one, and reports it as an event unless it changed nothing."""
        self._service.check_here()
        found = self._service.registry.find(subscription_id)
        if found is None:
            return False
        if do(found) is not False:
            self._service.publish_event(what, {"subscription": found.id, "subscriber": found.name, **more})
        return True
