"""A predicate as it goes into a matching index, made by whoever brings it and without any lock."""

from typing import Final

from publishers.criteria.criteria import Criteria
from publishers.criteria.matching import Predicate
from publishers.criteria.sites import Place, Slot, asks_of, places_of, rest_of
from publishers.criteria.table import Entry, Site
from publishers.criteria.tables import Placed, Tables

__all__ = ["DIRECT", "Prepared", "prepare"]

DIRECT: Final = 256
"""Places of a predicate up to which it is entered place by place."""


class Prepared:
    """What a predicate comes to in an index; for one entering.

    Attributes:
        criteria: Of the predicate.
        predicate: The predicate.
        entry: What stands for it in the index.
        size: Its places.
        asks: How many questions it has for every change, as no look-up answers them.
        placed: The places, if they are to be entered one by one.
        own: Tables of its own, if they are not.
    """

    __slots__ = ("asks", "criteria", "entry", "own", "placed", "predicate", "size")

    def __init__(
        self, predicate: Predicate, entry: Entry, placed: list[Placed], asks: int, direct: int
    ) -> None:
        self.criteria: Criteria = predicate.criteria
        self.predicate = predicate
        self.entry = entry
        self.size = len(placed)
        self.asks = asks
        alone = self.size > direct
        self.own: Tables | None = Tables.of(placed) if alone else None
        self.placed: tuple[Placed, ...] = () if alone else tuple(placed)

    def entered(self) -> None:
        """Lets go of what only the entering needed. The tables stay, so that they are freed where the last subscription ends."""
        self.placed = ()


def prepare(predicate: Predicate, *, direct: int = DIRECT) -> Prepared:
    """Finds the places of a predicate, in time of its own size.

    Args:
        predicate: What is to be entered.
        direct: Places above which it gets tables of its own.
    """
    entry = Entry(None)
    placed: list[Placed] = []
    loops: set[object] = set()
    count = asks = 0
    for wish in predicate.wishes:
        places = list(places_of(wish))
        site = Site(entry, wish, *rest_of(wish, places))
        asks += asks_of(wish, places)
        entry.sites.append(site)
        for place in places:
            single = place.slot in (Slot.EVERY, Slot.TESTS)
            pattern = place.slot in (Slot.HEADS, Slot.GRAMS, Slot.SCANS)
            slot = "patterns" if pattern else place.slot
            group = None if pattern else place.group
            count += single
            loops.add((wish.kinds, place.entity_type, slot, group))
            placed.append((wish.kinds, _asked(place), site))
    entry.simple = len(loops) == 1 and count < 2
    return Prepared(predicate, entry, placed, asks, direct)


def _asked(place: Place) -> Place:
    """The same place, with its question made."""
    if place.make is None:
        return place
    question = place.make()
    return place._replace(make=lambda: question)
