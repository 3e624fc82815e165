"""The weight of the criteria of all subscriptions: of a connection, and of a server."""

import threading
from collections.abc import Hashable

from publishers.criteria.cost import Cost
from publishers.criteria.criteria import Criteria
from publishers.errors import TooCostly

__all__ = ["ConnectionWeight", "ServerWeight"]


class ServerWeight:
    """The weight of the subscriptions of a server. Equal criteria on one log share one publisher, and count once.

    Attributes:
        weight: The current weight.

    Args:
        limit: Option ``criteria_weight``.
    """

    def __init__(self, limit: int) -> None:
        self.weight: int = 0
        self._limit = limit
        self._lock = threading.Lock()
        # Number of subscriptions, and the weight of the criteria.
        self._taken: dict[tuple[str, Criteria], tuple[int, int]] = {}

    def take(self, log: str, criteria: Criteria, cost: Cost) -> None:
        """Counts a subscription.

        Raises:
            TooCostly: If its weight exceeds the rest.
        """
        with self._lock:
            count, weight = self._taken.get((log, criteria), (0, cost.weight))
            if not count:
                left = self._limit - self.weight
                if weight > left:
                    raise TooCostly("criteria_weight", weight, self._limit, cost.cheaper, left=left)
                self.weight += weight
            self._taken[log, criteria] = count + 1, weight

    def give(self, log: str, criteria: Criteria) -> None:
        """Discounts a subscription."""
        with self._lock:
            count, weight = self._taken[log, criteria]
            if count > 1:
                self._taken[log, criteria] = count - 1, weight
            else:
                del self._taken[log, criteria]
                self.weight -= weight


class ConnectionWeight:
    """The weight of the subscriptions of one connection, on its event loop.

    Attributes:
        weight: The current weight.

    Args:
        limit: Option ``connection_weight``.
        server: The weight of the whole server.
    """

    def __init__(self, limit: int, server: ServerWeight) -> None:
        self.weight: int = 0
        self._limit = limit
        self._server = server
        self._taken: dict[Hashable, tuple[str, Criteria, int]] = {}

    def take(self, entry: Hashable, log: str, criteria: Criteria, cost: Cost) -> None:
        """Counts the subscription of an entry.

        Raises:
            TooCostly: If its weight exceeds the rest of the connection, or of the server.
        """
        left = self._limit - self.weight
        if cost.weight > left:
            raise TooCostly("connection_weight", cost.weight, self._limit, cost.cheaper, left=left)
        self._server.take(log, criteria, cost)
        self._taken[entry] = log, criteria, cost.weight
        self.weight += cost.weight

    def give(self, entry: Hashable) -> None:
        """Discounts the subscription of an entry, if it was counted."""
        taken = self._taken.pop(entry, None)
        if taken is not None:
            log, criteria, weight = taken
            self.weight -= weight
            self._server.give(log, criteria)
