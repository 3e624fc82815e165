"""The tables of a matching index: wishes by the answers that lead to them."""

from dataclasses import dataclass, field
from typing import Any, Final

from publishers.criteria.conditions import Image
from publishers.criteria.matching import Check, Wish
from publishers.criteria.sites import Place, Slot

__all__ = ["GONE", "Bucket", "Entry", "Site", "Table"]

_MEMO: Final = 4096

GONE: Final = object()
"""The value of an entry that was taken out, while some of its places are still there."""


@dataclass(slots=True, eq=False)
class Entry:
    """A predicate and what it stands for.

    Attributes:
        value: What it stands for.
        sites: Its wishes.
        simple: Whether the changes that lead to it come in order and once.
    """

    value: Any
    sites: "list[Site]" = field(default_factory=list)
    simple: bool = True


@dataclass(slots=True, eq=False)
class Site:
    """One wish of an entry, and what is left to ask of the changes that led to it, in how many questions."""

    entry: Entry
    wish: Wish
    rest: Check | None
    questions: int


Bucket = Site | dict[Site, None]  # most have one, and a dictionary each would weigh more than all else


class Table:
    """The wishes for some kinds of changes of one entity type, or of any."""

    __slots__ = ("every", "grams", "heads", "keys", "kinds", "memo", "names", "questions", "size", "values")

    def __init__(self, kinds: frozenset[int]) -> None:
        self.kinds = kinds
        self.size = 0
        self.every: dict[None, Bucket] = {}
        self.keys: dict[bytes, Bucket] = {}
        self.heads: dict[int, dict[bytes, Bucket]] = {}
        self.grams: dict[int, dict[bytes, Bucket]] = {}
        self.names: dict[str, Bucket] = {}
        self.values: dict[tuple[Image, tuple[str, ...]], dict[object, Bucket]] = {}
        # What has to be asked: of keys, and of changes; with the wishes that wait for the answer.
        self.questions: dict[str, dict[Any, tuple[Any, dict[None, Bucket]]]] = {
            Slot.SCANS: {},
            Slot.TESTS: {},
        }
        self.memo: dict[bytes, tuple[Bucket, ...]] = {}

    def put(self, place: Place, site: Site) -> None:
        """Puts a wish in one place. Whoever is interrupted here may put it there again."""
        self.size += 1
        self.memo = {}
        buckets, key = self._buckets(place)
        held = buckets.get(key)
        if held is None or held is site:
            buckets[key] = site
        elif isinstance(held, dict):
            held[site] = None
        else:
            buckets[key] = {held: None, site: None}

    def drop(self, place: Place, site: Site) -> None:
        """Takes a wish from one place, if it is there."""
        self.memo = {}
        buckets, key = self._buckets(place)
        held = buckets.get(key)
        if isinstance(held, dict) and site in held:
            del held[site]
            self.size -= 1
        elif held is site:
            del buckets[key]
            self.size -= 1
        if held == {}:
            del buckets[key]
        if not buckets:
            self._prune(place)

    def _buckets(self, place: Place) -> tuple[dict[Any, Bucket], Any]:
        slot = place.slot
        if slot in self.questions:
            asked = self.questions[slot]
            if place.key not in asked:
                asked[place.key] = (place.make() if place.make else None, {})
            return asked[place.key][1], None
        buckets = getattr(self, slot)
        return (buckets if place.group is None else buckets.setdefault(place.group, {})), place.key

    def _prune(self, place: Place) -> None:
        if place.slot in self.questions:
            del self.questions[place.slot][place.key]
        elif place.group is not None:
            del getattr(self, place.slot)[place.group]

    @property
    def by_pattern(self) -> bool:
        """Whether keys are asked about in any other way than whole."""
        return bool(self.heads or self.grams or self.questions[Slot.SCANS])

    def patterned(self, key: bytes) -> tuple[Bucket, ...]:
        """The buckets that the patterns which a key may match lead to."""
        found: dict[int, Bucket] = {}
        for size, heads in self.heads.items():
            if (bucket := heads.get(key[:size])) is not None:
                found[id(bucket)] = bucket
        for size, grams in self.grams.items():
            for at in range(len(key) - size + 1):
                if (bucket := grams.get(key[at : at + size])) is not None:
                    found[id(bucket)] = bucket
        for matches, waiting in self.questions[Slot.SCANS].values():
            if matches(key):
                found[id(waiting[None])] = waiting[None]
        if len(self.memo) >= _MEMO:
            self.memo = {}
        buckets = self.memo[key] = tuple(found.values())
        return buckets
