"""Finds the subscriptions of a name: by exact name or by pattern."""

from typing import Final

from publishers.blocks.block import Block
from publishers.channels.listener import MessageListener
from publishers.criteria.criteria import Criteria
from publishers.criteria.index import MatchingIndex
from publishers.criteria.predicate import Predicate
from publishers.mutations.mutation import columns_of, remove

__all__ = ["Lookup"]

_REMEMBERED: Final = 65_536


class Lookup:
    """Finds the subscriptions of a name without evaluating the rest.

    A name is treated like a key of a log, so patterns are found by the same index. Results are cached until a subscription is added
    or removed. One thread at a time may use it.
    """

    def __init__(self) -> None:
        self._listeners: dict[Criteria, dict[MessageListener, None]] = {}
        self._index: MatchingIndex[dict[MessageListener, None]] = MatchingIndex()
        self._known: dict[str, tuple[MessageListener, ...]] = {}
        self._weight = 0  # of the cached results

    @property
    def evaluations(self) -> int:
        """How often a criterion matched a name, or was evaluated on one without a match."""
        return self._index.evaluations

    def add(self, listener: MessageListener) -> None:
        """Adds a subscription."""
        alike = self._listeners.get(listener.criteria)
        if alike is None:
            alike = self._listeners[listener.criteria] = {}
            self._index.add(Predicate(listener.criteria), alike)
        alike[listener] = None
        self._forget()

    def remove(self, listener: MessageListener) -> None:
        """Removes a subscription. Idempotent."""
        alike = self._listeners.get(listener.criteria, {})
        if alike.pop(listener, self) is self:
            return
        if not alike:
            del self._listeners[listener.criteria]
            self._index.remove(listener.criteria)
        self._forget()

    def find(self, name: str) -> tuple[MessageListener, ...]:
        """Returns the subscriptions of a name, each once, in the order in which they were added."""
        known = self._known.get(name)
        if known is None:
            known = self._match(name)
            if self._weight > _REMEMBERED:
                self._forget()
            self._known[name] = known
            self._weight += len(known) + 1
        return known

    def listeners(self) -> list[MessageListener]:
        """Returns all subscriptions, in the order in which they were added."""
        found = [listener for alike in self._listeners.values() for listener in alike]
        return sorted(found, key=lambda listener: listener.id)

    def _match(self, name: str) -> tuple[MessageListener, ...]:
        block = Block(
            columns_of([remove("channel", name)]),
            version=0,
            first_index=1,
            leads=False,
            ends=True,
            transaction_count=2,
            transaction_bytes=0,
            committed_at=0,
        )
        found = [listener for alike, _ in self._index.match(block) for listener in alike]
        return tuple(sorted(found, key=lambda listener: listener.id))

    def _forget(self) -> None:
        self._known = {}
        self._weight = 0
