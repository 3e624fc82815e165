"""What the criteria of all subscriptions may weigh: those of a connection, and those of a server."""

import threading
from collections.abc import Hashable

from publishers.criteria.cost import Cost
from publishers.criteria.criteria import Criteria
from publishers.errors import TooCostly

__all__ = ["ConnectionWeight", "ServerWeight"]


class ServerWeight:
    """The weight of what a server is subscribed to. Equal criteria on one log share one publisher, and count once.

    Attributes:
        weight: What it is now.

    Args:
        limit: Option ``criteria_weight``.
    """

    def __init__(self, limit: int) -> None:
        self.weight = 0
        self._limit = limit
        self._lock = threading.Lock()
        self._taken: dict[tuple[str, Criteria], tuple[int, int]] = {}  # subscriptions, and the weight of one

    def take(self, log: str, criteria: Criteria, cost: Cost) -> None:
        """Counts a subscription.

        Raises:
            TooCostly: If there is not so much left.
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
        """Counts a subscription no more."""
        with self._lock:
            count, weight = self._taken[log, criteria]
            if count > 1:
                self._taken[log, criteria] = count - 1, weight
            else:
                del self._taken[log, criteria]
                self.weight -= weight


class ConnectionWeight:
    """The weight of what one connection is subscribed to, on its event loop.

    Attributes:
        weight: What it is now.

    Args:
        limit: Option ``connection_weight``.
        server: That of the whole server.
    """

    def __init__(self, limit: int, server: ServerWeight) -> None:
        self.weight = 0
        self._limit = limit
        self._server = server
        self._taken: dict[Hashable, tuple[str, Criteria, int]] = {}

    def take(self, entry: Hashable, log: str, criteria: Criteria, cost: Cost) -> None:
        """Counts a subscription, once for an entry.

        Raises:
            TooCostly: If there is not so much left here, or in the whole server.
        """
        left = self._limit - self.weight
        if cost.weight > left:
            raise TooCostly("connection_weight", cost.weight, self._limit, cost.cheaper, left=left)
        self._server.take(log, criteria, cost)
        self._taken[entry] = log, criteria, cost.weight
        self.weight += cost.weight

    def give(self, entry: Hashable) -> None:
        """Counts the subscription of an entry no more, if it was counted."""
        taken = self._taken.pop(entry, None)
        if taken is not None:
            log, criteria, weight = taken
            self.weight -= weight
            self._server.give(log, criteria)
