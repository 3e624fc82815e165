"""Who listens to a name: exactly, or by a pattern."""

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
    """Finds the listeners of a name without asking the others.

    A name is to it what a key is to the criteria of a log, and it finds patterns by the same index. What was found is
    remembered until somebody comes or goes. One thread at a time may use it.
    """

    def __init__(self) -> None:
        self._listeners: dict[Criteria, dict[MessageListener, None]] = {}
        self._index: MatchingIndex[dict[MessageListener, None]] = MatchingIndex()
        self._known: dict[str, tuple[MessageListener, ...]] = {}
        self._weight = 0  # of what is remembered

    @property
    def evaluations(self) -> int:
        """How often a wish matched a name, or was asked and did not."""
        return self._index.evaluations

    def add(self, listener: MessageListener) -> None:
        """Somebody comes."""
        alike = self._listeners.get(listener.criteria)
        if alike is None:
            alike = self._listeners[listener.criteria] = {}
            self._index.add(Predicate(listener.criteria), alike)
        alike[listener] = None
        self._forget()

    def remove(self, listener: MessageListener) -> None:
        """Somebody goes; again is harmless."""
        alike = self._listeners.get(listener.criteria, {})
        if alike.pop(listener, self) is self:
            return
        if not alike:
            del self._listeners[listener.criteria]
            self._index.remove(listener.criteria)
        self._forget()

    def find(self, name: str) -> tuple[MessageListener, ...]:
        """Those who listen to a name, each once, in the order in which they came."""
        known = self._known.get(name)
        if known is None:
            known = self._match(name)
            if self._weight > _REMEMBERED:
                self._forget()
            self._known[name] = known
            self._weight += len(known) + 1
        return known

    def listeners(self) -> list[MessageListener]:
        """All of them, in the order in which they came."""
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
