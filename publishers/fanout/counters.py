"""Counts the changes delivered to subscribers: in all, by area and by entity type."""

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from publishers.blocks.slices import Slice, Tally
from publishers.fanout.batch import Batch
from publishers.model.change import Area

__all__ = ["DeliveryCounters", "DeliveryStatistics"]

_AREAS: Final = {area.value: area.name for area in Area}


@dataclass(frozen=True, slots=True)
class DeliveryStatistics:
    """Changes delivered to subscribers; a change counts once for each of its subscribers.

    Attributes:
        changes: All changes, TRANSACTION events included.
        areas: Changes by area.
        entity_types: Changes by entity type, for the types that have a counter of their own.
        other_types: Changes of all further entity types.
    """

    changes: int = 0
    areas: Mapping[str, int] = field(default_factory=dict)
    entity_types: Mapping[str, int] = field(default_factory=dict)
    other_types: int = 0


class DeliveryCounters:
    """Counts the changes delivered to the subscribers of one log. Thread-safe.

    A slice is tallied once for all of its receivers, so counting a delivery costs the same however many changes it has.

    Args:
        most: Most entity types with a counter of their own; the first types delivered get them.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._areas = dict.fromkeys(_AREAS, 0)
        self._types: dict[str, int] = {}
        self._others = 0

    def count(self, given: Iterable[Slice | Batch], times: int = 1) -> None:
        """Counts changes that were delivered to ``times`` subscribers."""
        for part in given:
            tally = part.tally
            with self._lock:
                if len(tally) > self._most + len(_AREAS):
                    tally = part.tally = self._fewer(tally)
                for (area, name), count in tally.items():
                    self._areas[area] += count * times
                    if name in self._types:
                        self._types[name] += count * times
                    elif name is not None:
                        self._meet(name, count * times)

    def statistics(self) -> DeliveryStatistics:
        """The counters now."""
        with self._lock:
            areas = {_AREAS[area]: count for area, count in self._areas.items()}
            return DeliveryStatistics(sum(areas.values()), areas, dict(self._types), self._others)

    def _meet(self, name: str, count: int) -> None:
        if name and len(self._types) < self._most:
            self._types[name] = count
        else:
            self._others += count

    def _fewer(self, tally: Tally) -> Tally:
        """The tally with one entry for all types that have no counter of their own.

        The type of that entry is the empty string, which is never the name of a type.
        """
        found: dict[tuple[int, str | None], int] = {}
        for (area, name), count in tally.items():
            if name is not None and name not in self._types:
                if len(self._types) < self._most:
                    self._types[name] = 0
                else:
                    name = ""  # noqa: PLW2901 - the name under which it is counted
            found[area, name] = found.get((area, name), 0) + count
        return found
